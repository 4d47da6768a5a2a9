"""Confidence intervals of means and ratios over processes, and the repeats that a precision requires.

A process (one run) is the unit: blocks of one process are not independent, so they never narrow an interval. Functions
take one value per process, positive if they use logarithms; `level` is the probability that an interval holds.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
"""Probability that the intervals of a comparison hold, all together and at every look."""
_FIRST_LOOK_ERROR = 0.03
_LOOK_EXPONENT = 1.5
MIN_REPEATS = 3
"""The fewest processes of each variant for an interval: two that happen to be alike are too common."""
Gpus = tuple[str, ...]
"""The GPUs of a run."""
LARGEST_LOG = 700.0
WIDEST_KNOWN = 1.0
"""From this half-width on a ratio counts as unknown: ± 100 %, twice or half the estimate."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value over `n` processes and its confidence interval; `low` and `high` are None below `MIN_REPEATS`."""

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def inverse(self) -> "Estimate":
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return Estimate(1 / self.value, low, high, self.n)

    @property
    def half_width(self) -> float | None:
        """Return half the interval's width on the logarithm: 0.01 is about ± 1 %."""
        if self.low is None or self.high is None:
            return None
        return (math.log(self.high) - math.log(self.low)) / 2  # the ratio of the ends may overflow

    @property
    def is_known(self) -> bool:
        """Return whether there is an interval, narrower than `WIDEST_KNOWN`."""
        half = self.half_width
        return half is not None and half < math.log1p(WIDEST_KNOWN)

    def scaled(self, factor: float) -> "Estimate":
        """Return the estimate times a factor; a negative one mirrors it."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, *((low, high) if factor > 0 else (high, low)), self.n)


def sidak_level(level: float, comparisons: int) -> float:
    """Return the level of each of several intervals that hold together with probability `level`.

    Šidák (1967), "Rectangular confidence regions for the means of multivariate normal distributions", Journal of the
    American Statistical Association 62: exact for independent comparisons, on the safe side for one shared baseline.
    """
    return float(level ** (1 / max(comparisons, 1)))


def level_at(look: int, comparisons: int = 1) -> float:
    """Return the level of each interval of a family, so that they hold together and at every look with `LEVEL`.

    A family is the intervals of one comparison, or one column of a table, against one baseline.

    Adding runs and judging again is another chance to be wrong. So the first look may be wrong with 3 %, look k with 3
    % / k^1.5: error spending as in Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials",
    Biometrika 70, over the number of looks, because the last one is unknown. `python -m benchmarks compare` shows that
    all looks together are wrong in less than 6 %; docs/internals/decisions has the candidates for both.

    Args:
        look: How often these runs may have been judged, including now.
        comparisons: Number of intervals in the family.
    """
    return sidak_level(1 - _FIRST_LOOK_ERROR / look**_LOOK_EXPONENT, comparisons)


PLANNED_LEVEL = level_at(1)
"""Level of an interval that is judged once, after the planned runs."""


def mean(values: Sequence[float], level: float = LEVEL) -> Estimate | None:
    """Return the geometric mean of positive values, with Student's t interval of their logarithms; None if empty."""
    if not values:
        return None
    logs = np.log(np.asarray(values, dtype=np.float64))
    centre, n = float(logs.mean()), len(values)
    if n < MIN_REPEATS:
        return Estimate(_bounded_exp(centre), None, None, n)
    half = student_t(n - 1, 0.5 + level / 2) * float(logs.std(ddof=1)) / math.sqrt(n)
    return _estimate(centre, half, n)


def ratio(values: Sequence[float], baseline: Sequence[float], level: float = PLANNED_LEVEL) -> Estimate | None:
    """Return the ratio of geometric means, with Welch's t interval on the logarithms.

    Welch (1947), "The generalization of Student's problem when several different population variances are involved",
    Biometrika 34; degrees of freedom by Satterthwaite (1946). None if either side is empty, no interval if either has
    fewer than `MIN_REPEATS` processes; `n` is the smaller sample.
    """
    return mean_ratio([(values, baseline)], level) if values and baseline else None


def difference(values: Sequence[float], baseline: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the difference of arithmetic means with Welch's t interval, none below `MIN_REPEATS` processes a side."""
    centre, n = _mean(values) - _mean(baseline), min(len(values), len(baseline))
    if n < MIN_REPEATS:
        return Estimate(centre, None, None, n)
    half = half_width_of_sum([_squared_error(values), _squared_error(baseline)], level)
    return Estimate(centre, centre - half, centre + half, n)


def mean_ratio(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], level: float = PLANNED_LEVEL) -> Estimate:
    """Return the geometric mean of the ratios of several pairs of variants; no variant is in two pairs.

    The variance of its logarithm is the sum of those of all means, over the square of the number of pairs. No interval
    if a variant has fewer than `MIN_REPEATS` processes; `n` is the smallest sample.
    """
    sides = [np.log(np.asarray(side, dtype=np.float64)).tolist() for pair in pairs for side in pair]
    means = [_mean(side) for side in sides]
    centre = (sum(means[::2]) - sum(means[1::2])) / len(pairs)
    n = min(map(len, sides))
    if n < MIN_REPEATS:
        return Estimate(_bounded_exp(centre), None, None, n)
    squared_errors = [_squared_error(side) for side in sides]
    return _estimate(centre, half_width_of_sum(squared_errors, level) / len(pairs), n)


def _mean(values: Sequence[float]) -> float:
    # For so few values, in thousands of calls, this and the variance are twice as fast as NumPy's.
    return sum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    centre = _mean(values)
    return sum((value - centre) * (value - centre) for value in values) / (len(values) - 1)  # no power: it overflows


def _squared_error(values: Sequence[float]) -> tuple[float, int]:
    return _variance(values) / len(values), len(values)


def ratio_within_gpus(
    values: Mapping[Gpus, Sequence[float]], baseline: Mapping[Gpus, Sequence[float]], level: float = PLANNED_LEVEL
) -> Estimate:
    """Return the ratio of geometric means of runs on the same GPUs, with Welch's interval on the residuals.

    Least squares fits the logarithms with a level for each GPU, because two of one model differ by up to 7 % in the
    energy for the same work. No interval below `MIN_REPEATS` processes per side, or if the GPUs take more than half of
    the degrees of freedom.

    Both sides must have values for the same GPUs.
    """
    sides = [[(gpus, value) for gpus, figures in side.items() for value in figures] for side in (values, baseline)]
    counts = [len(side) for side in sides]
    logs = np.log([value for side in sides for _, value in side])
    is_variant = np.arange(len(logs)) < counts[0]
    used = [gpus for side in sides for gpus, _ in side]
    levels = [[float(gpus == group) for gpus in used] for group in dict.fromkeys(used)]
    design = np.column_stack([is_variant.astype(np.float64), *levels])
    inverse = np.linalg.pinv(design)
    fitted, weights = inverse @ logs, inverse[0]
    degrees = len(logs) - design.shape[1]
    if min(counts) < MIN_REPEATS or 2 * degrees < len(logs) - 2:
        return Estimate(_bounded_exp(float(fitted[0])), None, None, min(counts))
    squares = (logs - design @ fitted) ** 2
    errors = [
        (float(squares[side].sum()) / (n - 1) * float((weights[side] ** 2).sum()), n)
        for side, n in zip((is_variant, ~is_variant), counts, strict=True)
    ]
    half = half_width_of_sum(errors, level, degrees_left=degrees / (len(logs) - 2))
    return _estimate(float(fitted[0]), half, min(counts))


def pooled_ratio(values: Sequence[float], baseline: Sequence[float], level: float = LEVEL) -> Estimate | None:
    """Return the ratio of two samples of equal variance, by Student's pooled t; one of them may be a single process.

    Student (1908), "The probable error of a mean", Biometrika 6. None if either side is empty or both have one process.
    """
    if not values or not baseline or len(values) + len(baseline) < 3:
        return None
    a, b = np.log(np.asarray(values, dtype=np.float64)), np.log(np.asarray(baseline, dtype=np.float64))
    degrees = len(a) + len(b) - 2
    variance = (len(a) * float(a.var()) + len(b) * float(b.var())) / degrees
    half = student_t(degrees, 0.5 + level / 2) * math.sqrt(variance * (1 / len(a) + 1 / len(b)))
    centre = float(a.mean() - b.mean())
    return _estimate(centre, half, min(len(a), len(b)))


def half_width_of_sum(squared_errors: Sequence[tuple[float, int]], level: float, degrees_left: float = 1.0) -> float:
    """Return half the width of the interval of a sum or difference of independent means.

    On a machine with two clock states, three processes are alike in one of four cases and then reveal nothing of the
    other state; compared with eight, a 97 % interval from their own errors covers 89 %. So the variance is at least
    that of equal noise in all means, which is the same for equal numbers of processes.

    Args:
        squared_errors: For each mean, its squared standard error and its number of processes.
        level: Probability that the interval holds.
        degrees_left: Share of the degrees of freedom that remains after a fit.
    """
    squares = sum((n - 1) * n * error for error, n in squared_errors)
    pooled = squares / sum(n - 1 for _, n in squared_errors) * sum(1 / n for _, n in squared_errors)
    variance = max(sum(error for error, _ in squared_errors), pooled) / degrees_left
    if not variance:
        return 0.0
    degrees = satterthwaite_degrees(squared_errors) * degrees_left
    return student_t(degrees, 0.5 + level / 2) * math.sqrt(variance)


def satterthwaite_degrees(squared_errors: Sequence[tuple[float, int]]) -> float:
    """Return the degrees of freedom of a sum of means.

    Satterthwaite (1946), "An approximate distribution of estimates of variance components", Biometrics Bulletin 2.

    `squared_errors` has for each mean its squared standard error, not all 0, and its number of processes.
    """
    return sum(error for error, _ in squared_errors) ** 2 / sum(error**2 / (n - 1) for error, n in squared_errors)


def _estimate(centre: float, half: float, n: int) -> Estimate:
    return Estimate(_bounded_exp(centre), _bounded_exp(centre - half), _bounded_exp(centre + half), n)


def _bounded_exp(logarithm: float) -> float:
    """Return the exponential of a logarithm, within the range of a float.

    The interval of two wild values may span hundreds of powers of ten.
    """
    return math.exp(min(max(logarithm, -LARGEST_LOG), LARGEST_LOG))


DEFAULT_REPEATS = 3
"""Processes per variant by default."""
_FINEST_HALF_WIDTH = 0.001
_MAX_REPEATS = 1_000_000
_FINER_FACTOR = 0.75
_ROUND_STEPS = (5, 2, 1)
_RANGE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredRepeats:
    """The repeats of each variant after which their ratio should be known to ± `half_width` (0.005 is 0.5 %).

    Few runs hardly reveal their noise: in 80 % of cases it takes `fewest` to `most`.
    """

    repeats: int
    fewest: int
    most: int
    half_width: float


def precision_reached(
    values: Sequence[float], baseline: Sequence[float], precision_pct: float, level: float = PLANNED_LEVEL
) -> bool:
    """Return whether the ratio is known to ± `precision_pct` percent, so that no further repeat is needed.

    The first narrow interval is more often narrow by chance; at the level of `level_at` it still covers the truth often
    enough (docs/internals/statistics.md).
    """
    estimate = ratio(values, baseline, level)
    half = estimate.half_width if estimate else None
    return half is not None and half <= math.log1p(precision_pct / 100)


def required_repeats(
    values: Sequence[float], baseline: Sequence[float], look: int = 1, comparisons: int = 1
) -> RequiredRepeats | None:
    """Return how many more repeats narrow the interval to the next round figure (50, 20, 10, 5, 2, 1, 0.5 … %).

    The next look judges them. None without an interval, or if it is narrow enough for any purpose.

    The runs may have been judged `look` times so far; `comparisons` intervals hold together.
    """
    estimate = ratio(values, baseline, level_at(look, comparisons))
    half = estimate.half_width if estimate else None
    if half is None or half <= _FINEST_HALF_WIDTH:
        return None
    limit = _FINER_FACTOR * min(math.expm1(half), WIDEST_KNOWN)
    tens = 10.0 ** math.floor(math.log10(limit))
    target, level = next(step * tens for step in _ROUND_STEPS if step * tens <= limit), level_at(look + 1, comparisons)
    least, most = (_noise_quantile(values, baseline, (1 + side * _RANGE) / 2) for side in (-1, 1))
    repeats = [additional_repeats(values, baseline, target, level, noise) for noise in (least, 1.0, most)]
    return RequiredRepeats(fewest=repeats[0], repeats=repeats[1], most=repeats[2], half_width=target)


_LEAST_DISTANCE_LEVEL, _MOST_NOISE = 0.94, 0.9
"""The level of the interval whose near end is taken as the distance of two variants, and the quantile of their noise.
"""


def repeats_to_tell(
    faster: Sequence[float], slower: Sequence[float], look: int = 1, comparisons: int = 1
) -> int | None:
    """Return how many more repeats of each show that the first is faster; None if it may not be.

    They suffice for the smallest likely distance at the most likely noise, in 4 of 5 cases (`python -m benchmarks
    compare`). For equal variants, where more repeats show nothing, the result is usually None.

    `look` and `comparisons` are as in `required_repeats`.
    """
    estimate = ratio(faster, slower, _LEAST_DISTANCE_LEVEL)
    if estimate is None or estimate.low is None or estimate.low <= 1:
        return None
    noise = _noise_quantile(faster, slower, _MOST_NOISE)
    return additional_repeats(faster, slower, estimate.low - 1, level_at(look + 1, comparisons), noise)


def additional_repeats(
    values: Sequence[float], baseline: Sequence[float], target: float, level: float = PLANNED_LEVEL, noise: float = 1.0
) -> int:
    """Return the further processes of each variant after which the interval is expected to be narrow enough.

    Welch's half-width with the standard deviations seen so far held fixed and the counts raised. As Kupper and Hafner
    (1989), "How appropriate are popular sample size formulas?", The American Statistician 43, warn, it suffices in only
    about half of all cases.

    Args:
        values: One positive value per process, two or more.
        baseline: The baseline's values.
        target: Half-width to reach, as a share of the ratio.
        level: Probability that the interval then holds.
        noise: True variance over the variance seen so far.
    """
    a, b = (noise * variance for variance in _variances(values, baseline))

    def half_width(more: int) -> float:
        n_a, n_b = len(values) + more, len(baseline) + more
        return half_width_of_sum([(a / n_a, n_a), (b / n_b, n_b)], level)

    # This many make the standard error small enough; twice that, because degrees of freedom shift between unequal
    # numbers.
    enough = 2 * max(len(values), len(baseline)) * (half_width(0) / math.log1p(target)) ** 2
    upper = min(_MAX_REPEATS, math.ceil(enough) + 1)
    return bisect_left(range(upper), True, key=lambda more: half_width(more) <= math.log1p(target))


def _noise_quantile(values: Sequence[float], baseline: Sequence[float], probability: float) -> float:
    """Return a quantile of true over observed variance: for normal values, the degrees of freedom over chi-square."""
    a, b = _variances(values, baseline)
    degrees = satterthwaite_degrees([(a / len(values), len(values)), (b / len(baseline), len(baseline))])
    from scipy.special import gammaincinv  # here: the import takes 0.3 s

    return degrees / float(2 * gammaincinv(degrees / 2, 1 - probability))


def _variances(values: Sequence[float], baseline: Sequence[float]) -> tuple[float, float]:
    return _variance([*map(math.log, values)]), _variance([*map(math.log, baseline)])


def student_t(degrees: float, probability: float) -> float:
    """Return the quantile of Student's t distribution; `probability` is that of lower values."""
    # Here, as below: the import takes 0.3 s, and most commands judge nothing.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


POWER = 0.8
"""The share of experiments that show a difference that "can be shown": 4 of 5."""
_MOST_REPEATS = 1000
"""Larger numbers are not searched."""
_WIDEST_LOG = math.log1p(WIDEST_KNOWN)


@dataclass(frozen=True, slots=True)
class Noise:
    """The spread `sd` between a variant's processes, from `runs` processes."""

    sd: float
    runs: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """What `repeats` of each variant can show: the expected half-width and the smallest difference, as shares.

    `half_width` is half the interval's width; 4 of 5 experiments show a difference of `smallest`. If they would not
    even show `WIDEST_KNOWN`, `sufficient_repeats` would, or None if that takes too many.
    """

    repeats: int
    half_width: float
    smallest: float
    sufficient_repeats: int | None = None


def pooled_noise(variants: Iterable[Sequence[float]]) -> Noise | None:
    """Return the spread within variants, pooled over all of two processes or more; None below 2 degrees of freedom."""
    logs = [np.log(np.asarray(values, dtype=np.float64)) for values in variants if len(values) > 1]
    degrees = sum(len(group) - 1 for group in logs)
    if degrees < 2:
        return None
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in logs)
    return Noise(math.sqrt(squares / degrees), sum(map(len, logs)))


def resolution(sd: float, repeats: int, comparisons: int = 1) -> Resolution | None:
    """Return what an experiment with the program's intervals can show; None with too few repeats for an interval.

    The smallest difference follows from the noncentral t distribution: Johnson and Welch (1940), "Applications of the
    non-central t-distribution", Biometrika 31.

    `sd` is the spread between processes of each variant; `comparisons` variants are compared with one baseline.
    """
    if repeats < MIN_REPEATS:
        return None
    half, smallest = _log_resolution(sd, repeats, comparisons)
    needed = None if smallest < _WIDEST_LOG else _sufficient_repeats(sd, repeats, comparisons)
    shares = [math.expm1(min(log_width, LARGEST_LOG)) for log_width in (half, smallest)]
    return Resolution(repeats, shares[0], shares[1], needed)


def _log_resolution(sd: float, repeats: int, comparisons: int) -> tuple[float, float]:
    from scipy.special import nctdtrinc  # here: the import takes 0.3 s

    square = sd**2 / repeats
    half = half_width_of_sum([(square, repeats)] * 2, level_at(1, comparisons))
    error = math.sqrt(2 * square)
    smallest = error * float(nctdtrinc(2 * (repeats - 1), 1 - POWER, half / error)) if error else 0.0
    return half, smallest


def _sufficient_repeats(sd: float, repeats: int, comparisons: int) -> int | None:
    """Return the fewest repeats that show a difference below `WIDEST_KNOWN`; None above `_MOST_REPEATS`."""
    more = range(repeats + 1, _MOST_REPEATS + 1)
    index = bisect_left(more, True, key=lambda count: _log_resolution(sd, count, comparisons)[1] < _WIDEST_LOG)
    return more[index] if index < len(more) else None
