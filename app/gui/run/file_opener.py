"""Opens what the user names: a run or a trace is played or put into the form, a database offers its runs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QFileDialog

from app.gui.run.form_controller import FormController
from app.gui.run.replay_controller import ReplayController
from app.gui.stored_screens import StoredScreens
from app.gui.threads import Background
from app.gui.window import RUN, MainWindow
from app.paths import TRACE_SUFFIX
from app.recording import is_recording
from app.storage.files import is_database
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.telemetry.replay import Recording


class FileOpener:
    """Opens runs and files of recordings in one window.

    Thread: GUI only; it reads on `reads`.
    """

    def __init__(
        self,
        window: MainWindow,
        stored: StoredScreens,
        form: FormController,
        replay: ReplayController,
        reads: Background,
        database: Path,
        is_busy: Callable[[], bool],
    ) -> None:
        """Make the opener of a window.

        `is_busy` returns whether something runs, so that nothing can be played.
        """
        self._window = window
        self._stored = stored
        self._form = form
        self._replay = replay
        self._reads = reads
        self._database = database
        self._is_busy = is_busy

    def open_file(self, path: Path) -> None:
        """Ask whether to add the runs of a database or a recording, or play a trace."""
        self._reads.run(
            lambda: is_database(path) or is_recording(path),
            lambda found: self._stored.import_file(path) if found else self.play(path),
            partial(self._form.messages.show_failed_read, lambda: self.open_file(path)),
        )

    def ask_for_trace(self) -> None:
        """Ask for the file of a trace and play it."""
        name_filter = f"Traces (*{TRACE_SUFFIX} *.jsonl *.json);;All files (*)"
        name, _ = QFileDialog.getOpenFileName(self._window, "Replay a trace", str(Path.cwd()), name_filter)
        if name:
            self.play(Path(name))

    def play(self, source: int | Path, speed: float = 1.0) -> None:
        """Play a stored run or a trace on the Run screen, unless something runs; `speed` 1 is real time."""
        self._window.show_page(RUN)
        if self._is_busy():
            self._form.warn("A run is active. Replay this one when it has ended.")
            return
        self._form.messages.take_away()
        self._reads.run(
            lambda: _read_recording(self._database, source),
            lambda recording: self._replay.play(recording, speed),
            partial(self._form.messages.show_failed_read, lambda: self.play(source, speed)),
        )

    def run_again(self, run: int) -> None:
        """Put the variant of a stored run into the form."""
        self._window.show_page(RUN)
        self._reads.run(
            lambda: _read_spec(self._database, run),
            self._form.fill,
            partial(self._form.messages.show_failed_read, lambda: self.run_again(run)),
        )


def _read_spec(database: Path, run: int) -> RunSpec:
    from app.storage.store import Store

    with Store.open(database) as store:
        return store.load(run, ()).row.spec


def _read_recording(database: Path, source: int | Path) -> "Recording":
    from app.storage.store import Store
    from app.telemetry.replay import run_recording
    from app.telemetry.trace import read_trace

    if isinstance(source, Path):
        return read_trace(source)
    with Store.open(database) as store:
        return run_recording(store.load(source))
