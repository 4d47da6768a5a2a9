"""Plots that share one axis: one crosshair over all of them, zoomed and moved together by mouse and keyboard."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.gui.plots import TimePanel
from app.gui.theme import Theme

_STEP, _LEAP = 0.01, 0.1
"""How far an arrow moves the crosshair, of the stretch shown; with Shift how far it moves the view."""
_KEY_ZOOM = 1.5


class PlotGroup(QWidget):
    """Signals tell what the pointer and the keyboard ask for, with places on the axis.

    `read` comes when the crosshair moves: its place, or None when it is gone.
    """

    zoomed = Signal(float, float)
    panned = Signal(float)
    read = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._window = (0.0, 1.0)
        self._crosshair: float | None = None
        self._pointed_at: TimePanel | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    @property
    def crosshair(self) -> float | None:
        """Where the crosshair stands on the axis."""
        return self._crosshair

    def set_crosshair(self, at: float | None) -> None:
        """Put the crosshair at a place, over all plots, with the values there; None takes it away."""
        self._crosshair = at
        self._show_crosshair(at)
        self.read.emit(at)

    def adopt(self, plot: TimePanel) -> TimePanel:
        """Let a plot take part, and give it back."""
        canvas = plot.plot
        canvas.interactive = True
        canvas.hovered.connect(lambda at: self._point_at(plot, at))
        canvas.left.connect(lambda: self._point_at(None, None))
        canvas.pressed.connect(self.setFocus)
        canvas.zoomed.connect(self.zoomed)
        canvas.dragged.connect(self.panned)
        return plot

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows move the crosshair, with Shift the view; plus and minus zoom; Escape takes the crosshair away."""
        start, end = self._window
        middle = (start + end) / 2 if self._crosshair is None else self._crosshair
        shifted = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        direction = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()), 0)
        if direction and shifted:
            self.panned.emit(direction * _LEAP * (end - start))
        elif direction:
            self.set_crosshair(min(max(middle + direction * _STEP * (end - start), start), end))
        elif event.key() in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoomed.emit(1 / _KEY_ZOOM, middle)
        elif event.key() == Qt.Key.Key_Minus:
            self.zoomed.emit(_KEY_ZOOM, middle)
        elif event.key() == Qt.Key.Key_Escape and self._crosshair is not None:
            self.set_crosshair(None)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """A line at the top says that the plots have the keyboard."""
        super().paintEvent(event)
        if self.hasFocus():
            painter = QPainter(self)
            painter.fillRect(0, 0, self.width(), 2, QColor(self._theme.colours.accent))
            painter.end()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """The crosshair goes with the keyboard."""
        super().focusOutEvent(event)
        self.set_crosshair(None)

    def _point_at(self, plot: TimePanel | None, at: float | None) -> None:
        self._pointed_at = plot
        self.set_crosshair(at)

    def _show_crosshair(self, at: float | None) -> None:
        """Show it in every plot, with the values there."""
        raise NotImplementedError
