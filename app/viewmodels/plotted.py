"""What every plot over time has, be its curves live or stored: their names and colours, its bands and moments."""

from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a curve is called; `colour` is a GPU's or a run's index."""

    key: str
    label: str
    colour: int


Span = tuple[float, float]
"""A stretch of an axis, from and to."""

L = TypeVar("L", bound=Line)


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
class Moment:
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
