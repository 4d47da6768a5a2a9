"""How far an experiment is, how long its runs take, and how small a difference they can show, by stored runs."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.analysis.intervals import pooled_noise, resolution
from app.analysis.verdict import group_by_variant, throughputs
from app.plan import Plan
from app.queries import ExpectedResolution, ExperimentState
from app.records import RunHeader, RunRow
from app.runs.experiment.schedule import (
    RunsByVariant,
    count_done,
    count_surplus,
    given_up_variants,
    is_precision_reached,
    plan_concurrency,
    remaining_runs,
    results_by_variant,
    runs_of_variant,
)
from app.storage.reference import is_reference
from workloads.catalog import Machine, check, runnable
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment so far.

    Attributes:
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
        return count_surplus(self.plan, results_by_variant(run.row for run in self.runs))

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
        """Return the experiment with these runs, which count, and in this state if any run is left.

        Variants that the machine refuses run only once; None refuses none.
        """
        rows = [run.row for run in runs]
        rest = remaining_runs(plan, rows, machine)
        made = count_done(plan, results_by_variant(rows))
        ended: ExperimentState = "settled" if is_precision_reached(plan, rows) else "complete"
        return cls(
            plan=plan,
            state=state if rest else ended,
            runs=tuple(runs),
            planned=made + len(rest),
            done=made,
            next_s=expected_s(rest[0], rows) if rest else None,
        )


def expected_s(spec: RunSpec, runs: Sequence[RunRow], aggregate: Callable[[list[float]], float] = max) -> float:
    """Return how many seconds a run takes, from its worker's start to its end, by the stored runs of its variant.

    Without any: the seconds it measures, and the overhead of other runs of its workload, else of any workload. Without
    any run at all: the seconds it measures.
    """
    return _DurationModel(runs, aggregate).expected_s(spec)


def time_left(
    plan: Plan, counted: Sequence[RunRow], alike: Sequence[RunRow], machine: Machine | None
) -> tuple[float, int]:
    """Return the expected seconds of the runs that remain, by the median of runs like them, and how many those are.

    These are the stored runs of their workloads in `alike`, else all; of none, the seconds are a lower bound. The plan
    says how many runs may share the GPUs of the machine. What that refuses takes no time; None refuses none.
    """
    remaining = remaining_runs(plan, counted, machine)
    refused = [spec for spec in plan.specs if machine and check(spec, machine)]
    possible = [spec for spec in remaining if spec not in refused]
    durations = _DurationModel(alike, statistics.median)
    ended = timed_runs(alike)
    workloads = {spec.workload for spec in possible}
    timing_runs = len([row for row in ended if row.spec.workload in workloads] or ended)
    concurrency = plan_concurrency(plan, machine or Machine())
    return concurrency.total_s(possible, [durations.expected_s(spec) for spec in possible]), timing_runs


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

    The spread between processes is that of the plan's own variants in this environment, the runs `counted`, else that
    of any variants of its workloads on this hardware, the runs `stored`. A variant that the machine refuses is not
    compared; None refuses none.
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


def describe_imported(imported: int, differences: Sequence[str]) -> str:
    """Return a sentence on runs that count although they were made in another environment; "" if there are none."""
    if not imported:
        return ""
    runs, subject = ("1 run was", "it counts") if imported == 1 else (f"{imported} runs were", "they count")
    elsewhere = " on another machine," if {"CPU", "GPU"} & set(differences) else ""
    return f"{runs} made{elsewhere} with another {', another '.join(differences)}: {subject} all the same."
