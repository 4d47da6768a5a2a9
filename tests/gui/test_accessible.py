"""What a screen reader says of every screen."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QWidget

from app.gui.app import Workbench
from app.gui.window import COMPARE, HISTORY, MONITOR, RUN


def nameless(parent: QWidget) -> list[str]:
    """Return the visible widgets that take the keyboard or a click and have no name for a screen reader."""
    found = []
    roles = {QAccessible.Role.Button, QAccessible.Role.ButtonMenu, QAccessible.Role.Graphic}
    for widget in parent.findChildren(QWidget):
        spoken = QAccessible.queryAccessibleInterface(widget)
        if not widget.isVisible() or spoken is None or widget.focusProxy() is not None:
            continue
        takes_keys = widget.focusPolicy() != Qt.FocusPolicy.NoFocus
        if (takes_keys or spoken.role() in roles) and not spoken.text(QAccessible.Text.Name).strip():
            found.append(f"{type(widget).__name__} in {type(widget.parent()).__name__}")
    return found


@pytest.mark.qt_log_ignore("does not support", extend=True)
def test_every_screen_has_a_name_for_all_that_takes_the_keyboard(workbench: Workbench) -> None:
    window = workbench.window
    found = {}
    for number in (RUN, MONITOR, HISTORY, COMPARE):
        window.show_page(number)
        found[number] = nameless(window)
    assert found == {RUN: [], MONITOR: [], HISTORY: [], COMPARE: []}
