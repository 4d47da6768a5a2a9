"""The curves of one plot as strokes: raw and smoothed, with their spreads; hidden, faint and raised ones."""

from dataclasses import dataclass, field, replace

import numpy as np
from PySide6.QtGui import QColor

from app.analysis.strokes import Stroke, continued_stroke
from app.gui.plot.curves import Dash
from app.gui.plot.labels import LabelledLine
from app.gui.theme import Theme
from app.viewmodels.charts.palette import dash_pattern
from app.viewmodels.plot.look import Look
from app.viewmodels.plot.model import CurveSource, ShiftedCurve, Span

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
    end_name: str = ""
    spread: Spread | None = None
    strokes: list[tuple[Stroke, int]] = field(default_factory=list)
    current: bool = False

    @property
    def line(self) -> Stroke | None:
        """The line as it was drawn last; None before that."""
        return self.strokes[-1][0] if self.strokes else None

    def take_over(self, before: "PanelCurve") -> None:
        """Keep what was drawn of the same curve when it was shorter."""
        if (_unshifted(before.source), before.spread) == (_unshifted(self.source), None):
            self.strokes = before.strokes

    def draw(self, look: Look, span: Span, columns: int) -> None:
        """Make the strokes of a range of time, as the user wants to see them."""
        source = _unshifted(self.source)
        origin = self.source.origin_s if isinstance(self.source, ShiftedCurve) else 0.0

        def stroke(source: CurveSource, before: Stroke | None = None) -> Stroke:
            return continued_stroke(before, source.window, span[0] + origin, span[1] + origin, columns)

        raw = stroke(look.drawn(source), self.strokes[0][0] if len(self.strokes) == 1 else None)
        smoothed = look.smoothed(source)
        self.strokes = [(raw, _SOLID if smoothed is None else _FAINT)]
        if smoothed is not None:
            self.strokes.append((stroke(smoothed), _SOLID))
        if self.spread is not None:
            low, high = (stroke(look.drawn(_unshifted(each))) for each in self.spread)
            self.strokes[:0] = [(_between(low, high), _SHADE), (low, _EDGE), (high, _EDGE)]
        self.current = True


def _unshifted(source: CurveSource) -> CurveSource:
    """Return a curve on its own clock."""
    return ShiftedCurve(source.source, 0.0, source.scale) if isinstance(source, ShiftedCurve) else source


def _between(low: Stroke, high: Stroke) -> Stroke:
    """Return what fills the room between two lines."""
    return replace(low, high=high.high, top=high.top, dots=low.dots[:0])


class DrawnCurves(dict[str, PanelCurve]):
    """Curves by key, in the order they came; drawn anew where data, range or look have changed."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.look = Look()
        self.hidden: frozenset[str] = frozenset()
        self.raised = ""

    def shown(self) -> tuple[str, ...]:
        """Return the keys of the curves that are not hidden."""
        return tuple(key for key in self if key not in self.hidden)

    def __setitem__(self, key: str, curve: PanelCurve) -> None:
        """Set one curve, or its data."""
        if key in self:
            curve.take_over(self[key])
        super().__setitem__(key, curve)

    def redraw(self, *, moved: bool = False) -> None:
        """Draw every curve anew the next time; of those that only `moved` what is still in view is kept."""
        for curve in self.values():
            curve.current = False
            if not moved:
                curve.strokes = []

    def draw(self, span: Span, columns: int) -> list[tuple[Stroke, QColor, Dash]]:
        """Return all strokes of a range of time, each with its colour and its dash."""
        drawn: list[tuple[Stroke, QColor, Dash]] = []
        for key in self.shown():
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

    def labelled(self) -> list[LabelledLine]:
        """Return every line that was drawn, and what names it, if anything is named; faint ones are not."""
        shown = [self[key] for key in self.shown()]
        if not any(curve.mark or curve.end_name for curve in shown):
            return []
        named = ((self[key], not self._is_faint(key)) for key in self.shown())
        return [
            LabelledLine(
                curve.line,
                self._theme.curve_colour(curve.colour),
                curve.mark if is_named else "",
                curve.end_name if is_named else "",
            )
            for curve, is_named in named
        ]

    def nearest(self, share: float, value: float, reach: float) -> str:
        """Return the key of the curve nearest to a position, as it is drawn; "" where none is within reach.

        `share` is on the width, from 0 to 1; value and reach are in the unit of the axis.
        """
        distances = {}
        for key in self.shown():
            line = self[key].line
            if line is None:
                continue
            at = int(share * len(line.low))
            seen = slice(max(0, at - _REACH_COLUMNS), max(0, at + _REACH_COLUMNS + 1))
            away = np.fmax(np.fmax(line.low[seen] - value, value - line.high[seen]), 0.0)
            if np.isfinite(away).any():
                distances[key] = float(np.nanmin(away))
        key = min(distances, key=lambda key: distances[key], default="")
        return key if key and distances[key] <= reach else ""

    def _is_faint(self, key: str) -> bool:
        """Return whether another curve is raised."""
        return self.raised != key and self.raised in self
