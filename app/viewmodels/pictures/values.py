"""Pictures as values: what is drawn, what it is called, and which runs stand behind each mark. Nothing of how."""

import math
from dataclasses import dataclass
from typing import Literal

from app.viewmodels.ticks import Tick

Mark = Literal["full", "hollow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one can point at: the runs behind it, its name, and its figures in a few lines of words."""

    runs: tuple[int, ...]
    label: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar(Place):
    """One row: a value with its interval (None where there is none) and the same as text.

    Without a value `text` says why: `out of memory`, `baseline`.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    text: str
    colour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Place):
    """One point with the intervals of both its values; without `y` it stands where its `outcome` is told."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None
    x_low: float | None = None
    x_high: float | None = None
    outcome: str = ""
    mark: Mark = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one colour; a `joined` series has its name at its end, the points of others have their own."""

    label: str
    colour: int
    points: tuple[Point, ...]
    joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A line to hold points against, such as ideal scaling, in a series' colour or none; `label` stands at its end."""

    label: str
    colour: int | None = None
    points: tuple[tuple[float, float], ...]
    dashed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From `low` to `high`, in equal steps or, with `log`, in equal factors."""

    title: str
    low: float
    high: float
    ticks: tuple[Tick, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value lies: 0 at its low end, 1 at its high one."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One plot of a picture."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BarPicture:
    """Rows of bars that begin at `start`, where a line stands; `caption` says what it shows and of what."""

    key: str
    title: str
    caption: str
    bars: tuple[Bar, ...]
    axis: Axis
    start: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPicture:
    """One plot, or several of one kind beside each other."""

    key: str
    title: str
    caption: str
    charts: tuple[Chart, ...]


Picture = BarPicture | ChartPicture


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Why a picture has nothing to say of these runs, and what would give it something."""

    key: str
    title: str
    why: str
