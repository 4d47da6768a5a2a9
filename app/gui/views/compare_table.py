"""The table of compared runs: a box and a swatch of its colour for each, the baseline marked, ratios against it."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QItemSelectionModel, QModelIndex, QRect, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter
from PySide6.QtWidgets import QAbstractItemView, QStyle, QStyleOptionButton, QStyleOptionViewItem, QWidget

from app.gui.theme import GRID, Theme
from app.gui.views.cell_table import CellModel, CellTable
from app.gui.views.history_cells import ROW_HEIGHT, AnyIndex, CellDelegate
from app.viewmodels import cells
from app.viewmodels.cells import Cell
from app.viewmodels.compare import COLUMNS, VARIANT_COLUMN

_NO_PARENT = QModelIndex()
_BOX = 16
_SWATCH = 12
_MOST_ROWS_SHOWN = 8
_VARIANT_MOST = 36 * GRID


class CompareModel(CellModel):
    """One row a run; the first column's check state is whether its curves are shown."""

    def __init__(self) -> None:
        super().__init__(COLUMNS)
        self.runs: Sequence[int] = ()
        self.hidden: set[int] = set()
        self._table: Sequence[tuple[Cell, ...]] = ()

    def set_table(self, runs: Sequence[int], table: Sequence[tuple[Cell, ...]]) -> None:
        """Show these rows; runs hidden before stay hidden if they are still here."""
        self.beginResetModel()
        self.runs, self._table = runs, table
        self.hidden &= set(runs)
        self.endResetModel()

    def toggle(self, row: int) -> None:
        """Show the curves of a hidden run, or hide them."""
        self.hidden ^= {self.runs[row]}
        self.dataChanged.emit(self.index(row, 0), self.index(row, 0), [Qt.ItemDataRole.CheckStateRole])

    def rowCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """One row a run."""
        return 0 if parent.isValid() else len(self._table)

    def cells_of(self, row: int) -> Sequence[Cell]:
        """The cells of a run."""
        return self._table[row]

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """The check state of the first column; the rest as in every table."""
        if role == Qt.ItemDataRole.CheckStateRole and index.column() == 0:
            hidden = self.runs[index.row()] in self.hidden
            return Qt.CheckState.Unchecked if hidden else Qt.CheckState.Checked
        return super().data(index, role)


class CompareDelegate(CellDelegate):
    """Adds box and swatch to the first column. A run's colour is its row: its order in the comparison."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """The cell, then box and swatch where it is the first one."""
        super().paint(painter, option, index)
        if index.column() == 0:
            self._paint_box(painter, option, index)
            colour = self._theme.curve_colour(index.row())
            if index.data(Qt.ItemDataRole.CheckStateRole) == Qt.CheckState.Unchecked:
                colour.setAlpha(70)
            middle = QRect(option.rect).center().y()
            left = QRect(option.rect).left() + 2 * GRID + _BOX
            painter.fillRect(QRect(left, middle - 1, _SWATCH, 3), QColor(colour))

    def _paint_box(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        box = QStyleOptionButton()
        area = QRect(option.rect)
        box.rect = QRect(area.left() + GRID, area.center().y() - _BOX // 2, _BOX, _BOX)
        checked = index.data(Qt.ItemDataRole.CheckStateRole) == Qt.CheckState.Checked
        on = QStyle.StateFlag.State_On if checked else QStyle.StateFlag.State_Off
        box.state = QStyle.StateFlag.State_Enabled | on
        view = self.parent()
        assert isinstance(view, QWidget)
        view.style().drawPrimitive(QStyle.PrimitiveElement.PE_IndicatorCheckBox, box, painter, view)


class CompareTable(CellTable):
    """Space shows or hides the curves of a run, B makes it the baseline; the mouse does both."""

    hidden_changed = Signal()
    baseline_asked = Signal(int)
    current_changed = Signal()

    def __init__(self, theme: Theme) -> None:
        self._rows = CompareModel()
        super().__init__(self._rows, CompareDelegate(theme), elastic=VARIANT_COLUMN, elastic_most=_VARIANT_MOST)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.horizontalHeader().setSectionsClickable(False)
        self.selectionModel().currentChanged.connect(self._tell_current)
        self.setAccessibleName("Compared runs")

    def show_table(self, runs: Sequence[int], table: Sequence[tuple[Cell, ...]]) -> None:
        """Show these rows, without the columns of which no run has anything; the current row stays if it is here."""
        current = self.current_run()
        self._rows.set_table(runs, table)
        columns = [[row[n] for row in table] for n in range(len(COLUMNS))]
        for n, column in enumerate(columns):
            self.setColumnHidden(n, all(cell.key is None for cell in column))
        self.fit([cells.widest(column) for column in columns])
        if runs:
            self.choose(runs.index(current) if current in runs else 0)
        height = ROW_HEIGHT * min(len(runs), _MOST_ROWS_SHOWN) + self.horizontalHeader().sizeHint().height()
        self.setFixedHeight(height + 2 * self.frameWidth() + self.horizontalScrollBar().sizeHint().height())

    def choose(self, row: int) -> None:
        """Go to a row; unlike Qt's `selectRow` also while Ctrl or Shift is held, as in Ctrl+Shift+C."""
        flags = QItemSelectionModel.SelectionFlag
        self.selectionModel().setCurrentIndex(self._rows.index(row, 0), flags.ClearAndSelect | flags.Rows)

    def current_run(self) -> int | None:
        """The run under the keyboard."""
        index = self.currentIndex()
        return self._rows.runs[index.row()] if index.isValid() else None

    def hidden_runs(self) -> frozenset[int]:
        """The runs whose curves are not shown."""
        return frozenset(self._rows.hidden)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Space and B; the rest moves."""
        run = self.current_run()
        if run is not None and event.key() == Qt.Key.Key_Space:
            self._toggle(self.currentIndex().row())
        elif run is not None and event.key() == Qt.Key.Key_B:
            self.baseline_asked.emit(run)
        else:
            super().keyPressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """A click on a box shows or hides."""
        index = self.indexAt(event.position().toPoint())
        within = event.position().x() - self.columnViewportPosition(0) < 2 * GRID + _BOX
        if index.isValid() and index.column() == 0 and within and event.type() == QEvent.Type.MouseButtonRelease:
            self._toggle(index.row())
        super().mouseReleaseEvent(event)

    def width_for(self, column: int, content: int) -> int:
        """The first column has box and swatch too."""
        return content + (3 * GRID + _BOX + _SWATCH if column == 0 else 0)

    def _tell_current(self) -> None:
        self.current_changed.emit()

    def _toggle(self, row: int) -> None:
        self._rows.toggle(row)
        self.hidden_changed.emit()
