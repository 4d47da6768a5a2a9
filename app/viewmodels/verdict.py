"""The verdict of a comparison in words: one sentence a variant, the same in window, report and terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.repeats import Outlook
from app.analysis.verdict import Decision, VariantResult, judge
from app.records import RunRow
from app.viewmodels import units
from app.viewmodels.cells import OUTCOMES, example_word
from app.viewmodels.evidence import mislabelled
from app.viewmodels.variants import variant_names

METHOD = "Welch's t on the logarithm of each process's throughput"
MOST_SENTENCES = 4
"""Variants that get a sentence each; of more only the best, the worst and how many lie between are told."""
NO_METHOD = "No interval: it takes two or more runs of each variant"
ONE_RUN = "A variant with one run has no interval: repeat each to know whether a difference is more than chance."
_TIMES = 2.0
"""From this ratio on "2.50× as fast" says more than a percentage."""


class _Name(NamedTuple):
    """What tells a variant from the others, at the beginning of a sentence and within one."""

    first: str
    within: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The results of all variants in their order with a name each, and the decision as one word or two.

    `statement` is the verdict in words; `text` says first which runs it is not about by their names, if any.
    """

    results: tuple[VariantResult, ...]
    names: tuple[str, ...]
    decision: str
    statement: str
    text: str


def verdict_of(rows: Sequence[RunRow], baseline_run: int) -> Verdict:
    """The verdict on these runs against the variant of run `baseline_run`, with what its text is not about."""
    results = judge(rows, baseline_run)
    wrong = mislabelled(rows)
    statement = verdict_text(results)
    return Verdict(
        results=tuple(results),
        names=tuple(result_names(results)),
        decision=overall(results),
        statement=statement,
        text=f"{wrong} So this is about what ran, not about what was asked. {statement}" if wrong else statement,
    )


def method_words(results: Sequence[VariantResult]) -> str:
    """How the intervals of the speed-ups were made."""
    compared = sum(1 for result in results if not result.is_baseline and result.speedup and result.speedup.interval)
    if not compared:
        return NO_METHOD
    corrected = f"{METHOD}, with Šidák's correction for {compared} comparisons with one baseline"
    return METHOD if compared == 1 else corrected


def result_names(results: Sequence[VariantResult]) -> list[str]:
    """For each variant what tells it from the others."""
    return variant_names([result.runs[0].spec for result in results])


def overall(results: Sequence[VariantResult]) -> str:
    """The decision of the strongest statement that can be made, for a program to read."""
    others = [result.decision for result in results if not result.is_baseline]
    return others[0] if len(others) == 1 else "several variants" if others else "nothing to compare"


def verdict_text(results: Sequence[VariantResult]) -> str:
    """One sentence a variant against the baseline; of many variants the best, the worst, and how many lie between."""
    names = _names(results)
    baseline, base_name = next((r, name) for r, name in zip(results, names, strict=True) if r.is_baseline)
    others = [(result, name) for result, name in zip(results, names, strict=True) if not result.is_baseline]
    if not others:
        return "All chosen runs are of one variant: there is nothing to compare it with."
    if len(others) <= MOST_SENTENCES:
        told = list(dict.fromkeys(_sentence(other, name, baseline, base_name) for other, name in others))
    else:
        told = _of_many(others, baseline, base_name)
    one_run = any(other.decision == "one run each" for other, _ in others)
    return " ".join([*told, *([ONE_RUN] if one_run else [])])


def _names(results: Sequence[VariantResult]) -> list[_Name]:
    within = variant_names([result.runs[0].spec for result in results], in_sentence=True)
    return [_Name(shown[:1] + name[1:], name) for shown, name in zip(result_names(results), within, strict=True)]


def _of_many(others: Sequence[tuple[VariantResult, _Name]], baseline: VariantResult, base_name: _Name) -> list[str]:
    ranked = sorted(
        (
            (other.speedup.value, _sentence(other, name, baseline, base_name), other.decision)
            for other, name in others
            if other.speedup
        ),
        reverse=True,
    )
    without = len(others) - len(ranked)
    between = [decision for _, _, decision in ranked[1:-1]]
    return [
        *_ends(ranked),
        *([_tally(between)] if between else []),
        *([f"{without} cannot be compared with {base_name.within}; the table says why."] if without else []),
    ]


def _ends(ranked: Sequence[tuple[float, str, Decision]]) -> list[str]:
    """The fastest and the slowest, each in its sentence; the slowest of all may still be faster than the baseline."""
    if len(ranked) < 2:
        return [sentence for _, sentence, _ in ranked]
    (most, fastest, of_fastest), (least, slowest, of_slowest) = ranked[0], ranked[-1]
    all_slower = most < 1 and of_fastest != "no difference seen"
    all_faster = least > 1 and of_slowest != "no difference seen"
    return [
        f"{'Even the' if all_slower else 'The'} fastest of {len(ranked)} others: {fastest}",
        f"{'Even the' if all_faster else 'The'} slowest: {slowest}",
    ]


def _tally(decisions: Sequence[Decision]) -> str:
    """How many lie between, and what may be said of them: 3 faster, 1 not told apart."""
    if set(decisions) == {"one run each"}:
        return f"{len(decisions)} {'lies' if len(decisions) == 1 else 'lie'} between them."
    words = {"no difference seen": "not told apart", "one run each": "with one run only"}
    told = (f"{decisions.count(each)} {words.get(each, each)}" for each in dict.fromkeys(decisions))
    return f"Between them, in the table: {', '.join(told)}."


def _sentence(other: VariantResult, name: _Name, baseline: VariantResult, base_name: _Name) -> str:
    if other.decision == "different workloads":
        workloads = " and ".join(result.runs[0].spec.workload for result in (other, baseline))
        return f"{workloads} are different workloads: a ratio between them would mean nothing."
    if other.speedup is None:
        without, its_name = (other, name) if other.throughput is None else (baseline, base_name)
        both = f"{name.first} and {base_name.within}"
        return f"{both} cannot be compared: no run of {its_name.within} measured anything{_why(without)}."
    if other.decision == "one run each":
        return f"{name.first} ran {_change(other.speedup.value)} {base_name.within}{_and(_energy(other, 'it'))}."
    if other.decision == "no difference seen":
        return _no_difference(other, name, baseline, base_name)
    told = f"{_interval(other.speedup)}, {_counts(other, baseline)}"
    change = f"{_change(other.speedup.value)} {base_name.within}"
    return f"{name.first} is {change} ({told}){_and(_energy(other, 'it'))}."


def _no_difference(other: VariantResult, name: _Name, baseline: VariantResult, base_name: _Name) -> str:
    assert other.speedup is not None
    assert other.speedup.interval is not None
    low, high = other.speedup.interval
    counts = _counts(other, baseline)
    its_name, base = name.within, base_name.within
    told = (
        f"{name.first} and {base} are not told apart: {its_name} may be {_times(low)} to {_times(high)} as fast "
        f"({100 * LEVEL:.0f} % interval, {counts})"
        if _far_from_one(low) or _far_from_one(high)
        else f"No difference between {its_name} and {base} larger than {_percent(max(1 - low, high - 1))} % "
        f"at this sample size ({counts})"
    )
    return f"{told}{_and(_outlook_words(other.outlook))}{_and(_energy(other, its_name))}."


def _outlook_words(found: Outlook | None) -> str:
    """How narrowly more repeats would tell the speed-up; from ± 100 % on that is a factor, up or down."""
    if found is None:
        return ""
    known = f"± {100 * found.within:g} %" if found.within < 1 else f"a factor of {1 + found.within:g}"
    more = f"{found.repeats} more {units.plural('repeat', found.repeats)} of each"
    return f"with about {more} the speed-up would be known to {known}"


def _why(result: VariantResult) -> str:
    """How its runs ended, where one of them says: ` (out of memory)`."""
    ended = dict.fromkeys(OUTCOMES[row.outcome.name].word for row in result.runs if row.outcome is not None)
    return f" ({', '.join(ended)})" if ended else ""


def _change(ratio: float) -> str:
    """A ratio of throughput as `6.4 % faster than`, or `2.50× as fast as` where it is far from one."""
    if _far_from_one(ratio):
        return f"{_times(ratio)} as fast as"
    return f"{_percent(abs(ratio - 1))} % {'faster' if ratio >= 1 else 'slower'} than"


def _interval(estimate: Estimate) -> str:
    assert estimate.interval is not None
    low, high = estimate.interval
    if _far_from_one(estimate.value):
        return f"{100 * LEVEL:.0f} % interval {_times(low)} to {_times(high)}"
    low, high = sorted((abs(low - 1), abs(high - 1)))
    return f"{100 * LEVEL:.0f} % interval {_percent(low)} to {_percent(high)} %"


def _energy(other: VariantResult, subject: str) -> str:
    """What is known of its energy an example, as `it uses 4.1 % less energy an image`; "" where nothing is."""
    found = other.energy_ratio
    if found is None:
        return ""
    example = example_word(other.runs[0].spec)
    of_one = f"energy {'an' if example[0] in 'aeiou' else 'a'} {example}"
    if found.interval is not None and found.interval[0] <= 1 <= found.interval[1]:
        return f"no difference in {of_one} is seen"
    change = f"{_percent(abs(found.value - 1))} % {'less' if found.value < 1 else 'more'}"
    if _far_from_one(found.value):
        change = f"{_times(found.value)} the"
    return f"{subject} {'used' if found.interval is None else 'uses'} {change} {of_one}"


def _and(words: str) -> str:
    return f"; {words}" if words else ""


def _far_from_one(ratio: float) -> bool:
    return ratio >= _TIMES or ratio <= 1 / _TIMES


def _times(ratio: float) -> str:
    return f"{units.number(ratio, 3)}×"


def _percent(share: float) -> str:
    """A share in percent with one decimal, or with two digits where it is smaller than that shows."""
    return f"{100 * share:.1f}" if share >= 0.001 else units.number(100 * share, 1)


def _counts(other: VariantResult, baseline: VariantResult) -> str:
    a = other.throughput.n if other.throughput else 0
    b = baseline.throughput.n if baseline.throughput else 0
    return f"{a} {units.plural('run', a)} each" if a == b else f"{a} against {b} runs"
