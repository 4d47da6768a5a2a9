"""An experiment going on: run after run of its plan, within its time, until all are made."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.records import RunRow, StoredRun
from app.runs.schedule import SETTLED, Plan, done, expected_s, is_settled, left, of_variant
from workloads.catalog import Machine, check
from workloads.protocol import RunSpec

State = Literal["complete", "settled", "stopped", "out of budget", "failed"]
"""How far it came.

`settled` is where every speed-up is known as narrowly as was asked, `complete` where every repeat was made; `failed`
where every run was made and some gave no result: they are made again the next time.
"""

FINISHED: tuple[State, ...] = ("complete", "settled")
"""States in which nothing is left to run."""

RunOne = Callable[[RunSpec, int, int], StoredRun]
"""Makes one run and gives it back as it is stored; it is told its place among how many, for its progress."""

Wait = Callable[[RunSpec, Callable[[], bool]], None]
"""Waits until a run of a variant would be fair, while the other says that it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment as far as it is: `done` runs of `planned` have a result, `runs` are all of them and the others.

    `next_s` is how long the next run is expected to take; None where none is left.
    """

    plan: Plan
    state: State
    runs: tuple[StoredRun, ...]
    planned: int
    done: int
    next_s: float | None = None

    @classmethod
    def of(cls, plan: Plan, state: State, runs: Sequence[StoredRun], machine: Machine | None = None) -> "Experiment":
        """The experiment with these runs; without a machine nothing is known to be refused before it is tried."""
        rows = [run.row for run in runs]
        rest = left(plan, rows, machine)
        made = done(plan, rows)
        ended: State = "settled" if is_settled(plan, rows) else "complete"
        return cls(
            plan=plan,
            state=state if rest else ended,
            runs=tuple(runs),
            planned=made + len(rest),
            done=made,
            next_s=expected_s(rest[0], rows) if rest else None,
        )


class ExperimentSession:
    """Makes what is left of a plan after the runs `stored`. `run` blocks its thread; `stop` may come from any other.

    With `budget_s`, no run is started that is not expected to end within so many seconds of `run`'s beginning.
    `wait` is called before each run that this machine can make. A run of which `counts` says no is made once more.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Sequence[StoredRun],
        machine: Machine,
        run_one: RunOne,
        budget_s: float | None = None,
        *,
        wait: Wait = lambda *_: None,
        counts: Callable[[StoredRun], bool] = lambda _: True,
    ) -> None:
        self._plan = plan
        self._runs = list(stored)
        self._machine = machine
        self._run_one = run_one
        self._budget_s = budget_s
        self._wait = wait
        self._counts = counts
        self._stopped = False
        self._began_s = time.monotonic()

    def may_go_on(self) -> bool:
        """Whether it was not told to stop, and its time is not spent."""
        in_time = self._budget_s is None or time.monotonic() - self._began_s < self._budget_s
        return in_time and not self._stopped

    def stop(self) -> None:
        """Starts no further run; returns at once."""
        self._stopped = True

    def run(self) -> Experiment:
        """Makes the runs. Raises `UserError` where one cannot be stored."""
        return Experiment.of(self._plan, self._make(), self._runs, self._machine)

    def _make(self) -> State:
        self._began_s = time.monotonic()
        to_make = left(self._plan, self._rows(), self._machine)
        before = done(self._plan, self._rows())
        for place, spec in enumerate(to_make, before + 1):
            if self._needs_no_more(spec):
                continue
            if (ended := self._make_turn(spec, place, before + len(to_make))) is not None:
                return ended
        return "failed"

    def _make_turn(self, spec: RunSpec, place: int, planned: int) -> State | None:
        """Makes a run, and once more where it does not count; why none is made after it, None where one may be."""
        while (ended := self._ended(spec) or self._ended_waiting(spec)) is None:
            made = self._run_one(spec, place, planned)
            counts = self._counts(made)
            if counts:
                self._runs.append(made)
            if made.row.outcome is not None and made.row.outcome.name == "stopped":
                return "stopped"
            if counts:
                return None
        return ended

    def _ended(self, spec: RunSpec) -> State | None:
        """Why this run is not begun; None where it may be."""
        if self._stopped:
            return "stopped"
        if self._budget_s is not None and self._too_long(spec, time.monotonic() - self._began_s, self._budget_s):
            return "out of budget"
        return None

    def _ended_waiting(self, spec: RunSpec) -> State | None:
        """The same, once the machine was waited for."""
        if check(spec, self._machine):
            return None
        self._wait(spec, self.may_go_on)
        return self._ended(spec)

    def _rows(self) -> list[RunRow]:
        return [run.row for run in self._runs]

    def _needs_no_more(self, spec: RunSpec) -> bool:
        """Whether a run has answered for this variant, or all variants together are known well enough."""
        outcomes = (row.outcome for row in of_variant(spec, self._rows()))
        if any(outcome is not None and outcome.name in SETTLED for outcome in outcomes):
            return True
        return spec in self._plan.variants and is_settled(self._plan, self._rows())

    def _too_long(self, spec: RunSpec, spent_s: float, budget_s: float) -> bool:
        return spent_s + expected_s(spec, self._rows()) > budget_s
