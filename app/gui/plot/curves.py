"""The curves of one plot, painted pixel column by pixel column: their cost does not depend on the data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter, QPen

from app.analysis.pyramid import Stroke, stroke_columns
from app.gui.plot.overlays import MarkedLine
from app.gui.theme import Theme
from app.viewmodels.charts.palette import dash_pattern
from app.viewmodels.plot.model import CurveSource, Look, ShiftedCurve, Span

if TYPE_CHECKING:
    import pyqtgraph as pg

Dash = tuple[int, ...]
"""Pixels drawn and skipped in turn; empty for a solid line."""

Drawn = tuple[Stroke, QColor, Dash, int]
"""A line, its colour and dash, and its first column's number since time zero, which keeps the dash in place."""


class Curves:
    """The strokes of one plot, first to last, behind only the marks."""

    def __init__(self, view: "pg.ViewBox") -> None:
        self._view = view
        self._strokes: tuple[Drawn, ...] = ()

    def set_strokes(self, strokes: Sequence[Drawn]) -> None:
        """Replace all curves with their colours and dashes; the caller has them painted."""
        self._strokes = tuple(strokes)

    def paint(self, painter: QPainter, area: QRectF) -> None:
        from pyqtgraph.functions import arrayToQPath  # here: the window's first paint does not wait for it

        bottom, top = self._view.viewRange()[1]
        scale = area.height() / ((top - bottom) or 1.0)
        painter.save()
        for line, colour, dash, number in self._strokes:
            width, columns = area.width() / len(line.low), np.arange(len(line.low))
            x = area.left() + (columns + 0.5) * width
            ends = area.bottom() - (np.stack([line.low, line.high], axis=1) - bottom) * scale
            if dash:
                turn = np.searchsorted(np.cumsum(dash), (number + columns) * width % sum(dash), side="right")
                gaps = turn % 2 == 1
                gaps[line.dots] = False
                ends[gaps] = np.nan
            painter.setPen(QPen(colour, 1))
            connect = "pairs" if colour.alpha() <= _SHADE else "finite"  # a shade fills columns, a line meets itself
            painter.drawPath(arrayToQPath(np.repeat(x, 2), ends.ravel(), connect=connect))
            for at in line.dots.tolist():
                painter.fillRect(QRectF(x[at] - 1.5, ends[at, 1] - 1.5, 3, 3), colour)
        painter.restore()


_SOLID, _EDGE, _FAINT, _SHADE = 255, 150, 80, 45
"""Opacity of a line, of a spread's edges, of lines behind a smoothed or raised one, and within a spread."""
_REACH_COLUMNS = 4
"""Pixel columns on both sides of the pointer in which curves are searched."""

Spread = tuple[CurveSource, CurveSource]
"""The lowest and the highest of several curves."""


@dataclass(slots=True)
class PanelCurve:
    """A curve and its strokes, the line last, each with its opacity; none until it is visible.

    Strokes that are not `current` show earlier data or another range of time.
    """

    colour: int
    label: str
    source: CurveSource
    mark: str = ""
    spread: Spread | None = None
    strokes: list[tuple[Stroke, int]] = field(default_factory=list)
    number: int = 0
    current: bool = False

    @property
    def line(self) -> Stroke | None:
        return self.strokes[-1][0] if self.strokes else None

    def draw(self, look: Look, span: Span, columns: int) -> None:
        """Create the strokes for a range of time, in the user's look.

        They begin up to a column earlier, because columns that moved over the data would make the curve shimmer.
        """
        origin = self.source.origin_s if isinstance(self.source, ShiftedCurve) else 0.0
        width = (span[1] - span[0]) / columns
        self.number = math.floor((span[0] + origin) / width)
        start = self.number * width - origin
        end = start + columns * width

        def stroke(source: CurveSource) -> Stroke:
            return stroke_columns(source.window(start, end, columns), start, end, columns)

        smoothed = look.smoothed(self.source)
        self.strokes = [(stroke(look.drawn(self.source)), _SOLID if smoothed is None else _FAINT)]
        if smoothed is not None:
            self.strokes.append((stroke(smoothed), _SOLID))
        if self.spread is not None:
            low, high = (stroke(look.drawn(edge)) for edge in self.spread)
            self.strokes[:0] = [
                (replace(low, high=high.high, top=high.top, dots=low.dots[:0]), _SHADE),
                (low, _EDGE),
                (high, _EDGE),
            ]
        self.current = True


class DrawnCurves(dict[str, PanelCurve]):
    """Curves by key, in order of arrival; redrawn when data, range or look have changed."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.look = Look()
        self.hidden: frozenset[str] = frozenset()
        self.raised = ""

    def shown_keys(self) -> tuple[str, ...]:
        """Return the keys of the curves that are not hidden."""
        return tuple(key for key in self if key not in self.hidden)

    def redraw(self) -> None:
        """Redraw every curve the next time."""
        for curve in self.values():
            curve.current = False

    def draw(self, span: Span, columns: int) -> list[Drawn]:
        drawn: list[Drawn] = []
        for key in self.shown_keys():
            curve = self[key]
            if not curve.current:
                curve.draw(self.look, span, columns)
            share = _FAINT / _SOLID if self._is_faint(key) else 1.0
            for stroke, opacity in curve.strokes:
                colour = self._theme.curve_colour(curve.colour)
                if share * opacity < _SOLID:
                    colour.setAlpha(round(share * opacity))
                drawn.append((stroke, colour, dash_pattern(curve.colour), curve.number))
        return drawn

    def marked(self) -> list[MarkedLine]:
        """Return the drawn lines with a mark; faint ones have none."""
        curves = [self[key] for key in self.shown_keys() if not self._is_faint(key)]
        return [
            MarkedLine(curve.line, self._theme.curve_colour(curve.colour), curve.mark)
            for curve in curves
            if curve.mark and curve.line is not None
        ]

    def nearest(self, share: float, value: float, reach: float) -> str:
        """Return the key of the drawn curve nearest to a position; "" if none is within reach.

        `share` is a share of the width, from 0 to 1; value and reach are in the axis's unit.
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
