"""How many processes are enough: when to stop repeating, and how many more repeats would tell a smaller difference."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.analysis.intervals import LEVEL, ratio, welch_half_width

REPEATS = 3
"""Processes a variant where nothing else is asked."""
FIRST_LOOK = 3
"""Processes a variant before the interval is first looked at: two are so few that a lucky pair ends it too often."""
_FINEST = 0.001
_MOST = 1_000_000
_FINER = 0.75
_STEPS = (5, 2, 1)


@dataclass(frozen=True, slots=True)
class Outlook:
    """After `repeats` more of each variant their ratio is expected to be known to ± `within` (0.005 is 0.5 %)."""

    repeats: int
    within: float


def settled(values: Sequence[float], baseline: Sequence[float], until_pct: float, level: float = LEVEL) -> bool:
    """Whether the ratio is known to ± `until_pct` percent, so that no further repeat is needed.

    It has to be known so well at two looks in a row: now, and without the last process of each side. One look alone
    stops where chance made the interval narrow, and such intervals cover the truth less often (docs/statistics.md).
    Values are in the order they were measured in; the first look is at `FIRST_LOOK` processes each.
    """
    return _narrow(values[:-1], baseline[:-1], until_pct, level) and _narrow(values, baseline, until_pct, level)


def _narrow(values: Sequence[float], baseline: Sequence[float], until_pct: float, level: float) -> bool:
    if min(len(values), len(baseline)) < FIRST_LOOK:
        return False
    found = ratio(values, baseline, level)
    half = found.half_width if found else None
    return half is not None and half <= math.log1p(until_pct / 100)


def outlook(values: Sequence[float], baseline: Sequence[float], level: float = LEVEL) -> Outlook | None:
    """How many more repeats would narrow the interval to the next rounder figure (of 5, 2, 1, 0.5 … %).

    None with fewer than two processes a side, or where the interval is narrow enough for any purpose.
    """
    found = ratio(values, baseline, level)
    half = found.half_width if found else None
    if half is None or half <= _FINEST:
        return None
    within = _next_finer(math.expm1(half))
    return Outlook(more_repeats(values, baseline, within, level), within)


def more_repeats(values: Sequence[float], baseline: Sequence[float], within: float, level: float = LEVEL) -> int:
    """Further processes of each variant until the interval is expected to be ± `within` or narrower.

    Welch's half-width with the standard deviations seen so far held fixed and the counts raised. As Kupper and Hafner
    (1989), "How appropriate are popular sample size formulas?", The American Statistician 43, warn, such a number is
    reached in about half of all cases only. Each side needs two processes to begin with.
    """
    a, b = (float(np.var(np.log(np.asarray(side)), ddof=1)) for side in (values, baseline))

    def half_width(more: int) -> float:
        n_a, n_b = len(values) + more, len(baseline) + more
        return welch_half_width(a / n_a, n_a, b / n_b, n_b, level)

    return bisect_left(range(_MOST), True, key=lambda more: half_width(more) <= math.log1p(within))


def _next_finer(half: float) -> float:
    """The largest of …, 0.05, 0.02, 0.01, 0.005, … that is clearly below `half`."""
    most = _FINER * half
    tens = 10.0 ** math.floor(math.log10(most))
    return next(step * tens for step in _STEPS if step * tens <= most)
