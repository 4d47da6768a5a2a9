"""Paint and time frames: `python -m benchmarks.frames`, in a fresh process; prints milliseconds by case as JSON."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication, QLabel, QVBoxLayout, QWidget

from app.gui.plot.curves import PanelCurve
from app.gui.plot.time_panel import TimePanel
from app.gui.theme import GRID, Theme
from app.values.records import Floats
from app.viewmodels.plot.model import LiveSeries, ShiftedCurve
from benchmarks.window import LONG, SHORT

_PERIOD_S = 0.05
_WARM_UP, _FRAMES, _ROUNDS = 5, 20, 4
_PANELS = (
    ("Power", "W", "power_mw"),
    ("Load", "%", "load_pct"),
    ("Memory", "GiB", "memory_bytes"),
    ("Temperature", "°C", "temperature_c"),
    ("SM clock", "MHz", "sm_clock_mhz"),
    ("CPU load", "%", ""),
)
_SCALES = {"power_mw": 1e3, "memory_bytes": 2.0**30}

Pair = tuple[Floats, Floats]


def recorded(count: int) -> list[Pair]:
    """Return the recorded trace, two curves per panel, each repeated to `count` points."""
    with np.load(Path(__file__).with_name("h200_samples.npz")) as trace:
        names = [(f"gpu0_{field}", f"gpu1_{field}") for _, _, field in _PANELS if field]
        scales = [_SCALES.get(field, 1.0) for _, _, field in _PANELS]
        pairs = [*names, ("host_load_pct", "host_worker_load_pct")]
        return [
            (np.resize(trace[a] / scale, count), np.resize(trace[b] / scale, count))
            for (a, b), scale in zip(pairs, scales, strict=True)
        ]


def noise(count: int) -> list[Pair]:
    """Return white noise, the worst case: every line is as tall as its plot."""
    random = np.random.default_rng(0)
    return [(random.uniform(0, 100, count), random.uniform(0, 100, count)) for _ in _PANELS]


class ProgramPanels(QWidget):
    """Six of the program's panels; each frame adds a point to every curve and scrolls to it."""

    def __init__(self, curves: Sequence[Pair], theme: Theme) -> None:
        super().__init__()
        theme.apply_style_sheet(self)
        self._curves = curves
        self._count = len(curves[0][0])
        self._span_s = self._count * _PERIOD_S
        self._series = [(LiveSeries(), LiveSeries()) for _ in curves]
        self.panels = [TimePanel(title, unit, theme) for title, unit, _ in _PANELS]
        layout = QVBoxLayout(self)
        for panel in self.panels:
            layout.addWidget(panel, 1)
            panel.axis.show_labels(panel is self.panels[-1])
            panel.set_x_range(-self._span_s, 0.0)
        for pair, ys in zip(self._series, curves, strict=True):
            for series, y in zip(pair, ys, strict=True):
                series.extend(_PERIOD_S * np.arange(self._count, dtype=np.float64), y)

    def frame(self, number: int) -> None:
        """Add one sample to every curve."""
        now = self._span_s + number * _PERIOD_S
        for panel, pair, ys in zip(self.panels, self._series, self._curves, strict=True):
            for index, (series, y) in enumerate(zip(pair, ys, strict=True)):
                series.append(now, y[number % self._count])
                panel.give(f"{index}", PanelCurve(index, f"GPU {index}", ShiftedCurve(series, now), mark=f"{index}"))
                panel.legend.set_value(f"{index}", f"{y[number % self._count]:.0f}")
            panel.refresh()


class PlainPlots(QWidget):
    """Six plain plots with automatic ranges, fed by `setData`."""

    def __init__(self, curves: Sequence[Pair], theme: Theme) -> None:
        super().__init__()
        theme.apply_style_sheet(self)
        self._curves = curves
        layout = QVBoxLayout(self)
        self._items: list[list[pg.PlotDataItem]] = []
        for title, _, _ in _PANELS:
            plot = pg.PlotWidget(background=theme.colours.surface)
            column = QVBoxLayout()
            column.setSpacing(GRID // 2)
            column.addWidget(QLabel(title))
            column.addWidget(plot, 1)
            layout.addLayout(column, 1)
            self._items.append([plot.plot(pen=pg.mkPen(theme.curve_colour(index))) for index in range(2)])

    def frame(self, number: int) -> None:
        """Shift the curves by one sample."""
        for items, ys in zip(self._items, self._curves, strict=True):
            for item, y in zip(items, ys, strict=True):
                item.setData(_PERIOD_S * (number + np.arange(len(y))), np.roll(y, -number))


def frame_times(
    windows: Mapping[str, ProgramPanels | PlainPlots], *, frames: int = _FRAMES, rounds: int = _ROUNDS
) -> dict[str, list[float]]:
    """Return the milliseconds of every frame, the windows in turn, painted where they changed.

    Args:
        windows: The windows by name of the case.
        frames: Timed frames per round.
        rounds: How often each window has its turn.
    """
    for window in windows.values():
        window.resize(1400, 900)
        window.show()
    times: dict[str, list[float]] = {name: [] for name in windows}
    number = dict.fromkeys(windows, 0)
    for _ in range(rounds):
        for name, window in windows.items():
            painted = [_timed(window, number[name] + n) for n in range(_WARM_UP + frames)]
            number[name] += len(painted)
            times[name] += painted[_WARM_UP:]
    for window in windows.values():
        window.close()
    return times


def _timed(window: ProgramPanels | PlainPlots, number: int) -> float:
    """Time one frame in ms, until all is painted that it changed; what the scenes have queued is processed first."""
    started = time.perf_counter()
    window.frame(number)
    QApplication.sendPostedEvents(None, QEvent.Type.MetaCall)
    QApplication.processEvents()
    return (time.perf_counter() - started) * 1e3


def main() -> None:
    """Measure every case; those that are compared run in turn."""
    application = QApplication(sys.argv[:1])
    theme = Theme(application)
    theme.start()
    times: dict[str, list[float]] = {}
    for name, curves in (("trace", recorded(SHORT)), ("noise", noise(SHORT))):
        times |= frame_times({name: ProgramPanels(curves, theme), f"plain {name}": PlainPlots(curves, theme)})
    times |= frame_times({"short": ProgramPanels(recorded(SHORT), theme), "long": ProgramPanels(recorded(LONG), theme)})
    print(json.dumps(times))


if __name__ == "__main__":
    main()
