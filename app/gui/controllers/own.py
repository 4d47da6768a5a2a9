"""Workloads of the user's own in the window: their file is chosen, read by another process, and watched for changes."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, Qt, QTimer, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.questions import ask_for_file
from app.gui.views.form import FormView
from app.viewmodels.form import VariantForm
from workloads.catalog import Workload

_SETTLED_MS = 300
"""Editors write a file in several goes."""


class OwnWorkloads(QObject):
    """Reads files of the user's and offers their workloads in the form; `show_form` shows what that changed.

    The files chosen are remembered for the next window on this database.
    """

    _told = Signal(str, str)

    def __init__(self, view: FormView, form: VariantForm, database: Path, show_form: Callable[[], None]) -> None:
        super().__init__(view)
        self._view = view
        self._form = form
        self._database = database
        self._show_form = show_form
        self._closed = threading.Event()
        # On a thread of its own: reading takes as long as TensorFlow's import, or as a run that goes on.
        self._reads = Background(self)
        self._watcher = QFileSystemWatcher(self)
        self._changed: set[Path] = set()
        self._settled = QTimer(self)
        self._settled.setSingleShot(True)
        self._settled.setInterval(_SETTLED_MS)

    def start(self) -> None:
        """Listen to the form, and to the files."""
        self._view.own_asked.connect(self.ask)
        self._told.connect(self._tell, Qt.ConnectionType.QueuedConnection)
        self._watcher.fileChanged.connect(self._note_change)
        self._settled.timeout.connect(self._read_changed)

    def ask(self) -> None:
        """Let the user choose a file."""
        ask_for_file(self._view, "Own workload", Path.cwd(), "Python files (*.py)", lambda name: self.open(Path(name)))

    def open(self, path: Path) -> None:
        """Read a file and turn the form to its first workload."""
        self._read(path.absolute(), chosen=True)

    def restore(self) -> None:
        """Offer the workloads of the files chosen in earlier windows."""
        self._reads.run(lambda: _chosen_before(self._database), self._read_all, self._ignore)

    def close(self) -> None:
        """Give up what is being read, and end the thread."""
        self._closed.set()
        self._settled.stop()
        self._reads.close()

    def _read_all(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self._read(path, chosen=False)

    def _read(self, path: Path, *, chosen: bool) -> None:
        def failed(error: UserError) -> None:
            self._form.read_failed(path, str(error))
            self._show_form()

        self._watch(path)
        self._form.read_begins(path, f"Reading {path.name} …")
        self._show_form()
        self._reads.run(lambda: self._workloads(path), lambda found: self._offer(path, found, chosen=chosen), failed)

    def _workloads(self, path: Path) -> tuple[Workload, ...]:
        """On the reading thread: what the file has."""
        from app.runs.own import Reading, own_workloads

        reading = Reading(told=lambda words: self._told.emit(str(path), words), stopped=self._closed.wait)
        return own_workloads(path, "", self._database, reading)

    def _offer(self, path: Path, workloads: tuple[Workload, ...], *, chosen: bool) -> None:
        self._form.offer_own(path, workloads)
        if chosen:
            self._form.choose(workloads[0].name)
            paths = self._form.own_files
            self._reads.run(lambda: _keep_chosen(self._database, paths), self._ignore, self._ignore)
        self._show_form()

    def _tell(self, path: str, words: str) -> None:
        self._form.read_begins(Path(path), words)
        self._show_form()

    def _watch(self, path: Path) -> None:
        if str(path) not in self._watcher.files():
            self._watcher.addPath(str(path))

    def _note_change(self, path: str) -> None:
        self._changed.add(Path(path))
        self._settled.start()

    def _read_changed(self) -> None:
        changed, self._changed = self._changed, set()
        self._read_all(sorted(changed))

    def _ignore(self, _: object) -> None:
        """Nothing is lost for the user: the next window asks for the file anew."""


def _chosen_before(database: Path) -> list[Path]:
    from app.runs.own import chosen_before

    return chosen_before(database)


def _keep_chosen(database: Path, paths: tuple[Path, ...]) -> None:
    from app.runs.own import keep_chosen

    keep_chosen(database, paths)
