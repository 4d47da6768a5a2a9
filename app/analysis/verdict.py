"""Which variant is faster: one variant's runs against the baseline's, and what may be said of the difference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.analysis.intervals import Estimate, mean, ratio
from app.records import RunRow
from workloads.catalog import with_defaults
from workloads.protocol import RunSpec

Decision = Literal[
    "faster", "slower", "no difference seen", "one run each", "different workloads", "nothing to compare"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """One variant's runs in one row: throughput, its ratio to the baseline's, and the energy ratio if both have one.

    Only completed and stopped runs that measured something count; the others keep their place in `runs`.
    """

    runs: tuple[RunRow, ...]
    throughput: Estimate | None
    speedup: Estimate | None
    energy_ratio: Estimate | None
    decision: Decision
    is_baseline: bool


def group_by_variant(runs: Sequence[RunRow]) -> list[tuple[RunRow, ...]]:
    """The runs of equal workload and variant together, in order of first appearance.

    A parameter that a run does not name, because it is older than it, counts with its default.
    """
    groups: list[tuple[RunSpec, list[RunRow]]] = []
    for run in runs:
        spec = with_defaults(run.spec)
        same = next((group for known, group in groups if known == spec), None)
        if same is None:
            groups.append((spec, [run]))
        else:
            same.append(run)
    return [tuple(group) for _, group in groups]


def judge(runs: Sequence[RunRow], baseline_run: int) -> list[VariantResult]:
    """One result a variant; the baseline is the variant that run `baseline_run` belongs to."""
    groups = group_by_variant(runs)
    baseline = next(group for group in groups if any(row.run == baseline_run for row in group))
    return [_result(group, baseline) for group in groups]


def _result(group: tuple[RunRow, ...], baseline: tuple[RunRow, ...]) -> VariantResult:
    same_workload = group[0].spec.workload == baseline[0].spec.workload
    own, base = throughputs(group), throughputs(baseline)
    speedup = ratio(own, base) if same_workload else None
    return VariantResult(
        runs=group,
        throughput=mean(own),
        speedup=speedup,
        energy_ratio=ratio(_energies(group), _energies(baseline)) if same_workload else None,
        decision=_decide(speedup) if same_workload else "different workloads",
        is_baseline=group is baseline,
    )


def throughputs(group: Sequence[RunRow]) -> list[float]:
    """Examples/s of every run that measured to an end of its own or the user's choosing."""
    return [row.summary.throughput for row in _counted(group) if row.summary.throughput]


def _energies(group: Sequence[RunRow]) -> list[float]:
    return [row.summary.energy_mj_per_example for row in _counted(group) if row.summary.energy_mj_per_example]


def _counted(group: Sequence[RunRow]) -> list[RunRow]:
    return [row for row in group if row.outcome is not None and row.outcome.name in ("completed", "stopped")]


def _decide(speedup: Estimate | None) -> Decision:
    if speedup is None:
        return "nothing to compare"
    if speedup.low is None or speedup.high is None:
        return "one run each"
    if speedup.low > 1:
        return "faster"
    return "slower" if speedup.high < 1 else "no difference seen"
