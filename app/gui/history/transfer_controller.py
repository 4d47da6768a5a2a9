"""Exports chosen runs to files and imports runs from a database, in the background and cancellable."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QObject

from app.errors import UserError
from app.gui.actions import Actions
from app.gui.history.screen import HistoryView
from app.gui.threads import CancellableJob, JobControl
from app.gui.widgets.dialogs import ask_for_file, ask_for_new_file
from app.paths import DATABASE_SUFFIXES, RUNS_SUFFIX
from app.storage.transfer.progress import StoppedError, TransferProgress
from app.values import units
from app.viewmodels.history.labels import format_run_count

if TYPE_CHECKING:
    from app.runs.undo import Reversal

_Done = tuple[list[str], "Reversal | None"]
"""The messages about a transfer, and its reversal."""
ExportKind = Literal["db", "csv", "json", "parquet", "trace"]

_NAME_FILTER = f"Runs ({' '.join(f'*{suffix}' for suffix in DATABASE_SUFFIXES)});;All files (*)"
_SINGLE_FILES = {
    "db": ("database", RUNS_SUFFIX, _NAME_FILTER),
    "trace": ("timeline", ".trace.json", "Timelines (*.json);;All files (*)"),
}
"""Formats with one file: label, suffix and the dialog's filter. Other formats create a folder."""


class TransferController(QObject):
    """Runs one export or import at a time. Thread: GUI only; transfers run on the thread of its job."""

    def __init__(self, view: HistoryView, database: Path, actions: Actions) -> None:
        super().__init__(view)
        self._view = view
        self._foot = view.overview.footer
        self._database = database
        self._folder = Path.home()
        self._actions = actions
        self._job = CancellableJob(self)
        self._foot.stop.clicked.connect(self._job.stop)
        view.overview.run_menu.export_requested.connect(self.export)
        view.detail.timeline_requested.connect(lambda run: self.export([run], "trace", view.detail.evidence.show_note))
        view.overview.import_requested.connect(self.import_runs)
        view.overview.reference_requested.connect(self.set_reference)

    def export(self, runs: Sequence[int], kind: ExportKind, note: Callable[[str], None] | None = None) -> None:
        """Ask for a path, then write the runs to a file or a folder of tables; `note` gets the messages."""
        name = f"run-{runs[0]}" if len(runs) == 1 else f"{len(runs)}-runs"
        word, suffix, name_filter = _SINGLE_FILES.get(kind, (f"new folder of {kind} files", "", ""))
        ask_for_new_file(
            self._view,
            f"Export {format_run_count(len(runs))} to a {word}, with paths, variables and log lines",
            self._folder / f"{name}{suffix}",
            name_filter,
            lambda file: self._export(tuple(runs), kind, Path(file), note),
        )

    def import_runs(self) -> None:
        title = "Import the runs of a database"
        ask_for_file(self._view, title, self._folder, _NAME_FILTER, lambda file: self.import_file(Path(file)))

    def offer_import(self, file: Path) -> None:
        """Ask whether to add the runs of an opened database."""
        self._view.ask_to_import(file.name).accepted.connect(lambda: self.import_file(file))

    def set_reference(self, is_adding: bool, failed: Callable[[UserError], None] | None = None) -> None:
        """Add or remove the reference runs; `failed` gets the error if another screen shows it."""
        task = f"{'Adding' if is_adding else 'Removing'} the reference runs"
        name = f"{'add' if is_adding else 'remove'} the reference runs"
        self._run_task(task, lambda watch: _set_reference(self._database, watch, is_adding=is_adding), name, failed)

    def _export(
        self, runs: tuple[int, ...], kind: ExportKind, target: Path, note: Callable[[str], None] | None
    ) -> None:
        def work(watch: TransferProgress) -> _Done:
            return _export(self._database, runs, kind, target, watch), None

        self._folder = target.parent
        failed = (lambda error: note(str(error))) if note else None
        self._run_task(f"Exporting {format_run_count(len(runs))}", work, failed=failed, note=note)

    def import_file(self, file: Path) -> None:
        def work(watch: TransferProgress) -> _Done:
            return _import(self._database, file, watch)

        self._folder = file.parent
        self._run_task(f"Importing {file.name}", work, f"import {file.name}")

    def _run_task(
        self,
        task: str,
        work: Callable[[TransferProgress], _Done],
        name: str = "",
        failed: Callable[[UserError], None] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        """Run a transfer; its result is shown below the table, or passed to `note`.

        Args:
            task: Its description, for the footer.
            work: Performs it, and returns its messages and its reversal.
            name: The change of stored things, in the imperative; "" for none.
            failed: Gets the error instead of the label above the table.
            note: Gets the messages.
        """

        def show_progress(share: float) -> None:
            self._foot.show_progress(f"{task} … {units.percent(100 * share)}")

        def run(control: JobControl[float]) -> _Done:
            return work(TransferProgress(control.report, control.stop.is_set))

        def ended(done: _Done) -> None:
            messages, reversal = done
            self._foot.show_progress("")
            if note is not None:
                note(" ".join(messages))
            else:
                self._foot.show_message(" ".join(messages), can_undo=reversal is not None)
            if name:
                self._actions.record_change(name, reversal)
                self._actions.runs_imported()

        def fail(error: UserError) -> None:
            self._foot.show_progress("")
            (failed or self._show_error)(error)

        self._foot.show_message("")
        self._view.problem.show_sentence("")
        show_progress(0.0)
        self._job.run(run, ended, fail, on_progress=show_progress)

    def _show_error(self, error: UserError) -> None:
        if isinstance(error, StoppedError):
            self._foot.show_message(str(error))
        else:
            self._view.problem.show_sentence(str(error))


def _export(
    database: Path, runs: tuple[int, ...], kind: ExportKind, target: Path, watch: TransferProgress
) -> list[str]:
    from app.report.export import describe_export, export_files
    from app.report.trace import export_trace
    from app.storage.transfer.import_export import export_database

    if kind == "db":
        return describe_export(export_database(database, runs, target, watch), target)
    if kind == "trace":
        return describe_export(export_trace(database, runs, target, watch), target)
    return describe_export(export_files(database, runs, target, kind, watch), target)


def _import(database: Path, file: Path, watch: TransferProgress) -> _Done:
    from app.report.export import describe_import
    from app.runs.experiment.queue import import_with_queue
    from app.runs.undo import Import

    done = import_with_queue(database, file, watch)
    return describe_import(done), Import(database, file, done) if done.runs or done.entries or done.complete else None


def _set_reference(database: Path, watch: TransferProgress, *, is_adding: bool) -> _Done:
    from app.report.export import describe_reference_added, describe_reference_removed
    from app.runs.undo import ReferenceRuns
    from app.storage.reference import add_reference, remove_reference

    reference = ReferenceRuns.of(database)
    text = (
        describe_reference_added(add_reference(database, watch))
        if is_adding
        else describe_reference_removed(remove_reference(database))
    )
    return [text], reference
