"""Charts as values, independent of any toolkit: marks, series, axes and round tick values."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from app.analysis.intervals import WIDEST_KNOWN, Estimate
from app.values import units
from app.viewmodels.format.ratios import is_far_from_one

Tick = tuple[float, str]
"""A value on an axis and its label."""

_NARROW = 2.0
_MULTIPLES = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
"""Multiples of powers of ten for ticks, finest first."""


def round_step(least: float) -> float:
    """Return the next of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next((m * power for m in (1.0, 2.0, 5.0) if m * power >= least), 10 * power)


_CLOCK_STEPS_S = (10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)


def clock_step(longest_s: float) -> float | None:
    """Return the longest round step of a clock, such as half a minute, 5 minutes or an hour; None below 10 s."""
    return next((float(step) for step in reversed(_CLOCK_STEPS_S) if step <= longest_s), None)


def magnitude(number: float) -> tuple[float, str]:
    """Return the unit in which an axis labels numbers up to this one, and its letter: a million takes too much room."""
    return (1e6, "\N{NO-BREAK SPACE}M") if number >= 1e6 else (1.0, "")


def tick_labels(values: Sequence[float], spacing: float) -> list[str]:
    """Format numbers as `80,000` or, from a million on, `1.5 M`, with as many decimals as their spacing needs."""
    size, unit = magnitude(max(map(abs, values), default=0.0))
    decimals = max(0, -math.floor(math.log10(spacing / size))) if spacing > 0 else 0
    return [f"{value / size:,.{min(decimals, 9)}f}{unit}" for value in values]


def time_labels(values: Sequence[float], spacing: float) -> list[str]:
    """Format seconds as a clock, `0:30`, with decimals for steps below a second, `0:16.5`."""
    decimals = max(0, math.ceil(-math.log10(spacing))) if spacing > 0 else 0
    return [units.clock(value, decimals) for value in values]


def linear_ticks(low: float, high: float, most: int = 8) -> list[Tick]:
    """Return the multiples of a round step from `low` to `high`, at most about `most`."""
    step = round_step((high - low) / most)
    values = multiples(low, high, step)
    return list(zip(values, tick_labels(values, step), strict=True))


def multiples(low: float, high: float, step: float) -> list[float]:
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def percent_ticks(high: float) -> tuple[Tick, ...]:
    return tuple((value, units.quantity(label, "%")) for value, label in linear_ticks(0.0, high))


def log_ticks(low: float, high: float, most: int = 7) -> list[Tick]:
    """Return at most `most` round multiples of powers of ten; a narrow range has equal steps."""
    if high / low < _NARROW:
        return linear_ticks(low, high, most)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[Tick] = []
    for multiples in _MULTIPLES:
        ticks = [_tick(m, power) for power in powers for m in multiples if low <= m * 10.0**power <= high]
        if len(ticks) <= most:
            break
    return ticks[:: math.ceil(len(ticks) / most)]


def _tick(multiple: float, power: int) -> Tick:
    digits = 0 if multiple == int(multiple) else 1
    return multiple * 10.0**power, f"{multiple * 10.0**power:,.{max(0, digits - power)}f}"


Mark = Literal["full", "hollow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartItem:
    """A mark of a chart: its runs, its name, and a tooltip of a few lines."""

    runs: tuple[int, ...]
    label: str
    tooltip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar(ChartItem):
    """One row: a value with its interval, or None, and its text.

    Without a value, `text` is the reason: `out of memory`, `baseline`.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    text: str
    colour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(ChartItem):
    """One point with the intervals of both values; without `y` it is drawn in its `outcome`'s row."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None
    x_low: float | None = None
    x_high: float | None = None
    outcome: str = ""
    mark: Mark = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSeries:
    """Points of one colour and shape; a `joined` series is named at its end, in others each point is named.

    A series that is not joined appears in a legend above the plot if it has a label.
    """

    label: str
    colour: int
    points: tuple[Point, ...]
    joined: bool = True
    shape: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A reference line, such as ideal scaling, in a series' colour or none; `label` is at its end."""

    label: str
    colour: int | None = None
    points: tuple[tuple[float, float], ...]
    dashed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A linear axis from `low` to `high`, or a logarithmic one."""

    title: str
    low: float
    high: float
    ticks: tuple[Tick, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 at its low end to 1 at its high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One plot of a chart."""

    title: str
    x: Axis
    y: Axis
    series: tuple[PointSeries, ...]
    guides: tuple[Guide, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Rows of bars that begin at a line at `start`; `caption` describes them."""

    key: str
    title: str
    caption: str
    bars: tuple[Bar, ...]
    axis: Axis
    start: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PointChart:
    """One plot, or several of one kind next to each other."""

    key: str
    title: str
    caption: str
    plots: tuple[Plot, ...]


WaterfallRole = Literal["total", "less", "more"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallBar(ChartItem):
    """One row: a bar from `start` to `end`, the interval of its end, and its figures as text.

    A total begins at the axis; other bars begin where the one above ends. `figure` is the amount, `share` its ratio to
    the first total.
    """

    start: float
    end: float
    low: float | None = None
    high: float | None = None
    role: WaterfallRole
    figure: str
    share: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallChart:
    """Rows of bars that lead from one total to another; an axis that does not begin at 0 truncates the totals."""

    key: str
    title: str
    caption: str
    bars: tuple[WaterfallBar, ...]
    axis: Axis


Chart = BarChart | PointChart | WaterfallChart
AnyItem = TypeVar("AnyItem", bound=ChartItem)


def without_runs(chart: Chart, hidden: Collection[int]) -> Chart:
    """Return a chart without marks whose runs are all hidden, on the same axes; at least one mark remains."""

    def visible(items: Iterable[AnyItem]) -> tuple[AnyItem, ...]:
        return tuple(item for item in items if not set(item.runs) <= set(hidden))

    if not hidden or isinstance(chart, WaterfallChart):
        return chart
    if isinstance(chart, BarChart):
        return replace(chart, bars=visible(chart.bars) or chart.bars)
    plots = [
        replace(
            plot, series=tuple(replace(line, points=points) for line in plot.series if (points := visible(line.points)))
        )
        for plot in chart.plots
    ]
    return replace(chart, plots=tuple(plot for plot in plots if plot.series) or chart.plots)


_LOG_SCALE_RATIO = 8.0
"""Values with a larger ratio than this need a logarithmic axis."""
_MARGIN = 0.06
_SMALL_SPAN = 0.35
"""Values that differ by a smaller share of the largest one get an axis that does not begin at 0."""
_SPAN_MARGIN = 0.3
"""How far below the smallest value such an axis begins, as a share of the values' differences."""


def zero_based_axis(values: Iterable[float | None], title: str) -> Axis:
    """Return an axis from 0 to a little above the largest value, so that heights compare."""
    high = max(_finite(values)) * (1 + _MARGIN)
    return Axis(title=title, low=0.0, high=high, ticks=tuple(linear_ticks(0.0, high)))


def span_axis(values: Iterable[float | None], title: str) -> Axis:
    """Return an axis around the values, from 0 unless their differences would be too small to see."""
    finite = _finite(values)
    low, high = min(finite), max(finite)
    margin = _SPAN_MARGIN * (high - low)
    start = low - margin if 0 < high - low < _SMALL_SPAN * high else 0.0
    return Axis(title=title, low=start, high=high + _MARGIN * (high - start), ticks=tuple(linear_ticks(start, high)))


def log_axis(values: Iterable[float | None], title: str, margin: float = 1.15, most: int = 7) -> Axis:
    """Return a logarithmic axis around the values.

    None and infinite values are left out; `margin` is the factor between the extremes and the axis's ends.
    """
    finite = _finite(values)
    low, high = min(finite) / margin, max(finite) * margin
    return Axis(title=title, low=low, high=high, ticks=tuple(log_ticks(low, high, most)), log=True)


_MIN_REACH = math.log(1.02)
"""An axis extends at least 2 % to both sides, so that noise does not look like a difference."""

_MOST_BEYOND, _FARTHEST = math.log1p(WIDEST_KNOWN), math.log(1e12)
"""How far intervals widen an axis beyond its ratios, and where it ends: an imported database may hold any ratio."""


def ratio_axis(estimates: Sequence[Estimate], most_ticks: int = 7) -> Axis:
    """Return an axis of all ratios and of the informative intervals, as far as these leave room for the ratios."""
    values = [0.0, *(math.log(estimate.value) for estimate in estimates)]
    narrow = [estimate for estimate in estimates if estimate.is_known] or estimates
    ends = [math.log(end) for estimate in narrow for end in estimate.interval or ()]
    least = min(*values, max(min([*values, *ends]), min(values) - _MOST_BEYOND))
    most = max(*values, min(max([*values, *ends]), max(values) + _MOST_BEYOND))
    reach = max(_MIN_REACH, 0.08 * max(-least, most))
    low, high = math.exp(max(least - reach, -_FARTHEST)), math.exp(min(most + reach, _FARTHEST))
    marks = log_ticks(low, high, most_ticks)
    if any(is_far_from_one(estimate.value) for estimate in estimates):
        ticks = tuple((value, f"{text}×") for value, text in marks)
    else:
        ticks = tuple((value, units.quantity(_percent_change(value), "%")) for value, _ in marks)
    return Axis(title="", low=low, high=high, ticks=ticks, log=True)


def _percent_change(ratio: float) -> str:
    change = round(100 * (ratio - 1), 6)
    return units.with_minus(f"{change:+g}" if change else "0")


def fitting_axis(values: Iterable[float | None], title: str) -> Axis:
    """Return an axis from zero if that shows the differences, else a logarithmic one."""
    finite = _finite(values)
    return log_axis(finite, title) if max(finite) > _LOG_SCALE_RATIO * min(finite) else zero_based_axis(finite, title)


_MOST_DOUBLINGS = 10


def doubling_axis(values: Iterable[int], title: str) -> Axis:
    """Return a logarithmic axis for numbers that mostly double, with a tick at each, or every second if they crowd."""
    numbers = sorted(set(values))
    margin, every = 2**0.35, math.ceil(len(numbers) / _MOST_DOUBLINGS)
    return Axis(
        title=title,
        low=numbers[0] / margin,
        high=numbers[-1] * margin,
        ticks=tuple((float(number), f"{number:,}") for number in numbers[::every]),
        log=True,
    )


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
