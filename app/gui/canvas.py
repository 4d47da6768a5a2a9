"""The pyqtgraph widget of one plot, with the pointer's moves told as times on its axis."""

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QGraphicsGridLayout

_ZOOM_A_NOTCH = 1.25
_NOTCH = 120


class Canvas(pg.GraphicsView):  # type: ignore[misc]  # pyqtgraph has no types
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
        self._grip: float | None = None
        self.view = pg.ViewBox(enableMouse=False, enableMenu=False)
        self.view.disableAutoRange()
        self.axes = (left, bottom)
        for axis in self.axes:
            axis.linkToView(self.view)
        layout = QGraphicsGridLayout()
        layout.setContentsMargins(0, margin, margin, 0)
        layout.setSpacing(0)
        for item, place in ((left, (0, 0)), (self.view, (0, 1)), (bottom, (1, 1))):
            layout.addItem(item, *place)
        layout.setRowStretchFactor(0, 1)
        layout.setColumnStretchFactor(1, 1)
        whole = pg.GraphicsWidget()
        whole.setLayout(layout)
        self.setCentralItem(whole)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Let the owner bring its curves up to date first: only a plot that is seen is drawn."""
        self.painting.emit()
        super().paintEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom about the pointer, or leave the wheel to whatever scrolls."""
        plain = not event.modifiers() & Qt.KeyboardModifier.ControlModifier
        if not self.interactive or (self.scrolls and plain):
            event.ignore()
            return
        notches = event.angleDelta().y() / _NOTCH
        self.zoomed.emit(_ZOOM_A_NOTCH**-notches, self._time_at(event.position()))
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the time under the pointer."""
        if self.interactive and event.button() == Qt.MouseButton.LeftButton:
            self._grip = self._time_at(event.position())
            self.pressed.emit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Drag the time held, or tell where the pointer is."""
        time = self._time_at(event.position())
        if self._grip is not None and time != self._grip:
            self.dragged.emit(self._grip - time)
        self.hovered.emit(time)

    def mouseReleaseEvent(self, _event: QMouseEvent) -> None:
        """Let go."""
        self._grip = None

    def leaveEvent(self, event: QEvent) -> None:
        """The pointer is gone."""
        super().leaveEvent(event)
        self.left.emit()

    def _time_at(self, position: QPointF) -> float:
        return float(self.view.mapSceneToView(self.mapToScene(position.toPoint())).x())
