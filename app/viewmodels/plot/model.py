"""The plot model: curves that grow or are fixed, panels, bands and markers, the same for every plot over time."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from app.analysis.align import decimate, running_mean
from app.analysis.pyramid import BASE_S, KEEP_ROWS, LEVELS, Pyramid
from app.values import units
from app.values.records import Floats
from app.viewmodels.charts import model
from app.viewmodels.charts.model import Axis, round_step
from app.viewmodels.format.telemetry_fields import ThrottleInterval

Span = tuple[float, float]
"""A range of an axis, from and to."""


@dataclass(frozen=True, slots=True)
class Band:
    """A named range of time, in seconds on the axis; `strong` shades it in the accent colour (the measured part)."""

    name: str
    start: float
    end: float
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Marker:
    """An event at one time on the axis, in a few words."""

    name: str
    time: float


@dataclass(frozen=True, slots=True)
class Strip:
    """A range of time marked at the bottom of a plot in a curve's colour; `line` 0 is the lowest."""

    start: float
    end: float
    colour: int
    line: int
    name: str = "throttled"


def limited(span: Span, extent: Span) -> Span:
    """Return a range moved into `extent`, no longer than it and no shorter than a hundred-thousandth of it."""
    longest = extent[1] - extent[0]
    length = min(max(span[1] - span[0], longest / 1e5), longest)
    start = min(max((span[0] + span[1] - length) / 2, extent[0]), extent[1] - length)
    return start, start + length


_GAP_PERIODS = 3.0
"""A device silent for longer than this many of its own periods has a gap."""
_PERIOD_WEIGHT = 0.125
SHORT_HISTORY_LEVELS = 4
"""Levels of a series for the last minutes: seven as samples at 20 Hz, more than an hour coarser."""


Envelope = tuple[Floats, Floats, Floats]
"""Times, and the smallest and largest value of each; NaN for gaps."""


class CurveSource(Protocol):
    """The points of a curve, growing or fixed."""

    @property
    def newest_s(self) -> float:
        """Return the newest point's time; minus infinity without one."""

    def window(self, start: float, end: float, columns: int) -> Envelope:
        """Return the curve between two times, and one row beyond each end.

        No finer resolution is needed than for that many pixel columns.
        """

    def points(self) -> tuple[Floats, Floats]:
        """Return all points that are stored individually."""

    def range_at(self, x: float) -> tuple[float, float] | None:
        """Return the smallest and largest value at a time, as fine as stored; None without one."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """A fixed curve as arrays: `x` in order, NaN in `y` for gaps."""

    x: Floats
    y: Floats

    @property
    def newest_s(self) -> float:
        return float(self.x[-1]) if len(self.x) else -math.inf

    def window(self, start: float, end: float, _columns: int) -> Envelope:
        first = max(0, int(np.searchsorted(self.x, start)) - 1)
        last = int(np.searchsorted(self.x, end, side="right")) + 1
        y = self.y[first:last]
        return self.x[first:last], y, y

    def points(self) -> tuple[Floats, Floats]:
        return self.x, self.y

    def range_at(self, x: float) -> tuple[float, float] | None:
        """Return the value at the last point before `x`, twice; None before the first, after the last, or in a gap."""
        before = int(np.searchsorted(self.x, x, side="right")) - 1
        if before < 0 or x > self.x[-1] or np.isnan(self.y[before]):
            return None
        return float(self.y[before]), float(self.y[before])


@dataclass(frozen=True, slots=True)
class ShiftedCurve:
    """A curve drawn on an axis whose zero is at `origin_s`, its values divided by `scale`."""

    source: CurveSource
    origin_s: float
    scale: float = 1.0

    @property
    def newest_s(self) -> float:
        return self.source.newest_s - self.origin_s

    def window(self, start: float, end: float, columns: int) -> Envelope:
        x, low, high = self.source.window(start + self.origin_s, end + self.origin_s, columns)
        scaled = low / self.scale
        return x - self.origin_s, scaled, scaled if high is low else high / self.scale

    def points(self) -> tuple[Floats, Floats]:
        x, y = self.source.points()
        return x - self.origin_s, y / self.scale

    def range_at(self, x: float) -> tuple[float, float] | None:
        ends = self.source.range_at(x + self.origin_s)
        return None if ends is None else (ends[0] / self.scale, ends[1] / self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One curve of a panel.

    Attributes:
        key: A device, a run, or another name unique within the panel.
        label: Its name in the legend.
        colour: The index of a GPU or a run, for colour and dash.
        source: Its points, in the unit in which they are stored.
        scale: The divisor that turns stored values into the panel's unit.
        format_value: The text of a stored value; None writes the number in the panel's unit.
        value_text: The text beside the label while no crosshair is shown.
        mark: A letter or two that distinguish the curve without its colour; "" for none.
        spread: The lowest and highest of the curves averaged here; shaded behind it.
    """

    key: str
    label: str
    colour: int
    source: CurveSource
    scale: float = 1.0
    format_value: Callable[[float | None], str] | None = None
    value_text: str = ""
    mark: str = ""
    spread: tuple[CurveSource, CurveSource] | None = None

    @property
    def x(self) -> Floats:
        return self.source.points()[0]

    @property
    def y(self) -> Floats:
        """Return the values of the points stored individually, in the panel's unit."""
        return np.asarray(self.source.points()[1] / self.scale, dtype=np.float64)

    def shifted(self, origin_s: float) -> ShiftedCurve:
        """Return the curve to draw, in the panel's unit, on an axis with its zero at `origin_s`."""
        return ShiftedCurve(self.source, origin_s, self.scale)

    def shifted_spread(self, origin_s: float) -> tuple[ShiftedCurve, ShiftedCurve] | None:
        if self.spread is None:
            return None
        low, high = self.spread
        return ShiftedCurve(low, origin_s, self.scale), ShiftedCurve(high, origin_s, self.scale)

    def value_at(self, t_s: float) -> str:
        """Return the text of the value at a time; for older times, stored only as a range, both ends."""
        ends = self.source.range_at(t_s)
        if ends is None:
            return units.ABSENT
        low, high = (self._text(value) for value in ends)
        return low if low == high else f"{low} … {high}"

    def _text(self, value: float) -> str:
        return units.number(value / self.scale) if self.format_value is None else self.format_value(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot, of live, stored or compared curves.

    Attributes:
        curves: Its curves, drawn from back to front.
        y_range: The fixed range of its axis; None follows the data, from 0.
        throttles: When its GPUs were throttled; marked at the bottom in the colour of the GPU's curve.
    """

    key: str
    title: str
    unit: str
    curves: tuple[Curve, ...]
    y_range: Span | None = None
    throttles: tuple[ThrottleInterval, ...] = ()


class TimeRange(NamedTuple):
    """A named range of time: that many last seconds, or None for a part of the run."""

    help: str
    last_s: float | None = None


TIME_RANGES = {
    "30 s": TimeRange("The last 30 seconds", 30.0),
    "5 min": TimeRange("The last 5 minutes", 300.0),
    "measured": TimeRange("The measured part, and everything before it begins"),
    "all": TimeRange("Everything from start to end"),
    "1 min": TimeRange("The last minute", 60.0),
    "10 min": TimeRange("The last 10 minutes", 600.0),
    "1 h": TimeRange("The last hour", 3_600.0),
    "8 h": TimeRange("The last 8 hours", 28_800.0),
}
LIVE_RANGES, MONITOR_RANGES = tuple(TIME_RANGES)[:4], tuple(TIME_RANGES)[4:]
RUN_RANGES = ("measured", "all")
"""The ranges of a stored run, which are parts of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plots:
    """Panels on one time axis, as a stack of plots shows them.

    Attributes:
        origin_s: The zero of the axis on the clock of the curves.
        bands: Named ranges, shaded in every plot.
        measured: The measured part, offered besides the whole; the stack then zooms and pans by itself. Without it the
            stack's owner moves the view.
        fit: Whether an automatic y axis follows the visible data, shrinking as well.
        counts: What the axis counts, steps or examples; "" for seconds.
        extent: The range with data.
    """

    panels: tuple[Panel, ...] = ()
    window: Span = (0.0, 1.0)
    origin_s: float = 0.0
    bands: tuple[Band, ...] = ()
    markers: tuple[Marker, ...] = ()
    measured: Span | None = None
    fit: bool = False
    counts: Literal["", "steps", "examples"] = ""
    columns: int = 1
    extent: Span = (0.0, 0.0)

    @property
    def ranges(self) -> dict[str, Span]:
        """Return the named ranges of a stored run; empty if the stack's owner moves the view."""
        return {} if self.measured is None else {"measured": self.measured, "all": self.extent}

    def describe_time(self, time: float, span: Span) -> str:
        """Return what is known about a position on the axis: the time, the phase, and why a GPU was throttled."""
        counted = {"steps": f"step {time:,.0f}", "examples": f"{time:,.0f} examples"}
        parts = [counted.get(self.counts) or units.instant(time, span[1] - span[0])]
        parts += [band.name for band in self.bands if band.start <= time < band.end]
        t_s = time + self.origin_s
        throttles = dict.fromkeys(
            f"{curve.label} throttled: {throttle.text}"
            for panel in self.panels
            for throttle in panel.throttles
            for curve in panel.curves
            if curve.key == throttle.device and throttle.start_s <= t_s <= throttle.end_s
        )
        return "  ·  ".join([*parts, *throttles])


class LiveSeries(Pyramid):
    """A growing curve in bounded memory; times in seconds.

    Args:
        levels: Resolutions to store; fewer forget older points sooner.
        periodic: Whether points have a sample period, tracked as it changes, of which three without a point are a gap.
            A run's blocks have none.
        keep: Rows stored at each resolution.
        base_s: The width of a row as fine as the points; coarser ones are 4, 16 … times as wide.
    """

    def __init__(
        self, levels: int = LEVELS, *, periodic: bool = True, keep: int = KEEP_ROWS, base_s: float = BASE_S
    ) -> None:
        super().__init__(levels, keep, base_s)
        self._periodic = periodic
        self._period_s = math.nan
        self._first_s = math.inf
        self._newest: tuple[float, float] | None = None

    @property
    def newest_s(self) -> float:
        return self._newest[0] if self._newest else -math.inf

    @property
    def last(self) -> float | None:
        """Return the newest value; None without one or in a gap."""
        return None if self._newest is None or math.isnan(self._newest[1]) else self._newest[1]

    def append(self, x: float, y: float | None) -> bool:
        """Add one point, None for a gap; drop a late one, and return False."""
        since = x - self.newest_s
        if since <= 0:
            return False
        if self._periodic and since > _GAP_PERIODS * self._period_s:
            super().append(self.newest_s + self._period_s, math.nan)
        self._update_period(since)
        self._first_s = min(self._first_s, x)
        value = math.nan if y is None else float(y)
        self._newest = x, value
        return super().append(x, value)

    def extend(self, x: Floats, y: Floats) -> None:
        self._first_s = min(self._first_s, float(x[0]))
        super().extend(x, y)
        self._newest = float(self.x[-1]), float(self.y[-1])

    def points(self) -> tuple[Floats, Floats]:
        """Return the newest points, those stored individually."""
        return self.x, self.y

    def range_at(self, x: float) -> tuple[float, float] | None:
        if self._periodic:
            return self.nearest(x, _GAP_PERIODS * self._period_s)
        return self.nearest(x, math.inf) if self._first_s <= x <= self.newest_s else None

    def _update_period(self, since: float) -> None:
        """Update the running mean of the times between points; a gap counts as at most three periods."""
        if math.isinf(since):
            return
        if math.isnan(self._period_s):
            self._period_s = since
        self._period_s += (min(since, _GAP_PERIODS * self._period_s) - self._period_s) * _PERIOD_WEIGHT


ValueMode = Literal["zero", "data", "log"]
"""What an automatic value axis shows: from zero to the highest value, the visible values, or their logarithms."""

_FINER = 16
"""How many times as fine as for drawing a curve is read for smoothing."""
_SMOOTHING_SHARES = (0.01, 0.03, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The user's choices for one plot; no `values` means automatic, no `smoothing` none."""

    mode: ValueMode = "zero"
    values: Span | None = None
    smoothing: float = 0.0

    def drawn(self, source: CurveSource) -> CurveSource:
        """Return the curve to draw on this axis, not smoothed."""
        return Logarithm(source) if self.mode == "log" else source

    def smoothed(self, source: CurveSource) -> CurveSource | None:
        """Return the smoothed curve to draw; None without smoothing."""
        return self.drawn(RunningMean(source, self.smoothing)) if self.smoothing else None

    def describe(self, *, counts: bool) -> str:
        """Return what the plot adds to its unit: `logarithmic · running mean of 2 s`."""
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
class DerivedCurve:
    """A curve computed for drawing; a lookup at a time returns what was measured."""

    source: CurveSource

    @property
    def newest_s(self) -> float:
        """Time of the newest point; minus infinity without one."""
        return self.source.newest_s

    def range_at(self, x: float) -> tuple[float, float] | None:
        return self.source.range_at(x)


@dataclass(frozen=True, slots=True)
class RunningMean(DerivedCurve):
    """The mean of all points within half a window of each; gaps stay. At the ends the window is shorter.

    Older parts of a long curve, stored as ranges, count with their midpoints.
    """

    width: float

    def window(self, start: float, end: float, columns: int) -> Envelope:
        """Return the means between two times, including points beyond these."""
        half = self.width / 2
        x, low, high = self.source.window(start - half, end + half, _FINER * columns)
        mean = running_mean(x, low if low is high else (low + high) / 2, self.width)
        return x, mean, mean

    def points(self) -> tuple[Floats, Floats]:
        x, y = self.source.points()
        return x, running_mean(x, y, self.width)


@dataclass(frozen=True, slots=True)
class Logarithm(DerivedCurve):
    """The decimal logarithm of a curve; values not above 0 are gaps."""

    def window(self, start: float, end: float, columns: int) -> Envelope:
        x, low, high = self.source.window(start, end, columns)
        logarithm = _log10(low)
        return x, logarithm, logarithm if high is low else _log10(high)

    def points(self) -> tuple[Floats, Floats]:
        x, y = self.source.points()
        return x, _log10(y)


def _log10(values: Floats) -> Floats:
    return np.log10(np.where(values > 0, values, np.nan))


_TIME_TICKS = 8
_BUCKETS = 300
"""Points to which a curve is reduced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCurve:
    """One curve in its panel's unit, NaN for gaps; `dash` is pixels drawn and skipped in turn, empty if solid.

    `mark` is repeated along it, and distinguishes it without colour.
    """

    label: str
    colour: int
    x: Floats
    y: Floats
    dash: tuple[int, ...] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePlot:
    """One panel; `bands` are shaded and named ranges of its axis."""

    title: str
    x: Axis
    y: Axis
    curves: tuple[DrawnCurve, ...]
    bands: tuple[Band, ...] = ()


def stored_plot(
    panel: Panel,
    span: tuple[float, float],
    names: Mapping[str, str],
    dashes: Sequence[tuple[int, ...]],
    bands: Sequence[Band] = (),
) -> CurvePlot | None:
    """Return a panel of stored runs over a range of time; None if no curve has a value there.

    `names` has labels by the curves' keys, `dashes` a pattern for each in turn.
    """
    curves = [
        clip_curve(DrawnCurve(label=names[curve.key], colour=curve.colour, x=curve.x, y=curve.y, dash=dash), *span)
        for curve, dash in zip(panel.curves, dashes, strict=True)
    ]
    tops = [float(np.nanmax(curve.y)) for curve in curves if np.isfinite(curve.y).any()]
    if not tops:
        return None
    low, high = panel.y_range or (0.0, max(tops) * 1.05 or 1.0)
    return CurvePlot(
        title=panel.title,
        x=time_axis(*span),
        y=Axis(title=panel.unit, low=low, high=high, ticks=tuple(model.linear_ticks(low, high, 4))),
        curves=tuple(curves),
        bands=tuple(bands),
    )


def time_axis(start: float, end: float) -> Axis:
    values = [value for value, _ in model.linear_ticks(start, end, _TIME_TICKS)]
    spacing = values[1] - values[0] if len(values) > 1 else end - start
    labels = model.time_labels(values, spacing)
    return Axis(title="", low=start, high=end, ticks=tuple(zip(values, labels, strict=True)))


def clip_curve(curve: DrawnCurve, start: float, end: float) -> DrawnCurve:
    """Return the part of a curve between two x values, with at most as many points as a chart can show."""
    inside = (curve.x >= start) & (curve.x <= end)
    x, y = decimate(curve.x[inside], curve.y[inside], _BUCKETS)
    return replace(curve, x=x, y=y)
