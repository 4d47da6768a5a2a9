"""The Monitor screen: a table of all devices, above the details of the chosen one."""

import time
from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QItemSelection, QItemSelectionModel, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QShortcut
from PySide6.QtWidgets import QAbstractItemView

from app.gui.actions import Actions
from app.gui.monitor.details import DetailsView
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import (
    ElidedLabel,
    EmptyState,
    SearchLine,
    Surface,
    button,
    make_column,
    make_row,
    plain_tooltip,
    separator,
    toggle_button,
)
from app.gui.widgets.cell_delegate import AnyIndex, CellDelegate, CellModel
from app.gui.widgets.cell_table import CellTable
from app.gui.widgets.panes import FlowBar, splitter
from app.gui.widgets.text_widths import Face
from app.gui.window_state import WindowState
from app.values import units
from app.viewmodels.format.cells import Cell
from app.viewmodels.monitor.cells import DEVICE, PROCESSES, STATE
from app.viewmodels.monitor.details import chosen_details
from app.viewmodels.monitor.model import MonitorModel, RowKey, TableSettings

_WIDEST: dict[str, Cell] = {
    DEVICE: Cell(text="This machine · 4× H100 80GB HBM3, 4× RTX 6000 Ada", symbol="▾"),
    STATE: Cell(text="1 lost · 2 throttled · 1 shared", symbol="▲"),
    "load_pct": Cell(text=units.percent(100)),
    "power_mw": Cell(text="5,600 of 5,600 W"),
    "memory_bytes": Cell(text="1,120.0 of 1,120", unit="GiB"),
    "temperature_c": Cell(text="100", unit="°C"),
    PROCESSES: Cell(text="python3 (ann) and 1 more"),
}
"""Cells that set their columns' widths."""
_REFRESH_PLOTS_S, _REFRESH_WORDS_S = 0.15, 0.5
"""Numbers that change more often than this are unreadable."""
_ONLY_ROWS = QItemSelectionModel.SelectionFlag.ClearAndSelect | QItemSelectionModel.SelectionFlag.Rows


class _TableModel(CellModel):
    """The view-model's rows; each is created once between two refreshes, when painted or requested."""

    def __init__(self, monitor: MonitorModel) -> None:
        super().__init__(tuple(monitor.columns().values()))
        self._monitor = monitor
        self.keys = tuple(monitor.columns())
        self.rows: Sequence[RowKey] = ()
        self._cells_by_row: dict[RowKey, Sequence[Cell]] = {}

    def row_cells(self, row: int) -> Sequence[Cell]:
        """Return the cells of a row as of the last refresh."""
        row_key = self.rows[row]
        cells = self._cells_by_row.get(row_key)
        if cells is None:
            cells = self._cells_by_row[row_key] = self._monitor.cells(row_key)
        return cells

    def is_head(self, row: int) -> bool:
        return self.rows[row].device is None

    def is_folded(self, row: int) -> bool | None:
        row_key = self.rows[row]
        return self._monitor.is_folded(row_key.host) if row_key.device is None else None

    def refresh(self) -> bool:
        """Update rows and figures; return whether rows or columns have changed."""
        self._cells_by_row = {}
        order, columns = self._monitor.layout(), self._monitor.columns()
        if order == self.rows and tuple(columns) == self.keys:
            return False
        self.beginResetModel()
        self.rows, self.keys, self.columns = order, tuple(columns), tuple(columns.values())
        self.endResetModel()
        return True


class _DeviceDelegate(CellDelegate):
    """Cuts long texts at their end."""

    def shortened(self, cell: Cell, _index: AnyIndex, face: Face, width: int) -> str:
        """Return the beginning, which matters most, such as a state or a host's name."""
        return face.elided(cell.text, Qt.TextElideMode.ElideRight, width)


class MonitorTable(CellTable):
    """Shows the rows of a `MonitorModel`, and the details of the rows that the user `selected`, in order.

    The selection survives changes of rows and order. Keys act on `chosen`, one of them; None without rows.
    `connect_requested` and `opened` carry the name of a host: to connect to it, and to show its plots on the Run
    screen.
    """

    chosen_changed = Signal()
    sorted = Signal()
    connect_requested = Signal(str)
    opened = Signal(str)

    def __init__(self, monitor: MonitorModel, theme: Theme) -> None:
        self._monitor = monitor
        self._rows = _TableModel(monitor)
        self.selected: tuple[RowKey, ...] = ()
        self.chosen: RowKey | None = None
        self._is_own_choice = self._is_restoring = False
        self._spans: frozenset[int] = frozenset()
        super().__init__(self._rows, _DeviceDelegate(theme))
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setAccessibleName("Devices")
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerItem)
        header = self.horizontalHeader()
        header.setSectionsClickable(True)
        header.sectionClicked.connect(self._sort)
        self.verticalScrollBar().valueChanged.connect(lambda _: self._span_reasons())
        self.fit([_WIDEST[key] for key in self._rows.keys], bold=True)

    @property
    def wanted_height(self) -> int:
        rows = self._rows.rowCount() * self.verticalHeader().defaultSectionSize()
        return self.horizontalHeader().sizeHint().height() + rows + 2

    def choose(self, row_key: RowKey) -> None:
        if row_key in self._rows.rows:
            self._select([self._rows.rows.index(row_key)])

    def refresh(self) -> None:
        row, keys = max(0, self.currentIndex().row()), self._rows.keys
        if self._rows.refresh():
            if self._rows.keys != keys:
                self.fit([_WIDEST[key] for key in self._rows.keys], bold=True)
            self._spans = frozenset()
            self.clearSpans()
            self._restore(row)
        settings = self._monitor.settings
        column = self._rows.keys.index(settings.sort) if settings.sort in self._rows.keys else -1
        if (order := (column, not settings.ascending)) != self._rows.order:
            self._rows.order = order
            self._rows.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(self._rows.keys) - 1)
        self._span_reasons()
        self.viewport().update()

    def selectionChanged(self, selected: QItemSelection, deselected: QItemSelection) -> None:
        """Record the chosen rows; the last one stays chosen."""
        super().selectionChanged(selected, deselected)
        if self._is_restoring:
            return
        if self.selectionModel().hasSelection():
            self._is_own_choice = True
            self._note()
        elif self.chosen is not None:
            self.choose(self.chosen)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row_key = self.chosen
        key = Qt.Key(event.key())
        if row_key is not None and key in (Qt.Key.Key_Left, Qt.Key.Key_Right) and self._monitor.has_host_rows:
            self._monitor.fold(row_key.host, key == Qt.Key.Key_Left)
            if key == Qt.Key.Key_Left:
                self.chosen = RowKey(row_key.host)
                self.selected = (self.chosen,)
            self.refresh()
            self.chosen_changed.emit()
        elif row_key is not None and key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._open(row_key)
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        index = self.indexAt(event.position().toPoint())
        if not index.isValid() or self._rows.rows[index.row()].device is not None:
            return
        host, key = self._rows.rows[index.row()].host, self._rows.keys[index.column()]
        if key == DEVICE and event.position().x() < self.visualRect(index).left() + 3 * GRID:
            self._monitor.fold(host)
            self.refresh()
        elif key == PROCESSES and self._monitor.host(host).link.can_retry:
            self.connect_requested.emit(host)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        if index.isValid():
            self._open(self._rows.rows[index.row()])

    def _sort(self, column: int) -> None:
        self._monitor.sort_by(self._rows.keys[column])
        self.refresh()
        self.sorted.emit()

    def _restore(self, row: int) -> None:
        """Restore the rows that the user chose, or what replaced them; before any choice, the first GPU."""
        rows = {row_key: n for n, row_key in enumerate(self._rows.rows)}
        if not rows:
            self.chosen, self.selected = None, ()
            return
        remaining = [rows[row_key] for row_key in self.selected if row_key in rows and self._is_own_choice]
        if not self._is_own_choice:
            row = next((n for row_key, n in rows.items() if row_key.device is not None), 0)
        remaining.sort(key=lambda row: self._rows.rows[row] != self.chosen)
        self._is_restoring = True
        self._select(remaining or [min(row, len(rows) - 1)])
        self._is_restoring = False
        self._note()

    def _select(self, rows: Sequence[int]) -> None:
        """Select only these rows, whatever keys are held down; the first becomes the current one."""
        chosen, selection = QItemSelection(), self.selectionModel()
        for row in rows:
            chosen.select(self._rows.index(row, 0), self._rows.index(row, 0))
        selection.setCurrentIndex(self._rows.index(rows[0], 0), QItemSelectionModel.SelectionFlag.NoUpdate)
        selection.select(chosen, _ONLY_ROWS)

    def _note(self) -> None:
        """Record the selection; keys act on one of its rows."""
        order = self._rows.rows
        selected = tuple(order[row] for row in sorted(index.row() for index in self.selectionModel().selectedRows()))
        current = order[self.currentIndex().row()]
        self.chosen = current if current in selected else selected[0]
        if selected != self.selected:
            self.selected = selected
            self.chosen_changed.emit()

    def _span_reasons(self) -> None:
        """Let the reason of a row without figures span their cells; only for visible rows, because it is slow."""
        first, last = self.rowAt(0), self.rowAt(self.viewport().height() - 1)
        rows = range(max(0, first), (last if last >= 0 else self._rows.rowCount() - 1) + 1)
        spanned = frozenset(row for row in rows if self._monitor.reason(self._rows.rows[row]))
        if spanned != self._spans:
            self._spans = spanned
            self.clearSpans()
            keys = self._rows.keys
            start, end = keys.index(STATE), keys.index(PROCESSES) if PROCESSES in keys else len(keys)
            for row in spanned:
                self.setSpan(row, start, 1, end - start)

    def _open(self, row_key: RowKey) -> None:
        can_connect = self._monitor.host(row_key.host).link.can_retry
        (self.connect_requested if can_connect and row_key.host else self.opened).emit(row_key.host)


_TABLE_SHARE = 0.45
"""The table's largest share of the height until the user chooses, unless the details need less."""


class MonitorView(Surface):
    """Shows a `MonitorModel`, and remembers the user's choices in it."""

    def __init__(self, model: MonitorModel, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._plots_s = self._words_s = 0.0
        self._model = model
        self._state = WindowState("monitor", self)
        model.change(self._state.read("settings", TableSettings()))
        self._empty = EmptyState("Looking for devices …", "Their load, power, memory and temperature appear here.")
        self._summary = ElidedLabel("muted", Qt.AlignmentFlag.AlignLeft)
        self.search = SearchLine("Host, state, user …", "Search devices")
        self._grouped = toggle_button("By host", "Group devices under their hosts, or sort all of them in one list")
        self._fold = button("Fold all", "Show only hosts, or their devices too", small=True)
        self._hosts = button("&Hosts …", "Machines with GPUs that are reached by ssh, Slurm, Ray or docker", flat=True)
        self._hosts.clicked.connect(actions.manage_hosts)
        self.table = MonitorTable(model, theme)
        self.table.remember_widths(self._state)
        self.details = DetailsView(theme, actions)
        self._parts = splitter(Qt.Orientation.Vertical, self.table, self.details, (0, 1))
        self._is_sized = bool(self._state.read("parts", [], list[int]))
        self._state.keep_splitter("parts", self._parts)
        self._build()
        self._connect()

    def refresh(self) -> None:
        """Show the current state, if visible and the last one has been readable for long enough."""
        now_s = time.monotonic()
        if self.isVisible() and now_s - self._words_s >= _REFRESH_WORDS_S:
            self._words_s = self._plots_s = now_s
            self.show_table()
        elif now_s - self._plots_s >= _REFRESH_PLOTS_S:
            self._plots_s = now_s
            self.show_chosen(words=False)

    def show_table(self) -> None:
        model, settings = self._model, self._model.settings
        model.read()
        self.table.refresh()
        has_rows = self.table.chosen is not None
        self._empty.setVisible(not has_rows and not self.search.text())
        self._parts.setVisible(not self._empty.isVisible())
        if not has_rows:
            return
        self._summary.setText(model.summary())
        self.search.setVisible(model.has_other_hosts)
        self._grouped.setVisible(model.has_other_hosts)
        self._grouped.setChecked(settings.grouped)
        self._fold.setVisible(model.has_other_hosts and settings.grouped)
        self._fold.setText("Unfold all" if all(model.is_folded(host.name) for host in model.hosts) else "Fold all")
        # Give the table the height that its rows need, until the user chooses.
        height = self._parts.height()
        room = max(int(height * _TABLE_SHARE), height - self.details.wanted_height)
        table_height = min(self.table.wanted_height, room)
        if not self._is_sized and self.isVisible() and table_height != self._parts.sizes()[0]:
            self._parts.setSizes([table_height, height - table_height])
        self.show_chosen(words=True)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.table.chosen is not None and len(self.table.selected) > 1:
            self.table.choose(self.table.chosen)
        else:
            super().keyPressEvent(event)

    def show_chosen(self, *, words: bool) -> None:
        """Show the current curves of the selected rows, with `words` their figures too.

        All words come from the reading that the table shows.
        """
        if self.table.selected and not self.details.visibleRegion().isEmpty():
            details = chosen_details(self._model, *self.table.selected)
            if words:
                self.details.show_details(details)
            self.details.time_bar.show_view(self._model.settings.range, "Paused" if self._model.view.is_paused else "")
            self.details.show_plots(details)

    def _note_sized(self) -> None:
        self._is_sized = True

    def _change(self, **changes: object) -> None:
        self._model.change(replace(self._model.settings, **changes))  # type: ignore[arg-type]
        self._keep()

    def _keep(self) -> None:
        self._state.keep("settings", self._model.settings)
        self.show_table()

    def _search(self, text: str) -> None:
        self._model.search(text)
        self.show_table()

    def _leave_search(self) -> None:
        self.search.clear()
        self.table.setFocus()

    def _connect_host(self, host: str) -> None:
        """Request a host's connection; the focus moves to its row, because the button disappears."""
        self.table.setFocus()
        self.table.connect_requested.emit(host)

    def _fold_all(self) -> None:
        self._model.fold(None, self._fold.text() == "Fold all")
        self.show_table()

    def _connect(self) -> None:
        self.table.chosen_changed.connect(lambda: self.show_chosen(words=True))
        self.table.sorted.connect(self._keep)
        self.details.time_bar.control(self._model, self._keep)
        self.details.connect_requested.connect(self._connect_host)
        self.search.textChanged.connect(self._search)
        self._grouped.clicked.connect(lambda grouped: self._change(grouped=grouped))
        self._fold.clicked.connect(self._fold_all)
        find = QShortcut("Ctrl+F", self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
        find.activated.connect(self.search.setFocus)
        for number, range_button in enumerate(self.details.time_bar.range_buttons.values(), 1):
            key = QShortcut(f"{number}", self.table, context=Qt.ShortcutContext.WidgetShortcut)
            key.activated.connect(range_button.click)
        leave = QShortcut("Escape", self.search, context=Qt.ShortcutContext.WidgetShortcut)
        leave.activated.connect(self._leave_search)
        self._parts.splitterMoved.connect(self._note_sized)

    def _build(self) -> None:
        self.search.setToolTip(plain_tooltip("By host, GPU, state, or a process and its user (Ctrl+F)"))
        self.search.setMinimumWidth(10 * GRID)
        self.search.setMaximumWidth(20 * GRID)
        self._summary.setMinimumWidth(32 * GRID)
        for hidden in (self.search, self._grouped, self._fold, self._parts):
            hidden.hide()
        filters = self.search, self._grouped, self._fold
        tools = FlowBar(GRID, GRID // 2, *filters, self._hosts, right=True)
        head = make_row((self._summary, 1), tools, margins=(2 * GRID, GRID // 2, 2 * GRID, GRID // 2))
        make_column(head, separator(), (self._empty, 1), (self._parts, 1), parent=self, margins=0, spacing=0)
