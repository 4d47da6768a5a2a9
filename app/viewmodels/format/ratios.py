"""Ratios in sentences: near one as a percentage, far from it as a factor, with their intervals.

A ratio is of throughput unless it says otherwise: above one is faster.
"""

import math
import re

from app import units
from app.analysis.intervals import LEVEL, Estimate

CI = f"{units.percent(100 * LEVEL)} CI"
"""Stands before an interval, or above a column of them."""
_TIMES = 2.0
"""From this ratio on "2.50× as fast" says more than a percentage, and "2.50× as long" more than "0.400× as fast"."""


_PLURAL = re.compile(r"[^·]*\b(?:GPUs|GEMMs|gates|inputs)")
_PLURAL_VERBS = {"is": "are", "has": "have", "takes": "take", "differs": "differ", "does": "do"}


def is_far_from_one(ratio: float) -> bool:
    """Return whether a ratio is better said as a factor than as a percentage."""
    return ratio >= _TIMES or ratio <= 1 / _TIMES


def format_percent(share: float) -> str:
    """Return a share in percent with one decimal, or with one significant digit if it is smaller."""
    return f"{100 * share:.1f}" if share >= 0.001 else units.number(100 * share, 1)


def percent_of(share: float) -> str:
    """Return a share in percent with its sign, as `6.4 %`."""
    return units.quantity(format_percent(share), "%")


def describe_speed(ratio: float, *, past_tense: bool) -> str:
    """Return a ratio of throughput: `is 6.4 % faster`, or far from one `takes 2.50× as long`."""
    if is_far_from_one(ratio) and ratio < 1:
        return f"{'took' if past_tense else 'takes'} {units.ratio(1 / ratio)} as long"
    verb = "ran" if past_tense else "is"
    if is_far_from_one(ratio):
        return f"{verb} {units.ratio(ratio)} as fast"
    return f"{verb} {percent_of(abs(ratio - 1))} {'faster' if ratio >= 1 else 'slower'}"


def is_plural(name: str) -> bool:
    """Return whether a variant's name is a plural, as `2 GPUs` or `Fused gates`."""
    return _PLURAL.fullmatch(name) is not None


def agree(name: str, predicate: str) -> str:
    """Return a name and what is said of it, with its verb in the plural where the name is one: `2 GPUs take …`."""
    verb, _, rest = predicate.partition(" ")
    return f"{name} {_PLURAL_VERBS.get(verb, verb) if is_plural(name) else verb} {rest}"


def compare_speed(ratio: float, *, past_tense: bool) -> str:
    """Return the same up to what it is compared with: `is 6.4 % faster than`, `takes 2.50× as long as`."""
    conjunction = "as" if is_far_from_one(ratio) else "than"
    return f"{describe_speed(ratio, past_tense=past_tense)} {conjunction}"


def describe_speed_interval(estimate: Estimate) -> str:
    """Return the interval of a ratio of throughput, in the words of the ratio: `95 % CI 5.1–7.7 %`."""
    assert estimate.interval is not None
    low, high = estimate.interval
    if is_far_from_one(estimate.value):
        low, high = (low, high) if estimate.value > 1 else (1 / high, 1 / low)
        return f"{CI} {_times_span(low, high)}"
    low, high = sorted((abs(low - 1), abs(high - 1)))
    return f"{CI} {units.quantity(units.span(format_percent(low), format_percent(high)), '%')}"


def describe_ratio_interval(low: float, high: float, level: float = LEVEL) -> str:
    """Return an interval of ratios, `95 % CI 0.772–2.770×`, near one as `95 % CI −1.1 to +1.2 %`."""
    name = f"{units.percent(100 * level)} CI"
    if not is_far_from_one(low) and not is_far_from_one(high):
        ends = (f"{'−' if end < 1 else '+'}{format_percent(abs(end - 1))}" for end in (low, high))
        return f"{name} {units.quantity(units.span(*ends), '%')}"
    return f"{name} {_times_span(low, high)}"


def _times_span(low: float, high: float) -> str:
    """Return an interval with the decimals of the ratio in its middle, as tables write it."""
    middle = math.sqrt(low * high)
    return f"{units.span(*(units.ratio_figures(end, middle) for end in (low, high)))}×"
