"""Connects the History screen with the database: every read happens off the GUI thread."""

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.views.history import HistoryView
from app.storage import retention
from app.storage.retention import Pruned
from app.storage.space import room_for
from app.storage.store import Store
from app.viewmodels import storage
from app.viewmodels.history import History, HistoryScreen, Query, history
from app.viewmodels.run_detail import RunDetail, run_detail
from app.viewmodels.storage import StorageLine


class HistoryController(QObject):
    """Lists the stored runs, opens one, and tells which ones to compare."""

    compare_requested = Signal(list)

    def __init__(
        self, view: HistoryView, database: Path, background: Background, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._history = History()
        self._query = Query()
        self._reading = False
        self._again = False
        self._wanted: int | None = None
        self._note = ""
        view.query_changed.connect(self._ask)
        view.run_opened.connect(self.open_run)
        view.compare_asked.connect(self.compare_requested)
        view.retention_asked.connect(self._ask_retention)
        view.pruning_agreed.connect(self._prune)

    def refresh(self) -> None:
        """Read the runs again; choice, order and place stay. Asked for while reading, it reads once more afterwards."""
        if self._reading:
            self._again = True
            return
        self._reading = True
        before = self._history
        self._background.run(lambda: _read_history(self._database, before), self._show_history, self._fail_history)
        self._read_storage()

    def open_run(self, run: int) -> None:
        """Read one run and turn to its page."""
        self._wanted = run
        self._background.run(lambda: _read_run(self._database, run), self._show_run, self._fail_run)

    def _ask_retention(self, days: int | None) -> None:
        """Keep samples for so many days: at once where nothing is that old, else after a question."""

        def found(would: Pruned | None) -> None:
            if days is not None and would is not None and would.runs:
                self._view.ask_to_prune(storage.question(would, days), storage.consequence(would), days)
            else:
                self._read_storage()

        self._background.run(lambda: _look(self._database, days), found, self._fail_run)

    def _prune(self, days: int) -> None:
        self._background.run(lambda: _prune(self._database, days), self._show_pruned, self._fail_prune)

    def _show_pruned(self, done: Pruned) -> None:
        self._note = storage.result(done)
        self._read_storage()

    def _fail_prune(self, error: UserError) -> None:
        self._read_storage()
        self._view.show_problem(str(error))

    def _read_storage(self) -> None:
        note, self._note = self._note, ""
        self._background.run(lambda: _read_storage(self._database, note), self._view.show_storage, self._fail_run)

    def _ask(self, query: Query) -> None:
        self._query = query
        self._show()

    def _show(self) -> None:
        self._view.show_model(HistoryScreen.of(self._history, self._query))

    def _show_history(self, found: History) -> None:
        self._history = found
        self._view.show_problem("")
        self._show()
        self._read_on()

    def _fail_history(self, error: UserError) -> None:
        self._view.show_problem(str(error))
        self._read_on()

    def _read_on(self) -> None:
        self._reading = False
        if self._again:
            self._again = False
            self.refresh()

    def _show_run(self, detail: RunDetail) -> None:
        if detail.run == self._wanted:
            self._view.show_problem("")
            self._view.show_run(detail)

    def _fail_run(self, error: UserError) -> None:
        self._view.show_problem(str(error))


def _read_history(database: Path, before: History) -> History:
    with Store.open(database) as store:
        return history(store.list_runs(), before, None)


def _read_storage(database: Path, note: str) -> StorageLine:
    return StorageLine(
        path=database,
        size_bytes=retention.size_bytes(database),
        free_bytes=room_for(database).free_bytes,
        keep_days=retention.keep_days(database),
        note=note,
    )


def _look(database: Path, days: int | None) -> Pruned | None:
    """What keeping so few days would delete; where that is nothing, the setting is stored."""
    would = None if days is None else retention.prune(database, days, dry_run=True)
    if would is None or not would.runs:
        retention.set_keep_days(database, days)
    return would


def _prune(database: Path, days: int) -> Pruned:
    done = retention.prune(database, days)
    retention.set_keep_days(database, days)
    return done


def _read_run(database: Path, run: int) -> RunDetail:
    with Store.open(database) as store:
        return run_detail(store.load(run), None, pruned_utc_ns=retention.pruned_utc_ns(database, run))
