"""The queue in the window: changes it as the user asks, has its runs made, and tells how far they are."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, Qt, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.controllers.queue_edits import QueueEdits
from app.gui.controllers.queue_export import QueueExport
from app.gui.queue_news import QueueNews
from app.gui.views.queue import QueueView
from app.queries import IN_QUEUE, QueueProgress
from app.runs.queued import Asked
from app.runs.schedule import Plan
from app.samples import Inventory
from app.storage.store import Store
from app.viewmodels.naming import short_name
from app.viewmodels.queue import QueueBoard
from app.viewmodels.queue_told import Act, ending_words, experiment_verdict
from workloads.protocol import RunSpec

_LOOK_S = 2
"""How often it is looked at what another program makes."""


class Runner(Protocol):
    """Makes the runs of the queue; see `app.runs.queue_runner`. All but `run` return at once, on any thread."""

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

    _told = Signal(object)
    _failed = Signal(object)

    def __init__(
        self,
        view: QueueView,
        news: QueueNews,
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
        self._news = news
        self._database = database
        self._make_runner = make_runner
        self._may_begin = may_begin
        self._reads = reads
        self._sessions = sessions
        self._show_error = show_error
        self._board = QueueBoard()
        self._edits = QueueEdits(self._board, database, inventory, reads, self._show, show_error)
        self._export = QueueExport(view, database, reads)
        self._runner: Runner | None = None
        self._stopping = False
        self._shown_s = 0
        self._course: tuple[int, int, tuple[RunSpec, ...]] | None = None
        self._wanted = False
        self._connect()

    @property
    def goes_on(self) -> bool:
        """Whether this window makes the queue's runs."""
        return self._runner is not None

    @property
    def places(self) -> tuple[tuple[int, str], ...]:
        """Every entry that is shown with its state, in their order."""
        return tuple((entry.entry, entry.state) for entry in self._board.entries)

    def show_changed(self, *, more: bool) -> None:
        """Show what another program changed; where it put more in, offer to go on."""
        self._edits.read(self._offer if more else None)

    def offer(self) -> None:
        """Offer to go on with what an earlier window, or a program that is gone, left unfinished.

        Where this window was asked for something meanwhile, that begins: then nothing is paused.
        """
        if self._wanted or self.goes_on:
            self._edits.read()
        else:
            self._edits.pause_unowned(self._offer)

    def add(self, asked: Asked, preset: str | None = None) -> None:
        """Put an experiment at the end of the queue; it begins at once where nothing goes on."""
        self._wanted = True
        self._edits.add(asked, preset, self._go_on)

    def add_run(self, spec: RunSpec) -> None:
        """The same with one run of one variant, whatever was run of it before."""
        self.add(Asked.of(Plan(name=short_name(spec), variants=(spec,), repeats=1), again=True))

    def begin(self) -> None:
        """Have made what waits, if this window was asked to and nothing goes on; what only others want is left."""
        if not self._wanted or self.goes_on or not self._may_begin():
            return
        self._wanted = False
        if not any(entry.state == "waiting" for entry in self._board.entries):
            return
        self._runner = runner = self._make_runner(self._told.emit)
        self._board.begin()
        self._sessions.run(lambda: runner.run(failed=self._failed.emit), lambda _: self._rest(), self._fail)
        self._news.changed.emit(True)
        self._show()

    def stop(self) -> None:
        """End the run that goes on; the queue is paused. The news tell when it has ended."""
        if self._runner is not None:
            self._stopping = True
            self._runner.stop()

    def refresh(self) -> None:
        """Let the time left pass, and now and then see how far another program is; quick where no second has passed."""
        passed_s = int(time.monotonic()) - self._shown_s
        if self.goes_on and passed_s:
            self._show()
        elif self._board.runs_elsewhere and passed_s >= _LOOK_S:
            self._shown_s += passed_s
            self._edits.read()

    def _offer(self) -> None:
        if all(entry.state != "running" for entry in self._board.entries):
            self._board.offer()

    def _go_on(self) -> None:
        """Begin, or have the runner that may just be ending looked after once more."""
        self._wanted = True
        self.begin()

    def _fail(self, error: UserError) -> None:
        """The queue is paused: begun anew by itself, it would meet the same again."""
        self._stopping = True
        self._rest()
        self._show_error(error)

    def _go_past(self, error: UserError) -> None:
        """Say it; the entry that could not be made is paused, and the others go on."""
        self._edits.read()
        self._show_error(error)

    def _rest(self) -> None:
        stopped = self._stopping
        self._runner, self._stopping = None, False
        self._board.rest()
        if stopped:
            self._wanted = False
            self._edits.set_all("paused")
        else:
            self._edits.read(self.begin)
        self._news.changed.emit(False)

    def _take(self, progress: QueueProgress) -> None:
        self._board.tell(progress, time.monotonic())
        course = (progress.entry, progress.done, progress.specs)
        if course != self._course:
            self._course = course
            self._news.run_made.emit()
        if progress.state in ("stopped", "removed"):
            self._news.entry_left.emit()
        elif progress.state not in IN_QUEUE:
            self._edits.read()
            self._tell_ended(progress)
        self._show()

    def _tell_ended(self, progress: QueueProgress) -> None:
        experiment = progress.experiment

        def tell(verdict: str) -> None:
            self._board.tell_verdict(progress.entry, verdict)
            self._show()
            self._news.entry_ended.emit(progress.name, ending_words(progress, verdict))

        if experiment is None:
            tell("")
        else:
            self._reads.run(lambda: _verdict(self._database, experiment), tell, self._show_error)

    def _show(self) -> None:
        now_s = time.monotonic()
        self._shown_s = int(now_s)
        self._view.show_model(self._board.state(now_s))

    def _hold(self, entry: int, way: str) -> None:
        if way == "pause":
            self._edits.set_state(entry, "paused")
        else:
            self._edits.set_state(entry, "waiting", self._go_on)

    def _hold_all(self, way: str) -> None:
        if way == "pause":
            self._edits.set_all("paused")
        else:
            self._edits.set_all("waiting", self._go_on)

    def _remove(self, entry: int) -> None:
        is_going_on = self._board.is_going_on(entry)
        if self._runner is not None:  # which may be just about to take it
            self._runner.cancel(entry)
        if not is_going_on:
            self._edits.remove(entry)

    def _cancel_all(self) -> None:
        """The one that goes on last, so that no other takes its place."""
        for entry in reversed(self._board.entries):
            self._remove(entry.entry)

    def _skip(self) -> None:
        if self._runner is not None:
            self._runner.skip_wait()

    def _answer_offer(self, act: Act) -> None:
        self._board.withdraw()
        if act == "go on":
            self._edits.set_all("waiting", self._go_on)
        elif act == "not now":
            self._edits.pause_unowned(lambda: None)
        elif act == "remove":
            self._cancel_all()
        elif act == "unfold":
            self._view.unfold()
        self._show()

    def _answer_ending(self, act: Act) -> None:
        told = self._board.told
        if act == "show" and told is not None:
            self._show_runs(told.entry)
        elif act == "dismiss":
            self._board.forget()
            self._show()

    def _show_runs(self, entry: int) -> None:
        experiment = self._board.experiment_of(entry)
        if experiment is not None:
            self._reads.run(lambda: _runs_of(self._database, experiment), self._turn_to, self._show_error)

    def _turn_to(self, runs: Sequence[int]) -> None:
        if len(runs) == 1:
            self._news.open_asked.emit(runs[0])
        elif runs:
            self._news.compare_asked.emit(list(runs))

    def _connect(self) -> None:
        self._told.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._failed.connect(self._go_past, Qt.ConnectionType.QueuedConnection)
        view = self._view
        view.move_asked.connect(self._edits.move)
        view.hold_asked.connect(self._hold)
        view.hold_all_asked.connect(self._hold_all)
        view.remove_asked.connect(self._remove)
        view.cancel_all_asked.connect(self._cancel_all)
        view.show_asked.connect(self._show_runs)
        view.skip_asked.connect(self._skip)
        view.offer_answered.connect(self._answer_offer)
        view.ending_answered.connect(self._answer_ending)


def _runs_of(database: Path, experiment: int) -> Sequence[int]:
    with Store.open(database) as store:
        return store.library.runs_of_experiment(experiment)


def _verdict(database: Path, experiment: int) -> str:
    """The verdict on the runs of an experiment, "" for one of a single variant."""
    with Store.open(database) as store:
        rows = [store.load(run, ()).row for run in store.library.runs_of_experiment(experiment)]
    return experiment_verdict(rows)
