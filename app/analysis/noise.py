"""How much processes of one variant differ, and how small a difference a comparison of so many can show.

All spreads are standard deviations of the logarithm of throughput: 0.01 is about 1 %.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from app.analysis.intervals import LARGEST_LOG, MIN_REPEATS, WIDEST_KNOWN, level_at, welch_half_width

POWER = 0.8
"""Share of experiments in which a difference that "can be shown" is shown: 4 of 5."""
_MOST_REPEATS = 1000
"""Of which a larger number is not looked for."""
_WIDEST_LOG = math.log1p(WIDEST_KNOWN)


@dataclass(frozen=True, slots=True)
class Noise:
    """The spread `sd` between processes of one variant, from `runs` processes with `degrees` of freedom."""

    sd: float
    degrees: int
    runs: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """What `repeats` of each variant can show, as shares: the expected half-width, and the smallest difference.

    `half_width` is half the interval's width; a difference of `smallest` is shown in 4 of 5 experiments. Where not even
    `WIDEST_KNOWN` is, `sufficient_repeats` would show it, None where that takes more than anybody makes.
    """

    repeats: int
    half_width: float
    smallest: float
    sufficient_repeats: int | None = None


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
    """Return what an experiment with the program's intervals can show; None with fewer repeats than an interval takes.

    The smallest difference follows from the noncentral t distribution: Johnson and Welch (1940), "Applications of the
    non-central t-distribution", Biometrika 31.

    Args:
        sd: Spread between processes of each variant.
        repeats: Processes of each variant.
        comparisons: How many variants are compared with one baseline.
    """
    if repeats < MIN_REPEATS:
        return None
    half, smallest = _log_resolution(sd, repeats, comparisons)
    needed = None if smallest < _WIDEST_LOG else _sufficient_repeats(sd, repeats, comparisons)
    shares = [math.expm1(min(each, LARGEST_LOG)) for each in (half, smallest)]
    return Resolution(repeats, shares[0], shares[1], needed)


def _log_resolution(sd: float, repeats: int, comparisons: int) -> tuple[float, float]:
    """Return the expected half-width and the smallest difference, of logarithms."""
    from scipy.special import nctdtrinc  # here, for it takes 0.3 s

    square = sd**2 / repeats
    half = welch_half_width(square, repeats, square, repeats, level_at(1, comparisons))
    error = math.sqrt(2 * square)
    smallest = error * float(nctdtrinc(2 * (repeats - 1), 1 - POWER, half / error)) if error else 0.0
    return half, smallest


def _sufficient_repeats(sd: float, repeats: int, comparisons: int) -> int | None:
    """Return the fewest repeats that show a difference below `WIDEST_KNOWN`; None above `_MOST_REPEATS`."""
    more = range(repeats + 1, _MOST_REPEATS + 1)
    place = bisect_left(more, True, key=lambda count: _log_resolution(sd, count, comparisons)[1] < _WIDEST_LOG)
    return more[place] if place < len(more) else None
