"""Takes chosen runs away into files and brings in those of a file: in the background, and it can be stopped."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.questions import ask_for_file, ask_for_new_file
from app.gui.views.history import HistoryView
from app.storage.transfer_watch import StoppedError, Watch
from app.viewmodels.history import run_count

ExportKind = Literal["db", "csv", "json", "parquet", "trace"]

_ENDINGS = "Databases (*.db);;All files (*)"
_FILES = {
    "db": ("database", ".db", _ENDINGS),
    "trace": ("timeline", ".trace.json", "Timelines (*.json);;All files (*)"),
}
"""What is one file: its word, how its name ends, and what a dialog offers. Of anything else a folder is made."""


class Takeaway(QObject):
    """One export or import at a time; `imported` tells when there are new runs."""

    imported = Signal()
    _progressed = Signal(float)

    def __init__(self, view: HistoryView, database: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._view = view
        self._foot = view.overview.foot
        self._database = database
        self._folder = Path.home()
        self._background = Background(self)
        self._stop = threading.Event()
        self._what = ""
        self._progressed.connect(self._show_progress, Qt.ConnectionType.QueuedConnection)
        self._foot.stop_asked.connect(self._stop.set)

    def close(self) -> None:
        """Stop what goes on; nothing of it stays."""
        self._stop.set()
        self._background.close()

    def export(self, runs: Sequence[int], kind: ExportKind) -> None:
        """Ask for a place, then write the runs: one file, or a folder of tables."""
        name = f"run-{runs[0]}" if len(runs) == 1 else f"{len(runs)}-runs"
        word, ending, endings = _FILES.get(kind, (f"new folder of {kind} files", "", ""))
        ask_for_new_file(
            self._view,
            f"Export {run_count(len(runs))} to a {word}",
            self._folder / f"{name}{ending}",
            endings,
            lambda file: self._export(tuple(runs), kind, Path(file)),
        )

    def import_runs(self) -> None:
        """Ask for a database, then add its runs to this one."""
        title = "Import the runs of a database"
        ask_for_file(self._view, title, self._folder, _ENDINGS, lambda file: self._import(Path(file)))

    def show_reference(self, shown: bool) -> None:
        """Put the runs in the box beside the user's, or take them away again."""
        what = f"{'Adding' if shown else 'Removing'} the reference runs"
        self._begin(what, lambda watch: _reference(self._database, watch, shown=shown), self.imported.emit)

    def _export(self, runs: tuple[int, ...], kind: ExportKind, target: Path) -> None:
        def work(watch: Watch) -> list[str]:
            return _export(self._database, runs, kind, target, watch)

        self._start(f"Exporting {run_count(len(runs))}", target, work, lambda: None)

    def _import(self, file: Path) -> None:
        def work(watch: Watch) -> list[str]:
            return _import(self._database, file, watch)

        self._start(f"Importing {file.name}", file, work, self.imported.emit)

    def _start(self, what: str, at: Path, work: Callable[[Watch], list[str]], done: Callable[[], None]) -> None:
        """Do what takes a while; the next dialog begins where this one ended."""
        self._folder = at.parent
        self._begin(what, work, done)

    def _begin(self, what: str, work: Callable[[Watch], list[str]], done: Callable[[], None]) -> None:
        """Do what takes a while; what it came to is said below the table, what was wrong above it."""
        self._what = what
        self._stop.clear()
        self._foot.tell("")
        self._view.show_problem("")
        self._show_progress(0.0)

        def ended(words: list[str]) -> None:
            self._foot.show_progress("")
            self._foot.tell(" ".join(words))
            done()

        watch = Watch(self._progressed.emit, self._stop.is_set)
        self._background.run(lambda: work(watch), ended, self._fail)

    def _show_progress(self, share: float) -> None:
        if self._what:
            self._foot.show_progress(f"{self._what} … {100 * share:.0f} %")

    def _fail(self, error: UserError) -> None:
        self._foot.show_progress("")
        if isinstance(error, StoppedError):
            self._foot.tell(str(error))
        else:
            self._view.show_problem(str(error))


def _export(database: Path, runs: tuple[int, ...], kind: ExportKind, target: Path, watch: Watch) -> list[str]:
    from app.report.export import export_files
    from app.report.export_trace import export_trace
    from app.report.export_words import exported_words
    from app.storage.transfer import export_database

    if kind == "db":
        return exported_words(export_database(database, runs, target, watch), target)
    if kind == "trace":
        return exported_words(export_trace(database, runs, target, watch), target)
    return exported_words(export_files(database, runs, target, kind, watch), target)


def _import(database: Path, file: Path, watch: Watch) -> list[str]:
    from app.report.export_words import imported_words
    from app.runs.queue_import import import_with_queue

    return imported_words(import_with_queue(database, file, watch))


def _reference(database: Path, watch: Watch, *, shown: bool) -> list[str]:
    from app.report.export_words import added_words, removed_words
    from app.storage.reference import add_reference, remove_reference

    return [added_words(add_reference(database, watch)) if shown else removed_words(remove_reference(database))]
