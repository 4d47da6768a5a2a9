"""The Monitor screen: a table of all devices, the details of the chosen one below it."""

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from app.gui.actions import Actions
from app.gui.monitor.details import DetailsView
from app.gui.monitor.table import MonitorTable
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import ElidedLabel, EmptyState, button, plain_tooltip, separator, toggle_button
from app.gui.widgets.flow_layout import FlowBar
from app.gui.widgets.panes import splitter
from app.gui.window_state import WindowState
from app.viewmodels.monitor.details import chosen_details
from app.viewmodels.monitor.history import RANGES_S
from app.viewmodels.monitor.model import MonitorModel, TableSettings

_TABLE_SHARE = 0.45
"""Of the height, what the table takes at most until the user chooses."""


class MonitorView(QWidget):
    """Shows a `MonitorModel`; `settings_changed` comes when the user has chosen anything that is remembered."""

    settings_changed = Signal()

    def __init__(self, model: MonitorModel, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._model = model
        self._state = WindowState("monitor", self)
        model.change(self._state.read("settings", TableSettings()))
        self._empty = EmptyState("Looking for devices …", "Their load, power, memory and temperature appear here.")
        self._summary = ElidedLabel("muted", Qt.AlignmentFlag.AlignLeft)
        self.search = QLineEdit()
        self._grouped = toggle_button("By host", "Group devices under their hosts, or sort all of them in one list")
        self._fold = button("Fold all", "Show only hosts, or their devices too", small=True)
        self._ranges = {name: toggle_button(name, f"Show the last {name} ({n})") for n, name in enumerate(RANGES_S, 1)}
        self._hosts = button("&Hosts …", "Machines with GPUs that are reached by ssh, Slurm, Ray or docker", flat=True)
        self._trace = button(
            "Replay a &trace …", "Telemetry that the command watch --json recorded (Ctrl+O)", flat=True
        )
        self._hosts.clicked.connect(actions.manage_hosts)
        self._trace.clicked.connect(actions.open_trace)
        self.table = MonitorTable(model, theme)
        self.table.remember_widths(self._state)
        self.details = DetailsView(theme, actions)
        self._parts = splitter(Qt.Orientation.Vertical, self.table, self.details, (0, 1))
        self._is_sized = bool(self._state.read("parts", [], list[int]))
        self._state.keep_splitter("parts", self._parts)
        self._build()
        self._connect()

    @property
    def trace_button(self) -> QPushButton:
        """Asks for a trace to replay."""
        return self._trace

    def range_button(self, name: str) -> QPushButton:
        """Return the button of a range of time."""
        return self._ranges[name]

    def show_table(self) -> None:
        """Show the rows and figures as they are now."""
        model, settings = self._model, self._model.settings
        self.table.refresh()
        has_rows = self.table.chosen is not None
        self._empty.setVisible(not has_rows and not self.search.text())
        self._parts.setVisible(not self._empty.isVisible())
        if not has_rows:
            return
        self._show_summary()
        self.search.setVisible(model.has_other_hosts)
        self._grouped.setVisible(model.has_other_hosts)
        self._grouped.setChecked(settings.grouped)
        self._fold.setVisible(model.has_other_hosts and settings.grouped)
        self._fold.setText("Unfold all" if all(model.is_folded(host.name) for host in model.hosts) else "Fold all")
        for name, made in self._ranges.items():
            made.setChecked(name == settings.range)
        self._size()
        self.show_chosen(words=True)

    def _show_summary(self) -> None:
        """Show how all devices are, or what is known of the time under the pointer."""
        shown = self.details.describe_time() or self._model.summary()
        self._summary.setText(shown)
        self._summary.setToolTip(plain_tooltip(shown))

    def show_chosen(self, *, words: bool) -> None:
        """Show the plots of the chosen row as they are now, with `words` its figures too."""
        place = self.table.chosen
        if place is not None and self.details.is_in_sight:
            details = chosen_details(self._model, place)
            if words:
                self.details.show_details(details, self._model.settings.pinned)
            self.details.show_plots(details)

    def _size(self) -> None:
        """Give the table the room that its rows want, until the user chooses."""
        height = self._parts.height()
        wanted = min(self.table.wanted_height, int(height * _TABLE_SHARE))
        if not self._is_sized and self.isVisible() and wanted != self._parts.sizes()[0]:
            self._parts.setSizes([wanted, height - wanted])

    def _note_sized(self) -> None:
        self._is_sized = True

    def _change(self, **changes: object) -> None:
        self._model.change(replace(self._model.settings, **changes))  # type: ignore[arg-type]
        self._keep()

    def _keep(self) -> None:
        self._state.keep("settings", self._model.settings)
        self.show_table()

    def _pin(self, field: str, pinned: bool) -> None:
        self._model.pin(field, pinned=pinned)
        self._keep()

    def _search(self, text: str) -> None:
        self._model.search(text)
        self.show_table()

    def _leave_search(self) -> None:
        """Show all devices again, and give the table the keyboard."""
        self.search.clear()
        self.table.setFocus()

    def _connect_host(self, host: str) -> None:
        """Let the host be connected; the keyboard goes on from its row, for the button goes."""
        self.table.setFocus()
        self.table.connect_requested.emit(host)

    def _fold_all(self) -> None:
        self._model.fold(None, self._fold.text() == "Fold all")
        self.show_table()

    def _connect(self) -> None:
        self.table.chosen_changed.connect(lambda: self.show_chosen(words=True))
        self.table.sorted.connect(self._keep)
        self.details.stack.crosshair_moved.connect(lambda _: self._show_summary())
        self.details.figures.pinned.connect(self._pin)
        self.details.connect_requested.connect(self._connect_host)
        self.search.textChanged.connect(self._search)
        self._grouped.clicked.connect(lambda grouped: self._change(grouped=grouped))
        self._fold.clicked.connect(self._fold_all)
        for number, (name, made) in enumerate(self._ranges.items(), 1):
            made.clicked.connect(lambda _=False, name=name: self._change(range=name))
            self._shortcut(f"{number}", made.click)
        self._shortcut("Ctrl+F", self.search.setFocus)
        leave = QShortcut(QKeySequence("Escape"), self.search, context=Qt.ShortcutContext.WidgetShortcut)
        leave.activated.connect(self._leave_search)
        self._parts.splitterMoved.connect(self._note_sized)

    def _shortcut(self, keys: str, act: Callable[[], object]) -> None:
        shortcut = QShortcut(QKeySequence(keys), self)
        shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        shortcut.activated.connect(act)

    def _build(self) -> None:
        self.search.setPlaceholderText("Host, state, user …")
        self.search.setAccessibleName("Search devices")
        self.search.setToolTip(plain_tooltip("By host, GPU, state, or a process and its user (Ctrl+F)"))
        self.search.setClearButtonEnabled(True)
        self.search.setMinimumWidth(10 * GRID)
        self.search.setMaximumWidth(20 * GRID)
        self._summary.setMinimumWidth(32 * GRID)
        for hidden in (self.search, self._grouped, self._fold, self._parts):
            hidden.hide()
        head = QHBoxLayout()
        head.setContentsMargins(2 * GRID, GRID // 2, 2 * GRID, GRID // 2)
        head.addWidget(self._summary, 1)
        tools = FlowBar(GRID, GRID // 2, right=True)
        for widget in (self.search, self._grouped, self._fold, *self._ranges.values(), self._hosts, self._trace):
            tools.flow.addWidget(widget)
        head.addWidget(tools)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addWidget(separator())
        layout.addWidget(self._empty, 1)
        layout.addWidget(self._parts, 1)
