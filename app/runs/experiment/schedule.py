"""An experiment's plan: order of runs, which remain, which may run concurrently, and how long they take."""

import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from app.plan import Plan
from app.records import RunRow
from app.runs.experiment.stopping import StoppingRule
from workloads.catalog import Machine, check, with_defaults
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """At most `parallel` runs at once on a machine with so many GPUs, each on its own; one on the CPU is alone.

    Where an experiment may end early no variant goes on twice at once, so that every look comes when it is due.
    """

    parallel: int = 1
    gpus: int = 0
    may_end_early: bool = False

    def admits(self, spec: RunSpec, running: Sequence[RunSpec]) -> bool:
        """Whether a run may begin while these go on."""
        if not running:
            return True
        counts = [int(each.variant["gpus"]) for each in (spec, *running)]
        fits = len(running) < self.parallel and all(counts) and sum(counts) <= self.gpus
        return fits and not (self.may_end_early and spec in running)

    def total_s(self, specs: Sequence[RunSpec], durations_s: Sequence[float]) -> float:
        """From the first's beginning to the last's end, each begun in its order as soon as it may."""
        now_s, running = 0.0, list[tuple[float, RunSpec]]()
        for spec, seconds in zip(specs, durations_s, strict=True):
            while not self.admits(spec, [other for _, other in running]):
                first = min(running, key=lambda each: each[0])
                now_s = first[0]
                running.remove(first)
            running.append((now_s + seconds, spec))
        return max((end_s for end_s, _ in running), default=now_s)


FINAL_OUTCOMES = ("out_of_memory", "refused")
"""Outcomes that a repeat would only repeat: once is enough."""
RESULT_OUTCOMES = ("completed", *FINAL_OUTCOMES)
"""Outcomes that answer something; a run that ended otherwise is made again."""

_FAILED = ("failed", "crashed")


def interleaved_order(variants: int, repeats: int) -> list[int]:
    """Indices of variants, each `repeats` times, forwards and backwards in turn (A B B A A B).

    Slow drift of the machine then falls on all variants alike instead of on the later ones.
    """
    rounds = (range(variants) if repeat % 2 == 0 else range(variants - 1, -1, -1) for repeat in range(repeats))
    return [index for one_round in rounds for index in one_round]


def matching_variants(made: RunSpec) -> tuple[RunSpec, RunSpec]:
    """The variants that a run made so is one of: its own, with a default for what it does not name, and that anywhere.

    A variant that leaves its cards open is the same on whichever they were.
    """
    exact = with_defaults(made)
    return exact, RunSpec(workload=exact.workload, variant={**exact.variant, "devices": ""})


def runs_of_variant(spec: RunSpec, runs: Sequence[RunRow]) -> list[RunRow]:
    """The runs of this variant."""
    wanted = with_defaults(spec)
    return [row for row in runs if wanted in matching_variants(row.spec)]


class RunsByVariant:
    """Runs by the variants that each is one of; a variant's are found without going through all of them."""

    def __init__(self, runs: Sequence[RunRow]) -> None:
        self._runs: dict[Hashable, list[RunRow]] = {}
        for row in runs:
            for key in matching_keys(row.spec):
                self._runs.setdefault(key, []).append(row)

    def runs_of(self, spec: RunSpec) -> list[RunRow]:
        """The runs of this variant, in the order given."""
        return self._runs.get(variant_key(spec), [])


def variant_key(spec: RunSpec) -> Hashable:
    """What a variant is found by, and no other."""
    return _key(with_defaults(spec))


def matching_keys(made: RunSpec) -> set[Hashable]:
    """Those of the variants that a run made so is one of."""
    return set(map(_key, matching_variants(made)))


def _key(spec: RunSpec) -> Hashable:
    return spec.workload, frozenset(spec.variant.items())


def remaining_runs(plan: Plan, runs: Sequence[RunRow], machine: Machine | None = None) -> list[RunSpec]:
    """The runs still to be made, in their order, after `runs`; a variant that `machine` refuses runs once."""
    return [spec for one_round in remaining_rounds(plan, runs, machine) for spec in one_round]


def remaining_rounds(plan: Plan, runs: Sequence[RunRow], machine: Machine | None = None) -> list[list[RunSpec]]:
    """The same by rounds, in each of which a variant has one turn at most; a carried run is a round of its own."""
    return [*_comparison_rounds(plan, runs, machine), *([spec] for spec in _transfer_specs(plan, runs))]


def _comparison_rounds(plan: Plan, runs: Sequence[RunRow], machine: Machine | None) -> list[list[RunSpec]]:
    if is_precision_reached(plan, runs):
        return []
    runs_by_variant, count = RunsByVariant(runs), len(plan.variants)
    wanted = [_remaining_repeats(spec, runs_by_variant.runs_of(spec), plan.repeats, machine) for spec in plan.variants]
    order = interleaved_order(count, plan.repeats)
    turns = (order[repeat * count : (repeat + 1) * count] for repeat in range(plan.repeats))
    return [
        [plan.variants[index] for index in one_round if repeat in wanted[index]]
        for repeat, one_round in enumerate(turns)
    ]


def _transfer_specs(plan: Plan, runs: Sequence[RunRow]) -> list[RunSpec]:
    return [each.spec for each in plan.weight_transfers if not any(map(is_result, runs_of_variant(each.spec, runs)))]


def _remaining_repeats(spec: RunSpec, runs: Sequence[RunRow], repeats: int, machine: Machine | None) -> range:
    """Which of the variant's turns are still to come."""
    if _has_final_outcome(runs):
        return range(0)
    once = machine is not None and bool(check(spec, machine))
    return range(sum(map(is_result, runs)), 1 if once else repeats)


def _has_final_outcome(runs: Sequence[RunRow]) -> bool:
    return any(row.outcome is not None and row.outcome.name in FINAL_OUTCOMES for row in runs)


def is_result(row: RunRow) -> bool:
    """Whether it answers something, so that it need not be made again."""
    return row.outcome is not None and row.outcome.name in RESULT_OUTCOMES


def is_given_up(runs: Sequence[RunRow]) -> bool:
    """Whether the last two of a variant's runs failed for one reason: a third would hardly do better now."""
    last_outcomes = [row.outcome for row in runs[-2:] if row.outcome is not None]
    return (
        len(last_outcomes) == 2
        and last_outcomes[0].name in _FAILED
        and len({(each.name, each.reason) for each in last_outcomes}) == 1
    )


def given_up_variants(plan: Plan, runs: Sequence[RunRow]) -> list[RunSpec]:
    """The variants compared that are given up."""
    runs_by_variant = RunsByVariant(runs)
    return [spec for spec in plan.variants if is_given_up(runs_by_variant.runs_of(spec))]


def stopping_rule(plan: Plan, runs: Sequence[RunRow]) -> StoppingRule:
    """The complete rounds of the variants that measure something."""
    runs_by_variant = RunsByVariant(runs)
    groups = [runs_by_variant.runs_of(spec) for spec in plan.variants]
    return StoppingRule.from_runs([group for group in groups if not _has_final_outcome(group)])


def is_precision_reached(plan: Plan, runs: Sequence[RunRow]) -> bool:
    """Whether every speed-up is known as narrowly as was asked."""
    return plan.until_pct is not None and stopping_rule(plan, runs).is_met(plan.until_pct)


def count_done(plan: Plan, runs: Sequence[RunRow]) -> int:
    """How many of the planned runs have a result; more repeats than planned count no further."""
    ended = RunsByVariant([row for row in runs if is_result(row)])
    transfers = sum(bool(ended.runs_of(each.spec)) for each in plan.weight_transfers)
    return transfers + sum(min(plan.repeats, len(ended.runs_of(spec))) for spec in plan.variants)


def count_surplus(plan: Plan, runs: Sequence[RunRow]) -> int:
    """How many runs of the variants compared have a result beside those planned: they count for the verdict too."""
    ended = RunsByVariant([row for row in runs if is_result(row)])
    return sum(max(0, len(ended.runs_of(spec)) - plan.repeats) for spec in plan.variants)


def expected_s(spec: RunSpec, runs: Sequence[RunRow], aggregate: Callable[[list[float]], float] = max) -> float:
    """How long a run of this variant takes, from its worker's start to its end: by the longest of those made.

    Before the first of a variant: what it is asked to measure, and as much beside that as another run of its workload
    took, or one of any workload. Before the first of all: what it is asked to measure. `of_several` makes one figure
    of those of several runs.
    """
    return _DurationModel(runs, aggregate).expected_s(spec)


def total_s(specs: Sequence[RunSpec], runs: Sequence[RunRow], concurrency: Concurrency | None = None) -> float:
    """How long these runs take, by what is usual of those made; one after the other where there is no more `room`."""
    durations = _DurationModel(runs, statistics.median)
    return (concurrency or Concurrency()).total_s(specs, [durations.expected_s(spec) for spec in specs])


def plan_concurrency(plan: Plan, machine: Machine) -> Concurrency:
    """Return which runs of a plan may run concurrently on this machine."""
    return Concurrency(parallel=plan.parallel, gpus=len(machine.gpus), may_end_early=plan.until_pct is not None)


class _DurationModel:
    """How long runs take, by those that ended."""

    def __init__(self, runs: Sequence[RunRow], aggregate: Callable[[list[float]], float]) -> None:
        ended = timed_runs(runs)
        self._aggregate = aggregate
        self._runs_by_variant = RunsByVariant(ended)
        overheads: dict[str, list[float]] = {}
        for row in ended:
            overheads.setdefault(row.spec.workload, []).append(_overhead_s(row))
        self._overhead_s = {workload: aggregate(values) for workload, values in overheads.items()}
        self._default_overhead_s = (
            aggregate([value for values in overheads.values() for value in values]) if overheads else 0.0
        )

    def expected_s(self, spec: RunSpec) -> float:
        """See the function of that name."""
        if made := self._runs_by_variant.runs_of(spec):
            return self._aggregate([_duration_s(row) for row in made])
        return requested_s(spec) + self._overhead_s.get(spec.workload, self._default_overhead_s)


def timed_runs(runs: Sequence[RunRow]) -> list[RunRow]:
    """Those of which one learns how long a run takes: nobody ended them."""
    return [row for row in runs if row.outcome is not None and row.outcome.name in ("completed", "out_of_memory")]


def requested_s(spec: RunSpec) -> float:
    """The seconds a variant is asked to measure; 0 where it counts steps or epochs instead."""
    counts_else = spec.variant.get("steps", 0) or spec.variant.get("epochs", 0)
    return 0.0 if counts_else else float(spec.variant.get("seconds", 0.0))


def _overhead_s(row: RunRow) -> float:
    """How long a run took beside what it was asked to measure."""
    return _duration_s(row) - min(requested_s(row.spec), row.summary.measured_s or 0.0)


def _duration_s(row: RunRow) -> float:
    return 0.0 if row.ended_utc_ns is None else (row.ended_utc_ns - row.started_utc_ns) / 1e9
