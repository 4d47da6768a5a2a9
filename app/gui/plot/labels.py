"""What tells curves apart without their colours: marks along them, and names at their ends where there is room."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap

from app.analysis.pyramid import Stroke
from app.gui.plot.bands import Layer
from app.gui.plot.canvas import PlotCanvas
from app.gui.plot.legend import MARK_PX, paint_mark
from app.gui.theme import Theme

_MARK_DISTANCE_PX = 180
_FIRST_MARK_PX = 30
_NAME_GAP = 6
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

    def __init__(self, theme: Theme, canvas: PlotCanvas) -> None:
        super().__init__(theme, canvas)
        self.shows_names = False
        self._lines: tuple[LabelledLine, ...] = ()
        self._marks: dict[tuple[str, str, float], QPixmap] = {}

    def set_lines(self, lines: Sequence[LabelledLine]) -> None:
        """Replace all lines; the caller has the view painted again."""
        self._lines = tuple(lines)

    def _paint(self, painter: QPainter, area: QRectF, _start: float, _scale: float) -> None:
        self._paint_marks(painter, area)
        if self.shows_names and len(self._lines) > 1:
            self._paint_names(painter, area)

    def _paint_marks(self, painter: QPainter, area: QRectF) -> None:
        """Paint every mark at regular distances, those of neighbouring curves apart from each other."""
        marked = [each for each in self._lines if each.mark and each.line is not None]
        for number, each in enumerate(marked):
            assert each.line is not None
            first = _FIRST_MARK_PX + number * _MARK_DISTANCE_PX / len(marked)
            for x in np.arange(first, area.width() - MARK_PX / 2, _MARK_DISTANCE_PX):
                y = self._y_at(each.line, float(x) / area.width(), area)
                if y is not None:
                    pixmap = self._mark(each, painter.device().devicePixelRatioF())
                    painter.drawPixmap(QPointF(area.left() + x - MARK_PX / 2, y - MARK_PX / 2), pixmap)

    def _paint_names(self, painter: QPainter, area: QRectF) -> None:
        """Write names beside the ends of lines, or over them where they end at the edge; none over another."""
        metrics = painter.fontMetrics()
        taken: list[QRectF] = []
        for each in self._lines:
            end = None if each.line is None else _last_column(each.line)
            if end is None or each.line is None or not each.name or len(each.name) > _MAX_NAME_CHARS:
                continue
            share = (end + 0.5) / len(each.line.low)
            y = self._y_at(each.line, share, area)
            width, height = metrics.horizontalAdvance(each.name) + 2 * _NAME_GAP, metrics.height()
            x = area.left() + share * area.width()
            fits_right = x + width <= area.right()
            left, top = (x, (y or 0.0) - height / 2) if fits_right else (area.right() - width, (y or 0.0) - height - 3)
            box = QRectF(left, min(max(top, area.top()), area.bottom() - height), width, height)
            if y is None or any(box.intersects(other) for other in taken):
                continue
            taken.append(box)
            ground = QColor(self._theme.colours.surface)
            ground.setAlpha(_NAME_ALPHA)
            painter.fillRect(box, ground)
            painter.setPen(each.colour)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, each.name)

    def _y_at(self, line: Stroke, share: float, area: QRectF) -> float | None:
        """Return the pixel row of a line at a share of the width; None where it is not, or out of view."""
        column = min(int(share * len(line.low)), len(line.low) - 1)
        value = (line.low[column] + line.high[column]) / 2
        bottom, top = self.view_values
        y = area.bottom() - (value - bottom) / ((top - bottom) or 1.0) * area.height()
        return float(y) if np.isfinite(y) and area.top() <= y <= area.bottom() else None

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
