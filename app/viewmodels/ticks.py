"""Where the numbers of an axis stand: round values, a handful of them, with no more digits than they need."""

import math
from collections.abc import Sequence

from app.viewmodels.units import duration

Tick = tuple[float, str]
"""A place on an axis and what stands there."""


def round_step(wanted: float) -> float:
    """The next of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(wanted)) if wanted > 0 else 1.0
    return next((m * power for m in (1.0, 2.0, 5.0) if m * power >= wanted), 10 * power)


def labels(values: Sequence[float], spacing: float) -> list[str]:
    """Numbers with thousands apart, `80,000`, and as many decimals as their spacing needs."""
    decimals = max(0, -math.floor(math.log10(spacing))) if spacing > 0 else 0
    return [f"{value:,.{min(decimals, 9)}f}" for value in values]


def time_labels(values: Sequence[float], spacing: float) -> list[str]:
    """Seconds as a clock, `0:30`, finer steps as seconds; negative times carry a minus sign."""
    if spacing < 1:
        return [f"{value:.{max(1, math.ceil(-math.log10(spacing)))}f} s" for value in values]
    return [("−" if value < 0 else "") + duration(abs(value)) for value in values]


def linear(low: float, high: float, most: int = 8) -> list[Tick]:
    """Multiples of one round step from `low` to `high`, at most about `most` of them."""
    step = round_step((high - low) / most)
    values = [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return list(zip(values, labels(values, step), strict=True))


def logarithmic(low: float, high: float, most: int = 7) -> list[Tick]:
    """1, 2 and 5 times powers of ten, only powers where those are too many; a narrow range has steps of one length."""
    if high / low < 6:
        return linear(low, high, most)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for multiples in ((1, 2, 5), (1, 3), (1,)):
        values = [m * 10.0**power for power in powers for m in multiples if low <= m * 10.0**power <= high]
        if len(values) <= most:
            break
    every = math.ceil(len(values) / most)
    return [(value, labels([value], value)[0]) for value in values[::every]]


def doubling(values: Sequence[int], most: int = 10) -> list[Tick]:
    """These whole numbers themselves, for an axis on which doubling is one step; every second one where they crowd."""
    every = math.ceil(len(values) / most)
    return [(float(value), f"{value:,}") for value in values[::every]]
