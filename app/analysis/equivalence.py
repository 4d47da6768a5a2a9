"""Whether two variants are equal within a margin: shown by a test, never taken from a missing difference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.analysis.intervals import LEVEL, Estimate, ratio

TESTS_LEVEL = round(2 * LEVEL - 1, 6)
"""Level of the interval of two one-sided tests, each of which errs as often as both ends of the verdict's together."""

EquivalenceDecision = Literal["equal", "slower", "faster", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """How a ratio of throughputs lies to a margin.

    Within the margin neither side is slower than the other by more than `margin_pct` percent: at 2 % a ratio from 0.98
    to 1 / 0.98, the same to both sides on the logarithm.

    Attributes:
        margin_pct: The margin.
        interval: The interval of the two one-sided tests, None where a side has one process only.
        decision: `equal`: the interval lies within the margin. `slower`, `faster`: the verdict's own, wider interval
            lies beyond it. Else it cannot be told.
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
    """Return how the ratio of two samples lies to a margin, by two one-sided tests.

    Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power approach for assessing the
    equivalence of average bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15: two tests at 5 % each
    are the 90 % interval, which has to lie within the margin. At most one of the two can be wrong.

    Args:
        values: One positive value per process.
        baseline: The same of the baseline.
        verdict: Their ratio with the verdict's interval.
        margin_pct: The margin, above 0 and below 100.
        level: Level of the verdict's interval at this look.
    """
    found = ratio(values, baseline, 2 * level - 1)
    interval = found.interval if found else None
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
