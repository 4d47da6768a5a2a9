"""Named stretches of time shaded behind curves."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPen
from PySide6.QtWidgets import QApplication, QGraphicsObject

from app.gui.theme import Theme

_NAME_PX = 10
_NAME_MARGIN = 4


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time with its name; `strong` shades it in the accent (the measured part)."""

    name: str
    start: float
    end: float
    strong: bool = False


class Bands(QGraphicsObject):
    """All bands of one plot in one item, painted behind everything else."""

    def __init__(self, theme: Theme, view: pg.ViewBox) -> None:
        super().__init__()
        self._theme = theme
        self._view = view
        view.sigRangeChanged.connect(self._view_changed)
        self._bands: tuple[Band, ...] = ()
        self.setZValue(-100)

    def set_bands(self, bands: Sequence[Band]) -> None:
        """Replace all bands."""
        if tuple(bands) != self._bands:
            self._bands = tuple(bands)
            self.update()

    def boundingRect(self) -> QRectF:
        """The whole view: bands reach from bottom to top."""
        return QRectF(self._view.viewRect())

    def paint(self, painter: QPainter, *_: object) -> None:
        """Fill every band in view and write its name at its top left, where it fits."""
        view = self.boundingRect()
        transform = painter.worldTransform()
        painter.save()
        painter.resetTransform()
        font = QFont(QApplication.font())
        font.setPixelSize(_NAME_PX)
        painter.setFont(font)
        for index, band in enumerate(self._bands):
            left, right = max(band.start, view.left()), min(band.end, view.right())
            if left < right:
                corners = transform.map(QPointF(left, view.top())), transform.map(QPointF(right, view.bottom()))
                self._paint_band(painter, QRectF(*corners).normalized(), band, shaded=index % 2 == 0)
        painter.restore()

    def _paint_band(self, painter: QPainter, area: QRectF, band: Band, *, shaded: bool) -> None:
        colours = self._theme.colours
        if band.strong or shaded:
            painter.fillRect(area, QColor(colours.band_measure if band.strong else colours.band))
        painter.setPen(QPen(QColor(colours.line), 1))
        painter.drawLine(area.topLeft(), area.bottomLeft())
        words = area.adjusted(_NAME_MARGIN, 2, 0, 0)
        if painter.fontMetrics().horizontalAdvance(band.name) <= words.width():
            painter.setPen(QColor(colours.muted))
            painter.drawText(words, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop, band.name)

    def _view_changed(self, *_: object) -> None:
        self.prepareGeometryChange()
