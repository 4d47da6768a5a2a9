"""How much processes of one variant differ, and how small a difference a comparison of so many can show.

All spreads are standard deviations of the logarithm of throughput: 0.01 is about 1 %.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from app.analysis.intervals import level_at, welch_half_width
from app.analysis.quantiles import noncentrality

POWER = 0.8
"""Share of experiments in which a difference that "can be shown" is shown: 4 of 5."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The spread `sd` between processes of one variant, from `runs` processes with `degrees` of freedom."""

    sd: float
    degrees: int
    runs: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """What `repeats` of each variant can show, as shares: the expected half-width, and the smallest difference.

    `half_width` is half the interval's width; a difference of `smallest` is shown in 4 of 5 experiments.
    """

    repeats: int
    half_width: float
    smallest: float


def pooled_noise(variants: Iterable[Sequence[float]]) -> Noise | None:
    """Return the spread within variants, pooled over all of two processes or more; None below two degrees of freedom.

    Args:
        variants: Throughput of each process, by variant.
    """
    logs = [np.log(np.asarray(values, dtype=np.float64)) for values in variants if len(values) > 1]
    degrees = sum(len(each) - 1 for each in logs)
    if degrees < 2:
        return None
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in logs)
    return Noise(math.sqrt(squares / degrees), degrees, sum(map(len, logs)))


def resolution(sd: float, repeats: int, comparisons: int = 1) -> Resolution | None:
    """Return what an experiment with the program's intervals can show; None with fewer than two repeats.

    The smallest difference follows from the noncentral t distribution: Johnson and Welch (1940), "Applications of the
    non-central t-distribution", Biometrika 31.

    Args:
        sd: Spread between processes of each variant.
        repeats: Processes of each variant.
        comparisons: How many variants are compared with one baseline.
    """
    if repeats < 2:
        return None
    square = sd**2 / repeats
    half = welch_half_width(square, repeats, square, repeats, level_at(1, comparisons))
    error = math.sqrt(2 * square)
    smallest = error * noncentrality(2 * (repeats - 1), 1 - POWER, half / error) if error else 0.0
    return Resolution(repeats, math.expm1(half), math.expm1(smallest))
