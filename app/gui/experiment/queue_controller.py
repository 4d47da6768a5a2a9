"""The queue's controller: applies the user's changes, runs the entries, shows progress, exports the queue."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, Qt, Signal

from app.errors import UserError
from app.gui.experiment.lazy_queue import QueueSignals
from app.gui.experiment.queue import QueueView
from app.gui.experiment.queue_edits import QueueEdits
from app.gui.threads import Background
from app.gui.widgets.dialogs import ask_for_new_file
from app.plan import Plan
from app.queries import QUEUED_STATES, QueueProgress
from app.report.export import describe_export
from app.runs.experiment.queue import exportable_queue
from app.samples import Inventory
from app.storage.store import Store
from app.storage.transfer.import_export import export_database
from app.storage.transfer.progress import StoppedError, TransferProgress
from app.viewmodels.experiment.queue import QueueModel
from app.viewmodels.experiment.queue_banner import (
    BannerAction,
    describe_ending,
    experiment_verdict,
    export_ended_banner,
    export_failed_banner,
    export_progress_banner,
)
from app.viewmodels.format.naming import short_name
from workloads.protocol import RunSpec


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
        view.export_requested.connect(self._ask)
        view.export_answered.connect(self._answer)
        self._progressed.connect(lambda share: view.export_banner.show_banner(export_progress_banner(share)))

    def _ask(self) -> None:
        default_path = self._folder / "queue.db"
        ask_for_new_file(self._view, "Export the queue to a database", default_path, "Databases (*.db)", self._begin)

    def _begin(self, name: str) -> None:
        target = Path(name)
        self._folder = target.parent
        self._stop.clear()
        self._progressed.emit(0.0)
        watch = TransferProgress(self._progressed.emit, self._stop.is_set)
        self._background.run(lambda: _export_queue(self._database, target, watch), self._show_end, self._fail)

    def _show_end(self, messages: list[str]) -> None:
        self._view.export_banner.show_banner(export_ended_banner(" ".join(messages)))

    def _fail(self, error: UserError) -> None:
        self._view.export_banner.show_banner(None if isinstance(error, StoppedError) else export_failed_banner(error))

    def _answer(self, act: BannerAction) -> None:
        if act == "stop":
            self._stop.set()
        else:
            self._view.export_banner.show_banner(None)


def _export_queue(database: Path, target: Path, watch: TransferProgress) -> list[str]:
    with Store.open(database) as store:
        entries, runs = exportable_queue(store)
    return describe_export(export_database(database, runs, target, watch, entries), target)


_POLL_S = 2
"""How often it is looked at what another program makes."""


class Runner(Protocol):
    """Makes the runs of the queue; see `app.runs.experiment.queue_runner`.

    Thread: `run` blocks its thread; all others return at once, on any thread.
    """

    def run(self, *, failed: Callable[[UserError], object]) -> None:
        """Make what waits, until nothing does; blocks its thread. `failed` hears of an entry that cannot be made."""

    def stop(self) -> None:
        """End the run that goes on and make no other."""

    def cancel(self, entry: int) -> None:
        """End the run that goes on if it is of this entry, and take that out of the queue."""

    def skip_wait(self) -> None:
        """Begin the next run whatever the machine does."""


class QueueController(QObject):
    """Has the queue's runs made one after another while `may_begin` says so, and tells of it by `news`."""

    _progressed = Signal(object)
    _failed = Signal(object)

    def __init__(
        self,
        view: QueueView,
        signals: QueueSignals,
        database: Path,
        inventory: Callable[[], Inventory],
        make_runner: Callable[[Callable[[QueueProgress], None]], Runner],
        may_begin: Callable[[], bool],
        reads: Background,
        sessions: Background,
        show_error: Callable[[UserError], None],
    ) -> None:
        super().__init__(view)
        self._view = view
        self._signals = signals
        self._database = database
        self._make_runner = make_runner
        self._may_begin = may_begin
        self._reads = reads
        self._sessions = sessions
        self._show_error = show_error
        self._board = QueueModel()
        self._edits = QueueEdits(self._board, database, inventory, reads, self._show, show_error)
        self._export = QueueExport(view, database, reads)
        self._runner: Runner | None = None
        self._stopping = False
        self._shown_s = 0
        self._progress_key: tuple[int, int, tuple[RunSpec, ...]] | None = None
        self._begin_requested = False
        self._connect()

    @property
    def running(self) -> bool:
        """Whether this window makes the queue's runs."""
        return self._runner is not None

    @property
    def snapshot(self) -> tuple[tuple[int, str], ...]:
        """Every entry that is shown with its state, in their order."""
        return tuple((entry.entry, entry.state) for entry in self._board.entries)

    def show_changed(self, *, more: bool) -> None:
        """Show what another program changed; where it put more in, offer to go on."""
        self._edits.read(self._offer_resume if more else None)

    def offer_resume(self) -> None:
        """Offer to go on with what an earlier window, or a program that is gone, left unfinished.

        Where this window was asked for something meanwhile, that begins: then nothing is paused.
        """
        if self._begin_requested or self.running:
            self._edits.read()
        else:
            self._edits.pause_unowned(self._offer_resume)

    def add(self, plan: Plan) -> None:
        """Put an experiment at the end of the queue; it begins at once where nothing goes on."""
        self._begin_requested = True
        self._edits.add(plan, self._resume)

    def add_run(self, spec: RunSpec) -> None:
        """The same with one run of one variant, whatever was run of it before."""
        self.add(Plan(name=short_name(spec), variants=(spec,), repeats=1, again=True))

    def begin(self) -> None:
        """Have made what waits, if this window was asked to and nothing goes on; what only others want is left."""
        if not self._begin_requested or self.running or not self._may_begin():
            return
        self._begin_requested = False
        if not any(entry.state == "waiting" for entry in self._board.entries):
            return
        self._runner = runner = self._make_runner(self._progressed.emit)
        self._board.begin()
        self._sessions.run(lambda: runner.run(failed=self._failed.emit), lambda _: self._finish(), self._fail)
        self._signals.running_changed.emit(True)
        self._show()

    def stop(self) -> None:
        """End the run that goes on; the queue is paused. The news tell when it has ended."""
        if self._runner is not None:
            self._stopping = True
            self._runner.stop()

    def refresh(self) -> None:
        """Let the time left pass, and now and then see how far another program is; quick where no second has passed."""
        elapsed_s = int(time.monotonic()) - self._shown_s
        if self.running and elapsed_s:
            self._show()
        elif self._board.runs_elsewhere and elapsed_s >= _POLL_S:
            self._shown_s += elapsed_s
            self._edits.read()

    def _offer_resume(self) -> None:
        if all(entry.state != "running" for entry in self._board.entries):
            self._board.offer_resume()

    def _resume(self) -> None:
        """Begin, or have the runner that may just be ending looked after once more."""
        self._begin_requested = True
        self.begin()

    def _fail(self, error: UserError) -> None:
        """The queue is paused: begun anew by itself, it would meet the same again."""
        self._stopping = True
        self._finish()
        self._show_error(error)

    def _skip_failed(self, error: UserError) -> None:
        """Say it; the entry that could not be made is paused, and the others go on."""
        self._edits.read()
        self._show_error(error)

    def _finish(self) -> None:
        stopped = self._stopping
        self._runner, self._stopping = None, False
        self._board.finish()
        if stopped:
            self._begin_requested = False
            self._edits.set_all("paused")
        else:
            self._edits.read(self.begin)
        self._signals.running_changed.emit(False)

    def _handle_progress(self, progress: QueueProgress) -> None:
        self._board.handle(progress, time.monotonic())
        progress_key = (progress.entry, progress.done, progress.specs)
        if progress_key != self._progress_key:
            self._progress_key = progress_key
            self._signals.run_stored.emit()
        if progress.state in ("stopped", "removed"):
            self._signals.entry_cancelled.emit()
        elif progress.state not in QUEUED_STATES:
            self._edits.read()
            self._announce_end(progress)
        self._show()

    def _announce_end(self, progress: QueueProgress) -> None:
        experiment = progress.experiment

        def announce(verdict: str) -> None:
            self._board.set_verdict(progress.entry, verdict)
            self._show()
            self._signals.entry_ended.emit(progress.name, describe_ending(progress, verdict))

        if experiment is None:
            announce("")
        else:
            self._reads.run(lambda: _verdict(self._database, experiment), announce, self._show_error)

    def _show(self) -> None:
        now_s = time.monotonic()
        self._shown_s = int(now_s)
        self._view.show_model(self._board.state(now_s))

    def _pause_or_resume(self, entry: int, action: str) -> None:
        if action == "pause":
            self._edits.set_state(entry, "paused")
        else:
            self._edits.set_state(entry, "waiting", self._resume)

    def _pause_or_resume_all(self, action: str) -> None:
        if action == "pause":
            self._edits.set_all("paused")
        else:
            self._edits.set_all("waiting", self._resume)

    def _remove(self, entry: int) -> None:
        is_running = self._board.is_running_here(entry)
        if self._runner is not None:  # which may be just about to take it
            self._runner.cancel(entry)
        if not is_running:
            self._edits.remove(entry)

    def _cancel_all(self) -> None:
        """The one that goes on last, so that no other takes its place."""
        for entry in reversed(self._board.entries):
            self._remove(entry.entry)

    def _skip_wait(self) -> None:
        if self._runner is not None:
            self._runner.skip_wait()

    def _answer_offer(self, act: BannerAction) -> None:
        self._board.withdraw_offer()
        if act == "go on":
            self._edits.set_all("waiting", self._resume)
        elif act == "not now":
            self._edits.pause_unowned(lambda: None)
        elif act == "remove":
            self._cancel_all()
        elif act == "unfold":
            self._view.unfold()
        self._show()

    def _answer_ending(self, act: BannerAction) -> None:
        ended = self._board.last_ended
        if act == "show" and ended is not None:
            self._show_runs(ended.entry)
        elif act == "dismiss":
            self._board.dismiss_ended()
            self._show()

    def _show_runs(self, entry: int) -> None:
        experiment = self._board.experiment_number(entry)
        if experiment is not None:
            self._reads.run(lambda: _experiment_runs(self._database, experiment), self._open_runs, self._show_error)

    def _open_runs(self, runs: Sequence[int]) -> None:
        if len(runs) == 1:
            self._signals.open_run_requested.emit(runs[0])
        elif runs:
            self._signals.compare_requested.emit(list(runs))

    def _connect(self) -> None:
        self._progressed.connect(self._handle_progress, Qt.ConnectionType.QueuedConnection)
        self._failed.connect(self._skip_failed, Qt.ConnectionType.QueuedConnection)
        view = self._view
        view.move_requested.connect(self._edits.move)
        view.pause_requested.connect(self._pause_or_resume)
        view.pause_all_requested.connect(self._pause_or_resume_all)
        view.remove_requested.connect(self._remove)
        view.cancel_all_requested.connect(self._cancel_all)
        view.verdict_requested.connect(self._show_runs)
        view.skip_requested.connect(self._skip_wait)
        view.offer_answered.connect(self._answer_offer)
        view.ending_answered.connect(self._answer_ending)


def _experiment_runs(database: Path, experiment: int) -> Sequence[int]:
    with Store.open(database) as store:
        return store.library.runs_of_experiment(experiment)


def _verdict(database: Path, experiment: int) -> str:
    """The verdict on the runs of an experiment, "" for one of a single variant."""
    with Store.open(database) as store:
        rows = [store.load(run, ()).row for run in store.library.runs_of_experiment(experiment)]
    return experiment_verdict(rows)
