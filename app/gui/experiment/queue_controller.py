"""The queue's controller: runs entries, applies the user's changes, and follows other programs' changes."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs
from PySide6.QtCore import QObject, Qt, Signal

from app.errors import UserError
from app.gui.actions import Actions, Services
from app.gui.experiment.gallery import stored_experiments
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.queries import QUEUED_STATES, ExperimentProgress, Question, SettableState
from app.storage.files import FileFingerprint, file_fingerprint
from app.values.plan import Plan
from app.viewmodels.experiment.queue import (
    NO_VERDICT,
    BannerAction,
    QueueModel,
    QueueState,
    VerdictText,
    describe_ending,
    quote_name,
)
from app.viewmodels.format.naming import short_name
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.gui.experiment.queue import QueueView
    from app.runs.experiment.queue_runner import QueueRunner
    from app.runs.undo import Edit
    from app.storage.store import Store
    from app.viewmodels.experiment.verdict_text import ExperimentResult

Result = TypeVar("Result")
QueueSnapshot = tuple[tuple[int, str], ...]
"""Every entry with its state, in order."""

_POLL_S = 3.0
"""How often the window checks whether another program has changed the queue."""


def _read_snapshot(database: Path, previous: FileFingerprint | None) -> tuple[FileFingerprint, QueueSnapshot | None]:
    """Read the queue; None if nothing was written since `previous`."""
    fingerprint = file_fingerprint(database)  # first, so that the next poll sees concurrent writes
    if fingerprint == previous:
        return fingerprint, None
    from app.storage.store import Store

    with Store.open(database) as store:
        return fingerprint, tuple((entry.entry, entry.state) for entry in store.queue.entries())


def _pause_unowned(store: "Store") -> None:
    """Pause every entry, unless a living program runs one: nothing starts by itself."""
    from app.runs.experiment.queue import pause_unowned_queue

    pause_unowned_queue(store)


class QueueController(QObject):
    """Runs the queue, one entry after another; a single run from the form goes first.

    The view and the database code are imported with the first entry, so that the window opens sooner. Thread: GUI only.
    The runner emits `_progressed` and `_runner_failed` from its threads as queued signals.
    """

    running_changed = Signal(bool)  # this window starts or stops running the queue
    entries_changed = Signal()  # the database's queue was changed, or read again
    run_stored = Signal()  # another run of the queue may be stored
    entry_ended = Signal(str, str)  # the verdict in a few words, or the experiment's name; then the full text
    host_changed = Signal(str)  # the host of the queue's runs; "" is this machine
    entry_cancelled = Signal()  # an experiment was stopped or cancelled
    _progressed = Signal(object)
    _runner_failed = Signal(object)

    def __init__(
        self,
        run_view: RunView,
        run: RunController,
        services: Services,
        make_runner: Callable[[Callable[[ExperimentProgress], None]], "QueueRunner"],
        actions: Actions,
    ) -> None:
        """Create the controller of a window's queue.

        `make_runner` creates a runner that reports its progress, on any thread, to the given function.
        """
        super().__init__(run_view)
        self._run_view = run_view
        self._run = run
        self._services = services
        self._make_runner = make_runner
        self._actions = actions
        self._model = QueueModel()
        self.state = QueueState()
        self._view: QueueView | None = None
        self._runner: QueueRunner | None = None
        self._stopping = self._closing = self._begin_requested = False
        self._refreshed_s = 0
        self._poll_at_s = math.inf
        self._fingerprint: FileFingerprint | None = None
        self._progress_key: tuple[int, int, tuple[RunSpec, ...], int | None] | None = None
        self._result_entry: int | None = None
        self._result_plan: Plan | None = None
        self._disturbances: Mapping[int, str] = {}

    def start(self) -> None:
        self._run.queue_requested.connect(self.add_run)
        self._run.queue_stop_requested.connect(self.stop)
        self._run.ended.connect(self.begin)
        self.running_changed.connect(lambda running: self._run.show_queue(running=running))
        self.running_changed.connect(lambda _: self._offer_more())
        self._run_view.live.more_requested.connect(self._run_more)
        self._run_view.live.quiet_requested.connect(self._run_when_quiet)
        self._progressed.connect(self._handle_progress, Qt.ConnectionType.QueuedConnection)
        self._runner_failed.connect(self._skip_failed, Qt.ConnectionType.QueuedConnection)

    @property
    def running(self) -> bool:
        return self._runner is not None

    def check_entries(self) -> None:
        """Offer to resume what an earlier window or program left in the queue, and watch it from now on."""

        def take(answer: tuple[FileFingerprint, QueueSnapshot | None]) -> None:
            self._poll_at_s = time.monotonic() + _POLL_S
            if answer[1]:
                # If the user has added something meanwhile, it starts, and nothing is paused.
                is_begun = self._begin_requested or self.running
                self._read() if is_begun else self._change(_pause_unowned, self._show_offer)

        database = self._services.database
        self._services.reads.run(lambda: _read_snapshot(database, None), take, self._run.show_error)

    def add(self, plan: Plan) -> None:
        """Add an experiment at the end of the queue; it starts immediately if nothing else runs."""
        self._begin_requested = True
        self._run.announce_queue()
        name = f"add {quote_name(plan.name)} to the queue"
        begin = partial(self.begin, requested=True)
        self._change(lambda store: stored_experiments().add_entry(store, plan), begin, name)

    def add_run(self, spec: RunSpec) -> None:
        self.add(Plan(name=short_name(spec), variants=(spec,), repeats=1, again=True, host=self._run.chosen_host))

    def begin(self, *, requested: bool = False) -> None:
        """Run what waits, if the user `requested` it in this window and nothing else runs here."""
        self._begin_requested = self._begin_requested or requested
        if not self._begin_requested or self.running or self._run.running or self._closing:
            return
        self._begin_requested = False
        if not any(entry.state == "waiting" for entry in self._model.entries):
            return
        self._runner = runner = self._make_runner(self._progressed.emit)
        self._model.begin()
        work = partial(runner.run, failed=self._runner_failed.emit)
        self._services.sessions.run(work, lambda _: self._finish(), self._fail)
        self.running_changed.emit(True)
        self._show()

    def stop(self) -> None:
        """Stop the current run and pause the queue; `running_changed` reports its end."""
        if self._runner is not None:
            self._stopping = True
            self._runner.stop()

    def shut_down(self) -> None:
        self._closing = True
        self.stop()

    def refresh(self) -> None:
        """Update the time left, and regularly check other programs' changes; usually fast."""
        now_s = time.monotonic()
        if self.running and int(now_s) != self._refreshed_s:
            self._show()
        if now_s >= self._poll_at_s and not (self._run.running or self.running or self._closing):
            self._poll_at_s = math.inf
            database, fingerprint = self._services.database, self._fingerprint
            # Nobody requested it: other reads report a problem with the database.
            self._services.reads.run(
                lambda: _read_snapshot(database, fingerprint), self._compare, lambda _: self._compare((None, None))
            )

    def _compare(self, answer: tuple[FileFingerprint | None, QueueSnapshot | None]) -> None:
        """Reload the queue if another program has changed or runs it; what it added is offered."""
        self._poll_at_s = time.monotonic() + _POLL_S
        self._fingerprint, stored = answer
        entries = tuple((entry.entry, entry.state) for entry in self._model.entries)
        if stored is not None and (stored != entries or self._model.runs_elsewhere):
            has_more = {entry for entry, _ in stored} - {entry for entry, _ in entries}
            self._read(self._show_offer if has_more else None)

    def _change(
        self, change: Callable[["Store"], object] | None, then: Callable[[], None] | None = None, name: str = ""
    ) -> None:
        """Change the database's queue, and show its new state.

        Args:
            change: Changes it, in the background and in the order of calls; None only reads.
            then: Called just before the queue is shown.
            name: The change, in the imperative, if the user made it and may undo it.
        """

        def take(answer: "tuple[Sequence[ExperimentProgress], Edit | None]") -> None:
            entries, reversal = answer
            self._model.update(entries)
            if name:
                self._services.record_change(name, reversal)
            if then is not None:
                then()
            self._show()
            self.entries_changed.emit()

        database, inventory = self._services.database, self._services.feed.wait_inventory
        self._services.reads.run(
            lambda: stored_experiments().change_queue(database, inventory(), change), take, self._run.show_error
        )

    def _read(self, then: Callable[[], None] | None = None) -> None:
        self._change(None, then)

    def _query(self, ask: Callable[["Store"], Result], done: Callable[[Result], None]) -> None:
        """Ask the database in the background; `done` gets the answer."""
        self._services.reads.ask(self._services.database, ask, done, self._run.show_error)

    def _show(self) -> None:
        now_s = time.monotonic()
        self._refreshed_s = int(now_s)
        self._model.waits_for_run = self._begin_requested and self._run.running
        self.state = self._model.state(now_s)
        if self._view is None and not self.state.is_empty:
            self._view = self._connected_view()
        if self._view is not None:
            self._view.show_model(self.state)

    def _show_offer(self) -> None:
        if all(entry.state != "running" for entry in self._model.entries):
            self._model.offer_resume()

    def _fail(self, error: UserError) -> None:
        # Paused: if it started again by itself, it would fail for the same reason.
        self._stopping = True
        self._finish()
        self._run.show_error(error)

    def _skip_failed(self, error: UserError) -> None:
        """Show why an entry was paused; the others continue."""
        self._read()
        self._run.show_error(error)

    def _finish(self) -> None:
        stopped = self._stopping
        self._runner, self._stopping = None, False
        self._model.finish()
        if stopped:
            self._begin_requested = False
            self._change(lambda store: stored_experiments().set_state(store, None, "paused"))
        else:
            self._read(self.begin)
        self.running_changed.emit(False)

    def _handle_progress(self, progress: ExperimentProgress) -> None:
        self._model.handle(progress, time.monotonic())
        self.host_changed.emit(progress.host)
        progress_key = (progress.entry, progress.done, progress.specs, progress.experiment)
        if progress_key != self._progress_key:
            self._progress_key = progress_key
            self.run_stored.emit()
            self._read_result(progress)
        if progress.state in ("stopped", "removed"):
            self.entry_cancelled.emit()
        elif progress.state not in QUEUED_STATES:
            self._read()
            self._announce_end(progress)
        self._show()

    def _read_result(self, progress: ExperimentProgress, *, anew: bool = False) -> None:
        """Show the entry's result so far above the current run; another entry's result disappears."""
        entry, experiment = progress.entry, progress.experiment
        if anew or entry != self._result_entry:
            self._result_entry, self._result_plan, self._disturbances = entry, None, {}
            self._run_view.live.show_result(None)
        disturbances = self._disturbances

        def show(answer: "tuple[Plan | None, ExperimentResult | None, Mapping[int, str]]") -> None:
            plan, result, disturbances = answer
            # None if it has one variant, or has just left the queue: its last progress has the experiment.
            if entry == self._result_entry and result is not None:
                self._result_plan, self._disturbances = plan or self._result_plan, disturbances
                self._run_view.live.show_result(result)
                self._offer_more()

        self._query(lambda store: stored_experiments().read_result(store, entry, experiment, disturbances), show)

    def _offer_more(self) -> None:
        if (result := self._run_view.live.result) is not None:
            result.offer_more(offered=self._result_plan is not None and not self.running)

    def _run_more(self, repeats: int, variants: Sequence[RunSpec]) -> None:
        """Run more repeats of the displayed experiment, or of some variants; its existing runs count."""
        if (plan := self._result_plan) is not None:
            from app.analysis.verdict import without

            alike = list(map(without, variants))
            repeated = tuple(spec for spec in plan.variants if without(spec) in alike) or plan.variants
            self.add(structs.replace(plan, variants=repeated, repeats=plan.repeats + repeats, again=False))

    def _run_when_quiet(self) -> None:
        """Repeat the runs of the displayed experiment, each once the machine is quiet."""
        from app.viewmodels.experiment.preview import QUIET_WAIT_S

        if self._result_plan is not None:
            self.add(structs.replace(self._result_plan, again=True, max_idle_wait_s=QUIET_WAIT_S))

    def _announce_end(self, progress: ExperimentProgress) -> None:
        experiment = progress.experiment

        def announce(verdict: VerdictText) -> None:
            self._model.set_verdict(progress.entry, verdict)
            self._show()
            self.entry_ended.emit(verdict.sentence or progress.name, describe_ending(progress))

        if experiment is None:
            announce(NO_VERDICT)
        else:
            self._query(lambda store: stored_experiments().read_verdict(store, experiment), announce)

    def _connected_view(self) -> "QueueView":
        view = self._run_view.queue_view()
        view.move_requested.connect(self.move)
        view.pause_requested.connect(self.pause_or_resume)
        view.remove_requested.connect(self.remove)
        view.cancel_all_requested.connect(self.cancel_all)
        view.verdict_requested.connect(self._show_runs)
        view.skip.clicked.connect(self._skip_wait)
        view.answered.connect(self._answer)
        return view

    def move(self, entry: int, by: int) -> None:
        """Move an entry by that many places, up if negative, before the database is changed."""
        next_entry = self._model.move(entry, by)
        self._show()
        self._change(lambda store: store.queue.move(entry, next_entry), name=f"move {self._name(entry)}")

    def pause_or_resume(self, entry: int | None, action: str) -> None:
        """Pause or resume an entry; None means every entry."""
        state: SettableState = "paused" if action == "pause" else "waiting"
        # Immediately: otherwise it would be among what a window pauses at its start.
        self._begin_requested = self._begin_requested or state == "waiting"
        name = f"{'pause' if state == 'paused' else 'resume'} {self._name(entry)}"
        then = partial(self.begin, requested=True) if state == "waiting" else None
        self._change(lambda store: stored_experiments().set_state(store, entry, state), then, name)

    def remove(self, *entries: int) -> None:
        """Remove entries; a running one is stopped first and removed last, so that no other starts in its place."""
        running = [entry for entry in entries if self._model.is_running_here(entry)]
        waiting = [entry for entry in entries if entry not in running]
        runner = self._runner
        if runner is not None:  # it may be about to claim one
            for entry in waiting:
                runner.cancel(entry)
        for entry in running:
            self._cancel(entry)
        if waiting:
            name = self._name(waiting[0]) if len(waiting) == 1 else f"{len(waiting)} experiments"
            removed = [row for row in self._model.entries if row.entry in waiting and row.entry == self._result_entry]
            then = partial(self._read_result, removed[0], anew=True) if removed else None  # its variants no longer wait
            self._change(lambda store: list(map(store.queue.remove, waiting)), then, f"remove {name} from the queue")

    def _cancel(self, entry: int) -> None:
        """Cancel a running entry after reading its plan, for undo: the runner removes both."""

        def cancel(plan: Plan) -> None:
            from app.runs.undo import CancelledEntry

            if (runner := self._runner) is not None:
                self._services.record_change(f"cancel {name}", CancelledEntry(self._services.database, plan))
                runner.cancel(entry)

        name = self._name(entry)
        self._query(lambda store: stored_experiments().entry_plan(store.queue.entry(entry)), cancel)

    def _name(self, entry: int | None) -> str:
        names = (row.name for row in self._model.entries if row.entry == entry)
        return quote_name(next(names, "")) if entry is not None else "the queue"

    def take_undone(self) -> None:
        """Reload the queue after an undo, and continue with what waits again."""
        runner = self._runner
        if runner is not None:
            runner.forget_cancelled()
        unpaused = {entry.entry for entry in self._model.entries if entry.state != "paused"}

        def go_on() -> None:
            if any(entry.state == "waiting" and entry.entry not in unpaused for entry in self._model.entries):
                self.begin(requested=True)

        self._read(go_on)

    def cancel_all(self) -> None:
        self.remove(*(entry.entry for entry in self._model.entries))

    def _skip_wait(self) -> None:
        if self._runner is not None:
            self._runner.skip_wait()

    def _answer(self, action: BannerAction) -> None:
        if action in ("go on", "not now", "remove", "unfold"):
            self._model.withdraw_offer()
        match action:
            case "go on":
                self.pause_or_resume(None, "go on")
            case "not now":
                self._change(_pause_unowned)
            case "remove":
                self.cancel_all()
            case "unfold" if self._view is not None:
                self._view.unfold()
            case "show" if (ended := self._model.last_ended) is not None:
                self._show_runs(ended.entry)
            case "dismiss":
                self._model.dismiss_ended()
        self._show()

    def note_seen(self, runs: Sequence[int]) -> None:
        """Remove the notice of these displayed runs: its verdict was seen."""
        ended = self._model.last_ended
        if ended is None or ended.experiment is None:
            return
        experiment = ended.experiment

        def dismiss(own: Sequence[int]) -> None:
            if set(own) <= set(runs) and self._model.last_ended is ended:
                self._model.mark_seen(ended.entry)
                self._show()

        self._query(lambda store: store.library.runs_of_experiment(experiment), dismiss)

    def _show_runs(self, entry: int) -> None:
        def open_runs(compared: tuple[Sequence[int], Question]) -> None:
            runs, question = compared
            if len(runs) == 1:
                self._actions.open_run(runs[0])
            elif runs:
                self._actions.compare(runs, question)
            self._model.mark_seen(entry)
            self._show()

        if (experiment := self._model.experiment_number(entry)) is not None:
            self._query(lambda store: store.library.compared_by(experiment), open_runs)
