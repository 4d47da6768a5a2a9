"""The axes of a plot over time, and the round numbers they end on."""

import math
from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtWidgets import QGraphicsItem, QGraphicsSceneResizeEvent

from app.viewmodels.ticks import labels, round_step, time_labels

_LABEL_PX = 18
_MOST_LABELS = 6


class _Axis(pg.AxisItem):  # type: ignore[misc]  # pyqtgraph has no types
    def resizeEvent(self, event: QGraphicsSceneResizeEvent | None = None) -> None:
        """Drop what Qt has cached: it would paint only the part by which the axis has grown."""
        super().resizeEvent(event)
        kept = self.cacheMode()
        self.setCacheMode(QGraphicsItem.CacheMode.NoCache)
        self.setCacheMode(kept)


class TimeAxis(_Axis):
    """A bottom axis in minutes and seconds, `0:30`, or in counts, `12,000`; negative ones carry a minus sign."""

    _counted = False

    def set_counted(self, counted: bool) -> None:
        """Whether it counts something instead of seconds."""
        if counted is not self._counted:
            self._counted = counted
            self.picture = None
            self.update()

    def tickStrings(self, values: Sequence[float], _scale: float, spacing: float) -> list[str]:
        """The labels; whole seconds as a clock, finer steps as seconds."""
        if self._counted:
            return [label.replace("-", "−") for label in labels(values, spacing)]
        return time_labels(values, spacing)


class ValueAxis(_Axis):
    """A left axis with thousands apart, `80,000`, and a handful of labels, no closer than their height."""

    def tickSpacing(self, least: float, most: float, size: float) -> list[tuple[float, float]]:
        """One level of ticks on multiples of 1, 2 or 5 times a power of ten."""
        wanted = (most - least) * max(1 / _MOST_LABELS, _LABEL_PX / max(size, _LABEL_PX))
        return [(round_step(wanted), 0.0)]

    def tickStrings(self, values: Sequence[float], _scale: float, spacing: float) -> list[str]:
        """The labels, with as many decimals as their spacing needs."""
        return labels(values, spacing)


def nice(value: float) -> float:
    """The next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten, so an axis ends on a round number."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if m * power >= value * 1.02), 10 * power)
