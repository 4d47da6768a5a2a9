"""The hosts dialog: a list to check and remove, its detached runs, and a form to add a host."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QFormLayout, QLineEdit, QListWidget, QWidget

from app.errors import UserError
from app.gui.hosts.hosts_controller import HostsController
from app.gui.theme import GRID, Theme
from app.gui.threads import CancellableJob
from app.gui.widgets.basic import STRETCH, BreakingLabel, button, fixed_text, make_column, make_row, text_label
from app.gui.widgets.dialogs import resize_within_screen
from app.gui.widgets.panes import PageScroller
from app.hosts.book import HostEntry, add_host, remove_hosts
from app.hosts.check import check_hosts, check_lines
from app.hosts.fetch import fetch_run, list_detached, stop_detached
from app.values import units
from app.viewmodels.hosts import host_line
from workloads.catalog import UsageError

_ADDRESS_HINT = "ssh://me@gpu1, slurm+ssh://login?gres=gpu:1, ray+ssh://head, docker://name"


class HostsDialog(QDialog):
    """Lists the user's hosts with their state; checks run off the GUI thread, and closing ends them.

    Thread: GUI only.
    """

    def __init__(self, parent: QWidget, theme: Theme, hosts: HostsController, database: Path) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Hosts")
        resize_within_screen(self, 120 * GRID, 84 * GRID)
        self._hosts = hosts
        self._job = CancellableJob(self)
        # The last result for each host, by name.
        self._reports: dict[str, str] = {}
        self.list = QListWidget()
        self.list.setAccessibleName("Hosts")
        self.details = fixed_text("What the check found")
        self.check_button = button("C&heck", "Check whether it answers, and what it can run")
        self.fetch_button = button("&Fetch runs", "Fetch detached runs that have ended, and list the others")
        self.stop_button = button("&Stop runs", "End the detached runs on this host")
        self.remove_button = button("Remo&ve", "Remove it from this list; nothing changes on the host")
        self.check_button.clicked.connect(partial(self._work, "Checking", self._check))
        self.fetch_button.clicked.connect(partial(self._work, "Asking", partial(_fetch_over, database)))
        self.stop_button.clicked.connect(partial(self._work, "Asking", _stop_all))
        self.remove_button.clicked.connect(self._remove)
        self.name, self.address = QLineEdit(placeholderText="gpu1"), QLineEdit(placeholderText=_ADDRESS_HINT)
        self.problem = BreakingLabel("problem")
        self.add_button = button("&Add", "Add this host to yours", primary=True)
        for field in (self.name, self.address):
            field.textChanged.connect(lambda _: self.problem.setText(""))
            field.returnPressed.connect(self.add_button.click)
        self.add_button.clicked.connect(self._add)
        self.list.currentRowChanged.connect(lambda _: self._show_chosen())
        hosts.states_changed.connect(self.refresh)
        self.finished.connect(lambda _: self._job.close())
        entry_buttons = self.check_button, self.fetch_button, self.stop_button, self.remove_button
        form = QFormLayout()
        form.addRow("Na&me", self.name)
        form.addRow("Add&ress", self.address)
        buttons = QDialogButtonBox()
        buttons.addButton(button("&Close", "Close this window (Escape)"), QDialogButtonBox.ButtonRole.RejectRole)
        buttons.rejected.connect(self.reject)
        rows = make_row((self.list, 1), make_column(*entry_buttons, STRETCH, spacing=GRID), spacing=2 * GRID)
        add = text_label("Add a host", "heading"), form, self.problem, make_row(self.add_button, STRETCH)
        page = QWidget()
        make_column((rows, 3), (self.details, 2), *add, parent=page, margins=2 * GRID, spacing=GRID)
        make_column((PageScroller(page), 1), make_row(buttons, margins=2 * GRID), parent=self, margins=0, spacing=0)
        theme.apply_style_sheet(self)
        self.refresh()

    def refresh(self) -> None:
        connections = self._hosts.connections
        lines = [
            host_line(entry.name, entry.address, connections.state(entry.name), self._hosts.inventory(entry.name))
            for entry in connections.entries
        ]
        if len(lines) != self.list.count():
            self.list.clear()
            self.list.addItems(lines)
            self.list.setCurrentRow(len(lines) - 1)
        for row, line in enumerate(lines):
            self.list.item(row).setText(line)
        self._show_chosen()

    @property
    def chosen(self) -> HostEntry | None:
        row, entries = self.list.currentRow(), self._hosts.connections.entries
        return entries[row] if 0 <= row < len(entries) else None

    def _show_chosen(self) -> None:
        """Show the last result for the selected host, else its connection's state."""
        entry, text = self.chosen, ""
        for entry_button in (self.check_button, self.fetch_button, self.stop_button, self.remove_button):
            entry_button.setEnabled(entry is not None)
        if entry is not None:
            text = self._reports.get(entry.name) or self._hosts.connections.state(entry.name).text
        if text != self.details.toPlainText():
            self.details.setPlainText(text)
        self.details.setVisible(bool(text))

    def _say(self, name: str, text: str) -> None:
        self._reports[name] = text
        self._show_chosen()

    def _work(self, verb: str, work: Callable[[HostEntry, Callable[[], bool]], str]) -> None:
        """Do something with the chosen host, off the GUI thread, and show what came of it."""
        if (entry := self.chosen) is None:
            return

        def done(text: str) -> None:
            self._say(entry.name, text)
            self._hosts.runs_fetched.emit()

        self._say(entry.name, f"{verb} {entry.name} …")
        self._job.run(
            lambda control: work(entry, control.stop.is_set),
            done,
            lambda error: self._say(entry.name, str(error)),
        )

    def _check(self, entry: HostEntry, is_stopped: Callable[[], bool]) -> str:
        """Check a host; return the result. Thread: the job's."""
        check = next(check_hosts([entry], is_stopped))
        if check.inventory is not None:
            self._hosts.renew(entry.name, check.inventory)
        lines = [f"{label:<14}{line}" for label, line in check_lines(check)]
        return "\n".join([*([check.problem] if check.problem else []), *lines])

    def _add(self) -> None:
        try:
            add_host(HostEntry(name=self.name.text().strip(), address=self.address.text().strip()))
            self._hosts.connections.reload()
        except (UserError, UsageError) as error:
            self.problem.setText(str(error))
            return
        self.name.clear()
        self.address.clear()
        self.refresh()

    def _remove(self) -> None:
        if (entry := self.chosen) is None:
            return
        try:
            self._hosts.remove(entry.name)
            remove_hosts([entry.name])
            self._hosts.connections.reload()
        except (UserError, UsageError) as error:
            self._say(entry.name, str(error))
        self.refresh()


def _fetch_over(database: Path, entry: HostEntry, is_stopped: Callable[[], bool]) -> str:
    """Fetch a host's finished detached runs; return what became of them; raises `UserError`."""
    runs = list_detached(entry, lambda _: None)
    over = [run for run in runs if run.size_bytes and not run.goes_on]
    for run in over:
        if is_stopped():
            raise UserError("Fetching was stopped.")
        fetch_run(entry, run.uid, database, is_left=is_stopped)
    more = f" {len(runs) - len(over)} still run or wait there." if len(runs) > len(over) else ""
    return f"{len(over)} {units.plural('run', len(over))} of {entry.name} fetched.{more}"


def _stop_all(entry: HostEntry, _is_stopped: Callable[[], bool]) -> str:
    """Ask a host's detached runs to end; return their number; raises `UserError`."""
    runs = [run for run in list_detached(entry, lambda _: None) if run.goes_on]
    for run in runs:
        stop_detached(entry, run.uid, lambda _: None)
    return f"{len(runs)} {units.plural('run', len(runs))} of {entry.name} asked to end; fetch the results in a moment."
