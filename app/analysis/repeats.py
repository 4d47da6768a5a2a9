"""How many processes are enough: when to stop repeating, and how many more repeats would tell a smaller difference."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from app.analysis.intervals import LEVEL, ratio, welch_half_width

FIRST_LOOK = 3
"""Processes a variant before the interval is first looked at: stopping at two costs it up to 3 points of coverage."""
_FINEST = 0.001
_STEPS = (5, 2, 1)


@dataclass(frozen=True, slots=True)
class Outlook:
    """After `repeats` more of each variant their ratio is expected to be known to ± `within` (0.005 is 0.5 %)."""

    repeats: int
    within: float


def settled(values: Sequence[float], baseline: Sequence[float], until_pct: float, level: float = LEVEL) -> bool:
    """Whether the ratio is known to ± `until_pct` percent, so that no further repeat is needed.

    Always False before each side has `FIRST_LOOK` processes. To be asked after every pair of runs.
    """
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

    return next(more for more in count() if half_width(more) <= math.log1p(within))


def _next_finer(half: float) -> float:
    """The largest of …, 0.05, 0.02, 0.01, 0.005, … below `half`."""
    tens = 10.0 ** math.floor(math.log10(half))
    return next(step * scale for scale in (tens, tens / 10) for step in _STEPS if step * scale < half)
