"""What all tables of runs share: a model over cells, and a view whose columns are as wide as their longest cell."""

import html
from collections.abc import Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, Qt
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from app.gui.theme import GRID, LEFT, RIGHT
from app.gui.views.cell_delegate import (
    CELL_ROLE,
    ROW_HEIGHT,
    SYMBOL_WIDTH,
    AnyIndex,
    CellDelegate,
    tabular,
)
from app.viewmodels.cells import Cell, Column

_NO_PARENT = QModelIndex()
_MOST_TOLD = 1_000


class CellModel(QAbstractTableModel):
    """Rows of cells, thousands of them; nothing is made for a cell before it is painted."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.columns = columns

    def cells_of(self, row: int) -> Sequence[Cell]:
        """The cells of a row, one a column."""
        raise NotImplementedError

    def title(self, column: int) -> str:
        """The words in a column's head."""
        return self.columns[column].title

    def columnCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """The columns of the view-model."""
        return 0 if parent.isValid() else len(self.columns)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """The cell for the delegate, its words for everything else."""
        cell = self.cells_of(index.row())[index.column()]
        if role == CELL_ROLE:
            return cell
        if role == Qt.ItemDataRole.DisplayRole:
            return " ".join(filter(None, (", ".join(cell.chips), cell.text, cell.unit)))
        return plain_tooltip(cell.tooltip) if role == Qt.ItemDataRole.ToolTipRole else None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Titles, their help and side."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column.numeric else LEFT
        if role == Qt.ItemDataRole.DisplayRole:
            return self.title(section)
        return column.help if role == Qt.ItemDataRole.ToolTipRole else None


class CellTable(QTableView):
    """Whole rows, no grid, one height; one column is elastic: it takes what the others leave."""

    def __init__(self, model: CellModel, delegate: CellDelegate, *, elastic: int, elastic_most: int) -> None:
        """The elastic column wants the room of its longest cell, but no more than `elastic_most` pixels."""
        super().__init__()
        self._cells = model
        self._delegate = delegate
        self._elastic = elastic
        self._elastic_most = elastic_most
        self._elastic_wants = 0
        model.setParent(self)
        delegate.setParent(self)
        self.setModel(model)
        self.setItemDelegate(delegate)
        self._dress()

    def fit(self, widest: Sequence[Cell], *, beside_title: str = "") -> None:
        """Give every column the width of its widest cell or of its title and what may stand beside that."""
        metrics = QFontMetrics(tabular(self.font()))
        for n, (column, cell) in enumerate(zip(self._cells.columns, widest, strict=True)):
            if column.numeric:
                self._delegate.unit_widths[n] = _unit_width(metrics, cell.unit)
            width = self.width_for(n, _content_width(metrics, f"{column.title}{beside_title}", cell))
            if n == self._elastic:
                self._elastic_wants = width
            else:
                self.setColumnWidth(n, width)
        self._stretch()

    def width_for(self, _column: int, content: int) -> int:
        """The width of a column whose words take `content` pixels."""
        return content

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The elastic column takes what the other columns leave."""
        super().resizeEvent(event)
        self._stretch()

    def _stretch(self) -> None:
        """Where the others leave less than the elastic column wants, the table scrolls sideways."""
        heads = self.horizontalHeader()
        others = sum(heads.sectionSize(n) for n in range(heads.count()) if n != self._elastic)
        wanted = min(self._elastic_wants, self._elastic_most)
        self.setColumnWidth(self._elastic, max(wanted, self.viewport().width() - others))

    def _dress(self) -> None:
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setShowGrid(False)
        # The delegate paints the selection: the style's solid accent would swallow the colours of outcomes.
        self.setStyleSheet("QTableView { selection-background-color: transparent; }")
        self.setWordWrap(False)
        self.setMouseTracking(True)
        self.setTabKeyNavigation(False)
        self.setCornerButtonEnabled(False)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        rows = self.verticalHeader()
        rows.hide()
        rows.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        rows.setDefaultSectionSize(ROW_HEIGHT)
        heads = self.horizontalHeader()
        heads.setHighlightSections(False)
        heads.setMinimumSectionSize(5 * GRID)
        heads.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)


def plain_tooltip(words: str) -> str | None:
    """Words for a tooltip, shown as they are, whatever Qt would take for mark-up, in lines of a readable length."""
    if not words:
        return None
    shown = words if len(words) <= _MOST_TOLD else f"{words[:_MOST_TOLD]} …"
    return f'<p style="white-space: pre-wrap">{html.escape(shown)}</p>'


def _content_width(metrics: QFontMetrics, title: str, cell: Cell) -> int:
    """The width of a column whose longest cell is this one, title included."""
    symbol = SYMBOL_WIDTH if cell.symbol else 0
    content = metrics.horizontalAdvance(cell.text) + _unit_width(metrics, cell.unit) + symbol
    return max(content, metrics.horizontalAdvance(title)) + 2 * GRID + 2


def _unit_width(metrics: QFontMetrics, unit: str) -> int:
    """The room a column keeps for a unit and the space before it."""
    return metrics.horizontalAdvance(unit) + GRID // 2 if unit else 0
