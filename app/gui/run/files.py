"""Files that the user opens, chooses or drops: databases, workloads, presets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QFileSystemWatcher, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QDropEvent

from app.errors import UserError
from app.grants import Consent, Grant, refuse, typed
from app.gui.actions import Services
from app.gui.run.form import FormView
from app.gui.run.form_controller import FormController
from app.gui.threads import CancellableJob, JobControl
from app.gui.widgets.dialogs import ask_for_file
from workloads.catalog import Workload

if TYPE_CHECKING:
    from app.runs.dropped_files import DropKind, DroppedFile


_DEBOUNCE_MS = 300
"""Editors write a file in several steps."""


class CustomWorkloads(QObject):
    """Reads Python files with workloads and offers these in the form.

    The next window on this database remembers the chosen files.

    Thread: GUI only.
    """

    def __init__(self, view: FormView, form: FormController, services: Services) -> None:
        super().__init__(view)
        self._view = view
        self._form = form.form
        self._show_form = form.show
        self._consent = services.consent
        self._database = services.database
        # Reading takes as long as the framework's import, or as the current run, so other reads do not wait for it.
        self._job = CancellableJob(self)
        self._watcher = QFileSystemWatcher(self)
        self._changed: set[Path] = set()
        # The files that import a user's module, by its path.
        self._importers: dict[str, set[Path]] = {}
        self._allowed: set[Path] = set()
        """Files that were chosen or read: each new text that the user saves in them may be read."""
        self._debounce = QTimer(self, interval=_DEBOUNCE_MS, singleShot=True)

    def start(self) -> None:
        self._view.custom_file_requested.connect(self.ask)
        self._watcher.fileChanged.connect(self._note_change)
        self._debounce.timeout.connect(self._read_changed)

    def ask(self) -> None:
        ask_for_file(
            self._view, "Custom workload", Path.cwd(), "Python files (*.py)", lambda name: self.open(Path(name))
        )

    def open(self, path: Path) -> None:
        """Read a file that the user has chosen, and choose its first workload in the form."""
        self._allowed.add(path.absolute())
        self._read(path.absolute(), typed, chosen=True)

    def open_dropped(self, path: Path) -> None:
        """Read a file as `open` does, if the user allows it: dropping a file is not running it."""
        file = path.absolute()

        def ask(grants: Sequence[Grant]) -> bool:
            if is_allowed := self._consent(grants):
                self._allowed.add(file)
            return is_allowed

        self._read(file, ask, chosen=True)

    def restore(self) -> None:
        """Offer the workloads of files chosen in earlier windows, as far as that needs no question."""
        self._job.run(lambda _: _read_chosen(self._database), self._read_all, self._ignore)

    def _read_all(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self._read(path, typed if path in self._allowed else refuse, chosen=False)

    def _read(self, path: Path, consent: Consent, *, chosen: bool) -> None:
        def failed(error: UserError) -> None:
            self._form.files.set_message(path, str(error), invalid=True)
            self._show_form()

        def show_progress(text: str) -> None:
            self._form.files.set_message(path, text, invalid=False)
            self._show_form()

        self._watch(path)
        show_progress(f"Reading {path.name} …")
        self._job.run(
            lambda control: _load(path, self._database, control, consent),
            lambda answer: self._offer(path, answer, chosen=chosen),
            failed,
            on_progress=show_progress,
        )

    def _offer(self, path: Path, workloads: tuple[Workload, ...], *, chosen: bool) -> None:
        self._allowed.add(path)
        for module in {
            module for workload in workloads if workload.custom_file for module in workload.custom_file.modules
        }:
            self._importers.setdefault(module, set()).add(path)
            self._watch(Path(module))
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
        self._changed |= self._importers.get(path, {Path(path)})
        self._debounce.start()

    def _read_changed(self) -> None:
        changed, self._changed = self._changed, set()
        self._read_all(sorted(changed))

    def _ignore(self, _: object) -> None:
        """Lose nothing: the user can choose the file again."""


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


_NOT_LOCAL = "Only files on this computer can be dropped here."


class FileDrops(QObject):
    """Takes files dropped anywhere on the window, before the widget below: a text field would take their names.

    Thread: GUI only; another thread reads the files, because a disk may be slow.
    """

    message = Signal(str)
    """Why files were not accepted."""

    def __init__(self, services: Services, takers: "Mapping[DropKind, Callable[[Path], object]]") -> None:
        """Take files from the window's first paint on."""
        super().__init__(services.window)
        self._services = services
        self._takers = takers
        self._job = CancellableJob(self)
        services.window.painted.connect(self._watch)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Accept files, as a copy, before Qt searches for what is under the pointer."""
        if not isinstance(event, QDropEvent) or not event.mimeData().hasUrls():
            return super().eventFilter(watched, event)
        event.setDropAction(Qt.DropAction.CopyAction)
        event.accept()
        if event.type() == QEvent.Type.Drop:
            self._look_into([Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()])
        return True

    def _watch(self) -> None:
        """Receive drags before Qt does: its native window exists with the first paint."""
        if (handle := self._services.window.windowHandle()) is not None:
            handle.installEventFilter(self)

    def _look_into(self, paths: Sequence[Path]) -> None:
        from app.runs.dropped_files import sort_files

        def take(files: "tuple[DroppedFile, ...]") -> None:
            for file in files:
                if file.kind is not None:
                    self._takers[file.kind](file.path)
            if refused := " ".join(f"{file.path.name}: {file.refusal}" for file in files if file.kind is None):
                self.message.emit(refused)

        if not paths:
            self.message.emit(_NOT_LOCAL)
            return
        database, busy = self._services.database, self._services.is_busy()
        self._job.run(
            lambda _: sort_files(paths, database, busy=busy), take, lambda error: self.message.emit(str(error))
        )
