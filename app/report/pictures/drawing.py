"""A drawn picture: SVG, and where on it each run can be pointed at."""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.report.pictures import svg
from app.report.pictures.ink import Ink
from app.viewmodels.pictures.values import Picture, Place

_TITLE_PX, _MARGIN = 15.0, 4.0
_LINE = 17.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A rectangle of the drawing that stands for a place of the picture."""

    left: float
    top: float
    width: float
    height: float
    place: Place

    @property
    def middle(self) -> tuple[float, float]:
        """Its centre."""
        return self.left + self.width / 2, self.top + self.height / 2

    def holds(self, x: float, y: float) -> bool:
        """Whether a position is on it."""
        return self.left <= x <= self.left + self.width and self.top <= y <= self.top + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture in pixels."""

    name: str
    width: float
    height: float
    parts: tuple[str, ...]
    spots: tuple[Spot, ...] = ()

    def svg(self, paper: str = "") -> str:
        """The picture as SVG; without `paper` what is behind it shows through."""
        return svg.document(self.width, self.height, self.parts, self.name, paper)


@dataclass(slots=True)
class Sheet:
    """Where a picture is drawn, one part after the other."""

    ink: Ink
    width: float
    height: float = 0.0
    parts: list[str] = field(default_factory=list)
    spots: list[Spot] = field(default_factory=list)

    def finished(self, name: str) -> Drawing:
        """What was drawn."""
        return Drawing(
            name=name, width=self.width, height=self.height, parts=tuple(self.parts), spots=tuple(self.spots)
        )

    def mark(self, marks: str, area: tuple[float, float, float, float], place: Place) -> None:
        """Draw marks that can be pointed at within left, top, width, height."""
        self.parts.append(svg.told(marks, place.words))
        left, top, width, height = area
        self.spots.append(Spot(left=left, top=top, width=width, height=height, place=place))


def headed(picture: Picture, ink: Ink, width: float, draw: Callable[[Sheet], None]) -> Drawing:
    """A picture with its title and caption above what `draw` puts below them."""
    sheet = Sheet(ink, width)
    title = svg.elided(picture.title, width - 2 * _MARGIN, _TITLE_PX, bold=True)
    sheet.parts.append(svg.text(_MARGIN, 18, title, ink.text, size=_TITLE_PX, bold=True))
    lines = svg.wrapped(picture.caption, width - 2 * _MARGIN)
    sheet.parts.extend(svg.text(_MARGIN, 38 + _LINE * number, words, ink.muted) for number, words in enumerate(lines))
    sheet.height = 38 + _LINE * len(lines)
    draw(sheet)
    return sheet.finished(picture.title)
