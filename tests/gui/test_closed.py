"""Windows, dialogs and menus that were closed leave nothing connected to what outlives them."""

from collections import Counter
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QMetaMethod, QObject, Qt
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.plot.panel_stack import PanelStack
from app.gui.theme import Theme
from tests.gui.tour import SCREENS, toured
from tests.pictures import SIZE, settle

MENUS = ("history", "table", "run")
DIALOGS = ("largest batch", "settings", "keys", "palette", "hosts", "tags", "note", "question before deleting", "log")
NOT_COUNTED = ("painted", "destroyed")
"""Signals that `tests.pictures` waits for, and by which PySide learns that an object is gone."""


def receivers(workbench: Workbench, theme: Theme) -> Counter[tuple[QObject, str]]:
    """Count what is connected to each signal of the window's objects, and of those that outlive the window."""
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    choices = workbench.settings.notifier.choice, workbench.settings.standby
    counts = Counter[tuple[QObject, str]]()
    for source in (theme, *choices, workbench.window, *workbench.window.findChildren(QObject)):
        kind = source.metaObject()
        for method in map(kind.method, range(kind.methodCount())):
            signature = method.methodSignature().toStdString()
            if method.methodType() == QMetaMethod.MethodType.Signal and not signature.startswith(NOT_COUNTED):
                counts[source, signature] = source.receivers(f"2{signature}")
    return counts


def open_and_close_all(workbench: Workbench) -> None:
    """Open each kind of window, dialog and menu, and close it."""
    for name in (*MENUS, *DIALOGS):
        SCREENS[name](workbench)
        settle(workbench)
        for widget in workbench.window.findChildren(QWidget):
            if widget.isVisible() and widget.contextMenuPolicy() == Qt.ContextMenuPolicy.CustomContextMenu:
                widget.customContextMenuRequested.emit(widget.rect().center())
            if isinstance(widget, QPushButton) and widget.isVisible() and widget.text() == "+":
                widget.click()
        settle(workbench)
        opened = {window for window in QApplication.topLevelWidgets() if window.isVisible()} - {workbench.window}
        assert opened or workbench.shell.palette.isVisible(), f"nothing opened on {name}"
        for window in opened:
            window.close()
        workbench.shell.palette.close_palette()
        settle(workbench)


def test_what_was_closed_is_told_nothing_more(
    qtbot: QtBot, theme: Theme, tmp_path: Path, reference_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toured(qtbot, tmp_path, theme, monkeypatch, reference_database) as workbench:
        workbench.window.resize(*SIZE)
        open_and_close_all(workbench)  # what is made once, and kept, is made here
        before = receivers(workbench, theme)
        open_and_close_all(workbench)
        after = receivers(workbench, theme)
        more = {
            f"{type(source).__name__} {signal}"
            for (source, signal), count in after.items()
            if count > before.get((source, signal), count)
        }
        assert more == set()
        for stack in workbench.window.findChildren(PanelStack):
            stack.set_crosshair(1.0)
            stack.set_crosshair(None)
        workbench.hosts.states_changed.emit()
        theme.apply(Qt.ColorScheme.Dark)
        settle(workbench)
