"""What an experiment consists of, in which order its runs are made, which are left, and how long one takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.records import RunRow
from workloads.catalog import Machine, check, with_defaults
from workloads.protocol import RunSpec

SETTLED = ("out_of_memory", "refused")
"""Outcomes that a repeat would only repeat: once is enough."""
RESULTS = ("completed", *SETTLED)
"""Outcomes that answer something; a run that ended otherwise is made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment: its variants, the baseline first, and how often each runs.

    `notes` are sentences on what was changed to fit it to this machine.
    """

    name: str
    variants: tuple[RunSpec, ...]
    repeats: int
    notes: tuple[str, ...] = ()


def interleaved(variants: int, repeats: int) -> list[int]:
    """Indices of variants, each `repeats` times, forwards and backwards in turn (A B B A A B).

    Slow drift of the machine then falls on all variants alike instead of on the later ones.
    """
    rounds = (range(variants) if repeat % 2 == 0 else range(variants - 1, -1, -1) for repeat in range(repeats))
    return [index for one_round in rounds for index in one_round]


def of_variant(spec: RunSpec, runs: Sequence[RunRow]) -> list[RunRow]:
    """The runs of this variant; a parameter that an older run does not name counts with its default."""
    whole = with_defaults(spec)
    return [row for row in runs if with_defaults(row.spec) == whole]


def left(plan: Plan, runs: Sequence[RunRow], machine: Machine | None = None) -> list[RunSpec]:
    """The runs still to be made, in their order, after `runs`; a variant that `machine` refuses runs once."""
    wanted = [_wanted(spec, of_variant(spec, runs), plan.repeats, machine) for spec in plan.variants]
    order = interleaved(len(plan.variants), plan.repeats)
    turns = [(index, order[:place].count(index)) for place, index in enumerate(order)]
    return [plan.variants[index] for index, turn in turns if turn in wanted[index]]


def _wanted(spec: RunSpec, runs: Sequence[RunRow], repeats: int, machine: Machine | None) -> range:
    """Which of the variant's turns are still to come."""
    names = [row.outcome.name for row in runs if row.outcome is not None]
    if any(name in SETTLED for name in names):
        return range(0)
    once = machine is not None and bool(check(spec, machine))
    return range(sum(name in RESULTS for name in names), 1 if once else repeats)


def done(plan: Plan, runs: Sequence[RunRow]) -> int:
    """How many of the planned runs have a result; more repeats than planned count no further."""
    ended = [row for row in runs if row.outcome is not None and row.outcome.name in RESULTS]
    return sum(min(plan.repeats, len(of_variant(spec, ended))) for spec in plan.variants)


def expected_s(spec: RunSpec, runs: Sequence[RunRow]) -> float:
    """How long a run of this variant takes, by the longest of those made: from its worker's start to its end.

    Before the first of a variant: what it is asked to measure, and as much beside that as another run of its workload
    took, or one of any workload. Before the first of all: what it is asked to measure.
    """
    ended = [row for row in runs if row.outcome is not None and row.outcome.name in ("completed", "out_of_memory")]
    if own := of_variant(spec, ended):
        return max(map(_lasted_s, own))
    alike = [row for row in ended if row.spec.workload == spec.workload] or ended
    asked = asked_s(spec)
    beside = (_lasted_s(row) - (min(asked_s(row.spec), row.summary.measured_s or 0.0)) for row in alike)
    return asked + max(beside, default=0.0)


def asked_s(spec: RunSpec) -> float:
    """The seconds a variant is asked to measure; 0 where it counts steps or epochs instead."""
    counts_else = spec.variant.get("steps", 0) or spec.variant.get("epochs", 0)
    return 0.0 if counts_else else float(spec.variant.get("seconds", 0.0))


def _lasted_s(row: RunRow) -> float:
    return 0.0 if row.ended_utc_ns is None else (row.ended_utc_ns - row.started_utc_ns) / 1e9
