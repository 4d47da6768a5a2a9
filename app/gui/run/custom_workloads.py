"""Custom workloads in the form: a file is chosen, read in another process, and watched for changes."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, QTimer

from app.errors import UserError
from app.grants import Consent, Grant, refuse, typed
from app.gui.run.form import FormView
from app.gui.threads import CancellableJob, JobControl
from app.gui.widgets.dialogs import ask_for_file
from app.viewmodels.run.form import VariantForm
from workloads.catalog import Workload

_DEBOUNCE_MS = 300
"""Editors write a file in several steps."""


class CustomWorkloads(QObject):
    """Reads Python files with workloads and offers these in the form.

    The chosen files are remembered for the next window on this database.

    Thread: GUI only.
    """

    def __init__(
        self, view: FormView, form: VariantForm, database: Path, show_form: Callable[[], None], consent: Consent
    ) -> None:
        super().__init__(view)
        self._consent = consent
        self._view = view
        self._form = form
        self._database = database
        self._show_form = show_form
        # Reading takes as long as the framework's import, or as the current run: no other read waits for it.
        self._job = CancellableJob(self)
        self._watcher = QFileSystemWatcher(self)
        self._changed: set[Path] = set()
        self._allowed: set[Path] = set()
        """Files that were chosen, or read: each new text that the user saves there may be read."""
        self._debounce = QTimer(self)
        self._debounce.setSingleShot(True)
        self._debounce.setInterval(_DEBOUNCE_MS)

    def start(self) -> None:
        """Connect the form and the file watcher."""
        self._view.custom_file_requested.connect(self.ask)
        self._watcher.fileChanged.connect(self._note_change)
        self._debounce.timeout.connect(self._read_changed)

    def ask(self) -> None:
        """Let the user choose a file."""
        ask_for_file(
            self._view, "Custom workload", Path.cwd(), "Python files (*.py)", lambda name: self.open(Path(name))
        )

    def open(self, path: Path) -> None:
        """Read a file that the user has chosen, and choose its first workload in the form."""
        self._allowed.add(path.absolute())
        self._read(path.absolute(), typed, chosen=True)

    def open_dropped(self, path: Path) -> None:
        """Read a file as `open` does, once the user allows it: to drop a file is not to run it."""
        file = path.absolute()

        def ask(grants: Sequence[Grant]) -> bool:
            if is_allowed := self._consent(grants):
                self._allowed.add(file)
            return is_allowed

        self._read(file, ask, chosen=True)

    def restore(self) -> None:
        """Offer the workloads of the files chosen in earlier windows, as far as nothing has to be asked."""
        self._job.run(lambda _: _read_chosen(self._database), self._read_all, self._ignore)

    def _read_all(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self._read(path, typed if path in self._allowed else refuse, chosen=False)

    def _read(self, path: Path, consent: Consent, *, chosen: bool) -> None:
        def failed(error: UserError) -> None:
            self._form.mark_file_failed(path, str(error))
            self._show_form()

        def show_progress(text: str) -> None:
            self._form.mark_file_loading(path, text)
            self._show_form()

        self._watch(path)
        show_progress(f"Reading {path.name} …")
        self._job.run(
            lambda control: _load(path, self._database, control, consent),
            lambda found: self._offer(path, found, chosen=chosen),
            failed,
            on_progress=show_progress,
        )

    def _offer(self, path: Path, workloads: tuple[Workload, ...], *, chosen: bool) -> None:
        self._allowed.add(path)
        self._form.offer_custom_workloads(path, workloads)
        if chosen:
            self._form.choose(workloads[0].name)
            paths = self._form.custom_files
            self._job.run(lambda _: _save_chosen(self._database, paths), self._ignore, self._ignore)
        self._show_form()

    def _watch(self, path: Path) -> None:
        if str(path) not in self._watcher.files():
            self._watcher.addPath(str(path))

    def _note_change(self, path: str) -> None:
        self._changed.add(Path(path))
        self._debounce.start()

    def _read_changed(self) -> None:
        changed, self._changed = self._changed, set()
        self._read_all(sorted(changed))

    def _ignore(self, _: object) -> None:
        """Nothing is lost: the user can choose the file again."""


def _load(path: Path, database: Path, control: JobControl[str], consent: Consent) -> tuple[Workload, ...]:
    from app.runs.custom import ReadOptions, load_custom_workloads

    options = ReadOptions(notify=control.report, wait_for_stop=control.stop.wait, consent=consent)
    return load_custom_workloads(path, "", database, options)


def _read_chosen(database: Path) -> list[Path]:
    from app.runs.custom import recent_files

    return recent_files(database)


def _save_chosen(database: Path, paths: tuple[Path, ...]) -> None:
    from app.runs.custom import save_recent_files

    save_recent_files(database, paths)
