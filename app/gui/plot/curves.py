"""All curves of one plot as one image, painted pixel column by pixel column: its cost does not depend on the data.

A painter strokes a line a pixel at a time down its height, 1.1 ms for white noise on 1,300 x 120 pixels; filling the
columns of an array takes 0.1 ms whatever the curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPoint, QRectF
from PySide6.QtGui import QColor, QImage, QPainter

from app.analysis.strokes import ColumnIndices, Stroke, continued_stroke
from app.gui.plot.overlays import MarkedLine
from app.gui.theme import Theme
from app.values.records import Floats
from app.viewmodels.charts.palette import dash_pattern
from app.viewmodels.plot.model import CurveSource, Look, ShiftedCurve, Span

if TYPE_CHECKING:
    import pyqtgraph as pg

Dash = tuple[int, ...]
"""Pixels drawn and left out in turn; empty for a line without gaps."""

_MAX_BYTE_ROWS = 254
"""Rows are counted in one byte where they fit, two otherwise; one number is kept for "nowhere"."""
_RASTERS = 4
"""Plots of that many sizes are painted in turn without making arrays again."""


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
    """The strokes of one plot, first to last, behind nothing but the marks; their image is kept while they stand."""

    def __init__(self, view: "pg.ViewBox") -> None:
        self._view = view
        self._strokes: tuple[Drawn, ...] = ()
        self.release()

    def release(self) -> None:
        """Give the memory of the image back until it is painted again."""
        self._rendered: tuple[Drawn, ...] = ()
        self._image = QImage()
        self._rendered_as: tuple[float, float, int, float] = (0.0, 0.0, 0, 0.0)

    def set_strokes(self, strokes: Sequence[Drawn]) -> None:
        """Replace all curves, each with its colour and its dash; the caller has them painted."""
        self._strokes = tuple(strokes)

    def paint(self, painter: QPainter, area: QRectF) -> None:
        """Lay the image over the view, drawn again where curves, range or size have changed."""
        if not self._strokes:
            return
        ratio = painter.device().devicePixelRatioF()
        bottom, top = self._view.viewRange()[1]
        rendered_as = (bottom, top, max(2, round(area.height() * ratio)), ratio)
        if rendered_as != self._rendered_as or self._strokes is not self._rendered:
            self._rendered, self._rendered_as = self._strokes, rendered_as
            self._render()
        painter.drawImage(QPoint(round(area.left()), round(area.top())), self._image)

    def _render(self) -> None:
        _, _, rows, ratio = self._rendered_as
        raster = _raster(rows, len(self._rendered[0][0].low))
        pixels = [_premultiplied(colour) for _, colour, _ in self._rendered]
        colours = sorted(set(pixels))
        firsts, lengths = self._extents()
        for index, pixel in enumerate(pixels):
            raster.draw(firsts[index], lengths[index], colours.index(pixel) + 1, over=index > 0)
        self._image = raster.image(colours)
        self._image.setDevicePixelRatio(ratio)

    def _extents(self) -> tuple[Floats, Floats]:
        bottom, top, rows, ratio = self._rendered_as
        firsts, lengths = _row_extents([line for line, *_ in self._rendered], bottom, top, rows, round(ratio))
        for (line, _, dash), length in zip(self._rendered, lengths, strict=True):
            if dash:
                ends = np.cumsum(dash) * round(ratio)
                number = round(line.start / line.width) + np.arange(len(line.low))
                turn = np.searchsorted(ends, number % ends[-1], side="right")
                gaps = np.asarray(turn % 2 == 1)
                gaps[np.clip(np.add.outer(line.dots, (-1, 0, 1)), 0, len(gaps) - 1)] = False
                length[gaps] = 0
        return firsts, lengths


def _premultiplied(colour: QColor) -> int:
    alpha = colour.alpha()
    red, green, blue = (part * alpha // 255 for part in (colour.red(), colour.green(), colour.blue()))
    return alpha << 24 | red << 16 | green << 8 | blue


def _row_extents(
    lines: Sequence[Stroke], bottom: float, top: float, rows: int, thickness: int
) -> tuple[Floats, Floats]:
    """Return the uppermost row of every stroke in each column, and how many rows it takes.

    Both of shape (strokes, columns). On screens with several device pixels to one, a level line is as thick as one.
    """
    scale = (rows - 1) / ((top - bottom) or 1.0)
    ends = np.array([[line.high for line in lines], [line.low for line in lines]])
    np.multiply(np.subtract(top, ends, out=ends), scale, out=ends)  # in place: many curves take a megabyte
    first, end = np.rint(ends, out=ends)
    end += thickness
    for line, upper, lower in zip(lines, first, end, strict=True):
        if len(line.dots):
            _widen(line.dots, upper, lower)
    first, end = (np.fmin(np.fmax(edge, 0, out=edge), rows, out=edge) for edge in (first, end))
    return first, np.fmax(np.subtract(end, first, out=end), 0, out=end)


def _widen(dots: ColumnIndices, first: Floats, end: Floats) -> None:
    """Paint columns that stand alone three by three."""
    upper, lower = first[dots] - 1, end[dots] + 1
    for side in (-1, 0, 1):
        around = np.clip(dots + side, 0, len(first) - 1)
        first[around], end[around] = upper, lower


_SOLID, _EDGE, _FAINT, _SHADE = 255, 150, 80, 45
"""Opacity of a line, of the edges of a spread, of what lies behind a smoothed or raised line, and within a spread."""
_REACH_COLUMNS = 4
"""Pixel columns at both sides of the pointer in which a curve is looked for."""

Spread = tuple[CurveSource, CurveSource]
"""The lowest and the highest of several curves."""


@dataclass(slots=True)
class PanelCurve:
    """A curve and what is drawn of it, the line last, each with its opacity; nothing until it is seen.

    Strokes that are not `current` are those of earlier data or another range of time.
    """

    colour: int
    label: str
    source: CurveSource
    mark: str = ""
    spread: Spread | None = None
    strokes: list[tuple[Stroke, int]] = field(default_factory=list)
    current: bool = False

    @property
    def line(self) -> Stroke | None:
        return self.strokes[-1][0] if self.strokes else None

    def take_over(self, shorter: "PanelCurve") -> None:
        if (_unshifted(shorter.source), shorter.spread) == (_unshifted(self.source), None):
            self.strokes = shorter.strokes

    def draw(self, look: Look, span: Span, columns: int) -> None:
        """Make the strokes of a range of time, as the user wants to see them."""
        source = _unshifted(self.source)
        origin = self.source.origin_s if isinstance(self.source, ShiftedCurve) else 0.0

        def stroke(source: CurveSource, earlier: Stroke | None = None) -> Stroke:
            return continued_stroke(earlier, source.window, span[0] + origin, span[1] + origin, columns)

        raw = stroke(look.drawn(source), self.strokes[0][0] if len(self.strokes) == 1 else None)
        smoothed = look.smoothed(source)
        self.strokes = [(raw, _SOLID if smoothed is None else _FAINT)]
        if smoothed is not None:
            self.strokes.append((stroke(smoothed), _SOLID))
        if self.spread is not None:
            low, high = (stroke(look.drawn(_unshifted(edge))) for edge in self.spread)
            self.strokes[:0] = [
                (replace(low, high=high.high, top=high.top, dots=low.dots[:0]), _SHADE),
                (low, _EDGE),
                (high, _EDGE),
            ]
        self.current = True


def _unshifted(source: CurveSource) -> CurveSource:
    return ShiftedCurve(source.source, 0.0, source.scale) if isinstance(source, ShiftedCurve) else source


class DrawnCurves(dict[str, PanelCurve]):
    """Curves by key, in the order they came; drawn again where data, range or look have changed."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.look = Look()
        self.hidden: frozenset[str] = frozenset()
        self.raised = ""

    def shown_keys(self) -> tuple[str, ...]:
        """Return the keys of the curves that are not hidden."""
        return tuple(key for key in self if key not in self.hidden)

    def __setitem__(self, key: str, curve: PanelCurve) -> None:
        if key in self:
            curve.take_over(self[key])
        super().__setitem__(key, curve)

    def redraw(self, *, moved: bool = False) -> None:
        """Draw every curve again the next time; of those that only `moved` what is still in view is kept."""
        for curve in self.values():
            curve.current = False
            if not moved:
                curve.strokes = []

    def draw(self, span: Span, columns: int) -> list[tuple[Stroke, QColor, Dash]]:
        drawn: list[tuple[Stroke, QColor, Dash]] = []
        for key in self.shown_keys():
            curve = self[key]
            if not curve.current:
                curve.draw(self.look, span, columns)
            share = _FAINT / _SOLID if self._is_faint(key) else 1.0
            for stroke, opacity in curve.strokes:
                colour = self._theme.curve_colour(curve.colour)
                if share * opacity < _SOLID:
                    colour.setAlpha(round(share * opacity))
                drawn.append((stroke, colour, dash_pattern(curve.colour)))
        return drawn

    def marked(self) -> list[MarkedLine]:
        """Return the lines that were drawn and have a mark; faint ones have none."""
        curves = [self[key] for key in self.shown_keys() if not self._is_faint(key)]
        return [
            MarkedLine(curve.line, self._theme.curve_colour(curve.colour), curve.mark)
            for curve in curves
            if curve.mark and curve.line is not None
        ]

    def nearest(self, share: float, value: float, reach: float) -> str:
        """Return the key of the curve nearest to a position, as it is drawn; "" if none is within reach.

        `share` is on the width, from 0 to 1; value and reach are in the unit of the axis.
        """
        distances = {}
        for key in self.shown_keys():
            line = self[key].line
            if line is None:
                continue
            at = int(share * len(line.low))
            columns = slice(max(0, at - _REACH_COLUMNS), max(0, at + _REACH_COLUMNS + 1))
            away = np.fmax(np.fmax(line.low[columns] - value, value - line.high[columns]), 0.0)
            if np.isfinite(away).any():
                distances[key] = float(np.nanmin(away))
        key = min(distances, key=lambda key: distances[key], default="")
        return key if key and distances[key] <= reach else ""

    def _is_faint(self, key: str) -> bool:
        """Return whether another curve is raised."""
        return self.raised != key and self.raised in self
