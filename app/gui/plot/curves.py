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

from app.analysis.strokes import ColumnIndices, Stroke
from app.records import Floats

if TYPE_CHECKING:
    import pyqtgraph as pg

Dash = tuple[int, ...]
"""Pixels drawn and left out in turn; empty for a line without gaps."""

_MAX_BYTE_ROWS = 254
"""Rows are counted in one byte where they fit, two otherwise; one number is kept for "nowhere"."""
_DOT_REACH = 2
"""A changed column changes what is painted so many columns beside it: one that stands alone is painted wider."""
_FEW_COLUMNS = 64
"""So many columns are drawn one by one; arrays cost less only for more of them."""
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

    def draw(self, first: Floats, length: Floats, rank: int, *, over: bool) -> None:
        """Fill every column from a row down.

        Args:
            first: The uppermost row of each column.
            length: How many rows to fill.
            rank: The pixel value.
            over: Keep what is there; of two ranks the higher is seen.
        """
        below, layer = self._below, self._layer if over else self.ranks
        np.subtract(self._row, first.astype(below.dtype), out=below)
        np.less(below, length.astype(below.dtype), out=self._covered)
        np.multiply(self._covered.view(np.uint8), np.uint8(rank), out=layer)
        if over:
            np.maximum(self.ranks, layer, out=self.ranks)

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
        self._moved: tuple[int, range] | None = None
        self._image = QImage()
        self._pixels: NDArray[np.uint32] = np.empty((0, 0), dtype=np.uint32)
        self._rendered_as: tuple[float, float, int, float] = (0.0, 0.0, 0, 0.0)

    def set_strokes(self, strokes: Sequence[Drawn]) -> range | None:
        """Replace all curves, each with its colour and its dash; the caller has them painted.

        Returns:
            The pixel columns that look different from those that were painted last; None for all.
        """
        self._strokes = tuple(strokes)
        self._moved = _moved(self._shown, self._strokes)
        return self._moved[1] if self._moved is not None and self._moved[0] == 0 else None

    def paint(self, painter: QPainter, area: QRectF) -> None:
        """Lay the image over the view, brought up to date where curves, range or size have changed."""
        if not self._strokes:
            return
        ratio = painter.device().devicePixelRatioF()
        bottom, top = self._view.viewRange()[1]
        rendered_as = (bottom, top, max(2, round(area.height() * ratio)), ratio)
        if rendered_as != self._rendered_as or self._strokes is not self._shown:
            moved = self._moved if rendered_as == self._rendered_as else None
            self._shown, self._rendered_as = self._strokes, rendered_as
            if moved is None or len(moved[1]) > _FEW_COLUMNS:
                self._render()
            elif moved[1]:
                self._render_columns(*moved)
        painter.drawImage(QPoint(round(area.left()), round(area.top())), self._image)

    def _render(self) -> None:
        """Draw all columns."""
        _, _, rows, ratio = self._rendered_as
        columns = len(self._shown[0][0].low)
        raster = _raster(rows, columns)
        pixels = self._colours()
        colours = sorted(set(pixels))
        firsts, lengths = self._extents(range(columns))
        for index, pixel in enumerate(pixels):
            raster.draw(firsts[index], lengths[index], colours.index(pixel) + 1, over=index > 0)
        self._image = raster.image(colours)
        self._image.setDevicePixelRatio(ratio)
        self._pixels = np.frombuffer(self._image.bits(), dtype=np.uint32).reshape(rows, columns)

    def _render_columns(self, shift: int, columns: range) -> None:
        """Move all columns to the left, and draw these anew."""
        if shift:
            line = self._pixels.reshape(-1)  # rows one after the other: what comes in at the right is drawn anew
            line[:-shift] = line[shift:]
        pixels = self._colours()
        firsts, lengths = (each.astype(np.intp).tolist() for each in self._extents(columns))
        drawn = np.zeros((len(columns), len(self._pixels)), dtype=np.uint32)
        for index in sorted(range(len(pixels)), key=lambda index: pixels[index]):
            for column, first, length in zip(drawn, firsts[index], lengths[index], strict=True):
                column[first : first + length] = pixels[index]
        self._pixels[:, columns.start : columns.stop] = drawn.T

    def _colours(self) -> list[int]:
        """Return the pixel of each curve. Of two colours the more opaque, then the larger one is seen."""
        return [_premultiplied(colour) for _, colour, _ in self._shown]

    def _extents(self, columns: range) -> tuple[Floats, Floats]:
        """Return the uppermost row of every curve in these columns, and how many rows it takes."""
        bottom, top, rows, ratio = self._rendered_as
        lines = [line for line, *_ in self._shown]
        firsts, lengths = _row_extents(lines, bottom, top, rows, round(ratio), columns)
        for (line, _, dash), length in zip(self._shown, lengths, strict=True):
            if dash:
                gaps = _dash_gaps(dash, line, round(ratio))
                gaps[np.clip(np.add.outer(line.dots, (-1, 0, 1)), 0, len(gaps) - 1)] = False
                length[gaps[columns.start : columns.stop]] = 0
        return firsts, lengths


def _moved(before: Sequence[Drawn], after: Sequence[Drawn]) -> tuple[int, range] | None:
    """Return by how many columns all curves have moved, and which then look different; None if all may."""
    if not before or [each[1:] for each in before] != [each[1:] for each in after]:
        return None
    changes = [new.changed_since(old) for (old, *_), (new, *_) in zip(before, after, strict=True)]
    known = [each for each in changes if each is not None]
    shift = known[0][0] if known else 0
    if len(known) < len(changes) or any(each[0] != shift for each in known):
        return None
    changed = [columns for _, columns in known if columns]
    if not changed:
        return shift, range(0)
    first, stop = min(each.start for each in changed), max(each.stop for each in changed)
    return shift, range(max(0, first - _DOT_REACH), min(len(after[0][0].low), stop + _DOT_REACH))


def _premultiplied(colour: QColor) -> int:
    """Return the pixel of a colour in the format of the image."""
    alpha = colour.alpha()
    red, green, blue = (part * alpha // 255 for part in (colour.red(), colour.green(), colour.blue()))
    return alpha << 24 | red << 16 | green << 8 | blue


def _row_extents(
    lines: Sequence[Stroke], bottom: float, top: float, rows: int, thickness: int, columns: range
) -> tuple[Floats, Floats]:
    """Return the uppermost row of every stroke in these columns, and how many rows it takes.

    Both of shape (strokes, columns). On screens with several device pixels to one, a level line is as thick as one.
    """
    scale = (rows - 1) / ((top - bottom) or 1.0)
    before = max(0, columns.start - 1)
    around = slice(before, columns.stop + 1)
    ends = np.array([[line.high[around] for line in lines], [line.low[around] for line in lines]])
    np.multiply(np.subtract(top, ends, out=ends), scale, out=ends)  # in place: many curves take a megabyte
    first, end = np.rint(ends, out=ends)
    end += thickness
    for line, upper, lower in zip(lines, first, end, strict=True):
        if len(line.dots):
            _widen(line.dots[(line.dots >= before) & (line.dots <= columns.stop)] - before, upper, lower)
    wanted = np.s_[:, columns.start - before : columns.stop - before]
    first, end = (np.fmin(np.fmax(edge, 0, out=edge), rows, out=edge) for edge in (first[wanted], end[wanted]))
    return first, np.fmax(np.subtract(end, first, out=end), 0, out=end)


def _widen(dots: ColumnIndices, first: Floats, end: Floats) -> None:
    """Paint columns that stand alone three by three."""
    upper, lower = first[dots] - 1, end[dots] + 1
    for side in (-1, 0, 1):
        around = np.clip(dots + side, 0, len(first) - 1)
        first[around], end[around] = upper, lower


def _dash_gaps(dash: Dash, line: Stroke, thickness: int) -> NDArray[np.bool_]:
    """Return the pixel columns that a dash leaves out; it moves with the data."""
    ends = np.cumsum(dash) * thickness
    number = round(line.start / line.width) + np.arange(len(line.low))
    turn = np.searchsorted(ends, number % ends[-1], side="right")
    return np.asarray(turn % 2 == 1)
