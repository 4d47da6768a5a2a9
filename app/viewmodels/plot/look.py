"""How one plot shows its curves: on which value axis, and smoothed over which window."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from app import units
from app.analysis.align import running_mean
from app.records import Floats
from app.viewmodels.charts.model import round_step
from app.viewmodels.plot.model import CurveSource, Envelope, Span

ValueMode = Literal["zero", "data", "log"]
"""What an automatic value axis shows: from zero to the highest value, the values in view, or these as logarithms."""

_FINER = 16
"""How many times as fine as for drawing a curve is read to be smoothed."""
_SMOOTHING_SHARES = (0.01, 0.03, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the user has chosen for one plot.

    Attributes:
        mode: What the value axis shows while nobody sets it by hand.
        values: Its range as set by hand, in the unit of the plot; None is automatic.
        smoothing: The window of the running mean, in seconds or what else the axis counts; 0 is none.
    """

    mode: ValueMode = "zero"
    values: Span | None = None
    smoothing: float = 0.0

    def drawn(self, source: CurveSource) -> CurveSource:
        """Return the curve as it is drawn on this axis, not smoothed."""
        return Logarithm(source) if self.mode == "log" else source

    def smoothed(self, source: CurveSource) -> CurveSource | None:
        """Return the smoothed curve as it is drawn; None where nothing is smoothed."""
        return self.drawn(RunningMean(source, self.smoothing)) if self.smoothing else None

    def describe(self, *, counts: bool) -> str:
        """Return what the plot must say of itself beside its unit: `logarithmic · running mean of 2 s`."""
        parts = ["logarithmic"] if self.mode == "log" else []
        parts += [f"running mean of {format_window(self.smoothing, counts=counts)}"] if self.smoothing else []
        return " · ".join(parts)


def smoothing_windows(length: float) -> tuple[float, ...]:
    """Return windows to offer for an axis of this length: round ones of about 1, 3 and 10 % of it."""
    return tuple(dict.fromkeys(round_step(length * share) for share in _SMOOTHING_SHARES))


def format_window(window: float, *, counts: bool) -> str:
    """Return a window in the unit of its axis, `0.5 s`, or what the axis counts."""
    return f"{window:,g}" if counts else units.exactly(window, "s")


@dataclass(frozen=True, slots=True)
class RunningMean:
    """The mean of all points within half a window on both sides of each; gaps stay. At the ends the window is shorter.

    Of older parts of a long curve, of which only ranges are kept, it takes the middles.
    """

    source: CurveSource
    width: float

    @property
    def newest_s(self) -> float:
        """Time of the newest point; minus infinity without one."""
        return self.source.newest_s

    def window(self, start: float, end: float, columns: int) -> Envelope:
        """Return the means between two times, of points beyond these too."""
        half = self.width / 2
        x, low, high = self.source.window(start - half, end + half, _FINER * columns)
        mean = running_mean(x, low if low is high else (low + high) / 2, self.width)
        return x, mean, mean

    def points(self) -> tuple[Floats, Floats]:
        """Return the mean at all points that are stored singly."""
        x, y = self.source.points()
        return x, running_mean(x, y, self.width)

    def range_at(self, x: float) -> tuple[float, float] | None:
        """Return the value that was measured."""
        return self.source.range_at(x)


@dataclass(frozen=True, slots=True)
class Logarithm:
    """The decimal logarithm of a curve; what is not above 0 is a gap."""

    source: CurveSource

    @property
    def newest_s(self) -> float:
        """Time of the newest point; minus infinity without one."""
        return self.source.newest_s

    def window(self, start: float, end: float, columns: int) -> Envelope:
        """Return the logarithms between two times."""
        x, low, high = self.source.window(start, end, columns)
        logarithm = _log10(low)
        return x, logarithm, logarithm if high is low else _log10(high)

    def points(self) -> tuple[Floats, Floats]:
        """Return the logarithms of all points that are stored singly."""
        x, y = self.source.points()
        return x, _log10(y)

    def range_at(self, x: float) -> tuple[float, float] | None:
        """Return the value that was measured, no logarithm."""
        return self.source.range_at(x)


def _log10(values: Floats) -> Floats:
    return np.log10(np.where(values > 0, values, np.nan))
