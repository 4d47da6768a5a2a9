"""What can be done with chosen runs: one action each, for its key and for the menu alike."""

from PySide6.QtCore import QObject, QPoint, Qt, Signal, SignalInstance
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu

from app.gui.views.history_table import HistoryTable
from app.viewmodels.history import can_compare, compare_label, restore_label

EXPORTS = {
    "db": "&Database (.db) …",
    "csv": "&CSV tables …",
    "json": "&JSON tables …",
    "parquet": "&Parquet tables …",
    "trace": "&Timeline (Perfetto) …",
}
"""The kinds of file that runs are exported to, and their words in the menu."""


class HistoryActions(QObject):
    """Each signal brings the chosen runs, oldest first."""

    compare_asked = Signal(list)
    tags_asked = Signal(list)
    note_asked = Signal(list)
    delete_asked = Signal(list)
    restore_asked = Signal(list)
    purge_asked = Signal(list)
    export_asked = Signal(list, str)

    def __init__(self, table: HistoryTable) -> None:
        super().__init__(table)
        self._table = table
        self._open = QAction("&Open\tEnter", self)
        self._open.triggered.connect(table.open_current)
        self.compare = self._action("&Compare", "Ctrl+Shift+C", self.compare_asked)
        self.compare.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._tags = self._action("&Tags …", "T", self.tags_asked)
        self._note = self._action("&Note …", "N", self.note_asked)
        self._delete = self._action("&Delete", "Del", self.delete_asked)
        self.restore = self._action("&Restore", "R", self.restore_asked)
        self._purge = self._action("Delete for &good …", "Shift+Del", self.purge_asked)
        self._export = QMenu("&Export", table)
        for kind, words in EXPORTS.items():
            entry = self._export.addAction(words)
            entry.triggered.connect(lambda _checked, kind=kind: self.export_asked.emit(self._table.chosen(), kind))
        table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        table.customContextMenuRequested.connect(self._show_menu)

    def show_chosen(self, chosen: int, *, deleted: bool) -> None:
        """Offer what can be done with so many runs, in the trash or not."""
        self.compare.setText(compare_label(chosen))
        self.compare.setEnabled(can_compare(chosen) and not deleted)
        self.restore.setText(restore_label(chosen))
        for action in (self._tags, self._note, self._delete):
            action.setEnabled(chosen > 0 and not deleted)
        for action in (self.restore, self._purge):
            action.setEnabled(chosen > 0 and deleted)
        self._export.setEnabled(chosen > 0)

    def _action(self, words: str, key: str, asked: SignalInstance) -> QAction:
        made = QAction(words, self)
        made.setShortcut(QKeySequence(key))
        made.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        made.triggered.connect(lambda: asked.emit(self._table.chosen()))
        self._table.addAction(made)
        return made

    def _show_menu(self, place: QPoint) -> None:
        """Also by the keyboard's menu key."""
        menu = QMenu(self._table)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._open.setEnabled(self._table.current_run() is not None)
        menu.addAction(self._open)
        offered = (self.compare, self._tags, self._note, self._delete, self.restore, self._purge)
        menu.addActions([action for action in offered if action.isEnabled()])
        menu.insertMenu(self._delete, self._export)
        menu.popup(self._table.viewport().mapToGlobal(place))
