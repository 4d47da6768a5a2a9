"""Which variant is faster: each variant's runs against the baseline's, and what may be said of the difference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.analysis.intervals import LEVEL, Estimate, mean, ratio, together
from app.analysis.repeats import Outlook, outlook
from app.records import RunRow
from workloads.catalog import with_defaults
from workloads.protocol import RunSpec

Decision = Literal[
    "faster", "slower", "no difference seen", "one run each", "different workloads", "nothing to compare"
]

Figures = Callable[[Sequence[RunRow]], list[float]]
"""One figure of every run that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """One variant's runs in one row: throughput in examples/s, energy in mJ an example, both against the baseline's.

    Only completed and stopped runs that measured something count; the others keep their place in `runs`. The intervals
    of all ratios of one kind hold together (`app.analysis.intervals.together`); those of `throughput` and `energy`
    describe a variant alone. `outlook` is how many more repeats would tell a smaller difference, where none is seen.
    """

    runs: tuple[RunRow, ...]
    throughput: Estimate | None
    speedup: Estimate | None
    energy: Estimate | None
    energy_ratio: Estimate | None
    decision: Decision
    is_baseline: bool
    outlook: Outlook | None = None


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
    speed_level, energy_level = (_level(groups, baseline, figures) for figures in (throughputs, energies))
    return [_result(group, baseline, speed_level, energy_level) for group in groups]


def comparisons(groups: Sequence[Sequence[RunRow]], baseline: Sequence[RunRow], figures: Figures) -> int:
    """How many of the groups have an interval against the baseline: two runs or more on both sides that count."""
    if len(figures(baseline)) < 2:
        return 0
    others = [group for group in groups if group is not baseline and _same_workload(group, baseline)]
    return sum(len(figures(group)) > 1 for group in others)


def _level(groups: Sequence[Sequence[RunRow]], baseline: Sequence[RunRow], figures: Figures) -> float:
    return together(LEVEL, comparisons(groups, baseline, figures))


def _result(
    group: tuple[RunRow, ...], baseline: tuple[RunRow, ...], speed_level: float, energy_level: float
) -> VariantResult:
    own, base = throughputs(group), throughputs(baseline)
    comparable = _same_workload(group, baseline)
    speedup = ratio(own, base, speed_level) if comparable else None
    decision: Decision = _decide(speedup) if comparable else "different workloads"
    unsettled = decision == "no difference seen" and group is not baseline
    return VariantResult(
        runs=group,
        throughput=mean(own),
        speedup=speedup,
        energy=mean(energies(group)),
        energy_ratio=ratio(energies(group), energies(baseline), energy_level) if comparable else None,
        decision=decision,
        is_baseline=group is baseline,
        outlook=outlook(own, base, speed_level) if unsettled else None,
    )


def throughputs(group: Sequence[RunRow]) -> list[float]:
    """Examples/s of every run that measured to an end of its own or the user's choosing."""
    return [row.summary.throughput for row in _counted(group) if row.summary.throughput]


def energies(group: Sequence[RunRow]) -> list[float]:
    """Millijoules an example of the same runs, those that have it."""
    return [row.summary.energy_mj_per_example for row in _counted(group) if row.summary.energy_mj_per_example]


def _same_workload(group: Sequence[RunRow], baseline: Sequence[RunRow]) -> bool:
    return group[0].spec.workload == baseline[0].spec.workload


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
