"""Writes the queue into a database with which it goes on elsewhere: off the GUI thread, and it can be stopped."""

import threading
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.questions import ask_for_new_file
from app.gui.views.queue import QueueView
from app.report.export_words import exported_words
from app.runs.queue_export import to_take_away
from app.storage.store import Store
from app.storage.transfer import export_database
from app.storage.transfer_watch import StoppedError, Watch
from app.viewmodels.queue_told import Act, export_ended, export_failed, export_going


class QueueExport(QObject):
    """Asks for a file when the view asks for an export, and tells there how it goes."""

    _progressed = Signal(float)

    def __init__(self, view: QueueView, database: Path, background: Background) -> None:
        super().__init__(view)
        self._view = view
        self._database = database
        self._background = background
        self._folder = Path.home()
        self._stop = threading.Event()
        view.export_asked.connect(self._ask)
        view.export_answered.connect(self._answer)
        self._progressed.connect(lambda share: view.export.show_telling(export_going(share)))

    def _ask(self) -> None:
        at = self._folder / "queue.db"
        ask_for_new_file(self._view, "Export the queue to a database", at, "Databases (*.db)", self._begin)

    def _begin(self, name: str) -> None:
        target = Path(name)
        self._folder = target.parent
        self._stop.clear()
        self._progressed.emit(0.0)
        watch = Watch(self._progressed.emit, self._stop.is_set)
        self._background.run(lambda: _exported(self._database, target, watch), self._tell_end, self._fail)

    def _tell_end(self, words: list[str]) -> None:
        self._view.export.show_telling(export_ended(" ".join(words)))

    def _fail(self, error: UserError) -> None:
        self._view.export.show_telling(None if isinstance(error, StoppedError) else export_failed(error))

    def _answer(self, act: Act) -> None:
        if act == "stop":
            self._stop.set()
        else:
            self._view.export.show_telling(None)


def _exported(database: Path, target: Path, watch: Watch) -> list[str]:
    with Store.open(database) as store:
        entries, runs = to_take_away(store)
    return exported_words(export_database(database, runs, target, watch, entries), target)
