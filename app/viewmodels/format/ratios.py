"""Formats ratios to a baseline, for sentences, tables, plots, reports and terminal alike.

Below twofold a ratio is a change in percent, `+96.5 %`, from twofold on a factor, `2.50×` or `0.400×`; in a column all
are factors as soon as one is. Both ends of an interval have their estimate's form. An axis's ticks are percentages if
all its estimates are, else factors. Amounts of work and published ratios are factors. Above one means faster, or for
energy more.
"""

import math
import re
from collections.abc import Iterable
from typing import Literal

from app.analysis.intervals import LEVEL, Estimate
from app.values import units

CI = f"{units.percent(100 * LEVEL)} CI"
"""Precedes an interval, or heads a column of them."""
Unit = Literal["%", "×"]
"""The unit of all ratios in one column or sentence."""
_TIMES = 2.0
"""From this ratio on, "2.50×" says more than a percentage."""


_PLURAL = re.compile(r"[^·]*\b(?:GPUs|GEMMs|gates|inputs)")
_PLURAL_VERBS = {
    "is": "are",
    "does": "do",
    **{f"{verb}s": verb for verb in ("take", "lead", "train", "run", "use")},
}


def is_far_from_one(ratio: float) -> bool:
    """Return whether a ratio is better expressed as a factor than as the rounded percentage."""
    change_pct = round(100 * (ratio - 1), 1)
    return change_pct >= 100 * (_TIMES - 1) or change_pct <= 100 * (1 / _TIMES - 1)


def unit_of(ratios: Iterable[float | None]) -> Unit:
    """Return the common unit of these ratios: × as soon as one needs it."""
    return "×" if any(units.is_known(ratio) and is_far_from_one(ratio) for ratio in ratios) else "%"


def format_percent(share: float) -> str:
    """Return a share in percent with one decimal, three digits from 100 on, one digit if tiny."""
    if share >= 1:
        return units.ratio_figures(100 * share)
    return f"{100 * share:.1f}" if share >= 0.001 else units.number(float(f"{100 * share:.1g}"), 1)


def percent_of(share: float) -> str:
    """Return a share in percent with its sign, as `6.4 %`."""
    return units.quantity(format_percent(share), "%")


def describe_speed(ratio: float) -> str:
    """Return a ratio of throughput: `6.4 % faster`, or far from one `2.50× as fast`."""
    if is_far_from_one(ratio):
        return f"{units.ratio(ratio)} as fast"
    return f"{percent_of(abs(ratio - 1))} {'faster' if ratio >= 1 else 'slower'}"


def agree(name: str, verb: str) -> str:
    """Return a name and its verb, which agrees with the name: `2 GPUs take`, `Fused gates are`."""
    return f"{name} {_PLURAL_VERBS[verb] if _PLURAL.fullmatch(name) else verb}"


def format_ratio(ratio: float | None, unit: Unit | None = None) -> str:
    """Return a ratio: `+6.4 %`, `2.50×`, or `1×`. Without a unit it has the one that suits it."""
    if not units.is_known(ratio):
        return units.ABSENT
    if math.isclose(ratio, 1):
        return "1×"
    return units.ratio(ratio) if (unit or unit_of([ratio])) == "×" else units.quantity(_signed(ratio), "%")


def format_interval(ends: tuple[float, float] | None, ratio: float, unit: Unit | None = None) -> str:
    """Return the interval of a ratio: `+5.1 to +7.7 %`, `2.29–2.71×`; "" without one."""
    if ends is None:
        return ""
    if (unit or unit_of([ratio])) == "×":
        return f"{units.span(*map(units.ratio_figures, ends))}×"
    return units.quantity(units.span(*map(_signed, ends)), "%")


def describe_ratio(estimate: Estimate | None, unit: Unit | None = None) -> str:
    """Return a ratio with its interval, if it has one: `+6.4 % (+5.1 to +7.7 %)`."""
    if estimate is None:
        return units.ABSENT
    text, interval = format_ratio(estimate.value, unit), format_interval(estimate.interval, estimate.value, unit)
    return f"{text} ({interval})" if interval else text


def _signed(ratio: float) -> str:
    return "0" if math.isclose(ratio, 1) else f"{'−' if ratio < 1 else '+'}{format_percent(abs(ratio - 1))}"
