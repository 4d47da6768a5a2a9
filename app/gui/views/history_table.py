"""The table of stored runs: a model over a list of values, and the view that keeps what a reader chose."""

from collections.abc import Sequence

from PySide6.QtCore import QAbstractTableModel, QItemSelection, QItemSelectionModel, QModelIndex, QObject, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from app.gui.theme import GRID, Theme
from app.gui.views.history_cells import (
    CELL_ROLE,
    AnyIndex,
    CellDelegate,
    column_width,
    dress_table,
    share_width,
    tabular,
    unit_width,
)
from app.viewmodels.cells import Cell
from app.viewmodels.history import COLUMNS, VARIANT_COLUMN, HistoryRow, Query

_VARIANT_LEAST = 24 * GRID
_NO_PARENT = QModelIndex()
_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


class HistoryModel(QAbstractTableModel):
    """Rows of values, thousands of them; nothing is made for a cell before it is painted."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
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

    def columnCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """The columns of the view-model."""
        return 0 if parent.isValid() else len(COLUMNS)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """The cell for the delegate, its words for everything else."""
        cell = self.rows[index.row()].cells[index.column()]
        if role == CELL_ROLE:
            return cell
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{cell.text} {cell.unit}".rstrip()
        return (cell.tooltip or None) if role == Qt.ItemDataRole.ToolTipRole else None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Titles, their help and side."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = COLUMNS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if column.numeric else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.DisplayRole:
            return self._title(section)
        return column.help if role == Qt.ItemDataRole.ToolTipRole else None

    def _title(self, section: int) -> str:
        """The title, with an arrow where the rows are ordered by it: Qt's own would lie on right-aligned words."""
        title = COLUMNS[section].title
        if section != self._query.column:
            return title
        return f"{title} {'↓' if self._query.descending else '↑'}"


class HistoryTable(QTableView):
    """Keeps the chosen runs, the current one and the scroll position when rows are replaced."""

    opened = Signal(int)
    chosen_changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows = HistoryModel(self)
        self._delegate = CellDelegate(theme, self)
        self.setModel(self._rows)
        self.setItemDelegate(self._delegate)
        dress_table(self)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        heads = self.horizontalHeader()
        heads.setSectionsClickable(True)
        heads.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        self.selectionModel().selectionChanged.connect(self._tell_chosen)
        self.doubleClicked.connect(self._open)
        self.setAccessibleName("Stored runs")

    def show_rows(self, rows: Sequence[HistoryRow], widest: Sequence[Cell], query: Query) -> None:
        """Show these rows; runs that are still there stay chosen, and the view stays where it was."""
        chosen, current, scroll = set(self.chosen()), self.current_run(), self.verticalScrollBar().value()
        self._fit(widest)
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

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The variant takes what the other columns leave."""
        super().resizeEvent(event)
        share_width(self, VARIANT_COLUMN, _VARIANT_LEAST)

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

    def _fit(self, widest: Sequence[Cell]) -> None:
        """Columns only grow, so that nothing jumps when runs come in."""
        metrics = QFontMetrics(tabular(self.font()))
        for column, cell in enumerate(widest):
            if COLUMNS[column].numeric:
                self._delegate.unit_widths[column] = unit_width(metrics, cell.unit)
            if column != VARIANT_COLUMN:
                wanted = column_width(metrics, f"{COLUMNS[column].title} ↓", cell)
                self.setColumnWidth(column, max(wanted, self.columnWidth(column) if self._rows.rows else 0))
        share_width(self, VARIANT_COLUMN, _VARIANT_LEAST)


def _stretches(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last position of every unbroken stretch of true."""
    found: list[tuple[int, int]] = []
    for n, flag in enumerate(flags):
        if flag and found and found[-1][1] == n - 1:
            found[-1] = (found[-1][0], n)
        elif flag:
            found.append((n, n))
    return found
