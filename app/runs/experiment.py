"""An experiment going on: run after run of its plan, within its time, until all are made."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from app.analysis.comparability import cards_of
from app.queries import ExperimentState
from app.records import RunRow, StoredRun
from app.runs.cards import Spread
from app.runs.leases import Lease
from app.runs.schedule import (
    SETTLED,
    Plan,
    beyond,
    done,
    expected_s,
    given_up,
    is_given_up,
    is_settled,
    left,
    of_variant,
    room_of,
    rounds_left,
)
from workloads.catalog import Machine
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of an experiment: the `place`-th of the `planned`, on devices lent to it, and what is known before it."""

    spec: RunSpec
    place: int
    planned: int
    lease: Lease
    facts: Mapping[str, str] = field(default_factory=dict)


RunOne = Callable[[Turn], StoredRun]
"""Makes one run and gives it back as it is stored; called on a thread of its own, several at once where asked for."""

Lend = Callable[[RunSpec, Sequence[str], Callable[[float], bool]], Lease | None]
"""Leases what a variant needs of these devices, the first of those free, once they are: nothing where it is refused
anyway; None where the last gives up."""

Wait = Callable[[Turn, Callable[[], bool]], Mapping[str, str]]
"""Waits until a run would be fair, while the other says that it may; facts on how that went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment as far as it is: `done` runs of `planned` have a result, `runs` are all of them and the others.

    `next_s` is how long the next run is expected to take; None where none is left. `budget_s` is what one sitting may
    take, None where that is not limited.
    """

    plan: Plan
    state: ExperimentState
    runs: tuple[StoredRun, ...]
    planned: int
    done: int
    next_s: float | None = None
    budget_s: float | None = None

    @property
    def measured(self) -> bool:
        """Whether any of its runs completed; refused ones and those without enough memory have a result too."""
        return any(run.row.completed for run in self.runs)

    @property
    def beyond(self) -> int:
        """How many runs have a result beside those planned: more repeats are stored than are asked for now."""
        return beyond(self.plan, [run.row for run in self.runs])

    def given_up_words(self) -> str:
        """That no more runs were made of variants that failed twice; "" where all had their turns."""
        rows = [run.row for run in self.runs]
        count = sum(len(of_variant(spec, rows)) < self.plan.repeats for spec in given_up(self.plan, rows))
        if not count:
            return ""
        variants, its = ("1 variant was", "its runs") if count == 1 else (f"{count} variants were", "the runs of each")
        return f"{variants} given up for now: two of {its} in a row failed for the same reason."

    @classmethod
    def of(
        cls, plan: Plan, state: ExperimentState, runs: Sequence[StoredRun], machine: Machine | None = None
    ) -> "Experiment":
        """The experiment with these runs; without a machine nothing is known to be refused before it is tried."""
        rows = [run.row for run in runs]
        rest = left(plan, rows, machine)
        made = done(plan, rows)
        ended: ExperimentState = "settled" if is_settled(plan, rows) else "complete"
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
    `wait` is called before each run that this machine can make, its devices leased. A run of which `counts` says no is
    made once more. A variant of which two runs in a row failed for one reason gets no third. With `parallel`, so many
    runs at most go on at once, each on GPUs of its own, begun round by round; the one of a round that has least been on
    a free GPU goes on there.
    """

    def __init__(
        self,
        plan: Plan,
        stored: Sequence[StoredRun],
        machine: Machine,
        run_one: RunOne,
        budget_s: float | None = None,
        *,
        lend: Lend,
        wait: Wait = lambda *_: {},
        counts: Callable[[StoredRun], bool] = lambda _: True,
        parallel: int = 1,
    ) -> None:
        self._plan = plan
        self._runs = list(stored)
        self._machine = machine
        self._run_one = run_one
        self._budget_s = budget_s
        self._lend = lend
        self._wait = wait
        self._counts = counts
        self._room = room_of(plan, machine, parallel)
        self._spread = Spread(len(plan.variants), machine)
        for run in stored:
            self._spread.add(run.row.spec, cards_of(run))
        self._stopped = False
        self._judging = threading.Lock()
        self._going: dict[Future[ExperimentState | None], Turn] = {}
        self._end: ExperimentState | None = None
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
        state = self._make()
        return replace(Experiment.of(self._plan, state, self._runs, self._machine), budget_s=self._budget_s)

    def _make(self) -> ExperimentState:
        self._began_s = time.monotonic()
        rounds = rounds_left(self._plan, self._rows(), self._machine)
        before, to_make = done(self._plan, self._rows()), sum(map(len, rounds))
        # A worker dies with the thread that started it: these last until every run has ended.
        with ThreadPoolExecutor(self._room.parallel, thread_name_prefix="experiment") as threads:
            # One run is taken out of its round at a time, as often as that had runs.
            for place, waiting in enumerate((each for each in rounds for _ in tuple(each)), before + 1):
                turn = self._next_turn(waiting, place, before + to_make)
                if self._end is not None:
                    break
                if turn is not None:
                    self._spread.add(turn.spec, turn.lease.devices)
                    self._going[threads.submit(self._make_turn, turn)] = turn
            while self._going:
                self._let_one_end()
        return self._end or "failed"

    def _next_turn(self, waiting: list[RunSpec], place: int, planned: int) -> Turn | None:
        """The turn of one of a round's runs, once it may begin; None where it is not needed or the experiment ends."""
        while not self._room.takes(waiting[0], self._going_specs()):
            self._let_one_end()
        waiting.remove(spec := self._first_of(waiting))
        if self._end is not None or self._needs_no_more(spec):
            return None
        self._end = self._ended(spec)
        if self._end is not None:
            return None
        lease = self._lend(spec, self._spread.best_first(spec), lambda seconds: self._gives_up(spec, seconds))
        if lease is None:
            self._end = self._end or self._ended(spec)
            return None
        return Turn(spec=spec, place=place, planned=planned, lease=lease)

    def _first_of(self, waiting: Sequence[RunSpec]) -> RunSpec:
        """The run of a round that begins: its first, or beside others the one that a free card lacks most."""
        if not self._going:
            return waiting[0]
        gpus, going = waiting[0].variant["gpus"], self._going_specs()
        like = [spec for spec in waiting if spec.variant["gpus"] == gpus and self._room.takes(spec, going)]
        return self._spread.first(like, {device for turn in self._going.values() for device in turn.lease.devices})

    def _going_specs(self) -> list[RunSpec]:
        return [turn.spec for turn in self._going.values()]

    def _let_one_end(self, timeout_s: float | None = None) -> None:
        ended, _ = wait(self._going, timeout_s, FIRST_COMPLETED)
        for future in ended:
            del self._going[future]
            self._end = future.result() or self._end

    def _gives_up(self, spec: RunSpec, seconds: float) -> bool:
        """Sleeps so long while a run waits for its devices; whether to wait no longer."""
        if self._going:
            self._let_one_end(seconds)
        else:
            time.sleep(seconds)
        self._end = self._end or self._ended(spec)
        return self._end is not None or self._needs_no_more(spec)

    def _make_turn(self, turn: Turn) -> ExperimentState | None:
        """Makes a run, and once more where it does not count; why none is made after it, None where one may be."""
        try:
            while isinstance(ready := self._waited(turn), Turn):
                made = self._run_one(ready)
                counts = self._keeps(made)
                if made.row.outcome is not None and made.row.outcome.name == "stopped":
                    return "stopped"
                if counts:
                    return None
            return ready
        finally:
            turn.lease.release()

    def _waited(self, turn: Turn) -> Turn | ExperimentState:
        """The turn once the machine was waited for, or why its run is not begun."""
        if (ended := self._ended(turn.spec)) is not None or not turn.lease.devices:
            return ended or turn
        facts = self._wait(turn, self.may_go_on)
        return self._ended(turn.spec) or replace(turn, facts=facts)

    def _keeps(self, made: StoredRun) -> bool:
        with self._judging:
            if counts := self._counts(made):
                self._runs.append(made)
            return counts

    def _ended(self, spec: RunSpec) -> ExperimentState | None:
        """Why this run is not begun; None where it may be."""
        if self._stopped:
            return "stopped"
        if self._budget_s is not None and self._too_long(spec, time.monotonic() - self._began_s, self._budget_s):
            return "out of budget"
        return None

    def _rows(self) -> list[RunRow]:
        return [run.row for run in self._runs]

    def _needs_no_more(self, spec: RunSpec) -> bool:
        """Whether a run has answered for this variant, it is given up, or the others are known well enough."""
        rows = self._rows()
        own = of_variant(spec, rows)
        if is_given_up(own) or any(row.outcome is not None and row.outcome.name in SETTLED for row in own):
            return True
        if self._plan.until_pct is None or spec not in self._plan.variants:
            return False
        lost = given_up(self._plan, rows)
        others = tuple(variant for variant in self._plan.variants if variant not in lost)
        return is_settled(replace(self._plan, variants=others), rows)

    def _too_long(self, spec: RunSpec, spent_s: float, budget_s: float) -> bool:
        return spent_s + expected_s(spec, self._rows()) > budget_s
