"""All curves of one plot as one image, painted pixel column by pixel column: its cost does not depend on the data.

A painter strokes a line a pixel at a time down its height, 1.1 ms for white noise on 1,300 x 120 pixels; filling the
columns of an array takes 0.1 ms whatever the curve.
"""

from collections.abc import Sequence
from functools import lru_cache
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
_DOT_REACH = 2
"""A changed column changes what is painted so many columns to its left: one that stands alone is painted wider."""
_RASTERS = 4
"""Plots of so many sizes are painted in turn without making arrays anew."""


Drawn = tuple[Stroke, QColor, Dash]


class _Raster:
    """Arrays of one size to draw in, one plot after another.

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
        """Fill the last columns, so many as are given, from a row down.

        Args:
            first: The uppermost row of each column.
            depth: The rows below it to fill.
            rank: The pixel value.
            over: Keep what is there; of two ranks the higher is seen.
        """
        drawn = np.s_[:, self.ranks.shape[1] - len(first) :]
        below, covered, ranks = self._below[drawn], self._covered[drawn], self.ranks[drawn]
        np.subtract(self._row, first.astype(below.dtype), out=below)
        np.less_equal(below, depth.astype(below.dtype), out=covered)
        layer = self._layer[drawn] if over else ranks
        np.multiply(covered.view(np.uint8), np.uint8(rank), out=layer)
        if over:
            np.maximum(ranks, layer, out=ranks)

    def image(self, colours: Sequence[int]) -> QImage:
        """Return what is drawn, with these colours in the order of their ranks; rank 0 is clear."""
        rows, columns = self.ranks.shape
        image = QImage(self.ranks.data, columns, rows, columns, QImage.Format.Format_Indexed8)
        image.setColorTable([0, *colours])
        image.convertTo(QImage.Format.Format_ARGB32)
        image.reinterpretAsFormat(QImage.Format.Format_ARGB32_Premultiplied)
        return image


@lru_cache(_RASTERS)
def _raster(rows: int, columns: int) -> _Raster:
    """Return the arrays of all plots of this size: large ones cost more to make than to fill, and memory."""
    return _Raster(rows, columns)


class Curves:
    """The strokes of one plot, first to last, behind nothing but the marks.

    Their image is kept: as the time goes on it is moved by whole columns, and only those that changed are drawn.
    """

    def __init__(self, view: "pg.ViewBox") -> None:
        self._view = view
        self._strokes: tuple[Drawn, ...] = ()
        self.release()

    def release(self) -> None:
        """Give the memory of the image back until it is painted again."""
        self._shown: tuple[Drawn, ...] = ()
        self._image = QImage()
        self._pixels: NDArray[np.uint32] = np.empty((0, 0), dtype=np.uint32)
        self._rendered_as: tuple[float, float, int, float] = (0.0, 0.0, 0, 0.0)

    def set_strokes(self, strokes: Sequence[Drawn]) -> None:
        """Replace all curves, each with its colour and its dash; the caller has the view painted again."""
        self._strokes = tuple(strokes)

    def paint(self, painter: QPainter, area: QRectF) -> None:
        """Lay the image over the view, brought up to date where curves, range or size have changed."""
        if not self._strokes:
            return
        ratio = painter.device().devicePixelRatioF()
        bottom, top = self._view.viewRange()[1]
        rendered_as = (bottom, top, max(2, round(area.height() * ratio)), ratio)
        if rendered_as != self._rendered_as or self._strokes is not self._shown:
            moved = _moved(self._shown, self._strokes) if rendered_as == self._rendered_as else None
            self._shown, self._rendered_as = self._strokes, rendered_as
            self._render(*(moved or (0, 0)))
        painter.drawImage(QPoint(round(area.left()), round(area.top())), self._image)

    def _render(self, shift: int, begin: int) -> None:
        """Draw the columns from `begin`, and move those before."""
        bottom, top, rows, ratio = self._rendered_as
        columns, thickness = len(self._shown[0][0].low), round(ratio)
        raster = _raster(rows, columns)
        # Of two colours the more opaque, then the larger one is seen.
        pixels = [_premultiplied(colour) for _, colour, _ in self._shown]
        colours = sorted(set(pixels))
        for index, (line, _, dash) in enumerate(self._shown):
            first, depth = _row_extents(line, bottom, top, rows, thickness, begin)
            if dash:
                gaps = _dash_gaps(dash, line, thickness)
                gaps[np.clip(np.add.outer(line.dots, (-1, 0, 1)), 0, columns - 1)] = False
                first[gaps[begin:]], depth[gaps[begin:]] = rows, 0
            raster.draw(first, depth, colours.index(pixels[index]) + 1, over=index > 0)
        if not begin:
            self._image = raster.image(colours)
            self._image.setDevicePixelRatio(ratio)
            self._pixels = np.frombuffer(self._image.bits(), dtype=np.uint32).reshape(rows, columns)
            return
        if shift:
            self._pixels[:, :-shift] = self._pixels[:, shift:]
        self._pixels[:, begin:] = np.array([0, *colours], dtype=np.uint32)[raster.ranks[:, begin:]]


def _moved(before: Sequence[Drawn], after: Sequence[Drawn]) -> tuple[int, int] | None:
    """Return by how many columns all curves have moved, and the first column that looks different; None if all may."""
    if [each[1:] for each in before] != [each[1:] for each in after]:
        return None
    columns = len(after[0][0].low)
    shifts, begin = set(), columns
    for (old, *_), (new, *_) in zip(before, after, strict=True):
        shift = round((new.start - old.start) / new.width)
        if old.width != new.width or len(old.low) != len(new.low) or not 0 <= shift < columns:
            return None
        common = columns - shift
        # As whole numbers, for NaN is not equal to NaN.
        changed = old.low[shift:].view(np.int64) != new.low[:common].view(np.int64)
        changed |= old.high[shift:].view(np.int64) != new.high[:common].view(np.int64)
        shifts.add(shift)
        begin = min(begin, int(changed.argmax()) if changed.any() else common)
    return (shifts.pop(), max(0, begin - _DOT_REACH)) if len(shifts) == 1 else None


def _premultiplied(colour: QColor) -> int:
    """Return the pixel of a colour in the format of the image."""
    alpha = colour.alpha()
    red, green, blue = (part * alpha // 255 for part in (colour.red(), colour.green(), colour.blue()))
    return alpha << 24 | red << 16 | green << 8 | blue


def _row_extents(
    line: Stroke, bottom: float, top: float, rows: int, thickness: int, begin: int
) -> tuple[Floats, Floats]:
    """Return for every column from `begin` on the uppermost row of a stroke and how many rows it reaches below that.

    On screens with several device pixels to one, a level line is as thick as one.
    """
    scale = (rows - 1) / ((top - bottom) or 1.0)
    before = max(0, begin - 1)
    first = np.rint((top - line.high[before:]) * scale)
    last = np.rint((top - line.low[before:]) * scale) + (thickness - 1)
    dots = line.dots[line.dots >= before] - before
    if len(dots):
        for side in (-1, 1):
            adjacent = np.clip(dots + side, 0, len(first) - 1)
            first[adjacent], last[adjacent] = first[dots] - 1, last[dots] + 1
        first[dots] -= 1
        last[dots] += 1
    first, last = first[begin - before :], last[begin - before :]
    outside = ~((last >= 0) & (first <= rows - 1))
    first = np.maximum(first, 0)
    depth = np.minimum(last, rows - 1) - first
    first[outside] = rows
    depth[outside] = 0
    return first, depth


def _dash_gaps(dash: Dash, line: Stroke, thickness: int) -> NDArray[np.bool_]:
    """Return the pixel columns that a dash leaves out; it moves with the data."""
    ends = np.cumsum(dash) * thickness
    number = round(line.start / line.width) + np.arange(len(line.low))
    turn = np.searchsorted(ends, number % ends[-1], side="right")
    return np.asarray(turn % 2 == 1)
