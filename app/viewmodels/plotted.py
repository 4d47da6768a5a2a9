"""What every plot over time has, be its curves live or stored: their names and colours, its bands and moments."""

from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a curve is called; `colour` is a GPU's or a run's index."""

    key: str
    label: str
    colour: int


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
