"""Means and ratios of processes with confidence intervals, on the logarithm: rates are positive and compared by ratio.

A process (one run) is the unit: blocks within one process share its luck, so they never narrow an interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
_LARGEST_LOG = 700.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value over `n` processes and its confidence interval; `low` and `high` are None where one process has none."""

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, or None."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def half_width(self) -> float | None:
        """Half the interval's width as a share of the value, on the logarithm: 0.01 is about ± 1 %."""
        return None if self.low is None or self.high is None else math.log(self.high / self.low) / 2


def together(level: float, comparisons: int) -> float:
    """The level of each of several intervals that are all to hold together with probability `level`.

    Šidák (1967), "Rectangular confidence regions for the means of multivariate normal distributions", Journal of the
    American Statistical Association 62: exact for independent comparisons, on the safe side for one shared baseline.
    """
    return float(level ** (1 / max(comparisons, 1)))


def mean(values: Sequence[float], level: float = LEVEL) -> Estimate | None:
    """The geometric mean of positive values, with Student's t interval on their logarithms; None of nothing."""
    if not values:
        return None
    logs = np.log(np.asarray(values, dtype=np.float64))
    centre, n = float(logs.mean()), len(values)
    if n < 2:
        return Estimate(_exp(centre), None, None, n)
    half = _t(level, n - 1) * float(logs.std(ddof=1)) / math.sqrt(n)
    return _estimate(centre, half, n)


def ratio(values: Sequence[float], baseline: Sequence[float], level: float = LEVEL) -> Estimate | None:
    """The ratio of geometric means, with Welch's t interval on the logarithms; `n` is the smaller sample.

    Welch (1947), "The generalization of Student's problem when several different population variances are involved",
    Biometrika 34; degrees of freedom by Satterthwaite (1946). None when either side is empty, no interval when either
    side has one process only.
    """
    if not values or not baseline:
        return None
    a, b = np.log(np.asarray(values, dtype=np.float64)), np.log(np.asarray(baseline, dtype=np.float64))
    centre, n = float(a.mean() - b.mean()), min(len(a), len(b))
    if n < 2:
        return Estimate(_exp(centre), None, None, n)
    half = welch_half_width(float(a.var(ddof=1)) / len(a), len(a), float(b.var(ddof=1)) / len(b), len(b), level)
    return _estimate(centre, half, n)


def pooled_ratio(values: Sequence[float], baseline: Sequence[float], level: float = LEVEL) -> Estimate | None:
    """The same for two samples of equal variance, by Student's pooled t: one of the two may be a single process.

    Student (1908), "The probable error of a mean", Biometrika 6. None when either side is empty or both have one.
    """
    if not values or not baseline or len(values) + len(baseline) < 3:
        return None
    a, b = np.log(np.asarray(values, dtype=np.float64)), np.log(np.asarray(baseline, dtype=np.float64))
    freedom = len(a) + len(b) - 2
    variance = (len(a) * float(a.var()) + len(b) * float(b.var())) / freedom
    half = _t(level, freedom) * math.sqrt(variance * (1 / len(a) + 1 / len(b)))
    centre = float(a.mean() - b.mean())
    return _estimate(centre, half, min(len(a), len(b)))


def welch_half_width(a: float, n_a: int, b: float, n_b: int, level: float) -> float:
    """Half the width of Welch's interval, from the squared standard errors `a` and `b` of two means."""
    if a + b == 0:
        return 0.0
    freedom = (a + b) ** 2 / (a**2 / (n_a - 1) + b**2 / (n_b - 1))
    return _t(level, freedom) * math.sqrt(a + b)


def prepare() -> None:
    """Imports what intervals need, 0.2 s, so that the first of them need not wait for it."""
    import scipy.special  # noqa: F401


def _estimate(centre: float, half: float, n: int) -> Estimate:
    """An estimate from the logarithm of its value and half the width of its interval there."""
    return Estimate(_exp(centre), _exp(centre - half), _exp(centre + half), n)


def _exp(logarithm: float) -> float:
    """Its exponential, within what a float holds: two wild values have an interval over hundreds of powers of ten."""
    return math.exp(min(max(logarithm, -_LARGEST_LOG), _LARGEST_LOG))


def _t(level: float, freedom: float) -> float:
    # scipy.stats takes 1.5 s to import: only who asks for an interval pays.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + level / 2))
