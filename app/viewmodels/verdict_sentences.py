"""What is said of one variant against the baseline: one sentence, however it turned out."""

from typing import NamedTuple

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.repeats import Outlook
from app.analysis.verdict import VariantResult
from app.viewmodels import units
from app.viewmodels.cells import example_word
from app.viewmodels.endings import ended_words
from workloads.protocol import RunSpec

_TIMES = 2.0
"""From this ratio on "2.50× as fast" says more than a percentage, and "2.50× as long" more than "0.400× as fast"."""


class Named(NamedTuple):
    """A variant with what tells it from the others, at the beginning of a sentence and within one."""

    result: VariantResult
    first: str
    within: str


def sentence(other: Named, base: Named) -> str:
    """How the variant compares, with its interval, the runs behind it, and its energy."""
    found = other.result
    if found.decision == "different workloads":
        workloads = " and ".join(each.result.runs[0].spec.workload for each in (other, base))
        return f"{workloads} are different workloads: a ratio between them would mean nothing."
    if found.speedup is None:
        without = other if found.throughput is None else base
        return (
            f"{other.first} and {base.within} cannot be compared: "
            f"no run of {without.within} measured anything ({ended_words(without.result.runs)})."
        )
    if found.decision == "no difference seen":
        return _no_difference(other, base)
    one_run, energy = found.decision == "one run each", _and(_energy(found, "it"))
    change = f"{_change(found.speedup.value, past=one_run)} {base.within}"
    if one_run:
        return f"{other.first} {change}{energy}."
    return f"{other.first} {change} ({_interval(found.speedup)}, {_counts(other, base)}){energy}."


def times(ratio: float) -> str:
    """A ratio that is far from one: `2.50×`."""
    return f"{units.number(ratio, 3)}×"


def an_example(spec: RunSpec) -> str:
    """`a sequence`, `an image`."""
    example = example_word(spec)
    return f"{'an' if example[0] in 'aeiou' else 'a'} {example}"


def _no_difference(other: Named, base: Named) -> str:
    found = other.result
    assert found.speedup is not None
    assert found.speedup.interval is not None
    low, high = found.speedup.interval
    counts = _counts(other, base)
    told = (
        f"{other.first} and {base.within} are not told apart: {other.within} may be {times(low)} to {times(high)} "
        f"as fast ({100 * LEVEL:.0f} % interval, {counts})"
        if _far_from_one(low) or _far_from_one(high)
        else f"No difference between {other.within} and {base.within} larger than "
        f"{_percent(max(1 - low, high - 1))} % at this sample size ({counts})"
    )
    return f"{told}{_and(_outlook_words(found.outlook))}{_and(_energy(found, other.within))}."


def _outlook_words(found: Outlook | None) -> str:
    """How narrowly more repeats would tell the speed-up; from ± 100 % on that is a factor, up or down."""
    if found is None:
        return ""
    known = f"± {100 * found.within:g} %" if found.within < 1 else f"a factor of {1 + found.within:g}"
    more = f"{found.repeats} more {units.plural('repeat', found.repeats)} of each"
    return f"with about {more} the speed-up would be known to {known}"


def _change(ratio: float, *, past: bool) -> str:
    """A ratio of throughput as `is 6.4 % faster than`; far from one `is 2.50× as fast as`, `takes 2.50× as long as`."""
    if _far_from_one(ratio) and ratio < 1:
        return f"{'took' if past else 'takes'} {times(1 / ratio)} as long as"
    verb = "ran" if past else "is"
    if _far_from_one(ratio):
        return f"{verb} {times(ratio)} as fast as"
    return f"{verb} {_percent(abs(ratio - 1))} % {'faster' if ratio >= 1 else 'slower'} than"


def _interval(estimate: Estimate) -> str:
    assert estimate.interval is not None
    low, high = estimate.interval
    if _far_from_one(estimate.value):
        low, high = (low, high) if estimate.value > 1 else (1 / high, 1 / low)
        return f"{100 * LEVEL:.0f} % interval {times(low)} to {times(high)}"
    low, high = sorted((abs(low - 1), abs(high - 1)))
    return f"{100 * LEVEL:.0f} % interval {_percent(low)} to {_percent(high)} %"


def _energy(other: VariantResult, subject: str) -> str:
    """What is known of its energy an example, as `it uses 4.1 % less energy an image`; "" where nothing is."""
    found = other.energy_ratio
    if found is None:
        return ""
    of_one = f"energy {an_example(other.runs[0].spec)}"
    if found.interval is not None and found.interval[0] <= 1 <= found.interval[1]:
        return f"no difference in {of_one} is seen"
    change = f"{_percent(abs(found.value - 1))} % {'less' if found.value < 1 else 'more'}"
    if _far_from_one(found.value):
        change = f"{times(found.value)} the"
    return f"{subject} {'used' if found.interval is None else 'uses'} {change} {of_one}"


def _and(words: str) -> str:
    return f"; {words}" if words else ""


def _far_from_one(ratio: float) -> bool:
    return ratio >= _TIMES or ratio <= 1 / _TIMES


def _percent(share: float) -> str:
    """A share in percent with one decimal, or with two digits where it is smaller than that shows."""
    return f"{100 * share:.1f}" if share >= 0.001 else units.number(100 * share, 1)


def _counts(other: Named, base: Named) -> str:
    a, b = (each.result.throughput.n if each.result.throughput else 0 for each in (other, base))
    return f"{a} {units.plural('run', a)} each" if a == b else f"{a} against {b} runs"
