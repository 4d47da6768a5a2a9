"""Executes an experiment's plan run by run within its time budget, balancing variants over the GPUs."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Protocol

from msgspec import structs

from app.plan import Plan
from app.queries import ExperimentState
from app.records import RunHeader, RunRow
from app.runs.experiment.concurrency import DeviceBalancer, plan_concurrency
from app.runs.experiment.estimates import expected_s
from app.runs.experiment.schedule import (
    FINAL_OUTCOMES,
    count_done,
    count_surplus,
    given_up_variants,
    is_given_up,
    is_precision_reached,
    lost_runs,
    remaining_rounds,
    remaining_runs,
    runs_of_variant,
)
from app.runs.leases import Lease
from workloads.catalog import Machine
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of an experiment, before it begins.

    Attributes:
        spec: What runs.
        position: Its position among the runs of the experiment, from 1.
        total: The number of these.
        lease: Its devices.
        environment: What is known of its environment before it begins.
    """

    spec: RunSpec
    position: int
    total: int
    lease: Lease
    environment: Mapping[str, str] = field(default_factory=dict)


class RunExecutor(Protocol):
    """Does what an `ExperimentSession` decides.

    Thread: `prepare` and `lease` on the session's thread; the others on a thread per run, several at once with
    `parallel`.
    """

    def prepare(self, may_continue: Callable[[], bool]) -> None:
        """Do what comes before the first run, if any is left to make, while `may_continue`."""

    def lease(self, spec: RunSpec, devices: Sequence[str], sleep_or_give_up: Callable[[float], bool]) -> Lease | None:
        """Lease what a run needs, and wait until that is free.

        Args:
            spec: The run.
            devices: The devices it may use, the preferred one first.
            sleep_or_give_up: Sleeps so many seconds; returns whether to wait no longer.

        Returns:
            The lease, empty for a run that this machine refuses anyway; None if the wait was given up.
        """

    def wait_until_idle(self, planned_run: PlannedRun, may_continue: Callable[[], bool]) -> Mapping[str, str]:
        """Wait for idle devices while `may_continue`; return how that went, as part of the run's environment."""

    def run_once(self, planned_run: PlannedRun) -> RunHeader:
        """Make one run and return it as stored."""

    def accept(self, run: RunHeader) -> bool:
        """Return whether a run counts; if not it is made once more. Never called by two threads at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment so far.

    Attributes:
        plan: What it runs.
        state: How far it came.
        runs: All its runs that count, with or without a result.
        planned: Runs in all.
        done: Those of them that have a result.
        next_s: Expected seconds of the next run, None if none is left.
    """

    plan: Plan
    state: ExperimentState
    runs: tuple[RunHeader, ...]
    planned: int
    done: int
    next_s: float | None = None

    @property
    def measured(self) -> bool:
        """Return whether any run completed: refused runs, and runs out of memory, are results too."""
        return any(run.row.completed for run in self.runs)

    @property
    def surplus_runs(self) -> int:
        """Return how many runs have a result beyond those planned."""
        return count_surplus(self.plan, [run.row for run in self.runs])

    def describe_given_up(self) -> str:
        """Return a sentence on variants that are not repeated because they failed twice; "" if there are none."""
        rows = [run.row for run in self.runs]
        count = sum(len(runs_of_variant(spec, rows)) < self.plan.repeats for spec in given_up_variants(self.plan, rows))
        if not count:
            return ""
        variants, whose = ("1 variant was", "its") if count == 1 else (f"{count} variants were", "their")
        return f"{variants} given up for now: {whose} last runs failed, one after the other."

    @classmethod
    def from_runs(
        cls, plan: Plan, state: ExperimentState, runs: Sequence[RunHeader], machine: Machine | None = None
    ) -> "Experiment":
        """Return the experiment with these runs.

        Args:
            plan: The plan.
            state: Its state if any run is left.
            runs: The runs that count.
            machine: Variants that it refuses run only once; None refuses none.
        """
        rows = [run.row for run in runs]
        rest = remaining_runs(plan, rows, machine)
        made = count_done(plan, rows)
        ended: ExperimentState = "settled" if is_precision_reached(plan, rows) else "complete"
        return cls(
            plan=plan,
            state=state if rest else ended,
            runs=tuple(runs),
            planned=made + len(rest),
            done=made,
            next_s=expected_s(rest[0], rows) if rest else None,
        )


class ExperimentSession:
    """Makes the remaining runs of a plan.

    No run starts that is not expected to end within the plan's `budget_s`, counted from the beginning of `run`. A
    variant of which two runs in a row failed for the same reason gets no third. Concurrent runs, each on its own GPUs,
    begin round by round; of a round, the run goes first whose variant lacks the free GPUs most.

    Thread: `run` blocks its thread; `stop` and `may_continue` any. The executor is called as it says.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Sequence[RunHeader],
        machine: Machine,
        executor: RunExecutor,
        balanced_unit: Callable[[str], str] = str,
    ) -> None:
        """Prepare a session.

        Args:
            plan: What is run.
            stored: The runs that count already.
            machine: What the runs are made on.
            executor: Does what is decided.
            balanced_unit: Over what the runs of each variant are spread, by device.
        """
        self._plan = plan
        self._runs = list(stored)
        self._machine = machine
        self._executor = executor
        self._concurrency = plan_concurrency(plan, machine)
        self._balancer = DeviceBalancer(len(plan.variants), machine, balanced_unit)
        for run in stored:
            self._balancer.add(run.row.spec, run.gpu_uuids)
        self._stopped = False  # set by any thread, read before each run and each wait
        # `_runs` grows on the threads of the runs, one at a time by this lock; the session's thread reads copies.
        self._accept_lock = threading.Lock()
        # The session's thread alone uses the next two: what a run's thread has to say is the result of its future.
        self._running: dict[Future[ExperimentState | None], PlannedRun] = {}
        self._end_state: ExperimentState | None = None
        self._began_s = time.monotonic()

    def may_continue(self) -> bool:
        """Return whether it was not stopped and has time left."""
        in_time = self._plan.budget_s is None or time.monotonic() - self._began_s < self._plan.budget_s
        return in_time and not self._stopped

    def stop(self) -> None:
        """Start no further run; returns at once."""
        self._stopped = True

    def run(self) -> Experiment:
        """Make the runs and return the experiment.

        Raises:
            UserError: A run cannot be stored.
        """
        state = self._execute()
        return Experiment.from_runs(self._plan, state, self._runs, self._machine)

    def _execute(self) -> ExperimentState:
        self._began_s = time.monotonic()
        rounds = remaining_rounds(self._plan, self._rows(), self._machine)
        if rounds:
            self._executor.prepare(self.may_continue)
        # A worker dies with the thread that started it: these last until every run has ended.
        with ThreadPoolExecutor(self._concurrency.parallel, thread_name_prefix="experiment") as threads:
            while rounds and self._end_state is None:
                self._make(rounds, threads)
                rounds = [[spec] for spec in lost_runs(self._plan, self._rows(), self._machine)]
        return self._end_state or "failed"

    def _make(self, rounds: Sequence[list[RunSpec]], threads: ThreadPoolExecutor) -> None:
        """Make the runs of these rounds, which are taken out of them, and wait for their ends."""
        before, to_make = count_done(self._plan, self._rows()), sum(map(len, rounds))
        # One run is taken out of its round at a time, as often as that had runs.
        for position, pending in enumerate((each for each in rounds for _ in tuple(each)), before + 1):
            planned_run = self._next_run(pending, position, before + to_make)
            if self._end_state is not None:
                break
            if planned_run is not None:
                self._balancer.add(planned_run.spec, planned_run.lease.devices)
                self._running[threads.submit(self._execute_run, planned_run)] = planned_run
        while self._running:
            self._await_any()

    def _next_run(self, pending: list[RunSpec], position: int, total: int) -> PlannedRun | None:
        """Take a run from a round, and return it when it may begin; None if it is not needed or none may."""
        while not self._concurrency.admits(pending[0], self._running_specs()):
            self._await_any()
        pending.remove(spec := self._choose_next(pending))
        if self._end_state is not None or self._needs_no_run(spec):
            return None
        self._end_state = self._end_reason(spec)
        if self._end_state is not None:
            return None
        lease = self._executor.lease(
            spec, self._balancer.ranked_devices(spec), lambda seconds: self._sleep_or_give_up(spec, seconds)
        )
        if lease is None:
            self._end_state = self._end_state or self._end_reason(spec)
            return None
        return PlannedRun(spec=spec, position=position, total=total, lease=lease)

    def _choose_next(self, pending: Sequence[RunSpec]) -> RunSpec:
        """Return the next run of a round: the first, or next to others the one whose variant lacks a free GPU most."""
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
        """Sleep while a run waits for its devices; return whether to wait no longer."""
        if self._running:
            self._await_any(seconds)
        else:
            time.sleep(seconds)
        self._end_state = self._end_state or self._end_reason(spec)
        return self._end_state is not None or self._needs_no_run(spec)

    def _execute_run(self, planned_run: PlannedRun) -> ExperimentState | None:
        """Make a run, once more if it does not count; return why no other run starts after it, None if one may."""
        try:
            while isinstance(ready := self._wait_until_idle(planned_run), PlannedRun):
                run = self._executor.run_once(ready)
                accepted = self._record(run)
                if run.row.outcome is not None and run.row.outcome.name == "stopped":
                    return "stopped"
                if accepted:
                    return None
            return ready
        finally:
            planned_run.lease.release()

    def _wait_until_idle(self, planned_run: PlannedRun) -> PlannedRun | ExperimentState:
        """Return the run when the machine is idle, or why it does not begin."""
        if (end_reason := self._end_reason(planned_run.spec)) is not None or not planned_run.lease.devices:
            return end_reason or planned_run
        environment = self._executor.wait_until_idle(planned_run, self.may_continue)
        return self._end_reason(planned_run.spec) or replace(planned_run, environment=environment)

    def _record(self, run: RunHeader) -> bool:
        with self._accept_lock:
            if accepted := self._executor.accept(run):
                self._runs.append(run)
            return accepted

    def _end_reason(self, spec: RunSpec) -> ExperimentState | None:
        """Return why this run does not begin, None if it may."""
        if self._stopped:
            return "stopped"
        spent_s, budget_s = time.monotonic() - self._began_s, self._plan.budget_s
        if budget_s is not None and spent_s + expected_s(spec, self._rows()) > budget_s:
            return "out of budget"
        return None

    def _rows(self) -> list[RunRow]:
        return [run.row for run in self._runs]

    def _needs_no_run(self, spec: RunSpec) -> bool:
        """Return whether a variant has a final outcome, is given up, or all others are known precisely enough."""
        rows = self._rows()
        made = runs_of_variant(spec, rows)
        if is_given_up(made) or any(row.outcome is not None and row.outcome.name in FINAL_OUTCOMES for row in made):
            return True
        if self._plan.until_pct is None or spec not in self._plan.variants:
            return False
        given_up_specs = given_up_variants(self._plan, rows)
        others = tuple(variant for variant in self._plan.variants if variant not in given_up_specs)
        return is_precision_reached(structs.replace(self._plan, variants=others), rows)
