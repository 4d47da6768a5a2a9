"""What an experiment consists of, in which order its runs are made, which are left, and how long one takes."""

import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from app.records import RunRow
from app.runs.early import Rounds
from app.runs.room import Room
from workloads.catalog import Machine, check, with_defaults
from workloads.protocol import RunSpec

SETTLED = ("out_of_memory", "refused")
"""Outcomes that a repeat would only repeat: once is enough."""
RESULTS = ("completed", *SETTLED)
"""Outcomes that answer something; a run that ended otherwise is made again."""

_FAILED = ("failed", "crashed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A run made once, after all others, whose saved weights are tried `into` implementations on so many `gpus`."""

    spec: RunSpec
    into: tuple[str, ...]
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment: its variants, the baseline first, and how often each runs.

    With `until_pct`, `repeats` is how often at most: fewer do once every speed-up is known to ± that many percent.
    `carried` are runs beside those compared. `notes` are sentences on what was changed to fit it to this machine.
    """

    name: str
    variants: tuple[RunSpec, ...]
    repeats: int
    until_pct: float | None = None
    carried: tuple[Carried, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        """Every variant that a run is made of, those compared first."""
        return (*self.variants, *(carried.spec for carried in self.carried))


def interleaved(variants: int, repeats: int) -> list[int]:
    """Indices of variants, each `repeats` times, forwards and backwards in turn (A B B A A B).

    Slow drift of the machine then falls on all variants alike instead of on the later ones.
    """
    rounds = (range(variants) if repeat % 2 == 0 else range(variants - 1, -1, -1) for repeat in range(repeats))
    return [index for one_round in rounds for index in one_round]


def counts_as(made: RunSpec) -> tuple[RunSpec, RunSpec]:
    """The variants that a run made so is one of: its own, with a default for what it does not name, and that anywhere.

    A variant that leaves its cards open is the same on whichever they were.
    """
    own = with_defaults(made)
    return own, RunSpec(workload=own.workload, variant={**own.variant, "devices": ""})


def of_variant(spec: RunSpec, runs: Sequence[RunRow]) -> list[RunRow]:
    """The runs of this variant."""
    wanted = with_defaults(spec)
    return [row for row in runs if wanted in counts_as(row.spec)]


class ByVariant:
    """Runs by the variants that each is one of; a variant's are found without going through all of them."""

    def __init__(self, runs: Sequence[RunRow]) -> None:
        self._runs: dict[Hashable, list[RunRow]] = {}
        for row in runs:
            for key in keys_counted(row.spec):
                self._runs.setdefault(key, []).append(row)

    def of(self, spec: RunSpec) -> list[RunRow]:
        """The runs of this variant, in the order given."""
        return self._runs.get(key_of(spec), [])


def key_of(spec: RunSpec) -> Hashable:
    """What a variant is found by, and no other."""
    return _key(with_defaults(spec))


def keys_counted(made: RunSpec) -> set[Hashable]:
    """Those of the variants that a run made so is one of."""
    return set(map(_key, counts_as(made)))


def _key(spec: RunSpec) -> Hashable:
    return spec.workload, frozenset(spec.variant.items())


def left(plan: Plan, runs: Sequence[RunRow], machine: Machine | None = None) -> list[RunSpec]:
    """The runs still to be made, in their order, after `runs`; a variant that `machine` refuses runs once."""
    return [spec for one_round in rounds_left(plan, runs, machine) for spec in one_round]


def rounds_left(plan: Plan, runs: Sequence[RunRow], machine: Machine | None = None) -> list[list[RunSpec]]:
    """The same by rounds, in each of which a variant has one turn at most; a carried run is a round of its own."""
    return [*_compared(plan, runs, machine), *([spec] for spec in _carried(plan, runs))]


def _compared(plan: Plan, runs: Sequence[RunRow], machine: Machine | None) -> list[list[RunSpec]]:
    if is_settled(plan, runs):
        return []
    made, count = ByVariant(runs), len(plan.variants)
    wanted = [_wanted(spec, made.of(spec), plan.repeats, machine) for spec in plan.variants]
    order = interleaved(count, plan.repeats)
    turns = (order[repeat * count : (repeat + 1) * count] for repeat in range(plan.repeats))
    return [
        [plan.variants[index] for index in one_round if repeat in wanted[index]]
        for repeat, one_round in enumerate(turns)
    ]


def _carried(plan: Plan, runs: Sequence[RunRow]) -> list[RunSpec]:
    return [each.spec for each in plan.carried if not any(map(is_result, of_variant(each.spec, runs)))]


def _wanted(spec: RunSpec, runs: Sequence[RunRow], repeats: int, machine: Machine | None) -> range:
    """Which of the variant's turns are still to come."""
    if _is_answered(runs):
        return range(0)
    once = machine is not None and bool(check(spec, machine))
    return range(sum(map(is_result, runs)), 1 if once else repeats)


def _is_answered(runs: Sequence[RunRow]) -> bool:
    return any(row.outcome is not None and row.outcome.name in SETTLED for row in runs)


def is_result(row: RunRow) -> bool:
    """Whether it answers something, so that it need not be made again."""
    return row.outcome is not None and row.outcome.name in RESULTS


def is_given_up(runs: Sequence[RunRow]) -> bool:
    """Whether the last two of a variant's runs failed for one reason: a third would hardly do better now."""
    last = [row.outcome for row in runs[-2:] if row.outcome is not None]
    return len(last) == 2 and last[0].name in _FAILED and len({(each.name, each.reason) for each in last}) == 1


def given_up(plan: Plan, runs: Sequence[RunRow]) -> list[RunSpec]:
    """The variants compared that are given up."""
    made = ByVariant(runs)
    return [spec for spec in plan.variants if is_given_up(made.of(spec))]


def rounds(plan: Plan, runs: Sequence[RunRow]) -> Rounds:
    """The complete rounds of the variants that measure something."""
    made = ByVariant(runs)
    groups = [made.of(spec) for spec in plan.variants]
    return Rounds.of([group for group in groups if not _is_answered(group)])


def is_settled(plan: Plan, runs: Sequence[RunRow]) -> bool:
    """Whether every speed-up is known as narrowly as was asked."""
    return plan.until_pct is not None and rounds(plan, runs).are_enough(plan.until_pct)


def done(plan: Plan, runs: Sequence[RunRow]) -> int:
    """How many of the planned runs have a result; more repeats than planned count no further."""
    ended = ByVariant([row for row in runs if is_result(row)])
    carried = sum(bool(ended.of(each.spec)) for each in plan.carried)
    return carried + sum(min(plan.repeats, len(ended.of(spec))) for spec in plan.variants)


def beyond(plan: Plan, runs: Sequence[RunRow]) -> int:
    """How many runs of the variants compared have a result beside those planned: they count for the verdict too."""
    ended = ByVariant([row for row in runs if is_result(row)])
    return sum(max(0, len(ended.of(spec)) - plan.repeats) for spec in plan.variants)


def expected_s(spec: RunSpec, runs: Sequence[RunRow], of_several: Callable[[list[float]], float] = max) -> float:
    """How long a run of this variant takes, from its worker's start to its end: by the longest of those made.

    Before the first of a variant: what it is asked to measure, and as much beside that as another run of its workload
    took, or one of any workload. Before the first of all: what it is asked to measure. `of_several` makes one figure
    of those of several runs.
    """
    return _Lasting(runs, of_several).expected_s(spec)


def together_s(specs: Sequence[RunSpec], runs: Sequence[RunRow], room: Room | None = None) -> float:
    """How long these runs take, by what is usual of those made; one after the other where there is no more `room`."""
    lasting = _Lasting(runs, statistics.median)
    return (room or Room()).together_s(specs, [lasting.expected_s(spec) for spec in specs])


def room_of(plan: Plan, machine: Machine, parallel: int) -> Room:
    """Which runs of a plan may go on at the same time, where so many are asked for."""
    return Room(parallel=parallel, gpus=len(machine.gpus), may_end_early=plan.until_pct is not None)


class _Lasting:
    """How long runs take, by those that ended."""

    def __init__(self, runs: Sequence[RunRow], of_several: Callable[[list[float]], float]) -> None:
        ended = lasted(runs)
        self._of_several = of_several
        self._made = ByVariant(ended)
        beside: dict[str, list[float]] = {}
        for row in ended:
            beside.setdefault(row.spec.workload, []).append(_beside_s(row))
        self._beside = {workload: of_several(values) for workload, values in beside.items()}
        self._beside_any = of_several([value for values in beside.values() for value in values]) if beside else 0.0

    def expected_s(self, spec: RunSpec) -> float:
        """See the function of that name."""
        if own := self._made.of(spec):
            return self._of_several([_lasted_s(row) for row in own])
        return asked_s(spec) + self._beside.get(spec.workload, self._beside_any)


def lasted(runs: Sequence[RunRow]) -> list[RunRow]:
    """Those of which one learns how long a run takes: nobody ended them."""
    return [row for row in runs if row.outcome is not None and row.outcome.name in ("completed", "out_of_memory")]


def asked_s(spec: RunSpec) -> float:
    """The seconds a variant is asked to measure; 0 where it counts steps or epochs instead."""
    counts_else = spec.variant.get("steps", 0) or spec.variant.get("epochs", 0)
    return 0.0 if counts_else else float(spec.variant.get("seconds", 0.0))


def _beside_s(row: RunRow) -> float:
    """How long a run took beside what it was asked to measure."""
    return _lasted_s(row) - min(asked_s(row.spec), row.summary.measured_s or 0.0)


def _lasted_s(row: RunRow) -> float:
    return 0.0 if row.ended_utc_ns is None else (row.ended_utc_ns - row.started_utc_ns) / 1e9
