"""The frame of a plot: its axes with their numbers, and where on it a value lies."""

from dataclasses import dataclass

from app.report.pictures import svg
from app.report.pictures.drawing import Sheet
from app.viewmodels.pictures.values import Axis

_NUMBERS_PX = 11.0
BELOW = 38.0
"""Room below a frame for its numbers and the axis's title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A plot's area in pixels and its two axes."""

    left: float
    top: float
    right: float
    bottom: float
    x: Axis
    y: Axis

    def at_x(self, value: float) -> float:
        """The pixel column of a value."""
        return self.left + (self.right - self.left) * self.x.share(value)

    def at_y(self, value: float) -> float:
        """The pixel row of a value."""
        return self.bottom - (self.bottom - self.top) * self.y.share(value)


def numbers_width(axis: Axis) -> float:
    """The room that an upright axis needs for its numbers."""
    return max((svg.text_width(words, _NUMBERS_PX) for _, words in axis.ticks), default=0.0) + 8


def draw_frame(frame: Frame, sheet: Sheet) -> None:
    """Lines at the upright axis's numbers, the foot, and both axes' numbers and titles."""
    ink = sheet.ink
    for value, words in frame.y.ticks:
        row = frame.at_y(value)
        sheet.parts.append(svg.line(frame.left, row, frame.right, row, ink.line))
        sheet.parts.append(svg.text(frame.left - 6, row + 4, words, ink.muted, "end", _NUMBERS_PX))
    sheet.parts.append(svg.line(frame.left, frame.bottom, frame.right, frame.bottom, ink.muted))
    for value, words in frame.x.ticks:
        column = frame.at_x(value)
        sheet.parts.append(svg.line(column, frame.bottom, column, frame.bottom + 4, ink.muted))
        sheet.parts.append(svg.text(column, frame.bottom + 16, words, ink.muted, "middle", _NUMBERS_PX))
    middle = (frame.left + frame.right) / 2
    sheet.parts.append(svg.text(middle, frame.bottom + 32, frame.x.title, ink.muted, "middle", _NUMBERS_PX))
