"""A plot over time as this program draws it: one-pixel curves, phases shaded, only what changed drawn again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.gui.bands import Band, Bands
from app.gui.legend import Legend
from app.gui.theme import GRID, Theme
from app.records import Floats
from app.viewmodels.series import envelope
from app.viewmodels.units import duration

_AXIS_WIDTH = 56
_HEADROOM = 0.15
"""Room above the highest value, for the names of the bands."""
_NOTHING: Floats = np.empty(0)


@dataclass(slots=True)
class _Curve:
    item: pg.PlotDataItem
    colour: int
    x: Floats
    y: Floats
    dirty: bool = True


class TimeAxis(pg.AxisItem):  # type: ignore[misc]  # pyqtgraph has no types
    """A bottom axis in minutes and seconds, `0:30`; negative times carry a minus sign."""

    def tickStrings(self, values: Sequence[float], _scale: float, spacing: float) -> list[str]:
        """The labels; whole seconds as a clock, finer steps as seconds."""
        if spacing < 1:
            return [f"{value:.{max(1, math.ceil(-math.log10(spacing)))}f} s" for value in values]
        return [("−" if value < 0 else "") + duration(abs(value)) for value in values]


class ValueAxis(pg.AxisItem):  # type: ignore[misc]  # pyqtgraph has no types
    """A left axis with thousands apart, `80,000`, and at most a handful of labels."""

    def tickStrings(self, values: Sequence[float], _scale: float, spacing: float) -> list[str]:
        """The labels, with as many decimals as their spacing needs."""
        decimals = max(0, -math.floor(math.log10(spacing))) if spacing > 0 else 0
        return [f"{value:,.{min(decimals, 9)}f}" for value in values]


class TimePanel(QWidget):
    """A titled plot over time whose curves are keyed by an id (a device, a run).

    Data arrive with `set_curve`, words with `set_value`; nothing is drawn before `refresh`, and then only curves that
    changed. Ranges are fixed by `set_x_range` and `set_y_range`; without the latter, y grows with the data, from 0.
    """

    def __init__(self, title: str, unit: str, theme: Theme, *, time_axis: bool = True) -> None:
        super().__init__()
        self._theme = theme
        self._title = title
        self._curves: dict[str, _Curve] = {}
        self._fixed_y: tuple[float, float] | None = None
        self._from_zero = True
        self._top = 0.0
        self._bottom = 0.0
        self._x = (0.0, 60.0)
        self._title_label = QLabel(title)
        self._title_label.setProperty("role", "heading")
        self._unit_label = QLabel(unit)
        self._unit_label.setProperty("role", "caption")
        self._legend = Legend(theme)
        axes = {"left": ValueAxis("left"), **({"bottom": TimeAxis("bottom")} if time_axis else {})}
        self._plot = pg.PlotWidget(axisItems=axes, background=None, enableMenu=False)
        self._bands = Bands(theme, self._plot.getViewBox())
        self._build()
        theme.changed.connect(self._restyle)
        self._restyle()

    @property
    def plot(self) -> pg.PlotWidget:
        """The pyqtgraph widget itself, for cursors and links."""
        return self._plot

    def curve_keys(self) -> tuple[str, ...]:
        """The ids of the curves, in the order they came."""
        return tuple(self._curves)

    def points(self, key: str) -> tuple[Floats, Floats]:
        """The data last given for a curve, whole."""
        return self._curves[key].x, self._curves[key].y

    def set_title(self, title: str, unit: str) -> None:
        """Another name and unit, for instance images/s instead of sequences/s."""
        self._title_label.setText(title)
        self._unit_label.setText(unit)
        self._plot.setAccessibleName(f"{title} over time, {unit}")

    def set_curve(self, key: str, x: Floats, y: Floats, *, colour: int, label: str) -> None:
        """The data of one curve; NaN in `y` is a gap. `colour` is a GPU's or run's index, `label` its legend."""
        curve = self._curves.get(key)
        if curve is None:
            item = pg.PlotDataItem(connect="finite", antialias=True)
            self._plot.addItem(item)
            curve = self._curves[key] = _Curve(item, colour, x, y)
            item.setPen(self._theme.curve_pen(colour))
        curve.x, curve.y, curve.dirty = x, y, True
        self._legend.set_entry(key, label, colour)

    def set_value(self, key: str, text: str) -> None:
        """The number beside a curve's word in the legend, for instance its newest value with its unit."""
        self._legend.set_value(key, text)

    def remove_curve(self, key: str) -> None:
        """Forget one curve."""
        curve = self._curves.pop(key)
        self._plot.removeItem(curve.item)
        self._legend.remove(key)

    def clear(self) -> None:
        """Forget all curves and shades."""
        for key in list(self._curves):
            self.remove_curve(key)
        self._bands.set_bands(())
        self._top = self._bottom = 0.0

    def set_shades(self, bands: Sequence[Band]) -> None:
        """Shade and name stretches of time, such as a run's phases."""
        self._bands.set_bands(bands)

    def set_x_range(self, start: float, end: float) -> None:
        """The stretch of time shown."""
        if (start, end) == self._x:
            return
        self._x = (start, end)
        self._plot.setXRange(start, end, padding=0)
        for curve in self._curves.values():
            curve.dirty = True

    def set_y_range(self, low: float, high: float) -> None:
        """Fix y, for instance from 0 to a power limit."""
        if (low, high) != self._fixed_y:
            self._fixed_y = (low, high)
            self._scale(low, high)

    def set_auto_y(self, *, from_zero: bool = True) -> None:
        """Let y grow with the data; never shrink, so that nothing jumps."""
        self._fixed_y = None
        self._from_zero = from_zero
        self._top = self._bottom = 0.0

    def show_time_axis(self, shown: bool) -> None:
        """Whether the times stand under the plot; of stacked panels only the lowest needs them."""
        self._plot.getAxis("bottom").setStyle(showValues=shown)
        self._plot.getAxis("bottom").setHeight(None if shown else 4)

    def refresh(self) -> None:
        """Draw the curves that changed since the last time, reduced to what the pixels can show."""
        columns = max(64, int(self._plot.getViewBox().width()))
        for curve in self._curves.values():
            if curve.dirty:
                x, y = envelope(curve.x, curve.y, *self._x, columns)
                shown = bool(np.isfinite(y).any())
                curve.item.setData(x if shown else _NOTHING, y if shown else _NOTHING)
                curve.dirty = False
                if self._fixed_y is None:
                    self._grow_y(curve.y)

    def resizeEvent(self, event: object) -> None:
        """More pixels show more."""
        super().resizeEvent(event)  # type: ignore[arg-type]
        for curve in self._curves.values():
            curve.dirty = True
        self.refresh()

    def _grow_y(self, y: Floats) -> None:
        finite = y[y == y]
        if not len(finite):
            return
        high, low = float(finite.max()), 0.0 if self._from_zero else float(finite.min())
        first = self._top == self._bottom
        if not first and high <= self._top and low >= self._bottom:
            return
        self._top = _nice(high if first else max(high, self._top))
        self._bottom = low if first else min(low, self._bottom)
        self._scale(self._bottom, self._top)

    def _scale(self, low: float, high: float) -> None:
        """Numbers stand at the axis from the first range on: an empty plot has none."""
        self._plot.getAxis("left").setStyle(showValues=True)
        self._plot.setYRange(low, high + _HEADROOM * (high - low), padding=0)

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(GRID)
        for widget in (self._title_label, self._unit_label):
            head.addWidget(widget)
        head.addWidget(self._legend, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(GRID // 2)
        layout.addLayout(head)
        layout.addWidget(self._plot, 1)
        self._plot.getPlotItem().layout.setContentsMargins(0, GRID, GRID, 0)
        self._plot.setMouseEnabled(x=False, y=False)
        self._plot.hideButtons()
        self._plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._plot.setAccessibleName(f"{self._title} over time, {self._unit_label.text()}")
        self._plot.addItem(self._bands, ignoreBounds=True)
        self._plot.getAxis("left").setWidth(_AXIS_WIDTH)
        self._plot.getAxis("left").enableAutoSIPrefix(False)
        self._plot.getAxis("left").setStyle(showValues=False)
        self._plot.getViewBox().disableAutoRange()
        self._plot.setXRange(*self._x, padding=0)
        self._plot.setMinimumHeight(9 * GRID)

    def _restyle(self) -> None:
        colours = self._theme.colours
        self._plot.setBackground(QColor(colours.surface))
        for side in ("left", "bottom"):
            axis = self._plot.getAxis(side)
            axis.setPen(pg.mkPen(colours.line))
            axis.setTextPen(pg.mkPen(colours.muted))
            axis.setStyle(tickLength=0, tickTextOffset=6, maxTickLevel=0, tickAlpha=0)
        for curve in self._curves.values():
            curve.item.setPen(self._theme.curve_pen(curve.colour))


def _nice(value: float) -> float:
    """The next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten, so an axis ends on a round number."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if m * power >= value * 1.02), 10 * power)
