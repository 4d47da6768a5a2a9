"""Bars of ratios to the baseline with their intervals: how much faster, and with how much energy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.work import other_work
from app.viewmodels import cells, ticks, units
from app.viewmodels.pictures.subjects import Subject, drawable, estimate_words
from app.viewmodels.pictures.values import Axis, Bar, BarPicture, Silence
from app.viewmodels.variants import variant_names

_LEAST_REACH = math.log(1.02)
"""An axis reaches at least 2 % to both sides, so that noise does not look like news."""

Ratio = Callable[[Subject], Estimate | None]
Known = tuple[Subject, Estimate]
"""A variant with its ratio."""


def speedup_picture(found: Sequence[Subject]) -> BarPicture | Silence:
    """How many times as fast as the baseline each variant is, the fastest first."""
    return _picture(
        found,
        "speed-up",
        "Speed-up",
        "to the right is faster",
        lambda one: drawable(one.result.speedup),
        fastest_first=True,
    )


def energy_picture(found: Sequence[Subject]) -> BarPicture | Silence:
    """The energy an example takes as a ratio to the baseline's, the least first."""
    return _picture(
        found,
        "energy-ratio",
        "Energy an example",
        "to the left is less",
        lambda one: drawable(one.result.energy_ratio),
        fastest_first=False,
    )


def _picture(
    found: Sequence[Subject], key: str, title: str, meaning: str, ratio: Ratio, *, fastest_first: bool
) -> BarPicture | Silence:
    full_name, workload = next((one.name, one.spec.workload) for one in found if one.result.is_baseline)
    found, elsewhere = _of_workload(found, workload)
    base = next(one for one in found if one.result.is_baseline)
    told = [(one, known) for one in found if one is not base and (known := ratio(one)) is not None]
    if not told:
        return Silence(key=key, title=title, why=f"No other variant has a ratio to {full_name}.")
    told.sort(key=lambda pair: pair[1].value, reverse=fastest_first)
    alike, apart = _by_work(told, base)
    without = [one for one in found if one is not base and ratio(one) is None]
    bars = [_baseline(base), *map(_bar, alike), *map(_silent, without), *map(_bar, apart)]
    if all(known.interval is None for _, known in told):
        how = "one run a variant has no interval"
    else:
        how = f"whiskers are {100 * LEVEL:.0f} % intervals that hold together"
    return BarPicture(
        key=key,
        title=f"{title} against {full_name}",
        caption=f"Ratio to the baseline on a logarithmic axis; {meaning}; {how}.{_other_work(apart)}{elsewhere}",
        bars=tuple(bars),
        axis=_axis([known for _, known in told]),
        start=1.0,
    )


def _of_workload(found: Sequence[Subject], workload: str) -> tuple[list[Subject], str]:
    """Those of one workload, named by what differs among them, and a sentence on the others, which have no ratio."""
    kept = [one for one in found if one.spec.workload == workload]
    names = variant_names([one.spec for one in kept])
    others = len(found) - len(kept)
    words = (
        f" {others} {units.plural('variant', others)} of other workloads {'has' if others == 1 else 'have'} no ratio."
    )
    return [replace(one, name=name) for one, name in zip(kept, names, strict=True)], words if others else ""


def _by_work(told: Sequence[Known], base: Subject) -> tuple[list[Known], list[Known]]:
    """Those that do the baseline's work for an example, and those that do other work; where none does, all as one."""
    alike = [each for each in told if other_work(each[0].result.runs, base.result.runs) is None]
    return (alike, [each for each in told if each not in alike]) if alike else (list(told), [])


def _other_work(apart: Sequence[Known]) -> str:
    if not apart:
        return ""
    last = "The last one does" if len(apart) == 1 else f"The last {len(apart)} do"
    return f" {last} other work for an example than the baseline."


def _axis(estimates: Sequence[Estimate]) -> Axis:
    ends = [abs(math.log(end)) for each in estimates for end in (each.value, *(each.interval or ()))]
    logs = [math.log(end) for each in estimates for end in (each.value, *(each.interval or ()))]
    reach = max(_LEAST_REACH, 0.08 * max(ends))
    low, high = math.exp(min(*logs, 0.0) - reach), math.exp(max(*logs, 0.0) + reach)
    marks = tuple((value, f"{text}×") for value, text in ticks.logarithmic(low, high))
    return Axis(title="", low=low, high=high, ticks=marks, log=True)


def _baseline(base: Subject) -> Bar:
    words = f"{base.name}\nthe baseline"
    return Bar(runs=base.numbers, label=base.name, words=words, value=None, text="baseline", colour=base.colour)


def _bar(known: Known) -> Bar:
    one, ratio = known
    text = cells.ratio(ratio.value).text
    if ends := units.ratio_ends(ratio.interval, ratio.value):
        text += f"  ({' to '.join(ends)})"
    rate = one.throughput
    figures = "" if rate is None else f"\n{estimate_words(rate, one.rate_unit)}"
    return Bar(
        runs=one.numbers,
        label=one.name,
        words=f"{one.name}\n{text}{figures}",
        value=ratio.value,
        low=ratio.low,
        high=ratio.high,
        text=text,
        colour=one.colour,
    )


def _silent(one: Subject) -> Bar:
    why = one.outcome if one.throughput is None else "not measured"
    return Bar(runs=one.numbers, label=one.name, words=f"{one.name}\n{why}", value=None, text=why, colour=one.colour)
