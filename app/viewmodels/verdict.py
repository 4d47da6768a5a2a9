"""The verdict of a comparison in words: one sentence a variant, the same in window, report and terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from app.analysis.verdict import Decision, VariantResult, judge
from app.analysis.work import other_work
from app.records import RunRow
from app.viewmodels.endings import ended_words, ended_words_of_many
from app.viewmodels.evidence import mislabelled
from app.viewmodels.run_numbers import listed
from app.viewmodels.variants import variant_names
from app.viewmodels.verdict_sentences import Named, an_example, sentence, times

METHOD = "Welch's t on the logarithm of each process's throughput"
MOST_SENTENCES = 4
"""Variants that get a sentence each; of more only the best, the worst and how many lie between are told."""
NO_METHOD = "No interval: it takes two or more runs of each variant"
ONE_RUN = "A variant with one run has no interval: repeat each to know whether a difference is more than chance."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The results of all variants in their order with a name each, and the decision as one word or two.

    `sentences` are the verdict in words; `text` says first which runs it is not about by their names, if any.
    """

    results: tuple[VariantResult, ...]
    names: tuple[str, ...]
    decision: str
    sentences: tuple[str, ...]
    text: str


def verdict_of(rows: Sequence[RunRow], baseline_run: int) -> Verdict:
    """The verdict on these runs against the variant of run `baseline_run`, with what its text is not about."""
    results = judge(rows, baseline_run)
    wrong = mislabelled(rows)
    sentences = tuple(_sentences(results))
    statement = " ".join(sentences)
    return Verdict(
        results=tuple(results),
        names=tuple(result_names(results)),
        decision=overall(results),
        sentences=sentences,
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


def _sentences(results: Sequence[VariantResult]) -> list[str]:
    """One sentence a variant against the baseline; of many variants the best, the worst, and how many lie between.

    Where variants do other work for an example than the baseline and others do the same, the first are only counted.
    """
    baseline = next(result for result in results if result.is_baseline)
    others = [result for result in results if not result.is_baseline]
    if not others:
        return ["All chosen runs are of one variant: there is nothing to compare it with."]
    work = [other_work(other.runs, baseline.runs) for other in others]
    apart = [times_more for times_more in work if times_more is not None]
    alike = [other for other, times_more in zip(others, work, strict=True) if times_more is None]
    among_alike = any(other.speedup for other in alike)
    base, *told = _named([baseline, *(alike if among_alike else others)])
    like = " that do the same work" if apart and among_alike else ""
    one_run = any(other.result.decision == "one run each" for other in told)
    return [
        *(_one_by_one(told, base) if len(told) <= MOST_SENTENCES else _of_many(told, base, like)),
        *([_other_work_words(apart, baseline, among_alike=among_alike)] if apart else []),
        *([ONE_RUN] if one_run else []),
    ]


def _named(results: Sequence[VariantResult]) -> list[Named]:
    """What tells those of the first one's workload apart, in their order, then the others by their workloads alone."""
    workload = results[0].runs[0].spec.workload
    own = [result for result in results if result.runs[0].spec.workload == workload]
    within = variant_names([result.runs[0].spec for result in own], in_sentence=True)
    names = zip(own, result_names(own), within, strict=True)
    elsewhere = [(result, other) for result in results if (other := result.runs[0].spec.workload) != workload]
    return [
        *(Named(result, shown[:1] + name[1:], name) for result, shown, name in names),
        *(Named(result, other, other) for result, other in elsewhere),
    ]


def _one_by_one(others: Sequence[Named], base: Named) -> list[str]:
    """A sentence each, but one for several of which nothing was measured."""
    without = [other for other in others if _is_without(other, base)]
    if len(without) < 2:
        return list(dict.fromkeys(sentence(other, base) for other in others))
    told = dict.fromkeys(sentence(other, base) for other in others if other not in without)
    endings = [ended_words(other.result.runs) for other in without]
    if len(set(endings)) == 1:
        names = f"{listed([other.within for other in without])} ({endings[0]})"
    else:
        names = listed([f"{other.within} ({ended})" for other, ended in zip(without, endings, strict=True)])
    return [*told, f"Nothing was measured of {names}."]


def _is_without(other: Named, base: Named) -> bool:
    """Whether it is for its own runs that it cannot be compared."""
    alike = other.result.decision != "different workloads"
    return alike and other.result.throughput is None and base.result.throughput is not None


def _of_many(others: Sequence[Named], base: Named, like: str) -> list[str]:
    """Of others that are `like` the baseline, in words, the fastest, the slowest, how many lie between or are left."""
    speeds = [(other.result.speedup.value, other) for other in others if other.result.speedup]
    ranked = [other for _, other in sorted(speeds, key=itemgetter(0), reverse=True)]
    between = [other.result.decision for other in ranked[1:-1]]
    return [
        *_ends(ranked, base, like),
        *([_tally(between)] if between else []),
        *_without([other.result for other in others if not other.result.speedup], base),
    ]


def _ends(ranked: Sequence[Named], base: Named, like: str) -> list[str]:
    """The fastest and the slowest, each in its sentence; the slowest of all may still be faster than the baseline."""
    if len(ranked) < 2:
        return _one_by_one(ranked, base)
    fastest, slowest = ranked[0], ranked[-1]
    all_slower, all_faster = _differs(fastest, faster=False), _differs(slowest, faster=True)
    again = base._replace(within="the baseline")
    return [
        f"{'Even the' if all_slower else 'The'} fastest of {len(ranked)} others{like}: {sentence(fastest, base)}",
        f"{'Even the' if all_faster else 'The'} slowest: {sentence(slowest, again)}",
    ]


def _differs(shown: Named, *, faster: bool) -> bool:
    """Whether its runs differ from the baseline's that way, with an interval or without one."""
    speedup = shown.result.speedup
    if speedup is None or shown.result.decision == "no difference seen":
        return False
    return speedup.value > 1 if faster else speedup.value < 1


def _without(others: Sequence[VariantResult], base: Named) -> list[str]:
    """How many have no ratio, and why."""
    elsewhere = [other.runs[0].spec.workload for other in others if other.decision == "different workloads"]
    told = []
    if elsewhere:
        names = ", ".join(dict.fromkeys(elsewhere))
        told.append(
            f"{len(elsewhere)} of another workload ({names}) {'has' if len(elsewhere) == 1 else 'have'} no ratio: "
            "it would mean nothing."
        )
    if rest := [other.runs for other in others if other.decision != "different workloads"]:
        of_base = base.result.throughput is None
        why = f": no run of it measured anything{ended_words_of_many([base.result.runs])}" if of_base else ""
        told.append(f"{len(rest)} cannot be compared with {base.within}{why or ended_words_of_many(rest)}.")
    return told


def _other_work_words(found: Sequence[float], baseline: VariantResult, *, among_alike: bool) -> str:
    """How many are no alternatives to the baseline, and how many times its work they do.

    They were left out so far where there are others that are alike.
    """
    ends = " to ".join(dict.fromkeys(times(end) for end in (min(found), max(found))))
    one = len(found) == 1
    work = f"{'it does' if one else 'they do'} other work, {ends} the operations {an_example(baseline.runs[0].spec)}"
    if not among_alike:
        return f"{'It is no alternative' if one else 'None is an alternative'}, though: {work}."
    are, ratios = ("is no alternative", "its ratio") if one else ("are no alternatives", "their ratios")
    return f"{len(found)} more {are}: {work}; the table has {ratios}."


def _tally(decisions: Sequence[Decision]) -> str:
    """How many lie between, and what may be said of them: 3 faster, 1 not told apart."""
    if set(decisions) == {"one run each"}:
        return f"{len(decisions)} {'lies' if len(decisions) == 1 else 'lie'} between them."
    words = {"no difference seen": "not told apart", "one run each": "with one run only"}
    told = (f"{decisions.count(each)} {words.get(each, each)}" for each in dict.fromkeys(decisions))
    return f"Between them, in the table: {', '.join(told)}."
