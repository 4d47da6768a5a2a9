"""The entries of the queue as a table: what each is, where it stands, how far it is and how long it will take."""

from collections.abc import Sequence

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter
from PySide6.QtWidgets import QAbstractItemView, QStyleOptionViewItem

from app.gui.theme import GRID, Theme
from app.gui.views.cell_table import CellModel, CellTable
from app.gui.views.history_cells import ROW_HEIGHT, AnyIndex, CellDelegate
from app.viewmodels.cells import Cell, Column
from app.viewmodels.queue import QueueRow

_MOST_ROWS = 6
"""Rows in view at most; the plots above keep their room."""
_NAME_MOST = 60 * GRID
_FRACTION_ROLE = Qt.ItemDataRole.UserRole + 1
_COLUMNS = (
    Column("Experiment", "What is compared", numeric=False),
    Column("State", "Where it stands", numeric=False),
    Column("Progress", "How much of it is done", numeric=False),
    Column("Runs", "Runs with a result, of those planned"),
    Column("Left", "How long the others are expected to take"),
)
_NAME, _STATE, _BAR, _RUNS, _LEFT = range(len(_COLUMNS))
_WIDEST = (
    Cell(text=""),
    Cell(text="running elsewhere"),
    Cell(text="▮" * 12),
    Cell(text="000/000"),
    Cell(text="10:00:00"),
)


class QueueRows(CellModel):
    """Rows of the view-model; a change of their figures leaves the choice where it is."""

    def __init__(self) -> None:
        super().__init__(_COLUMNS)
        self.rows: tuple[QueueRow, ...] = ()

    def rowCount(self, parent: AnyIndex | None = None) -> int:
        """The entries, and those that ended below them."""
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def cells_of(self, row: int) -> Sequence[Cell]:
        """What is shown of an entry."""
        shown = self.rows[row]
        return (
            Cell(text=shown.name, symbol=shown.symbol, tooltip=shown.tooltip),
            Cell(text=shown.state, tone=shown.tone, tooltip=shown.tooltip),
            Cell(text="", tooltip=shown.tooltip),
            Cell(text=shown.done, key=shown.fraction),
            Cell(text=shown.left, key=0),
        )

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """A cell, or how much of its entry is done."""
        if role == _FRACTION_ROLE:
            return self.rows[index.row()].fraction
        if role == Qt.ItemDataRole.AccessibleTextRole and index.column() == _BAR:
            return self.rows[index.row()].done
        return super().data(index, role)

    def show_rows(self, rows: tuple[QueueRow, ...]) -> None:
        """Show these; only other entries or another order are a new table."""
        same = [row.entry for row in rows] == [row.entry for row in self.rows]
        if not same:
            self.beginResetModel()
        self.rows = rows
        if not same:
            self.endResetModel()
        elif rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(_COLUMNS) - 1))


class _BarDelegate(CellDelegate):
    """Adds the bar of what is done to the cells of all tables."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """A bar in its column, a cell in every other."""
        if index.column() != _BAR:
            super().paint(painter, option, index)
            return
        painter.save()
        self.paint_ground(painter, option)
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
    """Keeps the chosen entry while the entries change; tells the keys that act on it."""

    chosen_changed = Signal()
    rise_asked = Signal()
    sink_asked = Signal()
    hold_asked = Signal()
    remove_asked = Signal()
    show_asked = Signal()

    def __init__(self, theme: Theme) -> None:
        self._rows = QueueRows()
        super().__init__(self._rows, _BarDelegate(theme), elastic=_NAME, elastic_most=_NAME_MOST)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAccessibleName("Queue")
        self.horizontalHeader().hide()
        self.fit(_WIDEST)
        self.selectionModel().selectionChanged.connect(lambda *_: self.chosen_changed.emit())
        self.doubleClicked.connect(lambda _: self.show_asked.emit())

    @property
    def chosen(self) -> QueueRow | None:
        """The entry that is chosen."""
        place = self.currentIndex().row()
        return self._rows.rows[place] if 0 <= place < len(self._rows.rows) else None

    def show_rows(self, rows: tuple[QueueRow, ...]) -> None:
        """Show these entries; the chosen one stays chosen, or once it has ended the one in its place is."""
        before, place = self.chosen, max(0, self.currentIndex().row())
        self._rows.show_rows(rows)
        kept = None if before is None else (before.entry, before.in_queue)
        same = [n for n, row in enumerate(rows) if (row.entry, row.in_queue) == kept]
        wanted = same[0] if same else min(place, len(rows) - 1)
        if rows and wanted != self.currentIndex().row():
            self.selectRow(wanted)
        self.setFixedHeight(min(len(rows), _MOST_ROWS) * ROW_HEIGHT)
        self.chosen_changed.emit()

    def choose(self, entry: int) -> None:
        """Choose an entry."""
        self.selectRow([row.entry for row in self._rows.rows].index(entry))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Alt with an arrow moves the entry, Space pauses or resumes it, Delete removes it, Enter shows its verdict."""
        alt = bool(event.modifiers() & Qt.KeyboardModifier.AltModifier)
        asked = {
            (Qt.Key.Key_Up, True): self.rise_asked,
            (Qt.Key.Key_Down, True): self.sink_asked,
            (Qt.Key.Key_Space, False): self.hold_asked,
            (Qt.Key.Key_Delete, False): self.remove_asked,
            (Qt.Key.Key_Return, False): self.show_asked,
            (Qt.Key.Key_Enter, False): self.show_asked,
        }.get((Qt.Key(event.key()), alt))
        if asked is None:
            super().keyPressEvent(event)
        else:
            asked.emit()
