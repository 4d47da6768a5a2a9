"""The pyqtgraph widget of one plot, with the pointer's moves told as times on its axis."""

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPaintEvent, QWheelEvent

_ZOOM_A_NOTCH = 1.25
_NOTCH = 120


class Canvas(pg.PlotWidget):  # type: ignore[misc]  # pyqtgraph has no types
    """A plot without pyqtgraph's own mouse and menu. Only an interactive one takes the wheel and drags."""

    painting = Signal()
    hovered = Signal(float)
    left = Signal()
    zoomed = Signal(float, float)
    dragged = Signal(float)
    pressed = Signal()

    def __init__(self, axes: dict[str, pg.AxisItem]) -> None:
        super().__init__(axisItems=axes, background=None, enableMenu=False)
        self.interactive = False
        self._grip: float | None = None
        self.setMouseEnabled(x=False, y=False)
        self.hideButtons()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Let the owner bring its curves up to date first: only a plot that is seen is drawn."""
        self.painting.emit()
        super().paintEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom about the pointer, or leave the wheel to whatever scrolls."""
        if not self.interactive:
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
        view = self.getViewBox()
        return float(view.mapSceneToView(self.mapToScene(position.toPoint())).x())
