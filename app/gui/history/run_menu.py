"""The menu of the selected runs, with the keys of its entries: everything that can be done with a stored run."""

from collections.abc import Callable

from PySide6.QtCore import QObject, QPoint, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu

from app.gui.actions import Actions
from app.gui.history.table import HistoryTable
from app.paths import RUNS_SUFFIX
from app.viewmodels.history.labels import can_compare, compare_label, restore_label

EXPORT_LABELS = {
    "db": f"&Database ({RUNS_SUFFIX}) …",
    "csv": "&CSV tables …",
    "json": "&JSON tables …",
    "parquet": "&Parquet tables …",
    "trace": "&Timeline (Perfetto) …",
}
"""The formats for export, with their labels in the menu."""


class RunMenu(QObject):
    """The menu and the keys for the chosen runs; each signal has these, oldest first."""

    diff_requested = Signal(list)
    baseline_requested = Signal(list)
    log_requested = Signal(list)
    copy_requested = Signal(list)
    reveal_requested = Signal(list)
    tags_requested = Signal(list)
    note_requested = Signal(list)
    delete_requested = Signal(list)
    restore_requested = Signal(list)
    purge_requested = Signal(list)
    export_requested = Signal(list, str)

    def __init__(self, table: HistoryTable, actions: Actions) -> None:
        super().__init__(table)
        self._table = table
        self._open = QAction("&Open\tEnter", self)
        self._open.triggered.connect(table.open_current)
        self.compare = self._action("&Compare", "Ctrl+Shift+C", actions.compare)
        self.compare.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.diff = self._action("&Diff", "D", self.diff_requested.emit)
        self._baseline = self._action("Compare with &baseline", "B", self.baseline_requested.emit)
        self._replay = self._action("Re&play", "P", lambda runs: actions.replay(runs[0]))
        self._again = self._action("R&un again …", "A", lambda runs: actions.run_again(runs[0]))
        self._copy = self._action("Copy co&mmand", "Ctrl+C", self.copy_requested.emit)
        self._log = self._action("Show &log", "L", self.log_requested.emit)
        self._reveal = self._action("Show &files", "F", self.reveal_requested.emit)
        self._tags = self._action("&Tags …", "T", self.tags_requested.emit)
        self._note = self._action("&Note …", "N", self.note_requested.emit)
        self._delete = self._action("Dele&te", "Del", self.delete_requested.emit)
        self.restore = self._action("&Restore", "R", self.restore_requested.emit)
        self._purge = self._action("Delete for &good …", "Shift+Del", self.purge_requested.emit)
        self._export = QMenu("&Export", table)
        for kind, label in EXPORT_LABELS.items():
            entry = self._export.addAction(label)
            entry.triggered.connect(lambda _checked, kind=kind: self.export_requested.emit(self._table.chosen(), kind))
        table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        table.customContextMenuRequested.connect(self._show_menu)

    def show_chosen(self, chosen: int, *, deleted: bool) -> None:
        """Enable what can be done with so many runs, in the trash or not."""
        self.compare.setText(compare_label(chosen))
        self.compare.setEnabled(can_compare(chosen) and not deleted)
        self.restore.setText(restore_label(chosen))
        self.diff.setEnabled(chosen == 2)
        for action in (self._replay, self._again, self._log):
            action.setEnabled(chosen == 1)
        for action in (self._baseline, self._tags, self._note, self._delete):
            action.setEnabled(chosen > 0 and not deleted)
        for action in (self.restore, self._purge):
            action.setEnabled(chosen > 0 and deleted)
        for action in (self._copy, self._reveal):
            action.setEnabled(chosen > 0)
        self._export.setEnabled(chosen > 0)

    def make_menu(self) -> QMenu:
        """Return a menu of what can be done with the chosen runs."""
        menu = QMenu(self._table)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._open.setEnabled(self._table.current_run() is not None)
        for part in (
            (self._open, self.compare, self.diff, self._baseline),
            (self._replay, self._again, self._copy, self._log, self._reveal),
            (self._tags, self._note, self._export.menuAction()),
            (self._delete, self.restore, self._purge),
        ):
            menu.addActions([action for action in part if action.isEnabled()])
            menu.addSeparator()
        return menu

    def _action(self, label: str, key: str, act: Callable[[list[int]], object]) -> QAction:
        made = QAction(label, self)
        made.setShortcut(QKeySequence(key))
        made.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        made.triggered.connect(lambda: act(self._table.chosen()))
        self._table.addAction(made)
        return made

    def _show_menu(self, position: QPoint) -> None:
        """Show the menu, by mouse or by the keyboard's menu key."""
        self.make_menu().popup(self._table.viewport().mapToGlobal(position))
