"""The table of stored runs: a model over a list of values, and the view that keeps what a reader chose."""

from collections.abc import Sequence

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView

from app.gui.theme import GRID, Theme
from app.gui.views.cell_table import CellModel, CellTable
from app.gui.views.history_cells import AnyIndex, CellDelegate
from app.viewmodels.cells import Cell
from app.viewmodels.history import COLUMNS, VARIANT_COLUMN, HistoryRow, Query

_VARIANT_MOST = 24 * GRID
_NO_PARENT = QModelIndex()
_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


class HistoryModel(CellModel):
    """The stored runs in the order that was asked for."""

    def __init__(self) -> None:
        super().__init__(COLUMNS)
        self.rows: Sequence[HistoryRow] = ()
        self._query = Query()

    def set_rows(self, rows: Sequence[HistoryRow], query: Query) -> None:
        """Show these rows in this order, and in the heads what ordered them."""
        self.beginResetModel()
        self.rows, self._query = rows, query
        self.endResetModel()

    def rowCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """One row a run."""
        return 0 if parent.isValid() else len(self.rows)

    def cells_of(self, row: int) -> Sequence[Cell]:
        """The cells of a run."""
        return self.rows[row].cells

    def title(self, column: int) -> str:
        """The title, with an arrow where the rows are ordered by it: Qt's own would lie on right-aligned words."""
        title = super().title(column)
        if column != self._query.column:
            return title
        return f"{title} {'↓' if self._query.descending else '↑'}"


class HistoryTable(CellTable):
    """Keeps the chosen runs, the current one and the scroll position when rows are replaced."""

    opened = Signal(int)
    chosen_changed = Signal()

    def __init__(self, theme: Theme) -> None:
        self._rows = HistoryModel()
        super().__init__(self._rows, CellDelegate(theme), elastic=VARIANT_COLUMN, elastic_most=_VARIANT_MOST)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.horizontalHeader().setSectionsClickable(True)
        self.selectionModel().selectionChanged.connect(self._tell_chosen)
        self.doubleClicked.connect(self._open)
        self.setAccessibleName("Stored runs")

    def show_rows(self, rows: Sequence[HistoryRow], widest: Sequence[Cell], query: Query) -> None:
        """Show these rows; runs that are still there stay chosen, and the view stays where it was."""
        chosen, current, scroll = set(self.chosen()), self.current_run(), self.verticalScrollBar().value()
        self.fit(widest, beside_title=" ↓")
        self._rows.set_rows(rows, query)
        self._choose_again(chosen, current)
        self.verticalScrollBar().setValue(scroll)
        self.chosen_changed.emit()

    def chosen(self) -> list[int]:
        """The chosen runs, oldest first."""
        return sorted(self._rows.rows[index.row()].run for index in self.selectionModel().selectedRows())

    def current_run(self) -> int | None:
        """The run under the keyboard."""
        index = self.currentIndex()
        return self._rows.rows[index.row()].run if index.isValid() else None

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter opens the current run."""
        run = self.current_run()
        if event.key() in _ENTER and run is not None:
            self.opened.emit(run)
            return
        super().keyPressEvent(event)

    def width_for(self, column: int, content: int) -> int:
        """Columns only grow, so that nothing jumps when runs come in."""
        return max(content, self.columnWidth(column) if self._rows.rows and column != VARIANT_COLUMN else 0)

    def _tell_chosen(self) -> None:
        self.chosen_changed.emit()

    def _open(self, index: QModelIndex) -> None:
        self.opened.emit(self._rows.rows[index.row()].run)

    def _choose_again(self, chosen: set[int], current: int | None) -> None:
        selection = QItemSelection()
        last = len(COLUMNS) - 1
        for first, end in _stretches([row.run in chosen for row in self._rows.rows]):
            selection.select(self._rows.index(first, 0), self._rows.index(end, last))
        model = self.selectionModel()
        model.blockSignals(True)
        at = next((n for n, row in enumerate(self._rows.rows) if row.run == current), None)
        if at is not None:
            model.setCurrentIndex(self._rows.index(at, 0), QItemSelectionModel.SelectionFlag.NoUpdate)
        model.select(selection, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        model.blockSignals(False)


def _stretches(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last position of every unbroken stretch of true."""
    found: list[tuple[int, int]] = []
    for n, flag in enumerate(flags):
        if flag and found and found[-1][1] == n - 1:
            found[-1] = (found[-1][0], n)
        elif flag:
            found.append((n, n))
    return found
