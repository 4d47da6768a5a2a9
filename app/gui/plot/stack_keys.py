"""The keyboard of a stack of plots: crosshair, range of time, curves, and the plot that is meant."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QPoint, Qt
from PySide6.QtGui import QKeyEvent

if TYPE_CHECKING:
    from app.gui.plot.panel_stack import PanelStack

_CROSSHAIR_STEP, _PAN_STEP = 0.01, 0.1
"""The part of the window by which an arrow moves the crosshair, and with Shift the view."""
_KEY_ZOOM = 1.5
_SIDEWAYS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
_CURVES = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
_PLOTS = {Qt.Key.Key_PageUp: -1, Qt.Key.Key_PageDown: 1}
_ZOOMS = {Qt.Key.Key_Plus: 1 / _KEY_ZOOM, Qt.Key.Key_Equal: 1 / _KEY_ZOOM, Qt.Key.Key_Minus: _KEY_ZOOM}


class StackKeys(QObject):
    """Acts on the keys of a stack that has the keyboard.

    Left and right move the crosshair, with Shift the view; plus and minus zoom; up and down raise a curve; Page Up and
    Page Down choose a plot, Enter shows it alone, the menu key its menu. Escape ends one of these after the other.
    """

    def __init__(self, stack: "PanelStack") -> None:
        super().__init__(stack)
        self._stack = stack
        self._index = -1
        stack.installEventFilter(self)

    def eventFilter(self, _stack: QObject, event: QEvent) -> bool:
        """Take the keys that mean something here; Escape even where the screen has a shortcut on it."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride:
            if event.key() == Qt.Key.Key_Escape and self._has_something_to_end():
                event.accept()
                return True
            return False
        if event.type() == QEvent.Type.FocusOut:
            self._choose_plot(-1)
        return isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and self._press(event)

    def _press(self, event: QKeyEvent) -> bool:
        stack, key = self._stack, Qt.Key(event.key())
        start, end = stack.span
        middle = (start + end) / 2 if stack.crosshair is None else stack.crosshair
        if key in _SIDEWAYS and event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            stack.panned.emit(_SIDEWAYS[key] * _PAN_STEP * (end - start))
        elif key in _SIDEWAYS:
            stack.set_crosshair(min(max(middle + _SIDEWAYS[key] * _CROSSHAIR_STEP * (end - start), start), end))
        elif key in _ZOOMS:
            stack.zoomed.emit(_ZOOMS[key], middle)
        elif key in _CURVES:
            self._raise_next(_CURVES[key])
        elif key in _PLOTS and stack.shown:
            self._choose_plot((max(self._index, -1 if _PLOTS[key] > 0 else 0) + _PLOTS[key]) % len(stack.shown))
        else:
            return self._act_on_plot(key)
        return True

    def _act_on_plot(self, key: Qt.Key) -> bool:
        stack = self._stack
        if key == Qt.Key.Key_Escape and self._has_something_to_end():
            self._end_innermost()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and 0 <= self._index < len(stack.shown):
            stack.maximise(stack.shown[self._index])
        elif key == Qt.Key.Key_Menu and stack.shown:
            plot = stack.shown[max(0, min(self._index, len(stack.shown) - 1))]
            plot.show_menu(plot.mapToGlobal(QPoint(0, 0)))
        else:
            return False
        return True

    def _raise_next(self, by: int) -> None:
        """Raise the curve after the one raised now, then none."""
        keys = list(dict.fromkeys(["", *(key for plot in self._stack.shown for key in plot.shown_keys())]))
        now = keys.index(self._stack.raised) if self._stack.raised in keys else 0
        self._stack.raise_curve(keys[(now + by) % len(keys)])

    def _choose_plot(self, index: int) -> None:
        self._index = index
        for number, plot in enumerate(self._stack.shown):
            plot.head.mark_current(number == index)

    def _has_something_to_end(self) -> bool:
        stack = self._stack
        return bool(stack.crosshair is not None or stack.raised or self._index >= 0 or stack.maximised)

    def _end_innermost(self) -> None:
        stack = self._stack
        if stack.crosshair is not None or stack.raised:
            stack.raise_curve("")
            stack.set_crosshair(None)
        elif self._index >= 0:
            self._choose_plot(-1)
        else:
            stack.maximise(None)
