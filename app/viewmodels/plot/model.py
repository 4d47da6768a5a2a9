"""The plot model: curves that grow or are fixed, axis range, phase bands and markers of a plot over time."""

import math
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from app.analysis.pyramid import LEVELS, Pyramid
from app.records import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveInfo:
    """What a curve is called; `colour` is a GPU's or a run's index."""

    key: str
    label: str
    colour: int


Span = tuple[float, float]
"""A stretch of an axis, from and to."""

L = TypeVar("L", bound=CurveInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot(Generic[L]):
    """One plot; without `y_range` y follows the data."""

    key: str
    title: str
    unit: str
    curves: tuple[L, ...]
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time with its name, in seconds on the axis; `strong` shades it in the accent (the measured part)."""

    name: str
    start: float
    end: float
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Marker:
    """Something that happened at one time on the axis, in a few words."""

    name: str
    time: float


def zoomed(shown: Span, factor: float, at: float, whole: Span) -> Span:
    """`factor` times as much of the axis with `at` in its place, never more than `whole`."""
    factor = max(factor, (whole[1] - whole[0]) / 1e5 / (shown[1] - shown[0]))
    start, end = at + (shown[0] - at) * factor, at + (shown[1] - at) * factor
    return max(start, whole[0]), min(end, whole[1])


def panned(shown: Span, by: float, whole: Span) -> Span:
    """As much of the axis further along, as far as `whole` reaches."""
    by = min(max(by, whole[0] - shown[0]), whole[1] - shown[1])
    return shown[0] + by, shown[1] + by


_GAP_PERIODS = 3.0
"""A device silent for longer than this many of its own periods has a gap."""
_PERIOD_WEIGHT = 0.125
SHORT_HISTORY_LEVELS = 4
"""Levels of a series that only shows its last minutes: seven of them as samples at 20 Hz, more than an hour coarser."""


Envelope = tuple[Floats, Floats, Floats]
"""Times, and the smallest and largest value of each; NaN for gaps."""


class CurveSource(Protocol):
    """What a plot draws."""

    def window(self, start: float, end: float, columns: int) -> Envelope:
        """The curve between two times, no finer than so many pixel columns need, and one row beyond each end."""

    def points(self) -> tuple[Floats, Floats]:
        """All points held whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """A whole curve as arrays: `x` in order, NaN in `y` for gaps."""

    x: Floats
    y: Floats

    def window(self, start: float, end: float, _columns: int) -> Envelope:
        """All points between two times, and one beyond each end."""
        first = max(0, int(np.searchsorted(self.x, start)) - 1)
        last = int(np.searchsorted(self.x, end, side="right")) + 1
        y = self.y[first:last]
        return self.x[first:last], y, y

    def points(self) -> tuple[Floats, Floats]:
        """All points."""
        return self.x, self.y


@dataclass(frozen=True, slots=True)
class ShiftedCurve:
    """A curve drawn on an axis whose zero is at `origin_s`, its values divided by `scale`."""

    source: CurveSource
    origin_s: float
    scale: float = 1.0

    def window(self, start: float, end: float, columns: int) -> Envelope:
        """The curve between two times of that axis."""
        x, low, high = self.source.window(start + self.origin_s, end + self.origin_s, columns)
        scaled = low / self.scale
        return x - self.origin_s, scaled, scaled if high is low else high / self.scale

    def points(self) -> tuple[Floats, Floats]:
        """All points held whole."""
        x, y = self.source.points()
        return x - self.origin_s, y / self.scale


class LiveSeries:
    """A growing curve in bounded memory; times in seconds. Silence longer than three sample periods is a gap.

    `steady` is false for what has no sample period, such as the blocks of a run. The period is followed as it changes.
    """

    def __init__(self, levels: int = LEVELS, *, periodic: bool = True) -> None:
        self._pyramid = Pyramid(levels)
        self._periodic = periodic
        self._period_s = math.nan
        self._first_s = math.inf
        self._newest: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self._pyramid)

    @property
    def version(self) -> int:
        """Another number whenever the curve has changed."""
        return self._pyramid.version

    @property
    def x(self) -> Floats:
        """Times of the newest points, those still held whole."""
        return self._pyramid.x

    @property
    def y(self) -> Floats:
        """Values of the newest points, NaN where there is none."""
        return self._pyramid.y

    @property
    def memory_bytes(self) -> int:
        """What the curve takes."""
        return self._pyramid.memory_bytes

    @property
    def newest_s(self) -> float:
        """Time of the newest point; minus infinity without one."""
        return self._newest[0] if self._newest else -math.inf

    @property
    def last(self) -> float | None:
        """The newest value; None where there is none or it is a gap."""
        return None if self._newest is None or math.isnan(self._newest[1]) else self._newest[1]

    def append(self, x: float, y: float | None) -> None:
        """Add one point, None for a gap; one that comes late is dropped."""
        since = x - self.newest_s
        if since <= 0:
            return
        if self._periodic and since > _GAP_PERIODS * self._period_s:
            self._pyramid.append(self.newest_s + self._period_s, math.nan)
        self._update_period(since)
        self._first_s = min(self._first_s, x)
        value = math.nan if y is None else float(y)
        self._pyramid.append(x, value)
        self._newest = x, value

    def extend(self, x: Floats, y: Floats) -> None:
        """Add many points at once, NaN for gaps."""
        self._first_s = min(self._first_s, float(x[0]))
        self._pyramid.extend(x, y)
        self._newest = float(self.x[-1]), float(self.y[-1])

    def window(self, start: float, end: float, columns: int) -> Envelope:
        """The curve between two times, no finer than so many pixel columns need."""
        return self._pyramid.window(start, end, columns)

    def points(self) -> tuple[Floats, Floats]:
        """The newest points, those still held whole."""
        return self.x, self.y

    def range_at(self, x: float) -> tuple[float, float] | None:
        """Smallest and largest value at a time, as fine as it is still known; None where there is none."""
        if self._periodic:
            return self._pyramid.nearest(x, _GAP_PERIODS * self._period_s)
        return self._pyramid.nearest(x, math.inf) if self._first_s <= x <= self.newest_s else None

    def _update_period(self, since: float) -> None:
        """A running mean of the times between points; a silence counts as three periods at most."""
        if math.isinf(since):
            return
        if math.isnan(self._period_s):
            self._period_s = since
        self._period_s += (min(since, _GAP_PERIODS * self._period_s) - self._period_s) * _PERIOD_WEIGHT
