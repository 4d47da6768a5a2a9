"""The queue entries as a table that can be reordered by dragging or by keyboard."""

from collections.abc import Sequence

from PySide6.QtCore import QMimeData, QModelIndex, QPoint, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import QAbstractItemView, QStyleOptionViewItem

from app.gui.theme import GRID, Theme
from app.gui.widgets.cell_table import ROW_HEIGHT, AnyIndex, CellDelegate, CellModel, CellTable
from app.viewmodels.experiment.queue import (
    BAR_COLUMN,
    HOST_COLUMN,
    NAME_COLUMN,
    PYTHON_COLUMN,
    QUEUE_COLUMNS,
    WIDEST_CELLS,
    QueueRow,
    queue_cells,
)
from app.viewmodels.format.cells import Cell

_MAX_ROWS = 6
"""Largest number of visible rows; the plots above need their space."""
_NAME_MAX = 60 * GRID
_ENTRY_MIME_TYPE = "application/x-variantscope-queue-entry"
"""What is dragged: the number of an entry."""
_FRACTION_ROLE = Qt.ItemDataRole.UserRole + 1


class QueueTableModel(CellModel):
    """Rows of the view-model; when only their figures change, the selection stays."""

    def __init__(self) -> None:
        super().__init__(QUEUE_COLUMNS)
        self.rows: tuple[QueueRow, ...] = ()

    def rowCount(self, parent: AnyIndex | None = None) -> int:
        """Return the number of entries, with those that ended below."""
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def row_cells(self, row: int) -> Sequence[Cell]:
        """Return the cells of an entry."""
        return queue_cells(self.rows[row])

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return a cell's data, or how much of its entry is done."""
        if role == _FRACTION_ROLE:
            return self.rows[index.row()].fraction
        if role == Qt.ItemDataRole.AccessibleTextRole and index.column() == BAR_COLUMN:
            return self.rows[index.row()].done
        return super().data(index, role)

    def flags(self, index: AnyIndex) -> Qt.ItemFlag:
        """Return the flags; entries in the queue can be dragged."""
        found = super().flags(index)
        dragged = index.isValid() and self.rows[index.row()].in_queue
        return found | Qt.ItemFlag.ItemIsDragEnabled if dragged else found

    def supportedDropActions(self) -> Qt.DropAction:
        """Return that entries are moved, never copied."""
        return Qt.DropAction.MoveAction

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        """Return the number of the dragged entry."""
        data = QMimeData()
        data.setData(_ENTRY_MIME_TYPE, str(self.rows[indexes[0].row()].entry).encode())
        return data

    def show_rows(self, rows: tuple[QueueRow, ...]) -> None:
        """Show these rows; only other entries or another order reset the table."""
        same = [row.entry for row in rows] == [row.entry for row in self.rows]
        if not same:
            self.beginResetModel()
        self.rows = rows
        if not same:
            self.endResetModel()
        elif rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(QUEUE_COLUMNS) - 1))


class _BarDelegate(CellDelegate):
    """Adds the progress bar to the cells of all tables."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Paint a bar in its column, a cell in every other."""
        if index.column() != BAR_COLUMN:
            super().paint(painter, option, index)
            return
        painter.save()
        self.paint_background(painter, option)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        area = QRectF(self.content_area(option, index))
        area = QRectF(area.left(), area.center().y() - 2, area.width(), 4)
        painter.setBrush(QColor(self._theme.colours.raised))
        painter.drawRoundedRect(area, 2, 2)
        if fraction := float(index.data(_FRACTION_ROLE)):
            painter.setBrush(QColor(self._theme.colours.accent))
            painter.drawRoundedRect(QRectF(area.left(), area.top(), max(4.0, fraction * area.width()), 4), 2, 2)
        painter.restore()


class QueueTable(CellTable):
    """Keeps the selected entry while entries change; signals its keys, and where an entry is dragged to."""

    move_requested = Signal(int, int)
    """Emitted with an entry and by how many places it was dragged; negative is up."""
    chosen_changed = Signal()
    move_up_requested = Signal()
    move_down_requested = Signal()
    pause_requested = Signal()
    remove_requested = Signal()
    verdict_requested = Signal()

    def __init__(self, theme: Theme) -> None:
        self._rows = QueueTableModel()
        self._theme = theme
        super().__init__(self._rows, _BarDelegate(theme), elastic=NAME_COLUMN, elastic_max=_NAME_MAX)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAccessibleName("Queue")
        self.setDragDropMode(QAbstractItemView.DragDropMode.InternalMove)
        self._gap: int | None = None
        self.horizontalHeader().hide()
        self.fit(WIDEST_CELLS)
        self.selectionModel().selectionChanged.connect(lambda *_: self.chosen_changed.emit())
        self.doubleClicked.connect(lambda _: self.verdict_requested.emit())

    @property
    def chosen(self) -> QueueRow | None:
        """Return the selected entry."""
        row = self.currentIndex().row()
        return self._rows.rows[row] if 0 <= row < len(self._rows.rows) else None

    def show_rows(self, rows: tuple[QueueRow, ...]) -> None:
        """Show these entries; the selected one stays selected, or if it has ended, the one in its place is."""
        before, position = self.chosen, max(0, self.currentIndex().row())
        self._rows.show_rows(rows)
        self.setColumnHidden(HOST_COLUMN, not any(row.host for row in rows))
        self.setColumnHidden(PYTHON_COLUMN, not any(row.interpreters for row in rows))
        previous = None if before is None else (before.entry, before.in_queue)
        same = [n for n, row in enumerate(rows) if (row.entry, row.in_queue) == previous]
        target = same[0] if same else min(position, len(rows) - 1)
        if rows and target != self.currentIndex().row():
            self.selectRow(target)
        self.setFixedHeight(min(len(rows), _MAX_ROWS) * ROW_HEIGHT)
        self.chosen_changed.emit()

    def choose(self, entry: int) -> None:
        """Select an entry."""
        self.selectRow([row.entry for row in self._rows.rows].index(entry))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Alt with an arrow moves the entry, Space pauses or resumes it, Delete removes it, Enter shows its verdict."""
        alt = bool(event.modifiers() & Qt.KeyboardModifier.AltModifier)
        signal = {
            (Qt.Key.Key_Up, True): self.move_up_requested,
            (Qt.Key.Key_Down, True): self.move_down_requested,
            (Qt.Key.Key_Space, False): self.pause_requested,
            (Qt.Key.Key_Delete, False): self.remove_requested,
            (Qt.Key.Key_Return, False): self.verdict_requested,
            (Qt.Key.Key_Enter, False): self.verdict_requested,
        }.get((Qt.Key(event.key()), alt))
        if signal is None:
            super().keyPressEvent(event)
        else:
            signal.emit()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Accept entries of this list."""
        event.setAccepted(event.mimeData().hasFormat(_ENTRY_MIME_TYPE))

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        """Show where the entry would go."""
        super().dragMoveEvent(event)  # which scrolls near the edges
        event.setAccepted(event.mimeData().hasFormat(_ENTRY_MIME_TYPE))
        self._show_gap(self._gap_at(event.position().toPoint()))

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        """Stop showing it."""
        super().dragLeaveEvent(event)
        self._show_gap(None)

    def dropEvent(self, event: QDropEvent) -> None:
        """Request the move; the list follows the queue, and moves no row by itself."""
        entry, gap = int(event.mimeData().data(_ENTRY_MIME_TYPE).data()), self._gap_at(event.position().toPoint())
        self._show_gap(None)
        event.setDropAction(Qt.DropAction.IgnoreAction)
        event.accept()
        entries = [row.entry for row in self._rows.rows if row.in_queue]
        if entry in entries:  # it may have ended meanwhile
            position = entries.index(entry)
            offset = gap - position - (gap > position)
            if offset:
                self.move_requested.emit(entry, offset)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the rows, and a line where the dragged entry would go."""
        super().paintEvent(event)
        if self._gap is None:
            return
        painter = QPainter(self.viewport())
        top = self.rowViewportPosition(0) + self._gap * ROW_HEIGHT
        painter.fillRect(0, max(0, top - 1), self.viewport().width(), 2, QColor(self._theme.colours.accent))
        painter.end()

    def _gap_at(self, position: QPoint) -> int:
        """Return which gap between entries is next to a position; 0 is above the first."""
        entries = sum(row.in_queue for row in self._rows.rows)
        gap = round((position.y() - self.rowViewportPosition(0)) / ROW_HEIGHT)
        return min(max(gap, 0), entries)

    def _show_gap(self, gap: int | None) -> None:
        if gap != self._gap:
            self._gap = gap
            self.viewport().update()
