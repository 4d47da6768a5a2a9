"""Where steady state begins: what is left of a warm-up at the start of the measured blocks, found by a change point."""

import numpy as np

from app.records import Floats

FEWEST_BLOCKS = 8
"""With fewer blocks there is too little to tell a change from chance: none is cut."""
LARGEST_CUT = 4
"""At most one in so many blocks is cut."""
_PENALTY = 3.0
"""In units of log(number of blocks), for one change point: one for where it is, and for the two means."""


def blocks_to_cut(rates: Floats) -> int:
    """How many of the first blocks belong to a warm-up; 0 where the rates do not change early. `rates` are examples/s.

    The one change of mean that leaves the least squares, kept when it lowers Schwarz' criterion, and when it comes in
    the first quarter: a machine that changes later drifts, and that is no warm-up. Yao (1988), "Estimating the number
    of change-points via Schwarz' criterion", Statistics & Probability Letters 6; the penalty of three logarithms is
    that of Zhang and Siegmund (2007), "A modified Bayes information criterion with applications to the analysis of
    comparative genomic hybridization data", Biometrics 63.
    """
    n = len(rates)
    if n < FEWEST_BLOCKS:
        return 0
    left = np.array([_squares(rates[:cut]) + _squares(rates[cut:]) for cut in range(n)])
    best = int(np.argmin(left))
    # Where rates are equal but for rounding there is no change to speak of.
    floor = n * (1e-9 * float(np.mean(rates))) ** 2
    gain = n * np.log((left[0] + floor) / (left[best] + floor))
    return best if best <= n // LARGEST_CUT and gain > _PENALTY * np.log(n) else 0


def _squares(values: Floats) -> float:
    """The sum of squared distances from the mean."""
    return float(np.sum((values - values.mean()) ** 2)) if values.size else 0.0
