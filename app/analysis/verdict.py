"""Compares each variant's runs with the baseline's: ratios, decisions, and whether they do the same work."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_low
from typing import Literal, TypeVar

from app.analysis.intervals import (
    LEVEL,
    MIN_REPEATS,
    Estimate,
    Gpus,
    RequiredRepeats,
    level_at,
    mean,
    ratio,
    ratio_within_gpus,
    required_repeats,
)
from app.values.records import RunRow
from workloads.catalog import OF_REPEATS
from workloads.protocol import RunSpec, Value

TESTS_LEVEL = round(2 * LEVEL - 1, 6)
"""The level of the interval of two one-sided tests, each of which errs as often as both ends of the verdict's together.
"""

EquivalenceDecision = Literal["equal", "slower", "faster", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """The position of a throughput ratio relative to a margin.

    Within the margin neither side is slower than the other by more than `margin_pct` percent: at 2 % a ratio from 0.98
    to 1 / 0.98, symmetric on the logarithm.

    Attributes:
        interval: The interval of the two one-sided tests; None if a side has only one process.
        decision: `equal`: the interval lies within the margin. `slower`, `faster`: the verdict's own, wider interval
            lies beyond it. Else it is undecided.
    """

    margin_pct: float
    interval: tuple[float, float] | None
    decision: EquivalenceDecision

    @property
    def is_not_slower(self) -> bool:
        """Return whether it is certainly not slower by more than the margin."""
        return self.interval is not None and self.interval[0] > 1 - self.margin_pct / 100


def equivalence(
    values: Sequence[float], baseline: Sequence[float], verdict: Estimate, margin_pct: float, level: float
) -> Equivalence:
    """Return the position of two samples' ratio relative to a margin, by two one-sided tests.

    Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power approach for assessing the
    equivalence of average bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15: two tests at 5 % each
    are the 90 % interval, which must lie within the margin. At most one of the two can be wrong.

    `level` is the verdict's interval's at this look.
    """
    estimate = ratio(values, baseline, 2 * level - 1)
    interval = estimate.interval if estimate else None
    return Equivalence(
        margin_pct=margin_pct,
        interval=interval,
        decision=_decide(interval, verdict.interval, 1 - margin_pct / 100),
    )


def _decide(
    interval: tuple[float, float] | None, wider: tuple[float, float] | None, lowest: float
) -> EquivalenceDecision:
    if interval is None or wider is None:
        return "cannot tell"
    if lowest < interval[0] and interval[1] < 1 / lowest:
        return "equal"
    if wider[1] < lowest:
        return "slower"
    return "faster" if wider[0] > 1 / lowest else "cannot tell"


Run = TypeVar("Run")


def operations_per_example(runs: Sequence[RunRow]) -> float | None:
    """Return the operations per example by formula (docs/telemetry.md) of one variant's runs; None if unknown.

    They are the same for every implementation, layout, precision, batch size and number of GPUs.
    """
    steps = ((row.summary.flops_per_step, row.spec.variant.get("batch_size")) for row in runs)
    return next((of_step / batch for of_step, batch in steps if of_step and isinstance(batch, int) and batch > 0), None)


def work_ratio(runs: Sequence[RunRow], baseline: Sequence[RunRow]) -> float | None:
    """Return a variant's operations per example as a multiple of the baseline's; None if equal or unknown.

    Between workloads examples differ, so it is unknown.
    """
    operations, baseline_operations = operations_per_example(runs), operations_per_example(baseline)
    if (
        not operations
        or not baseline_operations
        or math.isclose(operations, baseline_operations)
        or not same_workload(runs, baseline)
    ):
        return None
    return operations / baseline_operations


def same_work(runs: Sequence[RunRow], other_runs: Sequence[RunRow]) -> bool:
    """Return whether two variants do the same work per example, as far as is known."""
    return same_workload(runs, other_runs) and work_ratio(runs, other_runs) is None


def same_workload(runs: Sequence[RunRow], other_runs: Sequence[RunRow]) -> bool:
    """Return whether two variants have the same workload, and so the same kind of example."""
    return runs[0].spec.workload == other_runs[0].spec.workload


Decision = Literal[
    "faster",
    "slower",
    "no difference seen",
    "too few runs",
    "one run each",
    "different workloads",
    "nothing to compare",
]

FigureValues = Callable[[Sequence[RunRow]], list[float]]
"""Returns one figure of every run that counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VariantResult:
    """One variant's runs together: throughput in examples/s, energy in mJ per example, both against the baseline's.

    Only completed runs count; the others keep their place in `runs`. The intervals of all ratios of one kind hold
    together and at every look (`family_ratios`); those of `throughput` and `energy` describe a variant alone. The
    baseline's own ratios are 1 without an interval, and its decision has no meaning. Energy is compared within GPUs
    where these are spread unevenly.

    Attributes:
        looks: How often its runs and the baseline's may have been judged, this time included.
        comparisons: Speed-ups of the family that have an interval.
        required_repeats: How many more repeats would show a smaller difference, where none is seen.
        equivalence: How the speed-up lies to a margin, where one was given.
    """

    runs: tuple[RunRow, ...]
    throughput: Estimate | None
    speedup: Estimate | None
    energy: Estimate | None
    energy_ratio: Estimate | None
    decision: Decision
    is_baseline: bool
    looks: int = 1
    comparisons: int = 0
    required_repeats: RequiredRepeats | None = None
    equivalence: Equivalence | None = None


def without(spec: RunSpec, names: Collection[str] = OF_REPEATS) -> RunSpec:
    """Return a spec without some parameters, by default those in which repeats of one variant may differ."""
    return RunSpec(
        workload=spec.workload, variant={name: value for name, value in spec.variant.items() if name not in names}
    )


SEED = ("seed",)
"""What several trainings of one variant differ in."""


def group_by_variant(runs: Sequence[RunRow]) -> list[tuple[RunRow, ...]]:
    """Group runs of equal workload and variant, in order of first appearance.

    Runs that differ only in their seed, or in how long they measured and warmed up, are repeats: neither changes what a
    step does.
    """
    return group_runs(runs, lambda run: without(run.spec))


def group_runs(runs: Iterable[Run], spec_of: Callable[[Run], RunSpec]) -> list[tuple[Run, ...]]:
    """Group runs with equal specs, in order of first appearance."""
    groups: dict[tuple[str, frozenset[tuple[str, Value]]], list[Run]] = {}
    for run in runs:
        spec = spec_of(run)
        groups.setdefault((spec.workload, frozenset(spec.variant.items())), []).append(run)
    return [tuple(group) for group in groups.values()]


def join_repeats(runs: Sequence[RunRow]) -> tuple[list[RunRow], list[str]]:
    """Return the runs with the specs by which they are compared, and what these lack: what differs between repeats."""
    groups = group_by_variant(runs)
    differing = [
        name for name in OF_REPEATS if any(len({row.spec.variant.get(name) for row in group}) > 1 for group in groups)
    ]
    joined = [replace(row, spec=without(row.spec, differing)) for row in runs] if differing else list(runs)
    return joined, differing


_NOISE, _NOISIER = 0.05, 3.0
"""A variant is noisy if its fastest run is faster than its slowest by this share, and this multiple of others' share.
"""


def run_spread(runs: Sequence[RunRow]) -> float:
    """Return the share by which a variant's fastest run is faster than its slowest."""
    rates = throughputs(runs)
    return max(rates) / min(rates) - 1


def steady_variants(groups: Sequence[tuple[RunRow, ...]]) -> list[tuple[RunRow, ...]]:
    """Return the variants, each with several runs, whose runs differ about as little as those of most variants."""
    if not groups:
        return []
    spreads = list(map(run_spread, groups))
    least_noisy = max(_NOISE, _NOISIER * median_low(spreads))
    return [group for group, spread in zip(groups, spreads, strict=True) if spread < least_noisy]


def default_baseline(runs: Sequence[RunRow]) -> int:
    """Return the run to compare others with by default.

    It belongs to the first variant with enough runs for an interval that differ no more than others', in the workload
    with most such variants; or to the variant with most runs, if these are twice as many. Otherwise it is the first run
    that measured, or the first. A run that did not execute as requested counts only if nothing else measured. The
    steadiest variant would be steady by chance, and its intervals too narrow.
    """
    groups = list(filter(throughputs, group_by_variant(runs)))
    measured = [group for group in groups if all(row.evidence_state != "mismatch" for row in group)] or groups
    repeated = [group for group in measured if len(throughputs(group)) >= MIN_REPEATS]
    (workload, count), *_ = Counter(group[0].spec.workload for group in repeated).most_common(1) or [("", 0)]
    steady = steady_variants([group for group in repeated if count > 1 and group[0].spec.workload == workload])
    most = max(steady, key=len, default=())
    first = (most if len(most) >= 2 * len(steady[0]) else steady[0]) if steady else ()
    alike = {row.run for group in ([first] if first else measured) for row in group}
    return next((row.run for row in runs if row.run in alike and throughputs([row])), runs[0].run)


def judge(runs: Sequence[RunRow], baseline_run: int, margin_pct: float | None = None) -> list[VariantResult]:
    groups = group_by_variant(runs)
    baseline = next(group for group in groups if any(row.run == baseline_run for row in group))
    speedups, energy_ratios = (
        family_ratios(groups, baseline, figures, within_gpus=within_gpus)
        for figures, within_gpus in ((throughputs, False), (energies, True))
    )
    comparisons = sum(speedup is not None and speedup.interval is not None for speedup in speedups)
    results = [
        _result(group, baseline, speedup, energy_ratio, comparisons)
        for group, speedup, energy_ratio in zip(groups, speedups, energy_ratios, strict=True)
    ]
    return results if margin_pct is None else [_with_equivalence(result, baseline, margin_pct) for result in results]


def comparable_results(results: Sequence[VariantResult]) -> list[VariantResult]:
    """Return the variants to rank: those with a speed-up that do the baseline's work, or all if no other does."""
    measured = [result for result in results if result.speedup is not None]
    base = next(result for result in results if result.is_baseline)
    alike = [result for result in measured if work_ratio(result.runs, base.runs) is None]
    return alike if len(alike) > 1 else measured


def fastest_result(results: Sequence[VariantResult]) -> VariantResult | None:
    """Return the comparable variant that is certainly faster than every other; None if there is none."""
    ranked = rank_results(results)
    return ranked[0] if len(ranked) > 1 and not may_be_as_fast(ranked) else None


def rank_results(results: Sequence[VariantResult]) -> list[VariantResult]:
    speeds = [(result.speedup.value, result) for result in comparable_results(results) if result.speedup is not None]
    return [result for _, result in sorted(speeds, key=lambda pair: -pair[0])]


def leading_result(ranked: Sequence[VariantResult]) -> VariantResult | None:
    """Return the fastest ranked variant with an interval; the first if only the baseline, or none, has one."""
    has_interval = (result for result in ranked if result.is_baseline or (result.speedup and result.speedup.interval))
    first, judged = next(iter(ranked), None), next(has_interval, None)
    return first if judged is None or judged.is_baseline else judged


def ratios_of_first(ranked: Sequence[VariantResult]) -> list[Estimate]:
    """Return how many times as fast the first ranked variant is as each other one.

    Variants are compared directly, not through the baseline, whose widely differing runs could hide their difference.
    The family is only the first's, although it was chosen after the runs, because only an error about the variant that
    is really the fastest counts: Hsu (1984), "Constrained simultaneous confidence intervals for multiple comparisons
    with the best", Annals of Statistics 12.
    """
    first = ranked[0]
    if first.is_baseline:
        return [result.speedup.inverse for result in ranked[1:] if result.speedup]
    to_first = family_ratios([result.runs for result in ranked], first.runs, throughputs)
    ratios = [
        first.speedup if result.is_baseline else ratio_to_first.inverse if ratio_to_first else None
        for result, ratio_to_first in zip(ranked[1:], to_first[1:], strict=True)
    ]
    return [ratio_of_first for ratio_of_first in ratios if ratio_of_first]


def may_be_as_fast(ranked: Sequence[VariantResult]) -> list[VariantResult]:
    """Return the ranked variants that the first is not certainly faster than."""
    ratios = zip(ranked[1:], ratios_of_first(ranked), strict=True)
    return [result for result, ratio_of_first in ratios if decide(ratio_of_first) != "faster"]


def _with_equivalence(result: VariantResult, baseline: Sequence[RunRow], margin_pct: float) -> VariantResult:
    if result.speedup is None or result.is_baseline:
        return result
    values, base, level = throughputs(result.runs), throughputs(baseline), level_at(result.looks, result.comparisons)
    return replace(result, equivalence=equivalence(values, base, result.speedup, margin_pct, level))


def family_level(group: Sequence[RunRow], baseline: Sequence[RunRow], comparisons: int) -> float:
    """Return the level of an interval in a family of that size, at the current look at two variants' runs."""
    return level_at(count_looks(group, baseline), comparisons)


def family_ratios(
    groups: Sequence[Sequence[RunRow]],
    baseline: Sequence[RunRow],
    figures: FigureValues,
    *,
    within_gpus: bool = False,
) -> list[Estimate | None]:
    """Return each group's ratio of a figure to the baseline's; their intervals hold together and at every look.

    It is the only source of ratios to a baseline, so that verdict, scaling and reports agree. The baseline's own ratio
    is 1 without an interval; the ratio is None for another workload, or without a figure.

    Args:
        groups: The runs of every variant of the family, which may include the baseline.
        baseline: The runs of the baseline.
        figures: Returns the figures of the runs that have one.
        within_gpus: Compare runs on the same GPUs if two variants are spread unevenly over them.
    """
    base = figures(baseline)
    values = [figures(group) if group and baseline and same_workload(group, baseline) else [] for group in groups]
    comparisons = sum(
        min(len(own), len(base)) >= MIN_REPEATS for own, group in zip(values, groups, strict=True) if group != baseline
    )

    def to_baseline(group: Sequence[RunRow], own: Sequence[float]) -> Estimate | None:
        if group == baseline:
            return Estimate(1.0, None, None, len(own)) if own else None
        level = family_level(group, baseline, comparisons)
        if within_gpus and own and base and gpu_spread(group, baseline, figures) == "uneven":
            return ratio_within_gpus(_by_gpus(group, figures), _by_gpus(baseline, figures), level)
        return ratio(own, base, level)

    return [to_baseline(group, own) for group, own in zip(groups, values, strict=True)]


GpuSpread = Literal["even", "uneven", "apart"]


def gpu_spread(group: Sequence[RunRow], baseline: Sequence[RunRow], figures: FigureValues) -> GpuSpread:
    """Return how two variants' runs are spread over GPUs.

    `even`: the same share of both on each, or all on one. `uneven`: different shares, but both on each. `apart`: only
    one variant on some. Runs on unknown GPUs, or on different numbers of them, count as even.
    """
    shares = [
        {gpus: len(values) / len(figures(side)) for gpus, values in _by_gpus(side, figures).items()}
        for side in (group, baseline)
    ]
    if shares[0] == shares[1] or len({len(gpus) for side in shares for gpus in side}) > 1:
        return "even"
    return "uneven" if shares[0].keys() == shares[1].keys() else "apart"


def speed_bias_pct(group: Sequence[RunRow], baseline: Sequence[RunRow]) -> float:
    """Return the percentage by which a speed-up changes if compared within GPUs.

    It is 0 if runs are spread evenly, or if GPU levels explain too little of the noise to narrow its interval.
    """
    if gpu_spread(group, baseline, throughputs) != "uneven":
        return 0.0
    within = ratio_within_gpus(_by_gpus(group, throughputs), _by_gpus(baseline, throughputs))
    overall_ratio = ratio(throughputs(group), throughputs(baseline))
    if overall_ratio is None or not (within.half_width or math.inf) < (overall_ratio.half_width or 0.0):
        return 0.0
    return 100 * abs(within.value / overall_ratio.value - 1)


def _by_gpus(runs: Sequence[RunRow], figures: FigureValues) -> dict[Gpus, list[float]]:
    by_gpus: dict[Gpus, list[float]] = {}
    for row in runs:
        if value := figures([row]):
            by_gpus.setdefault(tuple(sorted(row.gpus)), []).extend(value)
    return by_gpus


FIRST_LOOK = 3
"""The number of a variant's manual runs at which looks begin: a look at two runs counts as this one."""


def count_looks(runs: Sequence[RunRow], baseline: Sequence[RunRow]) -> int:
    """Return how often two variants' runs may have been judged before adding more, including now.

    A planned number of repeats is judged once, when complete; every manual run, or run beyond the plan, may have been
    added because of earlier results. The variant with more additions counts, from when the other had two runs.
    """
    return max(1, _count_looks_since(runs, baseline), _count_looks_since(baseline, runs))


def _count_looks_since(runs: Sequence[RunRow], other_runs: Sequence[RunRow]) -> int:
    """Return at how many numbers of a variant's runs there may have been a look, since the other had two runs."""
    counted, compared = (
        sorted((row for row in side if row.completed), key=lambda row: row.started_utc_ns)
        for side in (runs, other_runs)
    )
    ends_plan = [row.planned != following.planned for row, following in pairwise(counted)] + [True]
    return len(
        {
            max(n, FIRST_LOOK)
            for n, (row, ends) in enumerate(zip(counted, ends_plan, strict=False), 1)
            if compared[1:] and row.started_utc_ns >= compared[1].started_utc_ns
            if ends or not _is_planned(row, n, len(runs))
        }
    )


_MOST_DIGITS = 9


def _is_planned(row: RunRow, n: int, runs: int) -> bool:
    """Return whether a variant's run number `n` of `runs` belongs to a plan that was carried out."""
    if row.planned is None or not row.planned.isdecimal() or len(row.planned) > _MOST_DIGITS:
        return row.planned is not None
    return n <= int(row.planned) <= runs


def _result(
    group: tuple[RunRow, ...],
    baseline: tuple[RunRow, ...],
    speedup: Estimate | None,
    energy_ratio: Estimate | None,
    comparisons: int,
) -> VariantResult:
    looks = 1 if group is baseline else count_looks(group, baseline)
    decision: Decision = decide(speedup) if same_workload(group, baseline) else "different workloads"
    is_undecided = decision == "no difference seen"
    return VariantResult(
        runs=group,
        throughput=mean(throughputs(group)),
        speedup=speedup,
        energy=mean(energies(group)),
        energy_ratio=energy_ratio,
        decision=decision,
        is_baseline=group is baseline,
        looks=looks,
        comparisons=comparisons,
        required_repeats=required_repeats(throughputs(group), throughputs(baseline), looks, comparisons)
        if is_undecided
        else None,
    )


def throughputs(group: Sequence[RunRow]) -> list[float]:
    """Return the examples/s of every completed run: a stopped run may have measured a single block."""
    return _positive(row.summary.throughput for row in group if row.completed)


def energies(group: Sequence[RunRow]) -> list[float]:
    """Return the millijoules per example of completed runs, as far as they have them."""
    return _positive(row.summary.energy_mj_per_example for row in group if row.completed)


def _positive(values: Iterable[float | None]) -> list[float]:
    """Return the values that have a logarithm; an imported database may contain any."""
    return [value for value in values if value is not None and 0 < value < math.inf]


def decide(speedup: Estimate | None) -> Decision:
    if speedup is None:
        return "nothing to compare"
    if speedup.low is None or speedup.high is None:
        return "one run each" if speedup.n == 1 else "too few runs"
    if speedup.low > 1:
        return "faster"
    return "slower" if speedup.high < 1 else "no difference seen"
