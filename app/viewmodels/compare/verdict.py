"""The verdict of a comparison in sentences, the same in window, report and terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from app import units
from app.analysis.effects import Effect, compute_effects, step_differences
from app.analysis.intervals import MIN_REPEATS, RequiredRepeats
from app.analysis.verdict import TESTS_LEVEL, Decision, Equivalence, VariantResult, judge, work_ratio
from app.records import RunRow
from app.viewmodels.compare.effects import describe_joint_difference, effect_sentences
from app.viewmodels.format.cells import example_word
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.ratios import (
    agree,
    compare_speed,
    describe_ratio_interval,
    describe_speed,
    describe_speed_interval,
    is_far_from_one,
    is_plural,
    percent_of,
)
from app.viewmodels.format.sentences import describe_endings, describe_group_endings, join_with_and
from app.viewmodels.history.evidence import describe_mismatches


class NamedResult(NamedTuple):
    """A variant with the name that tells it from the others, at the start of a sentence and within one.

    `joint` says in which settings it differs from the baseline, if in several.
    """

    result: VariantResult
    first: str
    within: str
    joint: str = ""


def comparison_sentence(other: NamedResult, base: NamedResult) -> str:
    """Return how a variant compares: ratio, interval, number of runs, and energy."""
    found = other.result
    if found.decision == "different workloads":
        workloads = " and ".join(each.result.runs[0].spec.workload for each in (other, base))
        return f"{workloads} are different workloads, so their speeds are not compared."
    if found.speedup is None:
        without = other if found.throughput is None else base
        return (
            f"{other.first} and {base.within} cannot be compared: "
            f"no run of {without.within} measured anything ({describe_endings(without.result.runs)})."
        )
    if found.decision == "no difference seen":
        return _no_difference(other, base)
    few, energy = (
        found.decision in _WITHOUT_INTERVAL,
        _clause(_energy(found, "they" if is_plural(other.first) else "it")),
    )
    if other.joint:
        speed = describe_speed(found.speedup.value, past_tense=few)
        change = f"differs from {base.within} {other.joint}: it {speed}"
    else:
        change = f"{compare_speed(found.speedup.value, past_tense=few)} {base.within}"
    interval = "" if few else f"{describe_speed_interval(found.speedup)}, "
    evidence = "" if found.decision == "one run each" else f" ({interval}{_run_counts(other, base)})"
    margin = "" if few else _clause(_describe_margin(found.equivalence))
    return f"{agree(other.first, change)}{evidence}{margin}{energy}."


def _describe_margin(found: Equivalence | None) -> str:
    """Return how a ratio lies to the margin, if one was given."""
    if found is None:
        return ""
    margin = units.exactly(found.margin_pct, "%")
    match found.decision:
        case "equal":
            return f"they are equal within {margin}"
        case "cannot tell":
            return f"whether they are equal within {margin} is undecided"
        case _:
            return f"that is more than the margin of {margin}"


def _equal(other: NamedResult, base: NamedResult, found: Equivalence) -> str:
    """Return the statement on two variants that are equal within a margin."""
    assert found.interval is not None
    interval = describe_ratio_interval(*found.interval, level=TESTS_LEVEL)
    return (
        f"{other.first} and {base.within} are equal within "
        f"{units.exactly(found.margin_pct, '%')} ({interval}, {_run_counts(other, base)})"
    )


def _no_difference(other: NamedResult, base: NamedResult) -> str:
    found = other.result
    assert found.speedup is not None
    assert found.speedup.interval is not None
    low, high = found.speedup.interval
    counts = _run_counts(other, base)
    if found.equivalence is not None and found.equivalence.decision == "equal":
        return f"{_equal(other, base, found.equivalence)}{_clause(_energy(found, other.within))}."
    is_wide = is_far_from_one(low) or is_far_from_one(high)
    most = "" if is_wide else f"at most {percent_of(max(1 - low, high - 1))}; "
    between = f"{other.within} and {base.within}"
    answer = (
        f"No significant difference between {between}"
        if found.speedup.is_known
        else f"Not known yet which of {between} is faster"
    )
    statement = f"{answer} ({most}{describe_ratio_interval(low, high)}, {counts})"
    joint = _clause(f"they differ {other.joint}" if other.joint else "")
    repeats = _clause(describe_required_repeats(found.required_repeats))
    margin = _clause(_describe_margin(found.equivalence))
    return f"{statement}{joint}{margin}{repeats}{_clause(_energy(found, other.within))}."


def describe_required_repeats(found: RequiredRepeats | None) -> str:
    """Return how narrowly more repeats would determine the speed-up, and how many."""
    if found is None:
        return ""
    if found.repeats > _MOST_REPEATS:
        return "more repeats would hardly help, as runs of one variant differ too much"
    known = units.plus_minus(units.exactly(100 * found.half_width, "%"))
    may_take = f" ({found.fewest:,}–{found.most:,})" if found.fewest < found.most else ""
    more = f"{found.repeats:,} more {units.plural('repeat', found.repeats)} of each{may_take}"
    return f"with about {more} the speed-up would be known to {known}"


def _energy(other: VariantResult, subject: str) -> str:
    """Return what is known of its energy, as `it uses 4.1 % less energy per image`; "" if nothing is."""
    found = other.energy_ratio
    if found is None:
        return ""
    energy_phrase = f"energy per {example_word(other.runs[0].spec)}"
    if found.interval is not None and found.interval[0] <= 1 <= found.interval[1]:
        answer = "no significant difference in" if found.is_known else "not known yet which uses more"
        return f"{answer} {energy_phrase} ({describe_ratio_interval(*found.interval)})"
    change = f"{percent_of(abs(found.value - 1))} {'less' if found.value < 1 else 'more'}"
    if is_far_from_one(found.value):
        change = f"{units.ratio(found.value)} the"
    verb = "used" if found.interval is None else "use" if subject == "they" or is_plural(subject) else "uses"
    return f"{subject} {verb} {change} {energy_phrase}"


def _clause(text: str) -> str:
    return f"; {text}" if text else ""


def _run_counts(other: NamedResult, base: NamedResult) -> str:
    a, b = (each.result.throughput.n if each.result.throughput else 0 for each in (other, base))
    return f"{a} {units.plural('run', a)} each" if a == b else f"{a} against {b} runs"


METHOD = "Welch's t on the logarithm of each process's throughput, widened so that runs may be added and judged again"
_MOST_REPEATS = 1000
"""More than nobody makes: what would need more is noise to be found, not averaged."""
MOST_SENTENCES = 4
"""Variants that get a sentence each; of more only the fastest and the slowest do."""
_WITHOUT_INTERVAL: tuple[Decision, ...] = ("one run each", "too few runs")
NO_METHOD = f"No interval: it takes {MIN_REPEATS} or more runs of each variant"
FEW_RUNS_NOTE = f"An interval takes {MIN_REPEATS} runs of each variant; repeat each to tell a difference from chance."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The results of all variants in order, a name each, the effects of parameters, and the decision in a word or two.

    `sentences` are the verdict; `text` first names the runs that did not run as requested, if any.
    """

    results: tuple[VariantResult, ...] = ()
    names: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    decision: str = "nothing to compare"
    sentences: tuple[str, ...] = ()
    text: str = ""


def compute_verdict(rows: Sequence[RunRow], baseline_run: int, margin_pct: float | None = None) -> Verdict:
    """Return the verdict on these runs against the variant of run `baseline_run`; the others as `judge` takes them."""
    results = judge(rows, baseline_run, margin_pct)
    wrong = describe_mismatches(rows)
    baseline = next(result.runs for result in results if result.is_baseline)
    effects = compute_effects([result.runs for result in results], baseline)
    sentences = tuple(_sentences(results, effects))
    statement = " ".join(sentences)
    return Verdict(
        results=tuple(results),
        names=tuple(result_names(results)),
        effects=effects,
        decision=overall_decision(results),
        sentences=sentences,
        text=f"{wrong} So this is about what ran, not what was requested. {statement}" if wrong else statement,
    )


def describe_method(results: Sequence[VariantResult]) -> str:
    """Return how the intervals of the speed-ups were computed, and which of them hold together."""
    compared = max((result.comparisons for result in results), default=0)
    if not compared:
        return NO_METHOD
    looks = max(result.looks for result in results if not result.is_baseline)
    method = METHOD if looks == 1 else f"{METHOD} (as for look {looks} at them)"
    return (
        method if compared == 1 else f"{method}, with Šidák's correction for {compared} comparisons with one baseline"
    )


def result_names(results: Sequence[VariantResult]) -> list[str]:
    """Return for each variant the name that tells it from the others."""
    return variant_names([result.runs[0].spec for result in results])


def overall_decision(results: Sequence[VariantResult]) -> str:
    """Return the decision of the strongest statement that can be made, for a program to read."""
    others = [result.decision for result in results if not result.is_baseline]
    return others[0] if len(others) == 1 else "several variants" if others else "nothing to compare"


def _sentences(results: Sequence[VariantResult], effects: Sequence[Effect]) -> list[str]:
    """Return one sentence per variant; of many variants only the fastest, the slowest and a count of the others.

    Where a variant differs from the baseline in several settings, the effects of single settings come first.

    If some variants do other work per example than the baseline and others do the same, the first are only counted.
    """
    baseline = next(result for result in results if result.is_baseline)
    others = [result for result in results if not result.is_baseline]
    if not others:
        return ["All chosen runs are of one variant: there is nothing to compare it with."]
    work = [work_ratio(other.runs, baseline.runs) for other in others]
    work_ratios = [times_more for times_more in work if times_more is not None]
    same_work = [other for other, times_more in zip(others, work, strict=True) if times_more is None]
    has_same_work = any(other.speedup for other in same_work)
    base, *named = _name_results([baseline, *(same_work if has_same_work else others)], effects)
    of_settings = _effect_sentences(named, base, effects)
    qualifier = "comparable " if work_ratios and has_same_work else "other "
    few_runs = any(other.result.decision in _WITHOUT_INTERVAL for other in named)
    return [
        *of_settings,
        *(
            _individual_sentences(named, base)
            if len(named) <= (1 if of_settings else MOST_SENTENCES)
            else _summary_sentences(named, base, qualifier)
        ),
        *([_describe_other_work(work_ratios, baseline, has_same_work=has_same_work)] if work_ratios else []),
        *([FEW_RUNS_NOTE] if few_runs else []),
    ]


def _effect_sentences(others: Sequence[NamedResult], base: NamedResult, effects: Sequence[Effect]) -> list[str]:
    """Return the effects of the settings in which these variants differ, if one differs in several.

    A few variants have a sentence each, which say the same if no effect is over several pairs.
    """
    is_new = len(others) > MOST_SENTENCES or any(len(effect.pairs) > 1 for effect in effects)
    if not is_new or not any(other.joint for other in others):
        return []
    specs = [each.result.runs[0].spec for each in (base, *others) if each.result.throughput]
    return effect_sentences(effects, {name for spec in specs for name in step_differences(specs[0], spec)})


def _name_results(results: Sequence[VariantResult], effects: Sequence[Effect]) -> list[NamedResult]:
    """Name the variants of the first one's workload by their differences, then the others by their workloads."""
    base = results[0].runs[0].spec
    workload = base.workload
    same_workload = [result for result in results if result.runs[0].spec.workload == workload]
    inline_names = variant_names([result.runs[0].spec for result in same_workload], in_sentence=True)
    names = zip(same_workload, result_names(same_workload), inline_names, strict=True)
    elsewhere = [(result, other) for result in results if (other := result.runs[0].spec.workload) != workload]
    return [
        *(
            NamedResult(
                result, shown[:1] + name[1:], name, describe_joint_difference(result.runs[0].spec, base, effects)
            )
            for result, shown, name in names
        ),
        *(NamedResult(result, other, other) for result, other in elsewhere),
    ]


def _individual_sentences(others: Sequence[NamedResult], base: NamedResult) -> list[str]:
    """Return one sentence per variant, but one for all those of which nothing was measured."""
    without = [other for other in others if _lacks_throughput(other, base)]
    if len(without) < 2:
        return list(dict.fromkeys(comparison_sentence(other, base) for other in others))
    sentences = dict.fromkeys(comparison_sentence(other, base) for other in others if other not in without)
    endings = [describe_endings(other.result.runs) for other in without]
    if len(set(endings)) == 1:
        names = f"{join_with_and([other.within for other in without])} ({endings[0]})"
    else:
        names = join_with_and([f"{other.within} ({ended})" for other, ended in zip(without, endings, strict=True)])
    return [*sentences, f"Nothing was measured of {names}."]


def _lacks_throughput(other: NamedResult, base: NamedResult) -> bool:
    """Return whether a variant cannot be compared because its own runs measured nothing."""
    same_workload = other.result.decision != "different workloads"
    return same_workload and other.result.throughput is None and base.result.throughput is not None


def _summary_sentences(others: Sequence[NamedResult], base: NamedResult, qualifier: str) -> list[str]:
    """Return the fastest, the slowest, and how many fall in between or are not compared."""
    speeds = [(other.result.speedup.value, other) for other in others if other.result.speedup]
    ranked = [other for _, other in sorted(speeds, key=itemgetter(0), reverse=True)]
    between = [other.result.decision for other in ranked[1:-1]]
    return [
        *_extreme_sentences(ranked, base, qualifier),
        *([_tally_decisions(between)] if between else []),
        *_tally_equivalences([other.result.equivalence for other in ranked]),
        *_incomparable_sentences([other.result for other in others if not other.result.speedup], base),
    ]


def _tally_equivalences(found: Sequence[Equivalence | None]) -> list[str]:
    """Return how many variants are equal to the baseline within the margin, if one was given, and how many are not."""
    decisions = [each.decision for each in found if each is not None]
    if not decisions or found[0] is None:
        return []
    labels = {"equal": "equal to the baseline", "cannot tell": "undecided"}
    said = [f"{decisions.count(each)} {labels.get(each, f'{each} by more')}" for each in dict.fromkeys(decisions)]
    return [f"With a margin of {units.exactly(found[0].margin_pct, '%')}: {join_with_and(said)}."]


def _extreme_sentences(ranked: Sequence[NamedResult], base: NamedResult, qualifier: str) -> list[str]:
    """Return a sentence for the fastest and one for the slowest; both may be on one side of the baseline."""
    if len(ranked) < 2:
        return _individual_sentences(ranked, base)
    fastest, slowest = ranked[0], ranked[-1]
    all_slower, all_faster = _differs(fastest, faster=False), _differs(slowest, faster=True)
    again = base._replace(within="the baseline")
    return [
        (
            f"{'Even the' if all_slower else 'The'} fastest of {len(ranked)} {qualifier}variants: "
            f"{comparison_sentence(fastest, base)}"
        ),
        f"{'Even the' if all_faster else 'The'} slowest: {comparison_sentence(slowest, again)}",
    ]


def _differs(shown: NamedResult, *, faster: bool) -> bool:
    """Return whether a variant is faster (or slower) than the baseline, with an interval or without one."""
    speedup = shown.result.speedup
    if speedup is None or shown.result.decision == "no difference seen":
        return False
    return speedup.value > 1 if faster else speedup.value < 1


def _incomparable_sentences(others: Sequence[VariantResult], base: NamedResult) -> list[str]:
    """Return how many variants have no ratio, and why."""
    elsewhere = [other.runs[0].spec.workload for other in others if other.decision == "different workloads"]
    sentences = []
    if elsewhere:
        names = ", ".join(dict.fromkeys(elsewhere))
        sentences.append(
            f"{len(elsewhere)} {units.plural('variant', len(elsewhere))} of another workload ({names})"
            f" {'is' if len(elsewhere) == 1 else 'are'} not compared."
        )
    if rest := [other.runs for other in others if other.decision != "different workloads"]:
        baseline_unmeasured = base.result.throughput is None
        why = (
            f": no run of it measured anything{describe_group_endings([base.result.runs])}"
            if baseline_unmeasured
            else ""
        )
        sentences.append(f"{len(rest)} cannot be compared with {base.within}{why or describe_group_endings(rest)}.")
    return sentences


def _describe_other_work(found: Sequence[float], baseline: VariantResult, *, has_same_work: bool) -> str:
    """Return how many variants do other work than the baseline, and how much of it.

    They have no sentence of their own if others do the same work.
    """
    ends = f"{units.range_of(found, units.ratio_figures)}×"
    single = len(found) == 1
    work = f"{'it does' if single else 'they do'} {ends} the operations per {example_word(baseline.runs[0].spec)}"
    if not has_same_work:
        return f"{'It is not' if single else 'None is'} directly comparable, though: {work}."
    are, ratios = ("variant is", "its ratio is") if single else ("variants are", "their ratios are")
    return f"{len(found)} more {are} not directly comparable: {work}; {ratios} in the table."


def _tally_decisions(decisions: Sequence[Decision]) -> str:
    """Count what can be said of the variants in between: 3 faster, 1 without a significant difference."""
    if set(decisions) <= set(_WITHOUT_INTERVAL):
        return f"{len(decisions)} {'falls' if len(decisions) == 1 else 'fall'} in between."
    labels = {
        "no difference seen": "without a significant difference",
        "too few runs": "with too few runs",
        "one run each": "with one run only",
    }
    parts = (f"{decisions.count(each)} {labels.get(each, each)}" for each in dict.fromkeys(decisions))
    return f"In between: {', '.join(parts)}."
