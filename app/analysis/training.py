"""Trainings over whole epochs, grouped over seeds: their time, their accuracy, and whether accuracies are equal.

Runs that differ only in their seed are repeats of one training: another start, another order of the same data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.analysis.intervals import PLANNED_LEVEL, Estimate, difference
from app.analysis.summary import epoch_totals
from app.analysis.verdict import SEED, group_runs, without
from app.values.records import StoredRun

ACCURACY_MARGIN_POINTS = 0.5
"""Accuracies that differ by fewer percentage points count as the same."""

ACCURACY_GOALS_PCT = (90, 94)
"""Accuracies whose time is reported; 94 % is the goal of DAWNBench on CIFAR-10 (Coleman et al. 2017)."""

AccuracyDecision = Literal["equal", "lower", "higher", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyComparison:
    """How much higher an accuracy is than the baseline's, in percentage points.

    Attributes:
        points: The difference of the means with its interval.
        decision: `equal`: the interval of two one-sided tests lies within `ACCURACY_MARGIN_POINTS`. `lower`, `higher`:
            the difference's own, wider interval lies beyond it. Else it is undecided.
    """

    points: Estimate
    decision: AccuracyDecision


def accuracies_pct(runs: Sequence[StoredRun]) -> tuple[float, ...]:
    """Return the accuracy after the last epoch of each completed run, in percent."""
    completed = (epoch_totals(run.epochs) for run in runs if run.row.completed)
    return tuple(100 * totals.accuracy for totals in completed if totals)


def group_by_training(runs: Sequence[StoredRun]) -> list[tuple[StoredRun, ...]]:
    """Group runs with epochs that differ only in their seed, in order of first appearance."""
    return group_runs([run for run in runs if run.epochs], lambda run: without(run.row.spec, SEED))


def compare_accuracy(
    accuracies: Sequence[float], baseline: Sequence[float], level: float = PLANNED_LEVEL
) -> AccuracyComparison | None:
    """Return whether two trainings reach the same accuracy, by two one-sided tests of the difference of their means.

    Schuirmann (1987), as `equivalence` does for throughputs, here with Welch's interval of the difference itself. None
    if a side has no runs.
    """
    if not accuracies or not baseline:
        return None
    points = difference(accuracies, baseline, level)
    tests = difference(accuracies, baseline, 2 * level - 1).interval
    return AccuracyComparison(points=points, decision=_decide(points.interval, tests, ACCURACY_MARGIN_POINTS))


def _decide(wider: tuple[float, float] | None, tests: tuple[float, float] | None, margin: float) -> AccuracyDecision:
    if wider is None or tests is None:
        return "cannot tell"
    if -margin < tests[0] and tests[1] < margin:
        return "equal"
    if wider[1] < -margin:
        return "lower"
    return "higher" if wider[0] > margin else "cannot tell"
