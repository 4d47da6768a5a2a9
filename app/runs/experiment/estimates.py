"""How long runs take, and how small a difference they can show, estimated from stored runs."""

import statistics
from collections.abc import Callable, Sequence

from app.analysis.intervals import pooled_noise, resolution
from app.analysis.verdict import group_by_variant, throughputs
from app.plan import Plan
from app.queries import ExpectedResolution
from app.records import RunRow
from app.runs.experiment.concurrency import plan_concurrency
from app.runs.experiment.schedule import RunsByVariant
from app.storage.reference import is_reference
from workloads.catalog import Machine, runnable
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


def expected_resolution(
    plan: Plan, counted: Sequence[RunRow], stored: Sequence[RunRow], machine: Machine | None
) -> ExpectedResolution | None:
    """Return how small a difference the repeats of a plan can show; None where no two variants are compared.

    The spread between processes is that of the plan's own variants in this environment, else that of any variants of
    its workloads on this hardware.

    Args:
        plan: The plan.
        counted: Stored runs that count for it.
        stored: Stored runs on the same hardware.
        machine: The machine; a variant that it refuses is not compared. None refuses none.
    """
    possible = plan.variants if machine is None else runnable(plan.variants, machine)
    workloads = [spec.workload for spec in possible]
    comparisons = max((workloads.count(name) for name in workloads), default=0) - 1
    if comparisons < 1:
        return None
    by_variant = RunsByVariant(counted)
    of_variants = pooled_noise(throughputs(by_variant.runs_of(spec)) for spec in possible)
    like_these = [row for row in stored if row.spec.workload in workloads and not is_reference(row)]
    noise = of_variants or pooled_noise(map(throughputs, group_by_variant(like_these)))
    return ExpectedResolution(
        repeats=plan.repeats,
        found=resolution(noise.sd, plan.repeats, comparisons) if noise else None,
        noise_runs=noise.runs if noise else 0,
        of_other_variants=of_variants is None,
    )
