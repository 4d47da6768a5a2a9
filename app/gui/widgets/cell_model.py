"""The rows of a table as cells, with the titles of its columns."""

from collections.abc import Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from app.gui.theme import LEFT, RIGHT
from app.gui.widgets.basic import plain_tooltip
from app.viewmodels.format.cells import Cell, Column

AnyIndex = QModelIndex | QPersistentModelIndex

_NO_PARENT = QModelIndex()


class CellModel(QAbstractTableModel):
    """Model of thousands of rows of cells; nothing is made for a cell before it is painted."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.columns = columns
        self._untitled: set[int] = set()

    def row_cells(self, row: int) -> Sequence[Cell]:
        """Return the cells of a row, one per column."""
        raise NotImplementedError

    def title(self, column: int) -> str:
        """Return the title of a column."""
        return self.columns[column].title

    def is_folded(self, _row: int) -> bool | None:
        """Return whether the lines below a row are folded away; None where it has none."""
        return None

    def columnCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self.columns)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return a cell's text and its tooltip; the delegate takes the cell from its row."""
        cell = self.row_cells(index.row())[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return " ".join(filter(None, (", ".join(cell.chips), cell.text, cell.unit)))
        if role == Qt.ItemDataRole.AccessibleTextRole and (folded := self._folded_at(index)) is not None:
            return f"{self.data(index)}, {'folded' if folded else 'unfolded'}"
        return plain_tooltip(cell.tooltip) or None if role == Qt.ItemDataRole.ToolTipRole else None

    def _folded_at(self, index: AnyIndex) -> bool | None:
        return None if index.column() else self.is_folded(index.row())

    def show_title(self, column: int, *, shown: bool) -> None:
        """Show the title of a column, or leave it out where there is no room for it."""
        if shown == (column in self._untitled):
            self._untitled ^= {column}
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, column, column)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return titles, their help and alignment; a title that is not shown is there for screen readers."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column.numeric else LEFT
        if role == Qt.ItemDataRole.DisplayRole:
            return "" if section in self._untitled else self.title(section)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return self.title(section)
        return plain_tooltip(column.help) if role == Qt.ItemDataRole.ToolTipRole else None
