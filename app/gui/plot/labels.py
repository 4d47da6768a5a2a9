"""What tells curves apart without their colours: marks along them, and names at their ends where there is room."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPixmap

from app.analysis.strokes import Stroke
from app.gui.plot.bands import Layer
from app.gui.plot.legend import MARK_PX, paint_mark
from app.gui.theme import Theme

if TYPE_CHECKING:
    from app.gui.plot.canvas import PlotCanvas

_MARK_DISTANCE_PX = 400
_MARK_ROOM_PX = 45
_FIRST_MARK_PX = 30
_NAME_GAP = 6
_BAR_PX = 2
_PROBES = 6
_NAME_ALPHA = 205
_MAX_NAME_CHARS = 40


@dataclass(frozen=True, slots=True, eq=False)
class LabelledLine:
    """A line as it is drawn, and what names it; "" for nothing."""

    line: Stroke | None
    colour: QColor
    mark: str
    name: str


class CurveLabels(Layer):
    """Marks and names over the curves of one plot. Marks keep their columns, so that they do not run with the time."""

    def __init__(self, theme: Theme, canvas: "PlotCanvas") -> None:
        super().__init__(theme, canvas)
        self._lines: tuple[LabelledLine, ...] = ()
        self._range = 0.0, 1.0
        self._marks: dict[tuple[str, str, float], QPixmap] = {}

    def set_lines(self, lines: Sequence[LabelledLine]) -> float:
        """Replace all lines; the caller has them painted again.

        Returns:
            How many pixels beside a column that has changed must be painted too; infinity for all.
        """
        named, before = ([(line.mark, line.name) for line in each] for each in (lines, self._lines))
        self._lines = tuple(lines)
        if named != before or any(name for _, name in named):
            return math.inf
        return MARK_PX if any(mark for mark, _ in named) else 0.0

    def _is_empty(self) -> bool:
        return not any(line.mark or line.name for line in self._lines)

    def _paint(self, painter: QPainter, area: QRectF, _start: float, _scale: float) -> None:
        self._range = self.view_values
        self._paint_marks(painter, area)
        self._paint_names(painter, area)

    def _paint_marks(self, painter: QPainter, area: QRectF) -> None:
        """Paint every mark once or more, the further apart the more there are, and those of two curves never as one."""
        marked = [each for each in self._lines if each.mark and each.line is not None]
        shown = painter.clipBoundingRect()
        distance = max(_MARK_DISTANCE_PX, _MARK_ROOM_PX * len(marked))
        for number, each in enumerate(marked):
            assert each.line is not None
            first = _FIRST_MARK_PX + number * min(distance, area.width() - 2 * _FIRST_MARK_PX) / len(marked)
            for x in np.arange(first, area.width() - MARK_PX / 2, distance).tolist():
                if not shown.left() - MARK_PX < area.left() + x < shown.right() + MARK_PX:
                    continue
                y = self._y_at(each.line, x / area.width(), area)
                if y is not None:
                    y = min(max(y, area.top() + MARK_PX / 2), area.bottom() - MARK_PX / 2)
                    pixmap = self._mark(each, painter.device().devicePixelRatioF())
                    painter.drawPixmap(QPointF(area.left() + x - MARK_PX / 2, y - MARK_PX / 2), pixmap)

    def _paint_names(self, painter: QPainter, area: QRectF) -> None:
        """Write each name once, a bar of its colour before it, where it covers no name and no other line."""
        taken: list[QRectF] = []
        names: set[str] = set()
        for each in filter(lambda line: line.name, self._lines):
            box = None if each.name in names else self._name_box(each, painter.fontMetrics(), area)
            if box is None or any(box.intersects(other) for other in taken) or self._covers(box, each.name, area):
                continue
            taken.append(box)
            names.add(each.name)
            ground = QColor(self._theme.colours.surface)
            ground.setAlpha(_NAME_ALPHA)
            painter.fillRect(box, ground)
            painter.fillRect(QRectF(box.left() + 1, box.top() + 2, _BAR_PX, box.height() - 4), each.colour)
            painter.setPen(QColor(self._theme.colours.text))
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, each.name)

    def _name_box(self, line: LabelledLine, metrics: QFontMetrics, area: QRectF) -> QRectF | None:
        """Return where a name would be: right of the end of its line, or above it where that is at the edge."""
        end = None if line.line is None else _last_column(line.line)
        if end is None or line.line is None or len(line.name) > _MAX_NAME_CHARS:
            return None
        share = (end + 0.5) / len(line.line.low)
        x, y = area.left() + share * area.width(), self._y_at(line.line, share, area)
        if y is None:
            return None
        width, height = metrics.horizontalAdvance(line.name) + 2 * _NAME_GAP, metrics.height()
        fits_right = x + width <= area.right()
        left, top = (x, y - height / 2) if fits_right else (area.right() - width, y - height - _NAME_GAP)
        return QRectF(left, min(max(top, area.top()), area.bottom() - height), width, height)

    def _covers(self, box: QRectF, name: str, area: QRectF) -> bool:
        """Return whether a line with another name goes through a box."""
        shares = [(x - area.left()) / area.width() for x in np.linspace(box.left(), box.right() - 1, _PROBES)]
        others = (each.line for each in self._lines if each.name != name and each.line is not None)
        found = (self._y_at(line, share, area) for line in others for share in shares)
        return any(y is not None and box.top() <= y <= box.bottom() for y in found)

    def _y_at(self, line: Stroke, share: float, area: QRectF) -> float | None:
        """Return the pixel row of a line at a share of the width; None where it is not, or out of view."""
        column = min(int(share * len(line.low)), len(line.low) - 1)
        value = float(line.low[column] + line.high[column]) / 2
        bottom, top = self._range
        y = area.bottom() - (value - bottom) / ((top - bottom) or 1.0) * area.height()
        return y if area.top() <= y <= area.bottom() else None

    def _mark(self, line: LabelledLine, ratio: float) -> QPixmap:
        key = (line.mark, line.colour.name(), ratio)
        if key not in self._marks:
            pixmap = QPixmap(round(MARK_PX * ratio), round(MARK_PX * ratio))
            pixmap.setDevicePixelRatio(ratio)
            pixmap.fill(Qt.GlobalColor.transparent)
            painter = QPainter(pixmap)
            paint_mark(painter, QPointF(MARK_PX / 2, MARK_PX / 2), line.colour, line.mark, self._theme)
            painter.end()
            self._marks[key] = pixmap
        return self._marks[key]


def _last_column(line: Stroke) -> int | None:
    present = np.flatnonzero(np.isfinite(line.low))
    return int(present[-1]) if len(present) else None
