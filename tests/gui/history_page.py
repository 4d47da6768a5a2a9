"""The History screen on a real database, and what a test does with it."""

from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar

from PySide6.QtCore import QAbstractItemModel, Qt
from PySide6.QtGui import QAction
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialog, QMenu, QPushButton, QTreeWidgetItem
from pytestqt.qtbot import QtBot

from app.gui.history.history_controller import HistoryController
from app.gui.history.screen import HistoryView
from app.gui.shell.shell import UndoStack
from app.gui.theme import Theme
from app.gui.threads import Background
from app.storage.store import Store
from app.viewmodels.history.table import COLUMNS
from tests.gui.actions import RecordedActions
from tests.gui.screens import Screen
from tests.gui.texts import displayed_text

TITLES = [column.title for column in COLUMNS]

Dialog = TypeVar("Dialog", bound=QDialog)


class HistoryPage(Screen[HistoryView]):
    """Reads the screen's content and drives it by mouse and keyboard."""

    def __init__(self, qtbot: QtBot, database: Path, background: Background) -> None:
        self.recorded = RecordedActions()
        self.undo = UndoStack(background)
        actions = replace(
            self.recorded.actions,
            runs_imported=self._show_imported,
            record_change=self.undo.push,
            undo=self.undo.undo,
        )
        super().__init__(qtbot, HistoryView(Theme(), actions), 1200, 700)
        self.database = database
        self.controller = HistoryController(self.view, database, background, actions)
        self.undo.undone.connect(self.controller.refresh)
        self.undo.undone.connect(self.controller.show_undone)

    @property
    def model(self) -> QAbstractItemModel:
        return self.view.table.model()

    def _show_imported(self) -> None:
        self.controller.refresh()

    def refresh(self) -> Self:
        with self.qtbot.waitSignal(self.view.table.chosen_changed):
            self.controller.refresh()
        return self

    def open(self, run: int) -> None:
        self.controller.open_run(run)
        self.wait_for_page(run)

    def wait_for_page(self, run: int) -> None:
        detail = self.view.detail
        self.qtbot.waitUntil(lambda: self.view.shows_run and f"Run {run} ·" in displayed_text(detail))
        self.qtbot.waitUntil(lambda: not detail.panels.busy)

    def column(self, title: str) -> list[str]:
        return [str(self.model.index(row, TITLES.index(title)).data()).strip() for row in range(self.model.rowCount())]

    def wait_for(self, title: str, *texts: str) -> None:
        """Until a column says just this: what is asked for is read on another thread."""
        self.qtbot.waitUntil(lambda: self.column(title) == list(texts))

    def sort(self, title: str) -> None:
        with self.qtbot.waitSignal(self.view.table.chosen_changed):
            self.view.table.horizontalHeader().sectionClicked.emit(TITLES.index(title))

    def choose(self, *runs: int) -> None:
        """Choose runs whatever modifier keys the test before left pressed; the last one is the current one."""
        table = self.view.table
        table.check_all(checked=False)
        for run in runs:
            table.toggle_check(self.column("Run").index(str(run)))

    def key(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        self._activate()
        self.view.table.setFocus()
        QTest.keyClick(self.view.table, key, modifier)

    def escape(self) -> None:
        self._activate()
        QTest.keyClick(self.view, Qt.Key.Key_Escape)

    def _activate(self) -> None:
        """Keys act in the window that is active; one that just had a dialog, or was just shown, may not be yet."""
        with self.qtbot.waitActive(self.view):
            self.view.activateWindow()

    def search(self, text: str) -> None:
        self.view.overview.bar.search.setText(text)

    def button_labels(self) -> list[str]:
        return [b.text() for b in self.view.findChildren(QPushButton) if not b.isHidden()]

    def filter(self, facet: str, label: str) -> None:
        """Tick a value of a facet, or untick it, once it is there."""
        tree = self.view.overview.facets.tree
        if not self.view.overview.wants_facets:
            self.button("Filter by").click()

        def values() -> list[QTreeWidgetItem]:
            heads = tree.findItems(facet, Qt.MatchFlag.MatchStartsWith)
            below = [head.child(n) for head in heads for n in range(head.childCount())]
            return [each for each in below if each is not None and label in each.text(0)]

        self.qtbot.waitUntil(lambda: bool(values()))
        (value,) = values()
        is_off = value.checkState(0) == Qt.CheckState.Unchecked
        value.setCheckState(0, Qt.CheckState.Checked if is_off else Qt.CheckState.Unchecked)

    def menu_entry(self, button: str, label: str) -> None:
        self.entry(button, label).trigger()

    def entry(self, button: str, label: str) -> QAction:
        menu = self.button(button).menu()
        assert isinstance(menu, QMenu)
        menu.aboutToShow.emit()
        return next(action for action in menu.actions() if action.text().replace("&", "").startswith(label))

    def dialog(self, kind: type[Dialog]) -> Dialog:
        self.qtbot.waitUntil(lambda: self.view.findChild(kind) is not None)
        (found,) = self.view.findChildren(kind)
        return found

    def store(self) -> Store:
        return Store.open(self.database)
