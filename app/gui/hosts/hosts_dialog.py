"""The dialog of hosts: a list to connect, check and remove, and a form that adds one."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QFormLayout, QLineEdit, QPlainTextEdit, QPushButton, QWidget

from app import units
from app.errors import UserError
from app.gui.hosts.hosts_controller import HostsController
from app.gui.theme import GRID, Theme
from app.gui.threads import CancellableJob
from app.gui.widgets.basic import STRETCH, BreakingLabel, button, make_column, make_row, set_role, text_label
from app.gui.widgets.cell_delegate import CellDelegate, CellModel
from app.gui.widgets.cell_table import CellTable
from app.gui.widgets.dialogs import resize_within_screen
from app.gui.widgets.panes import PageScroller
from app.hosts.address import parse_address
from app.hosts.book import HostEntry, add_host, remove_host
from app.hosts.check import HostCheck, check_hosts, check_lines
from app.hosts.fetch import Fetch, list_detached, stop_detached
from app.samples import Inventory
from app.viewmodels.hosts import HOST_COLUMNS, describe_address, host_cells, widest_host_cells
from workloads.catalog import FRAMEWORKS, UsageError

_LOOK_S = 0.1
_ADDRESS_HINT = "ssh://me@gpu1, slurm+ssh://login?gres=gpu:1, ray+ssh://head, docker://name"


class AddHostForm(QWidget):
    """Name and address of a new host; while they are typed, a sentence says what the address means."""

    def __init__(self, add: Callable[[HostEntry], None]) -> None:
        super().__init__()
        self.name = QLineEdit()
        self.name.setPlaceholderText("gpu1")
        self.name.setAccessibleName("Name")
        self.address = QLineEdit()
        self.address.setPlaceholderText(_ADDRESS_HINT)
        self.address.setAccessibleName("Address")
        self.meaning = BreakingLabel("caption")
        self.add_button = button("&Add", "Add this host to yours", primary=True)
        for field in (self.name, self.address):
            field.textChanged.connect(lambda _: self.refresh())
            field.returnPressed.connect(self._enter)
        self.add_button.clicked.connect(lambda: add(self.entry()))
        form = QFormLayout()
        form.addRow("Na&me", self.name)
        form.addRow("Add&ress", self.address)
        buttons = make_row(self.add_button, STRETCH)
        make_column(form, self.meaning, buttons, parent=self, margins=0)
        self.refresh()

    def entry(self) -> HostEntry:
        """Return the host as it is typed."""
        address = self.address.text().strip()
        return HostEntry(name=self.name.text().strip() or address, address=address)

    def _enter(self) -> None:
        """Add the host, or go to the field that it lacks."""
        if self.add_button.isEnabled():
            self.add_button.click()
        else:
            (self.address if self.name.text().strip() else self.name).setFocus()

    def refresh(self, error: str = "") -> None:
        """Say what the address means, or what is wrong."""
        text, is_valid = error, False
        address = self.address.text().strip()
        if not error:
            try:
                host = parse_address(address) if address else None
                is_valid = host is not None
                text = describe_address(host.kind, host.label) if host else "The address says how to reach the host."
            except UsageError as wrong:
                text = str(wrong)
        self.meaning.setText(text)
        set_role(self.meaning, "caption" if is_valid or not address else "problem")
        self.add_button.setEnabled(is_valid and bool(self.name.text().strip()))


class HostsDialog(QDialog):
    """Lists the user's hosts with their state; checks run off the GUI thread, and closing ends them.

    `runs_fetched` is emitted when runs were fetched into the database.

    Thread: GUI only.
    """

    runs_fetched = Signal()

    def __init__(self, parent: QWidget, theme: Theme, hosts: HostsController, database: Path) -> None:
        super().__init__(parent)
        self._database = database
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Hosts")
        resize_within_screen(self, 120 * GRID, 84 * GRID)
        self._hosts = hosts
        self._job = CancellableJob(self)
        self._checks: dict[str, HostCheck] = {}
        self._checking: set[str] = set()
        self._model = CellModel(HOST_COLUMNS)
        self.table = CellTable(self._model, CellDelegate(theme))
        self.table.setAccessibleName("Hosts")
        self._list = QWidget()
        self.details = QPlainTextEdit()
        self.details.setReadOnly(True)
        self.details.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.details.setAccessibleName("What the check found")
        self.form = AddHostForm(self._add)
        self.connect_button = button("&Connect", "Connect to this host, or end its connection")
        self.check_button = button("C&heck", "Check whether it answers, and what it has for runs")
        self.remove_button = button("Remo&ve", "Remove it from this list; nothing changes on the host")
        self.fetch_button = button(
            "&Fetch runs", "Fetch the runs that went on there without this program, and list others"
        )
        self.stop_button = button("&Stop runs", "End the runs that go on there without this program")
        self._buttons: Mapping[QPushButton, Callable[[HostEntry], None]] = {
            self.connect_button: self._connect_or_end,
            self.check_button: self._check,
            self.fetch_button: partial(self._work_on_runs, fetch_over),
            self.stop_button: partial(self._work_on_runs, stop_all),
            self.remove_button: self._remove,
        }
        for pressed, act in self._buttons.items():
            pressed.clicked.connect(lambda _=False, act=act: self._with_chosen(act))
        self.table.selectionModel().selectionChanged.connect(lambda *_: self._show_chosen())
        hosts.states_changed.connect(self.refresh)
        self.finished.connect(lambda _: self._job.close())
        self._build()
        theme.apply_style_sheet(self)
        self.refresh()
        if self._model.rows:
            self.table.selectRow(0)

    def refresh(self) -> None:
        """Show the hosts as they are now."""
        entries = self._hosts.connections.entries
        rows = [
            host_cells(
                entry.name,
                entry.address,
                self._hosts.connections.state(entry.name),
                self._hosts.inventory(entry.name) or self._checked_inventory(entry.name),
                self._checked_framework(entry.name),
            )
            for entry in entries
        ]
        self._list.setVisible(bool(rows))
        self._model.show_rows(rows, is_alike=len(rows) == len(self._model.rows))
        self.table.fit(widest_host_cells(self._model.rows))
        self._show_chosen()

    @property
    def chosen(self) -> HostEntry | None:
        """The selected host."""
        row, entries = self.table.currentIndex().row(), self._hosts.connections.entries
        return entries[row] if 0 <= row < len(entries) else None

    def _checked_inventory(self, name: str) -> Inventory | None:
        check = self._checks.get(name)
        return check.inventory if check is not None else None

    def _checked_framework(self, name: str) -> str | None:
        check = self._checks.get(name)
        if check is None or check.hello is None:
            return None
        return ", ".join(
            f"{FRAMEWORKS[framework.name].name} {framework.version}"
            for framework in check.hello.frameworks
            if framework.version
        )

    def _show_chosen(self) -> None:
        entry = self.chosen
        for entry_button in self._buttons:
            entry_button.setEnabled(entry is not None)
        if entry is None:
            self._show_text("")
            return
        state = self._hosts.connections.state(entry.name)
        self.connect_button.setText("&Connect" if state.can_retry else "&Disconnect")
        self.check_button.setEnabled(entry.name not in self._checking)
        self._show_details(entry.name, state.text)

    def _show_details(self, name: str, text: str) -> None:
        if name in self._checking:
            text = f"Checking {name} …"
        elif (check := self._checks.get(name)) is not None:
            lines = [f"{label:<14}{line}" for label, line in check_lines(check)]
            text = "\n".join([*([check.problem] if check.problem else []), *lines])
        self._show_text(text)

    def _show_text(self, text: str) -> None:
        if text != self.details.toPlainText():
            self.details.setPlainText(text)
        self.details.setVisible(bool(text))

    def _with_chosen(self, act: Callable[[HostEntry], None]) -> None:
        if (entry := self.chosen) is not None:
            act(entry)

    def _connect_or_end(self, entry: HostEntry) -> None:
        connections = self._hosts.connections
        if connections.state(entry.name).can_retry:
            self._hosts.connect_host(entry.name)
        else:
            connections.disconnect(entry.name)

    def _work_on_runs(self, work: Callable[[HostEntry, Path, threading.Event], str], entry: HostEntry) -> None:
        """Fetch or end the runs that go on on a host without this program, off the GUI thread."""
        self._show_text(f"Asking {entry.name} …")
        self._job.run(lambda control: work(entry, self._database, control.stop), self._end_work, self._fail)

    def _end_work(self, sentence: str) -> None:
        self._show_text(sentence)
        self.runs_fetched.emit()

    def _check(self, entry: HostEntry) -> None:
        self._checking.add(entry.name)
        self._show_chosen()
        self._show_text(f"Checking {entry.name} …")

        def done(check: HostCheck) -> None:
            self._checking.discard(entry.name)
            self._checks[entry.name] = check
            if check.inventory is not None:
                self._hosts.renew(entry.name, check.inventory)
            self.refresh()
            self.form.refresh()
            self._show_details(entry.name, "")

        self._job.run(lambda control: _check_host(entry, control.stop), done, self._fail)

    def _add(self, entry: HostEntry) -> None:
        try:
            add_host(entry)
            self._hosts.connections.reload()
        except (UserError, UsageError) as error:
            self.form.refresh(str(error))
            return
        self.form.name.clear()
        self.form.address.clear()
        self.refresh()
        self.table.selectRow(len(self._model.rows) - 1)

    def _remove(self, entry: HostEntry) -> None:
        try:
            self._hosts.remove(entry.name)
            remove_host(entry.name)
            self._hosts.connections.reload()
        except (UserError, UsageError) as error:
            self._fail(UserError(str(error)))
        self.refresh()

    def _fail(self, error: UserError) -> None:
        self._checking.clear()
        self.form.refresh()
        self._show_text(str(error))

    def _build(self) -> None:
        side = make_column(*self._buttons, STRETCH, spacing=GRID)
        make_row((self.table, 1), side, parent=self._list, margins=0, spacing=2 * GRID)
        buttons = QDialogButtonBox()
        buttons.addButton(button("&Close", "Close this window (Escape)"), QDialogButtonBox.ButtonRole.RejectRole)
        buttons.rejected.connect(self.reject)
        for push_button in buttons.findChildren(QPushButton):
            push_button.setAutoDefault(False)  # Enter in a field adds a host
        content = QWidget()
        parts = (self._list, 3), (self.details, 2), text_label("Add a host", "heading"), self.form
        column = make_column(
            *parts, parent=content, margins=(2 * GRID, 2 * GRID, 2 * GRID, 0), spacing=GRID + GRID // 2
        )
        column.addStretch(0)
        foot = make_row(buttons, margins=(2 * GRID, 0, 2 * GRID, 0))
        make_column((PageScroller(content), 1), foot, parent=self, margins=(0, 0, 0, GRID), spacing=GRID)


def fetch_over(entry: HostEntry, database: Path, stop: threading.Event) -> str:
    """Fetch the detached runs of a host that are over; return what became of them; raises `UserError`."""
    runs = list_detached(entry, lambda _: None)
    over = [run for run in runs if run.size_bytes and not run.goes_on]
    for run in over:
        fetch = Fetch(entry, run, database, lambda _: None)
        if stop.is_set():
            raise UserError("Fetching was stopped.")
        fetch.run(())
    more = f" {len(runs) - len(over)} go on there still, or wait." if len(runs) > len(over) else ""
    return f"{len(over)} {units.plural('run', len(over))} of {entry.name} fetched.{more}"


def stop_all(entry: HostEntry, _database: Path, _stop: threading.Event) -> str:
    """Ask the detached runs of a host to end; return how many; raises `UserError`."""
    runs = [run for run in list_detached(entry, lambda _: None) if run.goes_on]
    for run in runs:
        stop_detached(entry, run.uid, lambda _: None)
    return (
        f"{len(runs)} {units.plural('run', len(runs))} of {entry.name} asked to end; fetch what was done in a moment."
    )


def _check_host(entry: HostEntry, stop: threading.Event) -> HostCheck:
    """Return what is found of a host, unless the dialog closes: then nobody waits for what it still does."""
    checks: list[HostCheck] = []
    thread = threading.Thread(target=lambda: checks.extend(check_hosts([entry])), name="check", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        thread.join(_LOOK_S)
    if not checks:
        raise UserError("The check was stopped." if stop.is_set() else "The check failed; see the log.")
    return checks[0]
