"""The canvas for drawing charts: hit areas, titles, and frames with axes."""

from dataclasses import dataclass, field

from app.report.charts import svg
from app.viewmodels.charts.model import Axis, Chart, ChartItem
from app.viewmodels.charts.palette import Palette

_TITLE_PX = 15.0
_LINE = 17.0


@dataclass(frozen=True, slots=True)
class HitArea:
    """A rectangle of a drawing that reacts to clicks and the pointer, and the item that it belongs to."""

    left: float
    top: float
    width: float
    height: float
    item: ChartItem

    @property
    def centre(self) -> tuple[float, float]:
        return self.left + self.width / 2, self.top + self.height / 2

    def contains(self, x: float, y: float) -> bool:
        return self.left <= x <= self.left + self.width and self.top <= y <= self.top + self.height


@dataclass(frozen=True, slots=True)
class Drawing:
    """A finished chart; lengths are in pixels, `surface` is the colour behind it."""

    name: str
    surface: str
    width: float
    height: float
    parts: tuple[str, ...]
    hit_areas: tuple[HitArea, ...] = ()

    def svg(self, *, filled: bool = False) -> str:
        """Return the chart as SVG, on its surface colour if `filled`, else transparent."""
        return svg.document(self.width, self.height, self.parts, self.name, self.surface if filled else "")


@dataclass(slots=True)
class Canvas:
    """A chart being drawn; `height` grows with its parts."""

    palette: Palette
    width: float
    height: float = 0.0
    parts: list[str] = field(default_factory=list)
    hit_areas: list[HitArea] = field(default_factory=list)

    def finish(self, name: str) -> Drawing:
        parts, hit_areas = tuple(self.parts), tuple(self.hit_areas)
        return Drawing(name, self.palette.surface, self.width, self.height, parts, hit_areas)

    def add_mark(self, marks: str, area: tuple[float, float, float, float], item: ChartItem) -> None:
        """Draw marks, and make an area (left, top, width, height) hit them."""
        self.parts.append(svg.with_tooltip(marks, item.tooltip))
        self.hit_areas.append(HitArea(*area, item))


def draw_title(chart: Chart, canvas: Canvas) -> None:
    title = svg.elide(chart.title, canvas.width, _TITLE_PX, bold=True)
    canvas.parts.append(svg.text(0, 18, title, canvas.palette.text, size=_TITLE_PX, bold=True))
    lines = svg.wrap(chart.caption, canvas.width)
    canvas.parts.extend(
        svg.text(0, 38 + _LINE * number, line, canvas.palette.muted) for number, line in enumerate(lines)
    )
    canvas.height = 29 + _LINE * len(lines)


_TICK_LABEL_PX = 11.0
AXIS_HEIGHT = 38.0
"""Pixels below a frame for tick labels and the title of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotFrame:
    """A plot's area in pixels and its two axes."""

    left: float
    top: float
    right: float
    bottom: float
    x: Axis
    y: Axis

    def x_pixel(self, value: float) -> float:
        return self.left + (self.right - self.left) * self.x.share(value)

    def y_pixel(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * self.y.share(value)


def tick_labels_width(axis: Axis) -> float:
    return max((svg.text_width(label, _TICK_LABEL_PX) for _, label in axis.ticks), default=0.0) + 8


def draw_frame(frame: PlotFrame, canvas: Canvas) -> None:
    """Draw grid lines, the horizontal axis, tick labels of both axes and the title of the horizontal one."""
    palette = canvas.palette
    for value, label in frame.y.ticks:
        row = frame.y_pixel(value)
        canvas.parts.append(svg.line(frame.left, row, frame.right, row, palette.line))
        canvas.parts.append(svg.text(frame.left - 6, row + 4, label, palette.muted, "end", _TICK_LABEL_PX))
    canvas.parts.append(svg.line(frame.left, frame.bottom, frame.right, frame.bottom, palette.muted))
    for value, label in frame.x.ticks:
        column = frame.x_pixel(value)
        canvas.parts.append(svg.line(column, frame.bottom, column, frame.bottom + 4, palette.muted))
        canvas.parts.append(svg.text(column, frame.bottom + 16, label, palette.muted, "middle", _TICK_LABEL_PX))
    middle = (frame.left + frame.right) / 2
    canvas.parts.append(svg.text(middle, frame.bottom + 32, frame.x.title, palette.muted, "middle", _TICK_LABEL_PX))
