"""Overlays of a plot: shaded bands behind the curves; markers, strips and the crosshair in front."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPen, QPixmap
from PySide6.QtWidgets import QApplication

from app.analysis.pyramid import Stroke
from app.gui.plot.legend import MARK_PX, paint_mark
from app.gui.theme import Theme
from app.gui.widgets.basic import painted_pixmap
from app.viewmodels.plot.model import Band, Marker, Strip

if TYPE_CHECKING:
    from app.gui.plot.canvas import PlotCanvas

_FONT_PX = 10
_NAME_MARGIN = 4
_STRIP_PX = 3


class Layer:
    """Something painted in pixels over the whole view of a plot."""

    def __init__(self, theme: Theme, canvas: "PlotCanvas") -> None:
        self._theme = theme
        self._canvas = canvas

    def paint(self, painter: QPainter, area: QRectF) -> None:
        if self._is_empty():
            return
        start, end = self._canvas.view.viewRange()[0]
        painter.save()
        font = QFont(QApplication.font())
        font.setPixelSize(_FONT_PX)
        painter.setFont(font)
        self._paint(painter, area, start, area.width() / ((end - start) or 1.0))
        painter.restore()

    @property
    def view_values(self) -> tuple[float, float]:
        low, high = self._canvas.view.viewRange()[1]
        return low, high

    def _is_empty(self) -> bool:
        return False

    def _paint(self, painter: QPainter, area: QRectF, start: float, scale: float) -> None:
        """Paint on `area`, whose left edge is the time `start` and where a second is `scale` pixels wide."""
        raise NotImplementedError


class Bands(Layer):
    """All bands of one plot, painted behind everything else, with their names if `named`."""

    def __init__(self, theme: Theme, canvas: "PlotCanvas") -> None:
        super().__init__(theme, canvas)
        self.bands: tuple[Band, ...] = ()
        self.named = True
        self._unnamed: frozenset[str] = frozenset()

    def set_bands(self, bands: Sequence[Band]) -> None:
        if tuple(bands) != self.bands:
            self.bands = tuple(bands)
            self._canvas.renew()

    def unnamed_at(self, time: float) -> str:
        """Return the name of the band at a time if it is not painted; else ""."""
        names = (band.name for band in self.bands if band.start <= time < band.end and band.name in self._unnamed)
        return next(names, "")

    def _paint(self, painter: QPainter, area: QRectF, start: float, scale: float) -> None:
        unnamed = set()
        for index, band in enumerate(self.bands):
            left = max(area.left() + (band.start - start) * scale, area.left())
            right = min(area.left() + (band.end - start) * scale, area.right())
            if left < right:
                band_area = QRectF(QPointF(left, area.top()), QPointF(right, area.bottom()))
                if not self._paint_band(painter, band_area, band, shaded=index % 2 == 0):
                    unnamed.add(band.name)
        self._unnamed = frozenset(unnamed)

    def _paint_band(self, painter: QPainter, area: QRectF, band: Band, *, shaded: bool) -> bool:
        colours = self._theme.colours
        if band.strong or shaded:
            painter.fillRect(area, QColor(colours.band_measure if band.strong else colours.band))
        painter.setPen(QPen(QColor(colours.line), 1))
        painter.drawLine(area.topLeft(), area.bottomLeft())
        text_area = area.adjusted(_NAME_MARGIN, 2, 0, 0)
        fits = self.named and painter.fontMetrics().horizontalAdvance(band.name) <= text_area.width()
        if fits:
            painter.setPen(QColor(colours.muted))
            painter.drawText(text_area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop, band.name)
        return fits


class Marks(Layer):
    """Moments as lines with their names, strips at the bottom, and the crosshair, in front of the curves."""

    def __init__(self, theme: Theme, canvas: "PlotCanvas") -> None:
        super().__init__(theme, canvas)
        self._moments: tuple[Marker, ...] = ()
        self._strips: tuple[Strip, ...] = ()
        self._crosshair: float | None = None

    def set_marks(self, moments: Sequence[Marker], strips: Sequence[Strip]) -> None:
        if (tuple(moments), tuple(strips)) != (self._moments, self._strips):
            self._moments, self._strips = tuple(moments), tuple(strips)
            self._canvas.viewport().update()

    def set_crosshair(self, time: float | None) -> None:
        if time != self._crosshair:
            self._crosshair = time
            self._canvas.viewport().update()

    def _is_empty(self) -> bool:
        return not self._moments and not self._strips and self._crosshair is None

    def _paint(self, painter: QPainter, area: QRectF, start: float, scale: float) -> None:
        self._paint_strips(painter, area, start, scale)
        self._paint_moments(painter, area, start, scale)
        if self._crosshair is not None:
            at = area.left() + (self._crosshair - start) * scale
            self._paint_line(painter, area, at, self._theme.colours.muted)

    def _paint_strips(self, painter: QPainter, area: QRectF, start: float, scale: float) -> None:
        """Paint all visible strips, and the name over the first of each name, on a background."""
        named: dict[str, QRectF] = {}
        for strip in self._strips:
            left = max(area.left() + (strip.start - start) * scale, area.left())
            right = min(area.left() + (strip.end - start) * scale, area.right())
            if right > left:
                foot = area.bottom() - (strip.line + 1) * (_STRIP_PX + 1)
                bar = QRectF(left, foot, max(1.0, right - left), _STRIP_PX)
                painter.fillRect(bar, self._theme.curve_colour(strip.colour))
                named[strip.name] = named.get(strip.name, bar).united(bar)
        for name, bars in named.items():
            width, height = painter.fontMetrics().horizontalAdvance(name) + 1, painter.fontMetrics().height()
            name_area = QRectF(min(bars.left(), area.right() - width), bars.top() - height, width, height)
            painter.fillRect(name_area, QColor(self._theme.colours.surface))
            painter.setPen(QColor(self._theme.colours.muted))
            painter.drawText(name_area, Qt.AlignmentFlag.AlignLeft, name)

    def _paint_moments(self, painter: QPainter, area: QRectF, start: float, scale: float) -> None:
        """Paint a line per marker, with its name on a background at the right, or at the left without room."""
        metrics = painter.fontMetrics()
        ends = [*(area.left() + (moment.time - start) * scale for moment in self._moments), area.right()]
        for moment, (at, following) in zip(self._moments, pairwise(ends), strict=True):
            if not area.left() <= at <= area.right():
                continue
            self._paint_line(painter, area, at, self._theme.colours.bad)
            label_area = QRectF(at, area.top() + metrics.height() + 2, 0, metrics.height())
            width = metrics.horizontalAdvance(moment.name) + 2 * _NAME_MARGIN
            label_area = (
                label_area.adjusted(0, 0, width, 0) if following - at > width else label_area.adjusted(-width, 0, 0, 0)
            )
            painter.fillRect(label_area, QColor(self._theme.colours.bad))
            painter.setPen(QColor(self._theme.colours.surface))
            painter.drawText(label_area, Qt.AlignmentFlag.AlignCenter, moment.name)

    def _paint_line(self, painter: QPainter, area: QRectF, at: float, colour: str) -> None:
        if area.left() <= at <= area.right():
            painter.setPen(QPen(QColor(colour), 1))
            painter.drawLine(QPointF(round(at), area.top()), QPointF(round(at), area.bottom()))


_MARK_DISTANCE_PX = 400
_MARK_ROOM_PX = 45
_FIRST_MARK_PX = 30


@dataclass(frozen=True, slots=True, eq=False)
class MarkedLine:
    """A drawn line, and the letters that distinguish it."""

    line: Stroke
    colour: QColor
    mark: str


class CurveMarks(Layer):
    """Marks over the curves of one plot. They stay in their columns instead of moving with the time."""

    def __init__(self, theme: Theme, canvas: "PlotCanvas") -> None:
        super().__init__(theme, canvas)
        self._lines: tuple[MarkedLine, ...] = ()
        self._marks: dict[tuple[str, str, float], QPixmap] = {}

    def set_lines(self, lines: Sequence[MarkedLine]) -> None:
        """Replace all lines; the caller has them painted."""
        self._lines = tuple(lines)

    def _is_empty(self) -> bool:
        return not self._lines

    def _paint(self, painter: QPainter, area: QRectF, _start: float, _scale: float) -> None:
        """Paint every mark at least once, farther apart the more there are, and never two curves' marks as one."""
        clip = painter.clipBoundingRect()
        distance = max(_MARK_DISTANCE_PX, _MARK_ROOM_PX * len(self._lines))
        for number, marked in enumerate(self._lines):
            first = _FIRST_MARK_PX + number * min(distance, area.width() - 2 * _FIRST_MARK_PX) / len(self._lines)
            for x in np.arange(first, area.width() - MARK_PX / 2, distance).tolist():
                if not clip.left() - MARK_PX < area.left() + x < clip.right() + MARK_PX:
                    continue
                y = self._y_at(marked.line, x / area.width(), area)
                if y is not None:
                    y = min(max(y, area.top() + MARK_PX / 2), area.bottom() - MARK_PX / 2)
                    pixmap = self._mark(marked, painter.device().devicePixelRatioF())
                    painter.drawPixmap(QPointF(area.left() + x - MARK_PX / 2, y - MARK_PX / 2), pixmap)

    def _y_at(self, line: Stroke, share: float, area: QRectF) -> float | None:
        """Return the pixel row of a line at a share of the width; None if it is out of view or has no point there."""
        column = min(int(share * len(line.low)), len(line.low) - 1)
        value = float(line.low[column] + line.high[column]) / 2
        bottom, top = self.view_values
        y = area.bottom() - (value - bottom) / ((top - bottom) or 1.0) * area.height()
        return y if area.top() <= y <= area.bottom() else None

    def _mark(self, line: MarkedLine, ratio: float) -> QPixmap:
        key = (line.mark, line.colour.name(), ratio)
        if key not in self._marks:
            middle, theme = QPointF(MARK_PX / 2, MARK_PX / 2), self._theme
            self._marks[key] = painted_pixmap(
                QSize(MARK_PX, MARK_PX),
                lambda painter: paint_mark(painter, middle, line.colour, line.mark, theme),
                ratio,
            )
        return self._marks[key]
