"""The range of a plot's value axis: as its owner fixes it, as the user sets it, or as the data need it."""

import math
from collections.abc import Sequence

import pyqtgraph as pg

from app.analysis.strokes import Stroke
from app.gui.plot.canvas import ValueAxis
from app.viewmodels.charts.model import round_step
from app.viewmodels.plot.look import Look
from app.viewmodels.plot.model import Span

_NAME_LINE_PX = 16
_STEPS = 4
_LOG_STEPS = 3
"""Steps of a logarithmic axis a decade, about 1, 2 and 5: where its ends may be."""


def nice_ceiling(value: float) -> float:
    """Return the next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten, so an axis ends on a round number."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if m * power >= value * 1.02), 10 * power)


class ValueScale:
    """Sets the range of values in view. What the user chose comes first, then what the owner fixed, then the data.

    A range that follows the data from zero only grows, so that nothing jumps, unless told to shrink.
    """

    def __init__(self, view: pg.ViewBox, axis: ValueAxis) -> None:
        self._view = view
        self._axis = axis
        self._look = Look()
        self._fixed: Span | None = None
        self._found: Span | None = None
        self._shown: Span | None = None
        view.sigResized.connect(self._apply)

    @property
    def span(self) -> Span:
        """The range of values that is shown."""
        return self._as_values(*(self._shown or (0.0, 1.0)))

    def fix(self, low: float, high: float) -> None:
        """Show this range, for instance from 0 to a power limit, unless the user has chosen another."""
        if (low, high) != self._fixed:
            self._fixed = (low, high)
            self._choose()

    def release(self) -> None:
        """Let the range follow the data, from where they are next."""
        self._fixed = self._found = None

    def release_found(self) -> None:
        """Forget what the data needed so far: some of them are not shown any more."""
        self._found = None

    def set_look(self, look: Look) -> None:
        """Show what the user has chosen."""
        self._look, self._found = look, None
        self._axis.is_log = look.mode == "log"
        self._choose()

    def zoomed(self, factor: float, at: float) -> Span:
        """Return the range that is `factor` times as long around a position of the axis."""
        low, high = self._shown or (0.0, 1.0)
        return self._as_values(at + (low - at) * factor, at + (high - at) * factor)

    def moved(self, by: float) -> Span:
        """Return the range that lies higher by so much of the axis."""
        low, high = self._shown or (0.0, 1.0)
        return self._as_values(low + by, high + by)

    def follow(self, strokes: Sequence[Stroke], *, shrink: bool) -> None:
        """Take in all these strokes, where neither user nor owner has set a range.

        Args:
            strokes: What is drawn, in the unit of the axis.
            shrink: Give up room that they do not need.
        """
        seen = [line for line in strokes if math.isfinite(line.top)]
        if self._look.values is not None or (self._fixed and self._look.mode == "zero") or not seen:
            return
        low, high = self._needed(min(line.bottom for line in seen), max(line.top for line in seen))
        if self._found is not None and not shrink:
            low, high = min(low, self._found[0]), max(high, self._found[1])
        if (low, high) != self._found:
            self._found = low, high
            self._choose()

    def _needed(self, low: float, high: float) -> Span:
        """Return a range with round ends around values."""
        if self._look.mode == "zero":
            return 0.0, nice_ceiling(high)
        step = 1 / _LOG_STEPS if self._look.mode == "log" else round_step((high - low or abs(high) or 1.0) / _STEPS)
        return math.floor(low / step) * step, (math.floor(high / step) + 1) * step

    def _as_values(self, low: float, high: float) -> Span:
        return (10.0**low, 10.0**high) if self._look.mode == "log" else (low, high)

    def _choose(self) -> None:
        by_hand, log = self._look.values, self._look.mode == "log"
        chosen = (self._fixed if self._look.mode == "zero" else None) or self._found
        if by_hand is not None:
            chosen = (math.log10(by_hand[0]), math.log10(by_hand[1])) if log else by_hand
        if chosen is not None:
            self._shown = chosen
            self._axis.setStyle(showValues=True)
            self._apply()

    def _apply(self, *_: object) -> None:
        """Leave room above the highest value for one line, the names of the bands; an empty plot has no numbers."""
        if self._shown is not None:
            low, high = self._shown
            rest = max(_NAME_LINE_PX, self._view.height() - _NAME_LINE_PX)
            self._view.setYRange(low, high + (high - low) * _NAME_LINE_PX / rest, padding=0)
