"""The quantiles that intervals need; scipy.special has them too, but takes 0.3 s of processor time to import and 22 MB.

All are found by Newton's method on the logarithms of probability and quantile, where each of these curves bends one way
only. With up to 100,000 degrees of freedom and tails of one in a billion or more (200 variants at their thousandth look
are above), they are right to one in 10 million (tests/unit/analysis/test_quantiles.py).
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

_PRECISION = 1e-7
"""A step so short squares the error that is left, which is then below that of the curves."""
_THIN_TAIL = 1e-3
"""A thinner tail is summed itself: as what is left of 1 it would lose its digits."""
_LONGEST_STEP = 0.5
"""Beyond the quantile a tail may be too thin to be told from none."""
_MAX_STEPS = 100
_LEAST_TERM = 1e-17


@lru_cache(1024)
def student_t(degrees: float, probability: float) -> float:
    """Return the quantile of Student's t distribution above its median.

    Args:
        degrees: Degrees of freedom, 1 or more; need not be whole.
        probability: That of a lower value, above 0.5.
    """
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi * degrees)

    def above(t: float) -> tuple[float, float]:
        x, y = degrees / (degrees + t * t), t * t / (degrees + t * t)
        tail = 0.0 if x < y else 1 - _incomplete_beta(0.5, degrees / 2, y, x)
        if tail < _THIN_TAIL:
            tail = _incomplete_beta(degrees / 2, 0.5, x, y)
        return tail / 2, -scale * x ** ((degrees + 1) / 2)

    return _solve(above, 1 - probability, 1.0)


def chi_square(degrees: float, probability: float) -> float:
    """Return the quantile of the chi-square distribution.

    Args:
        degrees: Degrees of freedom, 1 or more; need not be whole.
        probability: That of a lower value.
    """
    half = degrees / 2

    def below(value: float) -> tuple[float, float]:
        density = math.exp(half * math.log(value / 2) - value / 2 - math.lgamma(half)) / value
        return density * value / half * _series(lambda n: value / 2 / (half + n + 1)), density

    return _solve(below, probability, degrees)


def noncentrality(degrees: float, probability: float, t: float) -> float:
    """Return by how much a noncentral t variable is shifted that stays below `t` with this probability.

    Such a variable is a normal one, shifted, over an independent chi variable, whose logarithm is integrated over: the
    trapezoidal rule is exact there to the last digits.

    Args:
        degrees: Degrees of freedom, 1 or more.
        probability: That of a lower value, below 0.5.
        t: The value, positive.
    """
    root = math.sqrt(degrees)
    logs = np.arange(-6.5 / root - 32 / degrees, 6.5 / root, 0.2 / (root + t))
    weights = np.exp(degrees * (logs - np.expm1(2 * logs) / 2))
    weights /= weights.sum()
    bounds = t * np.exp(logs)

    def below(shift: float) -> tuple[float, float]:
        z = bounds - shift
        normal = np.array([math.erfc(-each / math.sqrt(2)) / 2 for each in z])
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        return float(weights @ normal), -float(weights @ density)

    return _solve(below, probability, t)


def _solve(curve: Callable[[float], tuple[float, float]], probability: float, start: float) -> float:
    """Return the positive argument at which a curve, of which its value and slope are given, has this probability.

    Raises:
        ArithmeticError: The steps do not reach it.
    """
    argument = start
    for _ in range(_MAX_STEPS):
        value, slope = curve(argument)
        step = math.log(probability / value) * value / (slope * argument)
        argument *= math.exp(max(-_LONGEST_STEP, min(step, _LONGEST_STEP)))
        if abs(step) < _PRECISION:
            return argument
    raise ArithmeticError(f"no quantile for a probability of {probability!r} within {_MAX_STEPS} steps")


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """Return the regularized incomplete beta function by its power series (https://dlmf.nist.gov/8.17.E8).

    Args:
        a: Its first parameter.
        b: The second.
        x: The argument.
        y: What x lacks of 1, which a difference would lose of an x near 1.
    """
    beta = math.exp(math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))
    return math.pow(x, a) * math.pow(y, b) / (a * beta) * _series(lambda n: x * (a + b + n) / (a + 1 + n))


def _series(ratio: Callable[[int], float]) -> float:
    """Return the sum of positive terms, of which the first is 1 and each is the one before times the ratio."""
    total = term = 1.0
    n = 0
    while term > _LEAST_TERM * total:
        term *= ratio(n)
        total += term
        n += 1
    return total
