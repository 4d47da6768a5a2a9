"""Executes one queue entry: the remaining runs of its experiment, then its weight-transfer trials."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from app.analysis.comparability import idle_wait_blockers
from app.errors import UserError
from app.queries import INTERRUPTED_STATES, EntryState, QueueEntry
from app.records import IDLE_WAIT_KEY, RunEvent, RunHeader, RunRow, RunStarted
from app.runs.concurrent_runs import ConcurrentRuns
from app.runs.experiment.idle_wait import IdleLimits, IdleWait, WaitStatus
from app.runs.experiment.queue import entry_plan
from app.runs.experiment.reuse import (
    ReusableRuns,
    ThrottleFilter,
    current_fingerprint,
    reusable_runs,
    runs_on_same_hardware,
)
from app.runs.experiment.session import Experiment, ExperimentSession, PlannedRun
from app.runs.experiment.transfer_trials import pending_trials, run_pending_trials, runs_with_weights
from app.runs.leases import Lease
from app.runs.session import RunServices, lease_devices
from app.runs.sinks import Sink
from app.storage.store import Store
from workloads.catalog import Machine
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStatus:
    """An entry before its next run: how far it is, and runs `alike` that tell how long the rest takes."""

    entry: QueueEntry
    experiment: Experiment
    reusable: ReusableRuns
    comparable_runs: tuple[RunRow, ...]
    machine: Machine


class QueueListener(Protocol):
    """Hears what becomes of entries; called on the threads that make them."""

    def entry_started(self, status: EntryStatus) -> None:
        """An entry is begun, or goes on."""

    def run_sinks(self, planned_run: PlannedRun) -> Sequence[Sink]:
        """A run begins; who hears of its events."""

    def run_waiting(self, planned_run: PlannedRun, status: WaitStatus) -> bool:
        """A run waits; whether it shall go on waiting. Asked several times a second."""

    def wait_ended(self, planned_run: PlannedRun) -> None:
        """It waits no longer."""

    def run_finished(self, run: RunHeader, *, accepted: bool) -> None:
        """A run has ended; one that does not count is made once more."""

    def message(self, sentence: str) -> None:
        """Anything else worth telling."""

    def entry_finished(self, entry: QueueEntry, experiment: Experiment, state: EntryState) -> None:
        """No further run is made of an entry now."""


class EntrySession:
    """Makes what is left of an entry. `run` blocks its thread, once; the others may come from any thread.

    `may_begin` is asked before each run, and may end the entry there.
    """

    def __init__(
        self, entry: QueueEntry, services: RunServices, listener: QueueListener, may_begin: Callable[[], bool]
    ) -> None:
        self.entry = entry
        """The entry, with its experiment once it has one."""
        self._plan = entry_plan(entry)
        self._services = services
        self._listener = listener
        self._may_begin = may_begin
        self._concurrent_runs = ConcurrentRuns(services)
        self._is_ending = threading.Event()
        self._skipped = 0
        self._session: ExperimentSession | None = None
        self.is_over = False
        """Whether nothing is left that could be made: every run was, and every trial."""

    def end(self) -> None:
        """Begins no further run; returns at once."""
        self._is_ending.set()
        if self._session is not None:
            self._session.stop()

    def stop(self) -> None:
        """Stops what goes on, too; returns at once."""
        self.end()
        self._concurrent_runs.stop()

    def skip_wait(self) -> None:
        """Begins every run that waits for a fair machine."""
        self._skipped += 1

    def run(self) -> Experiment:
        """Makes the runs and the trials. Raises `UserError` where a run cannot be stored."""
        throttle_filter = ThrottleFilter(self._plan.max_throttled_pct)
        status = entry_status(self.entry, self._services, throttle_filter)
        self._add_runs(run.row.run for run in status.experiment.runs)
        self._drop_excluded(status)
        self._listener.entry_started(replace(status, entry=self.entry))
        with contextlib.closing(IdleWait(self._services.feed, _limits(self._plan.max_idle_wait_s))) as idle_wait:
            self._session = session = ExperimentSession(
                status.experiment.plan,
                status.experiment.runs,
                status.machine,
                self._execute_run,
                lease=self._lease,
                wait=lambda turn, may_go_on: self._wait(idle_wait, turn, may_go_on),
                accept=lambda made: self._judge(throttle_filter, made),
            )
            if self._is_ending.is_set():
                session.stop()
            experiment = session.run()
        if message := experiment.describe_given_up():
            self._listener.message(message)
        is_unfinished = experiment.state in INTERRUPTED_STATES
        if not is_unfinished and experiment.plan.weight_transfers:
            experiment = self._with_trials(experiment, session.may_continue)
            is_unfinished = bool(pending_trials(experiment.plan, experiment.runs)) and not session.may_continue()
        self.is_over = not is_unfinished
        return experiment

    def _lease(self, spec: RunSpec, devices: Sequence[str], give_up: Callable[[float], bool]) -> Lease | None:
        if not self._may_begin():
            self.end()
            return None
        return lease_devices(
            spec, self._services, notify=self._listener.message, wait_for_stop=give_up, devices=devices
        )

    def _wait(
        self, idle_wait: IdleWait, planned_run: PlannedRun, may_continue: Callable[[], bool]
    ) -> Mapping[str, str]:
        skipped = self._skipped

        def continue_waiting(status: WaitStatus) -> bool:
            return self._listener.run_waiting(planned_run, status) and may_continue() and self._skipped == skipped

        environment = idle_wait.wait(planned_run.lease.devices, continue_waiting)
        self._listener.wait_ended(planned_run)
        if idle_wait_blockers(environment):
            self._listener.message(f"The wait before a run {environment[IDLE_WAIT_KEY]}.")
        return environment

    def _execute_run(self, planned_run: PlannedRun) -> RunHeader:
        sinks = (*self._listener.run_sinks(planned_run), _MembershipSink(self._add_runs))
        return self._concurrent_runs.run(
            planned_run.spec, sinks, environment=planned_run.environment, lease=planned_run.lease
        )

    def _judge(self, throttle_filter: ThrottleFilter, run: RunHeader) -> bool:
        accepted = throttle_filter.accepts(run)
        if not accepted:
            with Store.open(self._services.database) as store:
                store.queue.remove_runs(self.entry.entry, [run.row.run])
        self._listener.run_finished(run, accepted=accepted)
        return accepted

    def _drop_excluded(self, status: EntryStatus) -> None:
        """Takes out what was cut off before, and made again now: it says nothing of the variants."""
        reusable = {run.row.run for run in status.reusable.runs}
        with Store.open(self._services.database) as store:
            made = runs_of_entry(store, self.entry)
            store.queue.remove_runs(self.entry.entry, sorted(made - reusable))

    def _add_runs(self, runs: Iterable[int]) -> None:
        with Store.open(self._services.database) as store:
            experiment = store.queue.add_runs(self.entry.entry, list(runs))
        self.entry = replace(self.entry, experiment=experiment)

    def _with_trials(self, experiment: Experiment, may_continue: Callable[[], bool]) -> Experiment:
        """The experiment once the weights that it saved were tried; what is left of that is said."""
        message = self._listener.message
        try:
            runs = run_pending_trials(experiment.plan, experiment.runs, self._services, message, may_continue)
        except UserError as error:
            message(str(error))
            return experiment
        if pending := pending_trials(experiment.plan, runs):
            message(f"Weights still to be tried in {', '.join(trial.implementation for trial in pending)}.")
        return replace(experiment, runs=tuple(runs))


@dataclass(frozen=True, slots=True)
class _MembershipSink:
    """Makes a run part of the experiment when it begins: a program that is killed later has nothing to note."""

    add_runs: Callable[[Sequence[int]], None]

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self.add_runs([event.run])


def entry_status(
    entry: QueueEntry, services: RunServices, throttle_filter: ThrottleFilter | None = None
) -> EntryStatus:
    """What of an entry is made: its own runs, wherever that was, and others of its variants that count here.

    `repeated` judges which were throttled too long to count, and then knows of them.
    """
    inventory, plan = services.feed.wait_inventory(), entry_plan(entry)
    machine = inventory.machine
    with Store.open(services.database) as store:
        own_runs = runs_of_entry(store, entry)
        reusable = reusable_runs(store, plan, current_fingerprint(inventory), machine, own_runs, throttle_filter)
        comparable_runs = tuple(runs_on_same_hardware(store.list_runs(), machine))
    stored = runs_with_weights(plan, reusable.runs, services.database)
    experiment = Experiment.from_runs(plan, "stopped", stored, machine)
    return EntryStatus(
        entry=entry,
        experiment=experiment,
        reusable=reusable,
        comparable_runs=comparable_runs,
        machine=machine,
    )


def runs_of_entry(store: Store, entry: QueueEntry) -> frozenset[int]:
    """Return the runs that an entry has made, here or elsewhere: they count wherever that was."""
    return frozenset(() if entry.experiment is None else store.library.runs_of_experiment(entry.experiment))


def _limits(max_s: float | None) -> IdleLimits:
    return IdleLimits() if max_s is None else IdleLimits(wait_s=max_s)
