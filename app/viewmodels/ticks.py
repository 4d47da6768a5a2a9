"""Where the numbers of an axis stand: round values, a handful of them, with no more digits than they need."""

import math
from collections.abc import Sequence

from app.viewmodels.units import duration

Tick = tuple[float, str]
"""A place on an axis and what stands there."""

_NARROW = 2.0
_MULTIPLES = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
"""Of powers of ten, the finest first."""


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
    """Round multiples of powers of ten, the fewer the more powers there are; a narrow range has equal steps."""
    if high / low < _NARROW:
        return linear(low, high, most)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[Tick] = []
    for multiples in _MULTIPLES:
        found = [_tick(m, power) for power in powers for m in multiples if low <= m * 10.0**power <= high]
        if len(found) <= most:
            break
    return found[:: math.ceil(len(found) / most)]


def _tick(multiple: float, power: int) -> Tick:
    digits = 0 if multiple == int(multiple) else 1
    return multiple * 10.0**power, f"{multiple * 10.0**power:,.{max(0, digits - power)}f}"


def doubling(values: Sequence[int], most: int = 10) -> list[Tick]:
    """These whole numbers themselves, for an axis on which doubling is one step; every second one where they crowd."""
    every = math.ceil(len(values) / most)
    return [(float(value), f"{value:,}") for value in values[::every]]
