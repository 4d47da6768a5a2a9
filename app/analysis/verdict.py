"""Compare each variant's runs with the baseline's: ratios, decisions, and whether they do the same work."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.analysis.intervals import LEVEL, Estimate, RequiredRepeats, mean, ratio, required_repeats, sidak_level
from app.records import RunRow
from workloads.protocol import RunSpec


def operations_per_example(runs: Sequence[RunRow]) -> float | None:
    """Return the operations of one example by formula (docs/utilisation.md), of one variant's runs; None if not known.

    They are the same for every implementation, layout, precision, batch size and number of GPUs.
    """
    known = ((row.summary.flops_per_step, row.spec.variant.get("batch_size")) for row in runs)
    return next((of_step / batch for of_step, batch in known if of_step and isinstance(batch, int) and batch > 0), None)


def work_ratio(runs: Sequence[RunRow], baseline: Sequence[RunRow]) -> float | None:
    """Return how many times the baseline's operations per example this variant does; None if as many, or not known.

    Between workloads an example is another thing, and nothing is known.
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


def same_work(runs: Sequence[RunRow], others: Sequence[RunRow]) -> bool:
    """Return whether two variants do the same work per example, as far as that is known."""
    return same_workload(runs, others) and work_ratio(runs, others) is None


def same_workload(runs: Sequence[RunRow], others: Sequence[RunRow]) -> bool:
    """Return whether two variants are of one workload; an example of another one is something else."""
    return runs[0].spec.workload == others[0].spec.workload


Decision = Literal[
    "faster", "slower", "no difference seen", "one run each", "different workloads", "nothing to compare"
]

FigureValues = Callable[[Sequence[RunRow]], list[float]]
"""One figure of every run that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """One variant's runs together: throughput in examples/s, energy in mJ per example, both against the baseline's.

    Only completed and stopped runs that measured something count; the others keep their place in `runs`. The intervals
    of all ratios of one kind hold together (`app.analysis.intervals.sidak_level`); those of `throughput` and `energy`
    describe a variant alone. The baseline's own ratios are 1 without an interval, and its decision has no meaning.
    `required_repeats` is how many more repeats would show a smaller difference, where none is seen.
    """

    runs: tuple[RunRow, ...]
    throughput: Estimate | None
    speedup: Estimate | None
    energy: Estimate | None
    energy_ratio: Estimate | None
    decision: Decision
    is_baseline: bool
    required_repeats: RequiredRepeats | None = None


def group_by_variant(runs: Sequence[RunRow]) -> list[tuple[RunRow, ...]]:
    """Group runs of equal workload and variant, in order of first appearance."""
    groups: list[tuple[RunSpec, list[RunRow]]] = []
    for run in runs:
        same = next((group for known, group in groups if known == run.spec), None)
        if same is None:
            groups.append((run.spec, [run]))
        else:
            same.append(run)
    return [tuple(group) for _, group in groups]


def judge(runs: Sequence[RunRow], baseline_run: int) -> list[VariantResult]:
    """Return one result per variant; the baseline is the variant that run `baseline_run` belongs to."""
    groups = group_by_variant(runs)
    baseline = next(group for group in groups if any(row.run == baseline_run for row in group))
    speed_level, energy_level = (_interval_level(groups, baseline, figures) for figures in (throughputs, energies))
    return [_result(group, baseline, speed_level, energy_level) for group in groups]


def _interval_level(groups: Sequence[Sequence[RunRow]], baseline: Sequence[RunRow], figures: FigureValues) -> float:
    """Return the level of each interval, so that those of all variants with two runs or more hold together."""
    others = [group for group in groups if group is not baseline and same_workload(group, baseline)]
    return sidak_level(LEVEL, sum(min(len(figures(group)), len(figures(baseline))) > 1 for group in others))


def _result(
    group: tuple[RunRow, ...], baseline: tuple[RunRow, ...], speed_level: float, energy_level: float
) -> VariantResult:
    speedup = _ratio_to_baseline(group, baseline, throughputs, speed_level)
    decision: Decision = _decision(speedup) if same_workload(group, baseline) else "different workloads"
    is_undecided = decision == "no difference seen"
    return VariantResult(
        runs=group,
        throughput=mean(throughputs(group)),
        speedup=speedup,
        energy=mean(energies(group)),
        energy_ratio=_ratio_to_baseline(group, baseline, energies, energy_level),
        decision=decision,
        is_baseline=group is baseline,
        required_repeats=required_repeats(throughputs(group), throughputs(baseline), speed_level)
        if is_undecided
        else None,
    )


def _ratio_to_baseline(
    group: Sequence[RunRow], baseline: Sequence[RunRow], figures: FigureValues, level: float
) -> Estimate | None:
    """Return the ratio of a figure to the baseline's; the baseline's own is 1 and has no interval."""
    if not same_workload(group, baseline):
        return None
    found = ratio(figures(group), figures(baseline), level)
    return Estimate(1.0, None, None, found.n) if found and group is baseline else found


def throughputs(group: Sequence[RunRow]) -> list[float]:
    """Return the examples/s of every run that measured to its end or was stopped by the user."""
    return _positive(row.summary.throughput for row in _with_result(group))


def energies(group: Sequence[RunRow]) -> list[float]:
    """Return the millijoules per example of the same runs, as far as they have them."""
    return _positive(row.summary.energy_mj_per_example for row in _with_result(group))


def _positive(values: Iterable[float | None]) -> list[float]:
    """Return the values that have a logarithm; an imported database may hold anything."""
    return [value for value in values if value is not None and 0 < value < math.inf]


def _with_result(group: Sequence[RunRow]) -> list[RunRow]:
    return [row for row in group if row.outcome is not None and row.outcome.name in ("completed", "stopped")]


def _decision(speedup: Estimate | None) -> Decision:
    if speedup is None:
        return "nothing to compare"
    if speedup.low is None or speedup.high is None:
        return "one run each"
    if speedup.low > 1:
        return "faster"
    return "slower" if speedup.high < 1 else "no difference seen"
