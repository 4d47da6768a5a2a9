"""How long runs take, estimated from stored runs."""

import statistics
from collections.abc import Callable, Sequence

from app.plan import Plan
from app.records import RunRow
from app.runs.experiment.concurrency import plan_concurrency
from app.runs.experiment.schedule import RunsByVariant
from workloads.catalog import Machine
from workloads.protocol import RunSpec


def expected_s(spec: RunSpec, runs: Sequence[RunRow], aggregate: Callable[[list[float]], float] = max) -> float:
    """How long a run of this variant takes, from its worker's start to its end: by the longest of those made.

    Before the first of a variant: what it is asked to measure, and as much beside that as another run of its workload
    took, or one of any workload. Before the first of all: what it is asked to measure. `of_several` makes one figure
    of those of several runs.
    """
    return _DurationModel(runs, aggregate).expected_s(spec)


def total_s(plan: Plan, specs: Sequence[RunSpec], runs: Sequence[RunRow], machine: Machine) -> float:
    """Return how many seconds some runs of a plan take together, by the median of runs like them.

    Args:
        plan: The plan, which says how many of them may run concurrently.
        specs: The runs, in their order.
        runs: Stored runs to estimate from.
        machine: The machine with the GPUs they share.
    """
    durations = _DurationModel(runs, statistics.median)
    return plan_concurrency(plan, machine).total_s(specs, [durations.expected_s(spec) for spec in specs])


def count_timing_runs(specs: Sequence[RunSpec], runs: Sequence[RunRow]) -> int:
    """Return how many stored runs the duration of these is estimated from: those of their workloads, else all."""
    ended = timed_runs(runs)
    workloads = {spec.workload for spec in specs}
    return len([row for row in ended if row.spec.workload in workloads] or ended)


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
