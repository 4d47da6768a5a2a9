"""Executes one queue entry: the remaining runs of its experiment, then its weight-transfer trials."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from app.analysis.comparability import TIMED_OUT, idle_wait_blockers
from app.environment_keys import IDLE_WAIT_KEY, OTHERS_UNKNOWN_KEY, PLANNED_KEY
from app.errors import TelemetryError, UserError
from app.events import RunEvent, RunStarted
from app.queries import INTERRUPTED_STATES, QUEUED_STATES, EntryState, QueueEntry
from app.records import RunHeader, RunRow
from app.runs.concurrent_runs import ConcurrentRuns
from app.runs.experiment.equality import ExperimentEquality
from app.runs.experiment.idle_wait import ContinueWaiting, IdleLimits, IdleWait, WaitStatus
from app.runs.experiment.queue import entry_plan
from app.runs.experiment.reuse import (
    ReusableRuns,
    ThrottleFilter,
    current_fingerprint,
    reusable_runs,
    runs_of_entry,
    runs_on_same_hardware,
)
from app.runs.experiment.session import Experiment, ExperimentSession, PlannedRun
from app.runs.experiment.transfer_trials import pending_trials, run_pending_trials, runs_with_weights
from app.runs.host import Host, host_of
from app.runs.leases import Lease
from app.runs.session import RunServices
from app.runs.sinks import Sink
from app.storage.store import Store
from workloads.catalog import Machine
from workloads.protocol import RunSpec

_log = logging.getLogger("variantscope.queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStatus:
    """How far an entry of the queue is.

    Attributes:
        entry: The entry, with its experiment once that has runs.
        state: `running` before its first run here; how it ended, or its state in the queue, once no further run starts.
        experiment: Its plan and the runs that count.
        reusable: Which stored runs count, and why others do not.
        comparable_runs: Stored runs of the same hardware, to estimate durations from.
        machine: The machine it runs on.
    """

    entry: QueueEntry
    state: EntryState
    experiment: Experiment
    reusable: ReusableRuns
    comparable_runs: tuple[RunRow, ...]
    machine: Machine

    @property
    def queue_number(self) -> int | None:
        """Return the number under which it stays in the queue, None if it has left the queue."""
        return self.entry.entry if self.state in (*QUEUED_STATES, *INTERRUPTED_STATES) else None


class QueueListener(Protocol):
    """Follows the entries of a queue while they run.

    Thread: entries on the thread of `QueueRunner.run`; runs on a thread per run, several at once with `parallel`.
    """

    def entry_started(self, status: EntryStatus) -> None:
        """An entry begins or resumes."""

    def run_started(self, planned_run: PlannedRun) -> Sequence[Sink]:
        """A run begins; return the sinks of its events."""

    def run_waiting(self, planned_run: PlannedRun, wait: WaitStatus | None) -> bool:
        """A run waits for an idle machine, None when it no longer does; return whether to go on waiting.

        Called several times per second.
        """

    def run_ended(self, run: RunHeader, *, accepted: bool) -> None:
        """A run has ended; one that is not accepted does not count and is made once more."""

    def message(self, sentence: str) -> None:
        """Anything else the user should know."""

    def entry_ended(self, status: EntryStatus) -> None:
        """No further run of an entry starts now."""


class EntrySession:
    """Makes the remaining runs of one entry, then its weight-transfer trials. The executor of its `ExperimentSession`.

    Thread: `run` blocks its thread, once; `end`, `stop` and `skip_wait` any; the others those of `RunExecutor`.
    """

    def __init__(
        self, entry: QueueEntry, services: RunServices, listener: QueueListener, is_next: Callable[[], bool]
    ) -> None:
        """Prepare a session.

        Args:
            entry: An entry that this process owns.
            services: What runs need.
            listener: Follows the runs.
            is_next: Returns whether the next run is still one of this entry and plan; asked before each.
        """
        self._plan = entry_plan(entry)
        self._entry = entry
        self._services = services
        self._listener = listener
        self._is_next = is_next
        self._throttle_filter = ThrottleFilter(self._plan.max_throttled_pct)
        self._concurrent_runs = ConcurrentRuns(services)
        # Set by any thread, read before a run starts: `stop` may come before there is a session to stop.
        self._is_ending = threading.Event()
        self._session: ExperimentSession | None = None
        # Counts up; each wait compares it with its value at its own beginning.
        self._skipped_waits = 0
        self._idle_wait: IdleWait | None = None
        self._equality: ExperimentEquality | None = None
        self._unknown_others: str | None = None
        self.is_over = False
        """Whether nothing is left that could be made: neither a run nor a trial."""

    def end(self) -> None:
        """Start no further run; returns at once."""
        self._is_ending.set()
        if (session := self._session) is not None:
            session.stop()

    def stop(self) -> None:
        """Stop the current runs, too; returns at once."""
        self.end()
        self._concurrent_runs.stop()

    def skip_wait(self) -> None:
        """Start every run that waits for an idle machine."""
        self._skipped_waits += 1

    def run(self) -> EntryStatus:
        """Make the runs and the trials, and return what they came to; its state is that of the experiment.

        Raises:
            UserError: A run cannot be stored, or the plan names what is not allowed to start.
        """
        self._services.admit(self._plan.specs)
        status = entry_status(self._entry, self._services, self._throttle_filter)
        self._add_runs(run.row.run for run in status.experiment.runs)
        self._drop_excluded(status)
        self._listener.entry_started(replace(status, entry=self._entry))
        self._equality = ExperimentEquality(status.experiment, self._services, self._listener.message)
        with contextlib.closing(IdleWait(self._services.host, _limits(self._plan.max_idle_wait_s))) as self._idle_wait:
            unit = self._services.host.balanced_unit
            session = ExperimentSession(status.experiment.plan, status.experiment.runs, status.machine, self, unit)
            self._session = session
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
        # Each has the other: such a cycle, with all runs of the experiment, would wait for a full garbage collection.
        self._session = None
        return replace(status, entry=self._entry, experiment=experiment, state=experiment.state)

    def prepare(self, may_continue: Callable[[], bool]) -> None:
        """Check that the variants compute the same, if that is wanted."""
        assert self._equality is not None, "runs are made within `run`"
        self._equality.make(may_continue)

    def lease(self, spec: RunSpec, devices: Sequence[str], sleep_or_give_up: Callable[[float], bool]) -> Lease | None:
        """Lease the devices of a run, if that is still the queue's next."""
        if not self._is_next():
            _log.info("entry %d yields: another is next, or its plan has changed", self._entry.entry)
            self.end()
            return None
        return lease_unless_refused(
            spec, self._services.host, devices, notify=self._listener.message, wait_for_stop=sleep_or_give_up
        )

    def wait_until_idle(self, planned_run: PlannedRun, may_continue: Callable[[], bool]) -> Mapping[str, str]:
        """Wait until the devices are idle, or the user skips the wait."""
        skipped_waits = self._skipped_waits

        def continue_waiting(status: WaitStatus) -> bool:
            may_wait = self._listener.run_waiting(planned_run, status) and may_continue()
            return may_wait and self._skipped_waits == skipped_waits

        environment = self._wait_on_host(planned_run.lease, continue_waiting)
        self._listener.run_waiting(planned_run, None)
        _log.info("idle wait before run %d: %s", planned_run.position, environment[IDLE_WAIT_KEY])
        if blockers := idle_wait_blockers(environment):
            limit = environment[IDLE_WAIT_KEY].partition(":")[0].removeprefix(TIMED_OUT).strip()
            self._listener.message(f"The machine did not become idle within {limit} ({blockers}).")
        reason = environment.get(OTHERS_UNKNOWN_KEY)
        if reason is not None and reason != self._unknown_others:
            self._unknown_others = reason
            self._listener.message(f"Whether other processes use the GPU is unknown: nobody can list them ({reason}).")
        return environment

    def _wait_on_host(self, lease: Lease, continue_waiting: ContinueWaiting) -> Mapping[str, str]:
        assert self._idle_wait is not None, "runs are made within `run`"
        if (host := host_of(lease, self._services.host)) is self._services.host:
            return self._idle_wait.wait(lease.devices, continue_waiting)
        try:
            with contextlib.closing(self._idle_wait.on(host)) as idle_wait:
                return idle_wait.wait(lease.devices, continue_waiting)
        except TelemetryError as error:  # the run says it: one host of several is lost
            return {IDLE_WAIT_KEY: f"skipped, {error}"}

    def run_once(self, planned_run: PlannedRun) -> RunHeader:
        """Make one run; it is part of the experiment from its beginning."""
        assert self._equality is not None, "runs are made within `run`"
        sinks = (
            *self._listener.run_started(planned_run),
            _BeginningSink(planned_run.spec, self._add_runs, self._equality),
        )
        return self._concurrent_runs.run(
            planned_run.spec,
            sinks,
            environment={**planned_run.environment, PLANNED_KEY: self._plan.extent},
            lease=planned_run.lease,
        )

    def accept(self, run: RunHeader) -> bool:
        """Return whether a run counts; one that was throttled for too long leaves the experiment."""
        accepted = self._throttle_filter.accepts(run)
        if not accepted:
            _log.info("run %d does not count: it was throttled or suspended for too long", run.row.run)
            with Store.open(self._services.database) as store:
                store.queue.remove_runs(self._entry.entry, [run.row.run])
        self._listener.run_ended(run, accepted=accepted)
        return accepted

    def _drop_excluded(self, status: EntryStatus) -> None:
        """Take runs out of the experiment that were not accepted earlier: they say nothing about their variants."""
        reusable = {run.row.run for run in status.reusable.runs}
        with Store.open(self._services.database) as store:
            made = runs_of_entry(store, self._entry)
            store.queue.remove_runs(self._entry.entry, sorted(made - reusable))

    def _add_runs(self, runs: Iterable[int]) -> None:
        # Several threads at once: the queue's transactions are the lock, and each returns the same number.
        with Store.open(self._services.database) as store:
            experiment = store.queue.add_runs(self._entry.entry, list(runs))
        self._entry = replace(self._entry, experiment=experiment)

    def _with_trials(self, experiment: Experiment, may_continue: Callable[[], bool]) -> Experiment:
        """Try the weights that the runs saved, and say which trials are still pending."""
        message = self._listener.message
        try:
            runs = run_pending_trials(experiment.plan, experiment.runs, self._services, message, may_continue)
        except UserError as error:
            message(str(error))
            return experiment
        if pending := pending_trials(experiment.plan, runs):
            message(f"Weights not tried yet in {', '.join(trial.implementation for trial in pending)}.")
        return replace(experiment, runs=tuple(runs))


def lease_unless_refused(
    spec: RunSpec,
    host: Host,
    devices: Sequence[str] = (),
    *,
    notify: Callable[[str], None],
    wait_for_stop: Callable[[float], bool],
) -> Lease | None:
    """Lease as `Host.lease_for_run` does, but nothing for a run that the host refuses: it is stored as refused.

    The devices of an experiment's run are leased before its session checks it. A GPU that was lost meanwhile would be
    waited for in vain.

    Args:
        spec: The run.
        host: Where it is to be made.
        devices: The devices to choose from, the preferred one first; empty for all that it may use.
        notify: Called once with a sentence if it has to wait.
        wait_for_stop: Sleeps so many seconds; returns whether to wait no longer.
    """
    if host.refusal(spec) is not None:
        return Lease()
    return host.lease_for_run(spec, notify=notify, wait_for_stop=wait_for_stop, devices=devices)


@dataclass(frozen=True, slots=True)
class _BeginningSink:
    """Adds a run to the experiment when it begins, with the check of its variant.

    A program that is killed later has nothing left to note.
    """

    spec: RunSpec
    add_runs: Callable[[Sequence[int]], None]
    equality: ExperimentEquality

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self.add_runs([event.run])
            self.equality.store(event.run, self.spec)


def entry_status(
    entry: QueueEntry, services: RunServices, throttle_filter: ThrottleFilter | None = None
) -> EntryStatus:
    """Return how far an entry is: its own runs, wherever they were made, and others of its variants that count here.

    Args:
        entry: The entry.
        services: Where runs are stored and made.
        throttle_filter: Decides which runs count, and keeps that in mind for those to come.
    """
    inventory, plan = services.host.inventory(), entry_plan(entry)
    machine = inventory.machine
    with Store.open(services.database) as store:
        fingerprint = current_fingerprint(inventory, services.host.environment())
        reusable = reusable_runs(store, plan, fingerprint, machine, entry, throttle_filter)
        comparable_runs = tuple(runs_on_same_hardware(store.each_run(), machine))
    stored = runs_with_weights(plan, reusable.runs, services.database)
    experiment = Experiment.from_runs(plan, "stopped", stored, machine)
    return EntryStatus(
        entry=entry,
        state="running",
        experiment=experiment,
        reusable=reusable,
        comparable_runs=comparable_runs,
        machine=machine,
    )


def _limits(max_s: float | None) -> IdleLimits:
    return IdleLimits() if max_s is None else IdleLimits(wait_s=max_s)
