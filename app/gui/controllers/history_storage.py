"""Tells on the History screen how large the database is, and deletes old samples after a question."""

from pathlib import Path

from PySide6.QtCore import QObject

from app.errors import UserError
from app.gui.background import Background
from app.gui.views.history import HistoryView
from app.storage import retention
from app.storage.retention import Pruned
from app.storage.space import room_for
from app.viewmodels import storage
from app.viewmodels.storage import StorageLine


class HistoryStorage(QObject):
    """Keeps samples for as long as the user wants."""

    def __init__(self, view: HistoryView, database: Path, background: Background, parent: QObject) -> None:
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._note = ""
        view.overview.foot.keep_asked.connect(self._ask_retention)
        view.pruning_agreed.connect(self._prune)

    def refresh(self) -> None:
        """Read the size again."""
        note, self._note = self._note, ""
        self._background.run(lambda: _read_storage(self._database, note), self._view.show_storage, self._say)

    def _ask_retention(self, days: int | None) -> None:
        """Keep samples for so many days: at once where nothing is that old, else after a question."""

        def found(would: Pruned | None) -> None:
            if days is not None and would is not None and would.runs:
                self._view.ask_to_prune(storage.question(would, days), storage.consequence(would), days)
            else:
                self.refresh()

        self._background.run(lambda: _look(self._database, days), found, self._say)

    def _prune(self, days: int) -> None:
        self._background.run(lambda: _prune(self._database, days), self._show_pruned, self._fail_prune)

    def _show_pruned(self, done: Pruned) -> None:
        self._note = storage.result(done)
        self.refresh()

    def _fail_prune(self, error: UserError) -> None:
        self.refresh()
        self._say(error)

    def _say(self, error: UserError) -> None:
        self._view.show_problem(str(error))


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
