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
    """Return how many seconds a run takes, from its worker's start to its end, by the stored runs of its variant.

    Without any: the seconds it measures, and the overhead of other runs of its workload, else of any workload. Without
    any run at all: the seconds it measures.

    Args:
        spec: The run.
        runs: Stored runs to estimate from.
        aggregate: Makes one figure from those of several runs.
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
    """Durations of the runs that ended by themselves."""

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
        """Return the expected seconds of a run, as the function of the same name."""
        if made := self._runs_by_variant.runs_of(spec):
            return self._aggregate([_duration_s(row) for row in made])
        return requested_s(spec) + self._overhead_s.get(spec.workload, self._default_overhead_s)


def timed_runs(runs: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs that ended by themselves, from which durations can be estimated."""
    return [row for row in runs if row.outcome is not None and row.outcome.name in ("completed", "out_of_memory")]


def requested_s(spec: RunSpec) -> float:
    """Return the seconds a variant measures; 0 if it counts steps or epochs instead."""
    counts_else = spec.variant.get("steps", 0) or spec.variant.get("epochs", 0)
    return 0.0 if counts_else else float(spec.variant.get("seconds", 0.0))


def _overhead_s(row: RunRow) -> float:
    """Return the seconds a run took beyond those it measured."""
    return _duration_s(row) - min(requested_s(row.spec), row.summary.measured_s or 0.0)


def _duration_s(row: RunRow) -> float:
    return 0.0 if row.ended_utc_ns is None else (row.ended_utc_ns - row.started_utc_ns) / 1e9
