"""Estimates, from stored runs, of an experiment's progress, its runs' time, and the smallest visible difference."""

import statistics
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from app.analysis.comparability import STEADY_S
from app.analysis.intervals import pooled_noise, resolution
from app.analysis.verdict import group_by_variant, throughputs
from app.queries import ExpectedResolution, ExperimentState, TimeLeft
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
from app.values.plan import Plan
from app.values.records import RunHeader, RunRow
from workloads.catalog import Machine, check, runnable
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment so far.

    Attributes:
        runs: All its runs that count, with or without a result.
        planned: The number of planned runs.
        done: The number of planned runs that have a result.
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
        return count_surplus(self.plan, results_by_variant(run.row for run in self.runs))

    def describe_given_up(self) -> str:
        """Return a sentence on variants that are not repeated because they failed twice; "" if there are none."""
        rows = [run.row for run in self.runs]
        count = sum(len(runs_of_variant(spec, rows)) < self.plan.repeats for spec in given_up_variants(self.plan, rows))
        if not count:
            return ""
        variants, whose = ("1 variant was", "its") if count == 1 else (f"{count} variants were", "their")
        return f"{variants} skipped for now: {whose} last runs all failed."

    @classmethod
    def from_runs(
        cls, plan: Plan, state: ExperimentState, runs: Sequence[RunHeader], machine: Machine | None = None
    ) -> "Experiment":
        """Return the experiment with these counting runs, and in this state if runs remain.

        Variants that the machine refuses run only once; None refuses none.
        """
        rows = [run.row for run in runs]
        remaining = remaining_runs(plan, rows, machine)
        done = count_done(plan, results_by_variant(rows))
        ended: ExperimentState = "settled" if is_precision_reached(plan, rows) else "complete"
        return cls(
            plan=plan,
            state=state if remaining else ended,
            runs=tuple(runs),
            planned=done + len(remaining),
            done=done,
            next_s=expected_s(remaining[0], rows) if remaining else None,
        )


def expected_s(spec: RunSpec, runs: Sequence[RunRow]) -> float:
    """Return how many seconds a run takes at most, from its worker's start to its end.

    That is the measured time plus the set-up of the most similar runs; without any run, only the measured time.
    """
    ended = timed_runs(runs)
    return _DurationModel(ended).expected(spec).most_s if ended else requested_s(spec)


def time_left(
    plan: Plan, counted: Sequence[RunRow], alike: Sequence[RunRow], machine: Machine | None
) -> tuple[TimeLeft, int]:
    """Return the expected time of the remaining runs, by similar runs, and their number.

    Similar runs are those of the same workloads in `alike`, else all; without any, the set-up is that of other
    machines. The plan says how many runs may share the machine's GPUs. Refused runs take no time; the machine None
    refuses none.
    """
    remaining = remaining_runs(plan, counted, machine)
    refused = [spec for spec in plan.specs if machine and check(spec, machine)]
    possible = [spec for spec in remaining if spec not in refused]
    ended = timed_runs(alike)
    durations = _DurationModel(ended)
    times = sorted((row.started_utc_ns, row.ended_utc_ns or row.started_utc_ns) for row in ended)
    between = [(start - end) / 1e9 for (_, end), (start, _) in pairwise(times)]
    between_s = statistics.median([gap for gap in between if 0 <= gap < _LONGEST_BETWEEN_S] or [_BETWEEN_S])
    workloads = {spec.workload for spec in possible}
    timing_runs = len([row for row in ended if row.spec.workload in workloads] or ended)
    concurrency = plan_concurrency(plan, machine or Machine())
    once = {id(spec): spec for spec in possible}
    expected = {key: durations.expected(spec).plus(between_s) for key, spec in once.items()}
    ends = zip(*(expected[id(spec)] for spec in possible), strict=True)
    # A GPU's resting temperature is unknown before the first run: docs/internals/idle-wait.md.
    uses_gpus = any(spec.variant.get("gpus") for spec in possible)
    first_s = STEADY_S if not counted and plan.max_idle_wait_s != 0 and uses_gpus else 0.0
    return TimeLeft(*(concurrency.total_s(possible, seconds) for seconds in ends)).plus(first_s), timing_runs


_SETUP_PARAMETERS = ("xla", "layers", "implementation", "mode", "layout", "precision", "evidence")
"""The parameters that affect a run's set-up besides its workload and the CPU or GPUs, most important first."""
_SETUP_S: Mapping[tuple[str, bool], tuple[float, float]] = {
    ("lstm", False): (7.0, 9.0),
    ("gru", False): (7.0, 9.0),
    ("cnn10", False): (6.0, 8.0),
    ("wrn28-10", False): (20.0, 40.0),
    ("lstm", True): (8.0, 8.0),
    ("gru", True): (9.0, 9.0),
    ("cnn10", True): (9.0, 20.0),
    ("wrn28-10", True): (15.0, 37.0),
}
"""Median set-up without and with XLA, by the workload and whether it runs on GPUs, in seconds."""
_OTHER_SETUP_S = (8.0, 15.0)
"""The set-up of other workloads: the user's own."""
_MACHINES_APART = 1.5
"""The largest ratio of times between machines."""
_RUNS_APART = 1.1
"""The largest ratio of times between runs alike on one machine."""
_RECENT_NS = 3_600_000_000_000
"""Runs this much older than the newest are ignored: file caches and other programs change over the day."""
_HELD_UP = 3.0
"""Times beyond this multiple of the median are outliers: a download, a sleeping machine."""
_BETWEEN_S = 1.0
"""The time between one run's end and the next one's start, without two stored runs to measure it."""
_LONGEST_BETWEEN_S = 30.0
"""Two runs further apart do not belong to one experiment."""


def _shipped_setup_s(spec: RunSpec) -> float:
    """Return the set-up of a run on the machines of docs/internals/measurements/2026-11-27-estimates.md."""
    setups_s = _SETUP_S.get((spec.workload, bool(spec.variant.get("gpus"))), _OTHER_SETUP_S)
    return setups_s[bool(spec.variant.get("xla"))]


def _around(seconds: Sequence[float], factor: float) -> TimeLeft:
    """Return the range of some times, widened by a factor, and their mean, without outliers."""
    median_s = statistics.median(seconds)
    usual = [time_s for time_s in seconds if time_s <= _HELD_UP * median_s]
    return TimeLeft(min(usual) / factor, statistics.fmean(usual), max(usual) * factor)


class _DurationModel:
    """Durations of `timed_runs`, of only the newest if they suffice."""

    def __init__(self, ended: Sequence[RunRow]) -> None:
        newest_ns = max((row.started_utc_ns for row in ended), default=0)
        recent = [row for row in ended if newest_ns - row.started_utc_ns < _RECENT_NS]
        self._setups_s: list[dict[tuple[Hashable, ...], list[float]]] = [{}, {}]
        for setups, rows in zip(self._setups_s, (recent, ended), strict=True):
            for row in rows:
                for key in _setup_keys(row.spec):
                    setups.setdefault(key, []).append(_setup_s(row))
        paces = [_setup_s(row) / _shipped_setup_s(row.spec) for row in recent]
        self._pace = statistics.median(paces) if paces else 1.0

    def expected(self, spec: RunSpec) -> TimeLeft:
        """Return the expected time of a run: the measured time plus the set-up of the most similar runs."""
        for setups in self._setups_s:
            alike = next((setups[key] for key in _setup_keys(spec) if key in setups), None)
            if alike is not None:
                return _around(alike, _RUNS_APART).plus(requested_s(spec))
        return _around([self._pace * _shipped_setup_s(spec)], _MACHINES_APART).plus(requested_s(spec))


def _setup_keys(spec: RunSpec) -> Iterator[tuple[Hashable, ...]]:
    """Yield keys of similar runs: first the whole variant, last only its workload and whether it uses GPUs."""
    settings = (spec.variant.get(name) for name in _SETUP_PARAMETERS)
    values = (spec.workload, bool(spec.variant.get("gpus")), *settings, msgspec.json.encode(spec, order="sorted"))
    return (values[:length] for length in range(len(values), 1, -1))


def timed_runs(runs: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs that ended by themselves and whose clock was not set back: durations follow from these."""
    ended = [row for row in runs if row.outcome is not None and row.outcome.name in ("completed", "out_of_memory")]
    return [row for row in ended if _duration_s(row) >= 0]


def requested_s(spec: RunSpec) -> float:
    counts_else = spec.variant.get("steps", 0) or spec.variant.get("epochs", 0)
    return 0.0 if counts_else else float(spec.variant.get("seconds", 0.0))


def _setup_s(row: RunRow) -> float:
    """Return the seconds a run took beyond its measured part; 0 if the clock was set back by less."""
    return max(0.0, _duration_s(row) - min(requested_s(row.spec), row.summary.measured_s or 0.0))


def _duration_s(row: RunRow) -> float:
    return 0.0 if row.ended_utc_ns is None else (row.ended_utc_ns - row.started_utc_ns) / 1e9


def expected_resolution(
    plan: Plan, counted: Sequence[RunRow], stored: Sequence[RunRow], machine: Machine | None
) -> ExpectedResolution | None:
    """Return the smallest difference that a plan's repeats can show; None without two variants to compare.

    The spread between processes comes from the plan's own variants in this environment (`counted`), else from any
    variants of its workloads on this hardware (`stored`). Refused variants are not compared; the machine None refuses
    none.
    """
    possible = plan.variants if machine is None else runnable(plan.variants, machine)
    workloads = [spec.workload for spec in possible]
    comparisons = max((workloads.count(name) for name in workloads), default=0) - 1
    if comparisons < 1:
        return None
    by_variant = RunsByVariant(counted)
    of_variants = pooled_noise(throughputs(by_variant.runs_of(spec)) for spec in possible)
    like_these = [row for row in stored if row.spec.workload in workloads and not row.is_reference]
    noise = of_variants or pooled_noise(map(throughputs, group_by_variant(like_these)))
    return ExpectedResolution(
        repeats=plan.repeats,
        estimate=resolution(noise.sd, plan.repeats, comparisons) if noise else None,
        noise_runs=noise.runs if noise else 0,
        of_other_variants=of_variants is None,
    )


def describe_imported(imported: int, differences: Sequence[str]) -> str:
    """Return a sentence on runs that count although their environment differed; "" if there are none."""
    if not imported:
        return ""
    runs, subject = ("1 run was", "it counts") if imported == 1 else (f"{imported} runs were", "they count")
    elsewhere = " on another machine," if {"CPU", "GPU"} & set(differences) else ""
    return f"{runs} measured{elsewhere} with another {', another '.join(differences)}: {subject} nevertheless."
