"""Axes that hold all of some values, with round numbers on them."""

import math
from collections.abc import Iterable

from app.viewmodels import ticks
from app.viewmodels.pictures.values import Axis

_FAR_APART = 8.0
"""Values this many times apart are told apart only on a logarithmic axis."""
_ROOM = 0.06


def from_zero(values: Iterable[float | None], title: str) -> Axis:
    """From 0 to a little above the largest, so that heights compare."""
    high = max(_known(values)) * (1 + _ROOM)
    return Axis(title=title, low=0.0, high=high, ticks=tuple(ticks.linear(0.0, high)))


def logarithmic(values: Iterable[float | None], title: str, room: float = 1.15, most: int = 7) -> Axis:
    """From a little below the smallest to a little above the largest, in equal factors."""
    known = _known(values)
    low, high = min(known) / room, max(known) * room
    return Axis(title=title, low=low, high=high, ticks=tuple(ticks.logarithmic(low, high, most)), log=True)


def fitting(values: Iterable[float | None], title: str) -> Axis:
    """From zero where that shows differences, else in equal factors."""
    known = _known(values)
    return logarithmic(known, title) if max(known) > _FAR_APART * min(known) else from_zero(known, title)


def doubling(values: Iterable[int], title: str) -> Axis:
    """Whole numbers that mostly double, each with its own place."""
    numbers = sorted(set(values))
    room = 2**0.35
    return Axis(
        title=title,
        low=numbers[0] / room,
        high=numbers[-1] * room,
        ticks=tuple(ticks.doubling(numbers)),
        log=True,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
