"""Does the actions of the table: by a function of the window, or by their keys on the screen where these act."""

from collections.abc import Callable, Mapping

from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QWidget

from app.gui.shell.action_table import Action, Group, all_actions
from app.gui.window import MainWindow

_CONTEXT = Qt.ShortcutContext


class WindowKeys:
    """Binds the keys of the whole window, and does any action by its entry in the table.

    Args:
        window: The window.
        functions: What each named action does.

    Thread: GUI only.
    """

    def __init__(self, window: MainWindow, functions: Mapping[str, Callable[[], object]]) -> None:
        self._window = window
        self._functions = functions
        for _, action in all_actions():
            if action.name and action.keys:
                shortcut = QShortcut(window)
                shortcut.setKeys([QKeySequence(keys) for keys in action.keys])
                shortcut.activated.connect(functions[action.name])

    def perform(self, group: Group, action: Action) -> None:
        """Do an action, on its screen."""
        if action.name:
            self._functions[action.name]()
            return
        if group.page is not None:
            self._window.show_page(group.page)
        if group.target and not self._focus(group.target) and group.enter:
            self._press(group.enter)
            self._focus(group.target)
        self._press(action.keys[0])

    def _focus(self, name: str) -> bool:
        """Focus the visible widget with an accessible name; return whether there is one."""
        found = (each for each in self._window.findChildren(QWidget) if each.accessibleName() == name)
        target = next((each for each in found if each.isVisible()), None)
        if target is not None:
            target.setFocus()
        return target is not None

    def _press(self, keys: str) -> None:
        """Do what pressing keys in the focused widget does: its shortcut, or else its key event."""
        sequence = QKeySequence(keys)
        focused = QApplication.focusWidget() or self._window
        for shortcut in self._window.findChildren(QShortcut):
            if _is_in_reach(shortcut, sequence, focused):
                shortcut.activated.emit()
                return
        for entry in self._window.findChildren(QAction):
            if sequence in entry.shortcuts() and any(
                _reaches(entry.shortcutContext(), owner, focused)
                for owner in entry.associatedObjects()
                if isinstance(owner, QWidget)
            ):
                entry.trigger()
                return
        combined = sequence[0]  # type: ignore[index]  # the stub lacks it
        for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
            QCoreApplication.sendEvent(focused, QKeyEvent(kind, combined.key(), combined.keyboardModifiers()))


def _is_in_reach(shortcut: QShortcut, sequence: QKeySequence, focused: QWidget) -> bool:
    owner, sequences = shortcut.parent(), shortcut.keys()
    acts = shortcut.isEnabled() and sequence in sequences
    return acts and isinstance(owner, QWidget) and _reaches(shortcut.context(), owner, focused)


def _reaches(context: Qt.ShortcutContext, owner: QWidget, focused: QWidget) -> bool:
    """Return whether a shortcut of a widget acts while another widget has the focus."""
    if not (owner.isVisible() and owner.isEnabled()):
        return False
    if context == _CONTEXT.WidgetShortcut:
        return owner is focused
    return context != _CONTEXT.WidgetWithChildrenShortcut or owner is focused or owner.isAncestorOf(focused)
