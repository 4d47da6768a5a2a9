"""The pyqtgraph widget of one plot and its axes; pointer events are reported as positions on the x axis."""

import math
from collections.abc import Sequence

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QGraphicsGridLayout, QGraphicsItem, QGraphicsSceneResizeEvent

from app.viewmodels.charts.model import round_step, tick_labels, time_labels

_LABEL_PX = 18
_MAX_LABELS = 6


class _Axis(pg.AxisItem):  # type: ignore[misc]  # pyqtgraph has no types
    def resizeEvent(self, event: QGraphicsSceneResizeEvent | None = None) -> None:
        """Drop what Qt has cached: it would paint only the part by which the axis has grown."""
        super().resizeEvent(event)
        cache_mode = self.cacheMode()
        self.setCacheMode(QGraphicsItem.CacheMode.NoCache)
        self.setCacheMode(cache_mode)


class TimeAxis(_Axis):
    """A bottom axis in minutes and seconds, `0:30`, or in counts, `12,000`; negative ones carry a minus sign."""

    _counted = False

    def set_counted(self, counted: bool) -> None:
        """Set whether it counts something instead of seconds."""
        if counted is not self._counted:
            self._counted = counted
            self.picture = None
            self.update()

    def tickStrings(self, values: Sequence[float], _scale: float, spacing: float) -> list[str]:
        """Return the labels; whole seconds as a clock, finer steps as seconds."""
        if self._counted:
            return [label.replace("-", "−") for label in tick_labels(values, spacing)]
        return time_labels(values, spacing)


class ValueAxis(_Axis):
    """A left axis with thousands apart, `80,000`, and a handful of labels, no closer than their height."""

    def tickSpacing(self, least: float, most: float, size: float) -> list[tuple[float, float]]:
        """Return one level of ticks on multiples of 1, 2 or 5 times a power of ten."""
        wanted = (most - least) * max(1 / _MAX_LABELS, _LABEL_PX / max(size, _LABEL_PX))
        return [(round_step(wanted), 0.0)]

    def tickStrings(self, values: Sequence[float], _scale: float, spacing: float) -> list[str]:
        """Return the labels, with as many decimals as their spacing needs."""
        return tick_labels(values, spacing)


def nice_ceiling(value: float) -> float:
    """Return the next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten, so an axis ends on a round number."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if m * power >= value * 1.02), 10 * power)


_ZOOM_PER_NOTCH = 1.25
_NOTCH_ANGLE = 120


class PlotCanvas(pg.GraphicsView):  # type: ignore[misc]  # pyqtgraph has no types
    """A view between two axes, without the forty hidden widgets of a `PlotItem`'s menu.

    Its ranges are set, never found; only an interactive one takes the wheel and drags. One that `scrolls` leaves the
    wheel without Ctrl to what is around it.
    """

    painting = Signal()
    hovered = Signal(float)
    left = Signal()
    zoomed = Signal(float, float)
    dragged = Signal(float)
    pressed = Signal()

    def __init__(self, left: pg.AxisItem, bottom: pg.AxisItem, margin: float) -> None:
        super().__init__(background=None)
        self.interactive = False
        self.scrolls = False
        self._drag_time: float | None = None
        self.view = pg.ViewBox(enableMouse=False, enableMenu=False)
        self.view.disableAutoRange()
        self.axes = (left, bottom)
        for axis in self.axes:
            axis.linkToView(self.view)
        layout = QGraphicsGridLayout()
        layout.setContentsMargins(0, margin, margin, 0)
        layout.setSpacing(0)
        for item, cell in ((left, (0, 0)), (self.view, (0, 1)), (bottom, (1, 1))):
            layout.addItem(item, *cell)
        layout.setRowStretchFactor(0, 1)
        layout.setColumnStretchFactor(1, 1)
        central = pg.GraphicsWidget()
        central.setLayout(layout)
        self.setCentralItem(central)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Let the owner bring its curves up to date first: only a plot that is seen is drawn."""
        self.painting.emit()
        super().paintEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom about the pointer, or leave the wheel to whatever scrolls."""
        without_ctrl = not event.modifiers() & Qt.KeyboardModifier.ControlModifier
        if not self.interactive or (self.scrolls and without_ctrl):
            event.ignore()
            return
        notches = event.angleDelta().y() / _NOTCH_ANGLE
        self.zoomed.emit(_ZOOM_PER_NOTCH**-notches, self._time_at(event.position()))
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the time under the pointer."""
        if self.interactive and event.button() == Qt.MouseButton.LeftButton:
            self._drag_time = self._time_at(event.position())
            self.pressed.emit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Drag the time held, or report where the pointer is."""
        time = self._time_at(event.position())
        if self._drag_time is not None and time != self._drag_time:
            self.dragged.emit(self._drag_time - time)
        self.hovered.emit(time)

    def mouseReleaseEvent(self, _event: QMouseEvent) -> None:
        """Let go."""
        self._drag_time = None

    def leaveEvent(self, event: QEvent) -> None:
        """Report that the pointer is gone."""
        super().leaveEvent(event)
        self.left.emit()

    def _time_at(self, position: QPointF) -> float:
        return float(self.view.mapSceneToView(self.mapToScene(position.toPoint())).x())
