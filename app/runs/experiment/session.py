"""Runs one experiment of the queue: its remaining runs, several in parallel, then its weight-transfer trials."""

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from msgspec import structs

from app.analysis.comparability import idle_wait_blockers
from app.errors import UserError
from app.queries import INTERRUPTED_STATES, EntryState, ExperimentProgress, ExperimentState, QueueEntry
from app.runs.experiment.equality import ExperimentEquality
from app.runs.experiment.estimates import Experiment, expected_s, time_left
from app.runs.experiment.idle_wait import IdleLimits, IdleWait, WaitStatus
from app.runs.experiment.queue import ExperimentReading, entry_plan, read_experiment
from app.runs.experiment.reuse import ThrottleFilter, runs_of_entry
from app.runs.experiment.schedule import (
    FINAL_OUTCOMES,
    DeviceBalancer,
    count_done,
    given_up_variants,
    is_given_up,
    is_precision_reached,
    is_result,
    lost_runs,
    plan_concurrency,
    remaining_rounds,
    results_by_variant,
    runs_of_variant,
)
from app.runs.leases import Lease
from app.runs.session import RunServices, RunSession
from app.runs.sinks import Sink
from app.runs.weight_transfer import pending_trials, run_pending_trials
from app.storage.store import Store
from app.values import units
from app.values.environment_keys import (
    CONCURRENT_GPUS_KEY,
    IDLE_WAIT_S_KEY,
    OTHERS_UNKNOWN_KEY,
    PLANNED_KEY,
    environment_number,
)
from app.values.events import RunEvent, RunStarted
from app.values.records import RunHeader, RunRow
from workloads.catalog import Machine
from workloads.protocol import RunSpec

_log = logging.getLogger("variantscope.queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of an experiment, before it begins.

    Attributes:
        position: Its position among the runs of the experiment, from 1.
        total: The number of the experiment's runs.
        environment: Known facts about its environment before it begins.
    """

    spec: RunSpec
    position: int
    total: int
    lease: Lease
    environment: Mapping[str, str] = field(default_factory=dict)


class QueueListener:
    """Follows the entries of a queue while they run; each method does nothing unless overridden.

    Thread: entries on the thread of `QueueRunner.run`; runs on a thread each, concurrently with `parallel`.
    """

    def entry_started(self, reading: ExperimentReading) -> None:
        """An entry begins or resumes."""

    def progressed(self, progress: ExperimentProgress) -> None:
        """The current entry has progressed, waits or has ended; one call at a time."""

    def sinks(self, _planned_run: PlannedRun) -> Sequence[Sink]:
        return ()

    def may_wait(self, _planned_run: PlannedRun, _status: WaitStatus | None) -> bool:
        """A run waits for an idle machine (None: no longer); return whether to continue waiting.

        Called several times per second.
        """
        return True

    def message(self, sentence: str) -> None:
        """Report anything else that the user should know."""

    def run_rejected(self, run: RunHeader) -> None:
        """A run that does not count has ended; it is repeated."""

    def entry_ended(self, entry: QueueEntry, state: EntryState, experiment: Experiment) -> None:
        """No further run of an entry starts now; `state` is the entry's, or how it left the queue."""


class _LiveProgress:
    """An experiment's progress while it runs; reports every change to the listener, one at a time. Thread: any."""

    def __init__(self, reading: ExperimentReading, listener: QueueListener, experiment: int | None) -> None:
        self._plan = reading.experiment.plan
        self._rows = [run.row for run in reading.experiment.runs]
        self._results = results_by_variant(self._rows)
        self._alike = list(reading.alike)
        self._machine = reading.machine
        self._listener = listener
        self._wait_messages: dict[int, str] = {}
        self._estimated_rows = len(self._rows)
        self._next_estimate_s = 0.0
        self._progress = replace(reading.progress, state="running", experiment=experiment)
        # Guards all changing state, and keeps the reports in order.
        self._lock = threading.Lock()
        listener.progressed(self._progress)

    def start_run(self, planned_run: PlannedRun) -> None:
        with self._changing() as now:
            self._progress = replace(
                now,
                position=planned_run.position,
                specs=(*now.specs, planned_run.spec),
                message="" if now.waits_for_device else now.message,
                waits_for_device=False,
            )
            self._estimate_time_left()

    def wait(self, planned_run: PlannedRun, status: WaitStatus | None) -> None:
        with self._changing() as now:
            self._wait_messages.pop(planned_run.position, None)
            if status is not None:
                limit = units.with_unit(status.limit_s, "s")
                self._wait_messages[planned_run.position] = f"{status.reason} ({limit} at most)"
            self._progress = replace(now, waiting_for="; ".join(self._wait_messages.values()))

    def end_run(self, run: RunRow, *, accepted: bool, experiment: int | None) -> None:
        with self._changing() as now:
            if accepted:
                self._rows.append(run)
                self._alike.append(run)
                if is_result(run):
                    self._results.add(run)
            specs = list(now.specs)
            specs.remove(run.spec)
            done = count_done(self._plan, self._results)
            self._progress = replace(now, specs=tuple(specs), done=done, experiment=experiment)
            self._estimate_time_left()

    def _estimate_time_left(self) -> None:
        """Estimate again when more runs count, at most a twentieth of the time: a thousand runs take a while."""
        began_s, is_last = time.monotonic(), self._progress.done == self._progress.planned
        if len(self._rows) > self._estimated_rows and (is_last or began_s >= self._next_estimate_s):
            self._estimated_rows = len(self._rows)
            left, timing_runs = time_left(self._plan, self._rows, self._alike, self._machine)
            self._progress = replace(self._progress, left=left, timing_runs=timing_runs)
            now_s = time.monotonic()
            self._next_estimate_s = now_s + 20 * (now_s - began_s)

    def say(self, sentence: str) -> None:
        with self._changing() as now:
            self._progress = replace(now, message=sentence, waits_for_device=False)
        self._listener.message(sentence)

    def wait_for_device(self, sentence: str) -> None:
        with self._changing() as now:
            self._progress = replace(now, message=sentence, waits_for_device=True)
        self._listener.message(sentence)

    def end(self, state: EntryState, done: int, experiment: int | None) -> None:
        with self._changing() as now:
            self._progress = replace(now, state=state, specs=(), waiting_for="", done=done, experiment=experiment)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[ExperimentProgress]:
        with self._lock:
            yield (before := self._progress)
            if self._progress != before:
                self._listener.progressed(self._progress)


@dataclass(slots=True, eq=False)
class _ActiveRun:
    session: RunSession
    devices: tuple[str, ...]
    other_devices: set[str] = field(default_factory=set)


class ExperimentSession:
    """Executes the remaining runs of one queue entry, then its weight-transfer trials.

    A run starts only if it is expected to end within the plan's `budget_s`, counted from the start of `run`. After two
    consecutive failures for the same reason a variant gets no third run. Concurrent runs, each on its own GPUs, start
    round by round; within a round, the variant that has run least on the free GPUs goes first.

    Thread: `run` blocks its thread, once; `stop`, `skip_wait` and `may_continue` any. `wait_until_idle`, `run_once` and
    `accept` are called on a thread per run, `accept` by one at a time.
    """

    def __init__(
        self, entry: QueueEntry, services: RunServices, listener: QueueListener, is_next: Callable[[], bool]
    ) -> None:
        """Prepare a session of an entry that this process owns.

        `is_next` is called before each run; it returns whether this entry and plan are still next.
        """
        self.entry = entry
        self._plan = plan = entry_plan(entry)
        self._services = services
        self._listener = listener
        self._is_next = is_next
        self._throttle_filter = ThrottleFilter(plan.max_throttled_pct)
        # Read when `run` begins.
        self._machine = Machine()
        self._concurrency = plan_concurrency(plan, self._machine)
        self._balancer = DeviceBalancer(len(plan.variants), self._machine)
        self._progress: _LiveProgress | None = None
        self._equality: ExperimentEquality | None = None
        self._idle_wait: IdleWait | None = None
        # Runs' threads append to `_runs` one at a time under this lock; the thread of `run` reads copies.
        self._accept_lock = threading.Lock()
        self._runs: list[RunHeader] = []
        # Set by any thread, read before each run and each wait.
        self._is_ending = False
        self._runs_anyway = False
        # Reentrant: a signal's handler calls `stop` on a thread that may hold the lock.
        self._active_lock = threading.RLock()
        self._active: list[_ActiveRun] = []
        self._is_stopped = False
        # Only the thread of `run` uses the next two: a run's thread returns its result through its future.
        self._running: dict[Future[ExperimentState | None], PlannedRun] = {}
        self._end_state: ExperimentState | None = None
        self._began_s = time.monotonic()
        self._unknown_others: str | None = None
        self.is_over = False
        """Whether no run or trial remains."""

    def may_continue(self) -> bool:
        """Return whether the session was not stopped and has time left."""
        in_time = self._plan.budget_s is None or time.monotonic() - self._began_s < self._plan.budget_s
        return in_time and not self._is_ending

    def stop(self) -> None:
        """Start no further run, and stop the current ones; returns immediately."""
        self._is_ending = True
        with self._active_lock:
            self._is_stopped = True
            for active in self._active:
                active.session.stop()

    def skip_wait(self) -> None:
        """Start every run that waits for an idle machine or for devices in use; returns immediately."""
        self._runs_anyway = True
        if (idle_wait := self._idle_wait) is not None:
            idle_wait.skip()
        with self._active_lock:
            for active in self._active:
                active.session.run_anyway()

    def run(self) -> Experiment:
        """Execute the runs and the trials, and return their results.

        Raises:
            UserError: A run cannot be stored, or the plan names what is not allowed to start.
        """
        reading, host = self.read(), self._services.host
        self._machine = machine = reading.machine
        self._runs = list(reading.experiment.runs)
        self._concurrency = plan_concurrency(self._plan, machine)
        self._balancer = DeviceBalancer(len(self._plan.variants), machine)
        for run in self._runs:
            self._balancer.add(run.row.spec, run.gpu_uuids)
        self._listener.entry_started(reading)
        self._progress = _LiveProgress(reading, self._listener, self.entry.experiment)
        self._equality = ExperimentEquality(reading.experiment, self._services, self._progress.say)
        with contextlib.closing(IdleWait(host, IdleLimits.of_plan(self._plan.max_idle_wait_s))) as self._idle_wait:
            state = self._make_runs()
        experiment = Experiment.from_runs(self._plan, state, self._runs, machine)
        if sentence := experiment.describe_given_up():
            self._progress.say(sentence)
        is_unfinished = experiment.state in INTERRUPTED_STATES
        if not is_unfinished and self._plan.weight_transfers:
            experiment = self.try_weights(experiment)
            is_unfinished = bool(pending_trials(self._plan, experiment.runs)) and not self.may_continue()
        self.is_over = not is_unfinished
        return experiment

    def end(self, state: EntryState, experiment: Experiment) -> None:
        """Report to the listener the entry's state after `run`."""
        assert self._progress is not None, "it was run"
        self._progress.end(state, experiment.done, self.entry.experiment)
        self._listener.entry_ended(self.entry, state, experiment)

    def read(self) -> ExperimentReading:
        """Ask for missing grants, and return what is stored; runs that count now belong to the experiment.

        Runs that were not accepted earlier leave it: they say nothing about their variants.
        """
        services = self._services
        services.admit(self._plan.specs)
        inventory, environment = services.host.inventory(), services.host.environment()
        with Store.open(services.database) as store:
            reading = read_experiment(
                store,
                self._plan,
                inventory,
                self.entry,
                environment=environment,
                throttle_filter=self._throttle_filter,
            )
            self._add_runs(run.row.run for run in reading.experiment.runs)
            counted = {run.row.run for run in reading.reusable.runs}
            store.queue.remove_runs(self.entry.entry, sorted(runs_of_entry(store, self.entry) - counted))
        return reading

    def prepare(self) -> None:
        """Check before the first run that the variants compute the same, if requested."""
        assert self._equality is not None, "runs are made within `run`"
        self._equality.make(self.may_continue)

    def _make_runs(self) -> ExperimentState:
        self._began_s = time.monotonic()
        rounds = remaining_rounds(self._plan, self._rows(), self._machine)
        if rounds:
            self._services.host.launcher.expect(list(itertools.chain.from_iterable(rounds)))
            self.prepare()
        # A worker dies with the thread that started it, so these threads last until every run has ended.
        with ThreadPoolExecutor(self._concurrency.parallel, thread_name_prefix="experiment") as threads:
            while rounds and self._end_state is None:
                self._make_rounds(rounds, threads)
                rounds = [[spec] for spec in lost_runs(self._plan, self._rows(), self._machine)]
        self._services.host.launcher.expect([])
        return self._end_state or "failed"

    def _make_rounds(self, rounds: Sequence[list[RunSpec]], threads: ThreadPoolExecutor) -> None:
        before, to_make = count_done(self._plan, results_by_variant(self._rows())), sum(map(len, rounds))
        # Yields each round once per run in it, since one run is taken out at a time.
        for position, pending in enumerate((specs for specs in rounds for _ in tuple(specs)), before + 1):
            planned_run = self._next_run(pending, position, before + to_make)
            if self._end_state is not None:
                break
            if planned_run is not None:
                self._balancer.add(planned_run.spec, planned_run.lease.devices)
                self._running[threads.submit(self._execute_run, planned_run)] = planned_run
        while self._running:
            self._await_any()

    def _next_run(self, pending: list[RunSpec], position: int, total: int) -> PlannedRun | None:
        """Take a run from a round, and return it when it may start; None if it is not needed or none may start."""
        while not self._concurrency.admits(pending[0], self._running_specs()):
            self._await_any()
        pending.remove(spec := self._choose_next(pending))
        if self._end_state is not None or self._needs_no_run(spec):
            return None
        self._end_state = self._end_reason(spec)
        if self._end_state is not None:
            return None
        lease = self.lease(spec, self._balancer.ranked_devices(spec), lambda s: self._sleep_or_give_up(spec, s))
        if lease is None:
            self._end_state = self._end_state or self._end_reason(spec)
            return None
        return PlannedRun(spec=spec, position=position, total=total, lease=lease)

    def _choose_next(self, pending: Sequence[RunSpec]) -> RunSpec:
        """Return the next run of a round: the first, or with concurrent runs the one least run on the free GPUs."""
        if not self._running:
            return pending[0]
        gpus, running = pending[0].variant["gpus"], self._running_specs()
        candidates = [
            spec for spec in pending if spec.variant["gpus"] == gpus and self._concurrency.admits(spec, running)
        ]
        return self._balancer.choose(
            candidates, {device for turn in self._running.values() for device in turn.lease.devices}
        )

    def _running_specs(self) -> list[RunSpec]:
        return [turn.spec for turn in self._running.values()]

    def _await_any(self, timeout_s: float | None = None) -> None:
        ended, _ = wait(self._running, timeout_s, FIRST_COMPLETED)
        for future in ended:
            del self._running[future]
            self._end_state = future.result() or self._end_state

    def _sleep_or_give_up(self, spec: RunSpec, seconds: float) -> bool:
        """Sleep while a run waits for its devices; return whether to stop waiting."""
        if self._running:
            self._await_any(seconds)
        else:
            time.sleep(seconds)
        self._end_state = self._end_state or self._end_reason(spec)
        return self._end_state is not None or self._needs_no_run(spec)

    def lease(self, spec: RunSpec, devices: Sequence[str], sleep_or_give_up: Callable[[float], bool]) -> Lease | None:
        """Lease what a run needs, if it is still next in the queue, and wait until that is free.

        The preferred device is the first. `sleep_or_give_up` sleeps that many seconds; it returns whether to stop
        waiting.

        Returns:
            The lease, empty for a run that the host refuses anyway; None if the wait was given up.
        """
        assert self._progress is not None, "runs are made within `run`"
        if not self._is_next():
            _log.info("entry %d yields: another is next, or its plan has changed", self.entry.entry)
            self._is_ending = True
            return None
        host = self._services.host
        if host.refusal(spec) is not None:  # it is stored as refused; waiting for a lost GPU would be in vain
            return Lease()
        self._runs_anyway = False
        return host.lease_for_run(
            spec,
            notify=self._progress.wait_for_device,
            wait_for_stop=sleep_or_give_up,
            runs_anyway=lambda: self._runs_anyway,
            devices=devices,
        )

    def _execute_run(self, planned_run: PlannedRun) -> ExperimentState | None:
        """Execute a run, again if it does not count; return why no other run may start after it, else None."""
        assert self._progress is not None, "runs are made within `run`"
        try:
            while (end_reason := self._end_reason(planned_run.spec)) is None:
                waits_here = planned_run.lease.devices and self._services.host.remote_run is None
                environment = self.wait_until_idle(planned_run) if waits_here else {}
                if (end_reason := self._end_reason(planned_run.spec)) is not None:
                    return end_reason
                self._progress.start_run(planned_run)
                run = self.run_once(replace(planned_run, environment=environment))
                with self._accept_lock:
                    if accepted := self.accept(run):
                        self._runs.append(run)
                    self._progress.end_run(run.row, accepted=accepted, experiment=self.entry.experiment)
                if run.row.outcome is not None and run.row.outcome.name == "stopped":
                    return "stopped"
                if accepted:
                    return None
            return end_reason
        finally:
            planned_run.lease.release()

    def wait_until_idle(self, planned_run: PlannedRun) -> Mapping[str, str]:
        """Wait until the devices are idle or the user skips it; return the outcome for the run's environment."""
        progress = self._progress
        assert progress is not None, "runs are made within `run`"

        def may_wait(status: WaitStatus | None) -> bool:
            progress.wait(planned_run, status)
            return self._listener.may_wait(planned_run, status) and self.may_continue()

        assert self._idle_wait is not None, "runs are made within `run`"
        environment = self._idle_wait.wait(planned_run.lease.devices, may_wait)
        may_wait(None)
        _log.info("idle wait before run %d: %s", planned_run.position, ", ".join(environment.values()))
        if blockers := idle_wait_blockers(environment):
            limit = units.with_unit(environment_number(environment, IDLE_WAIT_S_KEY), "s")
            progress.say(f"The machine did not become idle within {limit} ({blockers}).")
        reason = environment.get(OTHERS_UNKNOWN_KEY)
        if reason is not None and reason != self._unknown_others:
            self._unknown_others = reason
            progress.say(f"Whether other processes use the GPU is unknown: nobody can list them ({reason}).")
        return environment

    def run_once(self, planned_run: PlannedRun) -> RunHeader:
        """Execute one run, part of the experiment from its start; return it as stored, with other GPUs in use."""
        assert self._equality is not None, "runs are made within `run`"
        host = self._services.host
        session = RunSession(
            planned_run.spec,
            self._services,
            (*self._listener.sinks(planned_run), _BeginningSink(planned_run.spec, self._add_runs, self._equality)),
            environment={**planned_run.environment, PLANNED_KEY: self._plan.extent},
            lease=planned_run.lease,
            # On this machine the experiment itself has waited.
            idle_wait_s=IdleLimits.of_plan(self._plan.max_idle_wait_s).wait_s if host.remote_run is not None else None,
        )
        with self._registered(_ActiveRun(session, planned_run.lease.devices)) as active:
            session.run()
        assert session.number is not None, "it was stored"
        with Store.open(self._services.database) as store:
            if others := active.other_devices:
                devices = self._services.host.inventory().devices
                names = [f"{device.name} ({device.device})" for device in devices if device.device in others]
                store.add_environment(session.number, {CONCURRENT_GPUS_KEY: ", ".join(names)})
            return store.load_header(session.number)

    @contextlib.contextmanager
    def _registered(self, active: _ActiveRun) -> Iterator[_ActiveRun]:
        """Register a run for `stop`, and record which GPUs other runs use meanwhile."""
        with self._active_lock:
            for concurrent in self._active:
                active.other_devices.update(concurrent.devices)
                concurrent.other_devices.update(active.devices)
            self._active.append(active)
            if self._is_stopped:
                active.session.stop()
        try:
            yield active
        finally:
            with self._active_lock:
                self._active.remove(active)

    def accept(self, run: RunHeader) -> bool:
        """Return whether a run counts; one that was throttled too long leaves the experiment and is repeated."""
        accepted = self._throttle_filter.accepts(run)
        if not accepted:
            _log.info("run %d does not count: it was throttled or suspended for too long", run.row.run)
            with Store.open(self._services.database) as store:
                store.queue.remove_runs(self.entry.entry, [run.row.run])
            self._listener.run_rejected(run)
        return accepted

    def _end_reason(self, spec: RunSpec) -> ExperimentState | None:
        """Return why this run does not start, else None."""
        if self._is_ending:
            return "stopped"
        spent_s, budget_s = time.monotonic() - self._began_s, self._plan.budget_s
        if budget_s is not None and spent_s + expected_s(spec, self._rows()) > budget_s:
            return "out of budget"
        return None

    def _rows(self) -> list[RunRow]:
        return [run.row for run in self._runs]

    def _needs_no_run(self, spec: RunSpec) -> bool:
        rows = self._rows()
        runs = runs_of_variant(spec, rows)
        if is_given_up(runs) or any(row.outcome is not None and row.outcome.name in FINAL_OUTCOMES for row in runs):
            return True
        if self._plan.until_pct is None or spec not in self._plan.variants:
            return False
        given_up_specs = given_up_variants(self._plan, rows)
        others = tuple(variant for variant in self._plan.variants if variant not in given_up_specs)
        return is_precision_reached(structs.replace(self._plan, variants=others), rows)

    def _add_runs(self, runs: Iterable[int]) -> None:
        # Several threads at once: the queue's transactions serve as the lock, and each returns the same number.
        with Store.open(self._services.database) as store:
            experiment = store.queue.add_runs(self.entry.entry, list(runs))
        self.entry = replace(self.entry, experiment=experiment)

    def try_weights(self, experiment: Experiment) -> Experiment:
        """Try the weights that the runs saved, and report which trials are still pending."""
        assert self._progress is not None, "it follows the runs"
        say = self._progress.say
        try:
            runs = run_pending_trials(self._plan, experiment.runs, self._services, say, self.may_continue)
        except UserError as error:
            say(str(error))
            return experiment
        if pending := pending_trials(self._plan, runs):
            say(f"Weights not tried yet in {', '.join(trial.implementation for trial in pending)}.")
        return replace(experiment, runs=tuple(runs))


@dataclass(frozen=True, slots=True)
class _BeginningSink:
    """Adds a run to the experiment when it begins, with the check of its variant.

    So a program that is killed later has nothing left to record.
    """

    spec: RunSpec
    add_runs: Callable[[Sequence[int]], None]
    equality: ExperimentEquality

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self.add_runs([event.run])
            self.equality.store(event.run, self.spec)
