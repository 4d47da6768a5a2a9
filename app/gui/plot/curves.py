"""All curves of one plot as one image, painted pixel column by pixel column: its cost does not depend on the data.

A painter strokes a line a pixel at a time down its height, 1.1 ms for white noise on 1,300 x 120 pixels; filling the
columns of an array takes 0.1 ms whatever the curve.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPoint, QRectF
from PySide6.QtGui import QColor, QImage, QPainter

from app.analysis.pyramid import Stroke
from app.records import Floats

if TYPE_CHECKING:
    import pyqtgraph as pg

Dash = tuple[int, ...]
"""Pixels drawn and left out in turn; empty for a line without gaps."""

_MAX_BYTE_ROWS = 254
"""Rows are counted in one byte where they fit, two otherwise; one number is kept for "nowhere"."""


class _Raster:
    """Arrays of one size to draw in; made once, for large ones cost more to make than to fill.

    A pixel is the rank of its colour, in one byte: a quarter of the memory to go through.
    """

    def __init__(self, rows: int, columns: int) -> None:
        row_type = np.uint8 if rows <= _MAX_BYTE_ROWS else np.uint16
        self.ranks = np.zeros((rows, columns), dtype=np.uint8)
        self._layer = np.empty((rows, columns), dtype=np.uint8)
        self._row = np.arange(rows, dtype=row_type)[:, np.newaxis]
        self._below = np.empty((rows, columns), dtype=row_type)
        self._covered = np.empty((rows, columns), dtype=np.bool_)

    def draw(self, first: Floats, depth: Floats, rank: int, *, over: bool) -> None:
        """Fill every column from a row down.

        Args:
            first: The uppermost row of each column.
            depth: The rows below it to fill.
            rank: The pixel value.
            over: Keep what is there; of two ranks the higher is seen.
        """
        row_type = self._below.dtype
        np.subtract(self._row, first.astype(row_type), out=self._below)
        np.less_equal(self._below, depth.astype(row_type), out=self._covered)
        np.multiply(self._covered.view(np.uint8), np.uint8(rank), out=self._layer if over else self.ranks)
        if over:
            np.maximum(self.ranks, self._layer, out=self.ranks)

    def image(self, colours: Sequence[int]) -> QImage:
        """Return what is drawn, with these colours in the order of their ranks; rank 0 is clear."""
        rows, columns = self.ranks.shape
        image = QImage(self.ranks.data, columns, rows, columns, QImage.Format.Format_Indexed8)
        image.setColorTable([0, *colours])
        image.convertTo(QImage.Format.Format_ARGB32)
        image.reinterpretAsFormat(QImage.Format.Format_ARGB32_Premultiplied)
        return image


class Curves:
    """The strokes of one plot, first to last, behind nothing but the marks."""

    def __init__(self, view: "pg.ViewBox") -> None:
        self._view = view
        self._strokes: tuple[tuple[Stroke, QColor, Dash], ...] = ()
        self._image: QImage | None = None
        self._raster = _Raster(1, 1)
        self._rendered_as: tuple[float, float, int, int] = (0.0, 0.0, 0, 0)

    def set_strokes(self, strokes: Sequence[tuple[Stroke, QColor, Dash]]) -> None:
        """Replace all curves, each with its colour and its dash; the caller has the view painted again."""
        self._strokes = tuple(strokes)
        self._image = None

    def paint(self, painter: QPainter, area: QRectF) -> None:
        """Lay the image over the view, made anew where curves, range or size have changed."""
        if not self._strokes:
            return
        ratio = painter.device().devicePixelRatioF()
        bottom, top = self._view.viewRange()[1]
        rendered_as = (bottom, top, max(2, round(area.height() * ratio)), round(ratio))
        if self._image is None or rendered_as != self._rendered_as:
            self._rendered_as = rendered_as
            self._image = self._render(*rendered_as)
        self._image.setDevicePixelRatio(ratio)
        painter.drawImage(QPoint(round(area.left()), round(area.top())), self._image)

    def _render(self, bottom: float, top: float, rows: int, thickness: int) -> QImage:
        columns = len(self._strokes[0][0].low)
        if self._raster.ranks.shape != (rows, columns):
            self._raster = _Raster(rows, columns)
        # Of two colours the more opaque, then the larger one is seen.
        pixels = [_premultiplied(colour) for _, colour, _ in self._strokes]
        colours = sorted(set(pixels))
        for index, (line, _, dash) in enumerate(self._strokes):
            first, depth = _row_extents(line, bottom, top, rows, thickness)
            if dash:
                gaps = _dash_gaps(dash, columns, thickness)
                gaps[np.clip(np.add.outer(line.dots, (-1, 0, 1)), 0, columns - 1)] = False
                first[gaps], depth[gaps] = rows, 0
            self._raster.draw(first, depth, colours.index(pixels[index]) + 1, over=index > 0)
        return self._raster.image(colours)


def _premultiplied(colour: QColor) -> int:
    """Return the pixel of a colour in the format of the image."""
    alpha = colour.alpha()
    red, green, blue = (part * alpha // 255 for part in (colour.red(), colour.green(), colour.blue()))
    return alpha << 24 | red << 16 | green << 8 | blue


def _row_extents(line: Stroke, bottom: float, top: float, rows: int, thickness: int) -> tuple[Floats, Floats]:
    """Return for every column the uppermost row of a stroke and how many rows it reaches below that.

    On screens with several device pixels to one, a level line is as thick as one.
    """
    scale = (rows - 1) / ((top - bottom) or 1.0)
    first = np.rint((top - line.high) * scale)
    last = np.rint((top - line.low) * scale) + (thickness - 1)
    if len(line.dots):
        for side in (-1, 1):
            adjacent = np.clip(line.dots + side, 0, len(first) - 1)
            first[adjacent], last[adjacent] = first[line.dots] - 1, last[line.dots] + 1
        first[line.dots] -= 1
        last[line.dots] += 1
    outside = ~((last >= 0) & (first <= rows - 1))
    first = np.maximum(first, 0)
    depth = np.minimum(last, rows - 1) - first
    first[outside] = rows
    depth[outside] = 0
    return first, depth


def _dash_gaps(dash: Dash, columns: int, thickness: int) -> NDArray[np.bool_]:
    """Return the pixel columns that a dash leaves out."""
    ends = np.cumsum(dash) * thickness
    turn = np.searchsorted(ends, np.arange(columns) % ends[-1], side="right")
    return np.asarray(turn % 2 == 1)
