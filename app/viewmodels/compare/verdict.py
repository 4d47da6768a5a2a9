"""The verdict of a comparison in sentences, the same in window, report and terminal; tables have the rest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.analysis.effects import Effect, compute_effects, step_differences
from app.analysis.intervals import LEVEL, MIN_REPEATS, RequiredRepeats, repeats_to_tell, required_repeats
from app.analysis.verdict import (
    VariantResult,
    count_looks,
    judge,
    leading_result,
    may_be_as_fast,
    rank_results,
    run_spread,
    steady_variants,
    throughputs,
    work_ratio,
)
from app.values import units
from app.values.records import RunRow
from app.viewmodels.format.cells import TextTable, example_word
from app.viewmodels.format.naming import (
    SEPARATOR,
    format_setting,
    label_in_sentence,
    leave_out,
    parameter_label,
    variant_names,
)
from app.viewmodels.format.ratios import (
    CI,
    agree,
    describe_speed,
    format_interval,
    format_ratio,
    is_far_from_one,
    is_plural,
    percent_of,
)
from app.viewmodels.format.sentences import describe_endings, describe_group_endings, join_with_and, shorten_name
from app.viewmodels.history.evidence import ABOUT_WHAT_RAN, describe_mismatches
from workloads.catalog import WORKLOADS
from workloads.protocol import RunSpec

METHOD = "Welch's t on the logarithm of each process's throughput, widened so that runs may be added and judged again"
NO_METHOD = f"No interval: it takes {MIN_REPEATS} or more runs of each variant"
FEW_RUNS_NOTE = f"An interval takes {MIN_REPEATS} runs of each variant."
HOW_SURE = f"The intervals hold at {units.percent(100 * LEVEL)}, however often you look."
_MOST_REPEATS = 1000
"""More than nobody makes: what would need more is noise to be found, not averaged."""
_MOST_OFFERED = 100
"""Repeats that one click may ask for."""
_MOST_RIVALS = 5
"""Variants that may be as fast as the fastest, of which more repeats are worth their time."""
_MOST_LEADER_CHARS = 56
"""Of the name of the fastest of more than two, alone in the answer."""
_LONGEST_ANSWER = 25  # words
_MOST_OTHER_CHARS = 28
"""Of the name of the baseline, or of the one that may be as fast, after that of the fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The results of all variants in order, a name each, the effects of parameters, and the decision in a word or two.

    Attributes:
        answer: Who is fastest, by how much and how sure, in at most 25 words.
        next_step: What would decide it, or how sure it is; "" where nothing can be said.
        more_repeats: Repeats of each variant that would; 0 where it is decided, or they would be too many.
        repeated: The variants that these are of; none for all.
        steadier: A run of a variant whose runs differ less, where those of the baseline differ too much; else 0.
        sentences: The answer, what qualifies it, and the next step.
        text: The same after the runs that did not run as requested, if any.
    """

    results: tuple[VariantResult, ...] = ()
    names: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    decision: str = "nothing to compare"
    answer: str = ""
    next_step: str = ""
    more_repeats: int = 0
    repeated: tuple[RunSpec, ...] = ()
    steadier: int = 0
    sentences: tuple[str, ...] = ()
    text: str = ""


def compute_verdict(rows: Sequence[RunRow], baseline_run: int, margin_pct: float | None = None) -> Verdict:
    """Return the verdict on these runs against the variant of run `baseline_run`; the others as `judge` takes them."""
    results = judge(rows, baseline_run, margin_pct)
    wrong = describe_mismatches(rows)
    base = next(result for result in results if result.is_baseline)
    names, ranked = tuple(result_names(results)), rank_results(results)
    answer = _answer(ranked, results) if len(ranked) > 1 else _why_no_answer(results, base)
    next_step, more_repeats, repeated = _next_step(results, ranked)
    noise, steadier = _describe_noise(ranked)
    next_step = " ".join(filter(None, (noise, next_step)))
    notes = _notes(results, ranked, base)
    sentences = tuple(filter(None, (answer, *notes, next_step)))
    statement = " ".join(sentences)
    return Verdict(
        results=tuple(results),
        names=names,
        effects=compute_effects([result.runs for result in results], base.runs),
        decision=overall_decision(results),
        answer=answer,
        next_step=next_step,
        more_repeats=more_repeats,
        repeated=tuple(result.runs[0].spec for result in repeated),
        steadier=steadier,
        sentences=sentences,
        text=f"{wrong} {ABOUT_WHAT_RAN} {statement}" if wrong else statement,
    )


def describe_method(results: Sequence[VariantResult]) -> str:
    """Return how the intervals of the speed-ups were computed, and which of them hold together."""
    compared = max((result.comparisons for result in results), default=0)
    if not compared:
        return NO_METHOD
    looks = max(result.looks for result in results if not result.is_baseline)
    look = f" This is look {looks}." if looks > 1 else ""
    family = f" Šidák's correction is for {compared} comparisons with one baseline." if compared > 1 else ""
    return f"{METHOD}.{look}{family}" if look or family else METHOD


def result_names(results: Sequence[VariantResult], *, in_sentence: bool = False) -> list[str]:
    """Return for each variant the name that tells it from the others."""
    return variant_names([result.runs[0].spec for result in results], in_sentence=in_sentence)


def overall_decision(results: Sequence[VariantResult]) -> str:
    """Return the decision of the strongest statement that can be made, for a program to read."""
    others = [result.decision for result in results if not result.is_baseline]
    return others[0] if len(others) == 1 else "several variants" if others else "nothing to compare"


def _answer(ranked: Sequence[VariantResult], results: Sequence[VariantResult]) -> str:
    """Return who is fastest of those that can be ranked."""
    if len(ranked) == 2:
        return _answer_on_two(ranked)
    first, rivals, count = ranked[0], may_be_as_fast(ranked), len(ranked)
    of_all = "comparable variants" if count < len(results) else "variants"
    at = next(n for n, result in enumerate(results) if result.is_baseline)
    names = result_names(results, in_sentence=True)
    leaders = [_fit(names[results.index(first)], names[at], most) for most in (_MOST_LEADER_CHARS, _MOST_OTHER_CHARS)]
    if first.decision == "no difference seen" and all(result.decision != "faster" for result in ranked):
        assert first.speedup is not None, "it is ranked"
        speed = describe_speed(first.speedup.value)
        none = f"None of {count - 1} other {of_all} is known to beat the baseline"
        return _first_short(f"{none}; {name} measured {speed}." for name in leaders)
    role = ", the baseline," if first.is_baseline else ""
    base = names[at] if len(names[at]) <= _MOST_OTHER_CHARS else "the baseline"
    changes = [""] if first.is_baseline else [f": {_speed(first)} {base}", f": {_speed(first)} the baseline"]
    if not rivals:
        subjects = [agree(_capital(name), f"is the fastest of {count} {of_all}", role) for name in leaders]
        return _first_short(f"{subject}{change}{_sureness(first)}." for subject in subjects for change in changes)
    judged = leading_result(ranked)
    if judged is not None and judged is not first:
        leads = f"leads {sum(not _is_unjudged(result) for result in ranked)} variants with enough runs"
        ratio = format_ratio(judged.speedup.value if judged.speedup else None)
        speeds = [f"{_speed(judged)} {base}", f"{_speed(judged)} the baseline", ratio]
        lone = names[results.index(first)]
        lone = lone if len(lone) <= _MOST_OTHER_CHARS else "another"
        runs = len(throughputs(first.runs))
        return _first_short(
            f"{agree(_capital(_fit(names[results.index(judged)], names[at], chars)), leads)}: "
            f"{speed}{_sureness(judged)}; {lone} measured faster in {runs} {units.plural('run', runs)}."
            for chars, speed in (*((_MOST_LEADER_CHARS, speed) for speed in speeds), (_MOST_OTHER_CHARS, ratio))
        )
    rival = names[results.index(rivals[0])]
    rest = _describe_rivals(first, rivals, rival if len(rival) <= _MOST_OTHER_CHARS else "1 other")
    short = f"{len(rivals)} {'other is' if len(rivals) == 1 else 'others are'} not ruled out"
    subjects = [agree(_capital(name), f"leads {count} {of_all}", role) for name in leaders]
    return _first_short(f"{who}{change}; {text}." for who in subjects for text in (rest, short) for change in changes)


def _fit(name: str, base: str, most: int) -> str:
    """Return a name in so many characters, without what the baseline's has too, as far as that takes."""
    parts = leave_out(
        tuple(name.split(SEPARATOR)), base.split(SEPARATOR), lambda parts: len(SEPARATOR.join(parts)) <= most
    )
    return shorten_name(SEPARATOR.join(parts), most)


def _first_short(answers: Iterable[str]) -> str:
    """Return the first answer that can be said in a breath, else the last."""
    answer = ""
    for answer in answers:
        if sum(any(map(str.isalnum, word)) for word in answer.split()) <= _LONGEST_ANSWER:
            break
    return answer


def _describe_rivals(first: VariantResult, rivals: Sequence[VariantResult], rival: str) -> str:
    """Return which or how many may be as fast as the first by their intervals, or for want of one.

    `rival` is what the first of them is called.
    """
    if _is_unjudged(first):
        return "not yet sure"
    unjudged = sum(map(_is_unjudged, rivals))
    if len(rivals) == 1 and not unjudged:
        return f"{rival} may be as fast"
    counts = ((len(rivals) - unjudged, "may be", "may be", "as fast"), (unjudged, "has", "have", "too few runs"))
    return ", ".join(
        f"{count} {'other' if count == 1 else 'others'} {singular if count == 1 else plural} {rest}"
        for count, singular, plural, rest in counts
        if count
    )


def _is_unjudged(result: VariantResult) -> bool:
    return not result.is_baseline and not (result.speedup and result.speedup.interval)


def _answer_on_two(ranked: Sequence[VariantResult]) -> str:
    result, baseline = sorted(ranked, key=lambda variant: variant.is_baseline)
    names = variant_names([variant.runs[0].spec for variant in (result, baseline)], in_sentence=True)
    name, base = (shorten_name(name) for name in names)
    if result.decision != "no difference seen":
        return f"{agree(_capital(name), f'is {_speed(result)}')} {base}{_sureness(result)}."
    if result.equivalence is not None and result.equivalence.decision == "equal":
        margin = units.exactly(result.equivalence.margin_pct, "%")
        return f"{_capital(name)} and {base} are equal within {margin}{_sureness(result)}."
    is_known = result.speedup is not None and result.speedup.is_known
    return f"{'No significant difference' if is_known else 'Not known yet which is faster'}: {name} and {base}" + (
        f"{_sureness(result)}." if is_known else "."
    )


def _speed(result: VariantResult) -> str:
    """Return a speed up to what it is compared with: `6.4 % faster than`, `2.50× as fast as`."""
    assert result.speedup is not None, "it is ranked"
    ratio = result.speedup.value
    return f"{describe_speed(ratio)} {'as' if is_far_from_one(ratio) else 'than'}"


def _sureness(result: VariantResult) -> str:
    """Return the interval of a speed-up, or that there is none."""
    if result.is_baseline or result.speedup is None:
        return ""
    return f" ({format_interval(result.speedup.interval, result.speedup.value) or 'not yet sure'})"


def _capital(name: str) -> str:
    """Return a name as the beginning of a sentence; cuDNN and a workload's name stay."""
    return (
        name if any(name.split(" ")[0] == workload.name for workload in WORKLOADS) else units.sentence(name).rstrip(".")
    )


def _why_no_answer(results: Sequence[VariantResult], base: VariantResult) -> str:
    others = [result for result in results if not result.is_baseline]
    if not others:
        return "All chosen runs are of one variant: there is nothing to compare it with."
    workloads = list(dict.fromkeys(result.runs[0].spec.workload for result in (*others, base)))
    if all(result.decision == "different workloads" for result in others):
        workloads_are = f"{join_with_and(workloads)} are", f"These are {len(workloads)}"
        return _first_short(f"{text} different workloads, so their speeds are not compared." for text in workloads_are)
    if base.throughput is None:
        return f"No run of the baseline measured to its end ({describe_endings(base.runs)})."
    if len(others) > 1:
        return "No variant but the baseline has a complete run."
    name = shorten_name(result_names(results)[results.index(others[0])])
    return f"No run of {name} measured to its end ({describe_endings(others[0].runs)})."


def _notes(results: Sequence[VariantResult], ranked: Sequence[VariantResult], base: VariantResult) -> list[str]:
    """Return what qualifies the answer: energy, margin, settings, and what is not compared."""
    if len(ranked) < 2:
        return []
    other = next(result for result in ranked if not result.is_baseline)
    names = step_differences(base.runs[0].spec, other.runs[0].spec) if len(ranked) == 2 else []
    labels = [label_in_sentence(other.runs[0].spec, name) for name in names]
    return [
        *([_describe_energy(other)] if len(ranked) == 2 else []),
        *([f"They differ in {len(names)} settings: {join_with_and(labels)}."] if len(names) > 1 else []),
        *_tally_equivalences(ranked),
        *_describe_other_work(results, ranked, base),
        *_incomparable(results),
    ]


def _describe_energy(result: VariantResult) -> str:
    """Return what is known of the energy of the variant beside the baseline; "" if nothing is."""
    ratio, energy = result.energy_ratio, f"energy per {example_word(result.runs[0].spec)}"
    if ratio is None:
        return ""
    if ratio.interval is not None and ratio.interval[0] <= 1 <= ratio.interval[1]:
        return (
            f"No significant difference in {energy}." if ratio.is_known else f"Not known yet which uses more {energy}."
        )
    change = f"{percent_of(abs(ratio.value - 1))} {'less' if ratio.value < 1 else 'more'}"
    if is_far_from_one(ratio.value):
        change = f"{units.ratio(ratio.value)} the"
    return f"{'They use' if is_plural(result_names([result])[0]) else 'It uses'} {change} {energy}."


def _tally_equivalences(ranked: Sequence[VariantResult]) -> list[str]:
    """Return how many variants are equal to the baseline within the margin, if one was given, and how many are not."""
    equivalences = [result.equivalence for result in ranked if result.equivalence is not None]
    decisions = [equivalence.decision for equivalence in equivalences]
    is_answer = len(ranked) == 2 and any(result.decision == "no difference seen" for result in ranked)
    if not decisions or (is_answer and decisions == ["equal"]):
        return []
    labels = {"equal": "equal to the baseline", "cannot tell": "undecided"}
    parts = [f"{decisions.count(kind)} {labels.get(kind, f'{kind} by more')}" for kind in dict.fromkeys(decisions)]
    return [f"With a margin of {units.exactly(equivalences[0].margin_pct, '%')}: {join_with_and(parts)}."]


def _describe_other_work(
    results: Sequence[VariantResult], ranked: Sequence[VariantResult], base: VariantResult
) -> list[str]:
    """Return how many variants do other work than the baseline, and how much of it."""
    ratios = [ratio for result in results if result.speedup and (ratio := work_ratio(result.runs, base.runs))]
    if not ratios:
        return []
    operations = f"{units.range_of(ratios, units.ratio_figures)}× the operations per {example_word(base.runs[0].spec)}"
    if len(ranked) < sum(result.speedup is not None for result in results):
        do, are = ("does", "is") if len(ratios) == 1 else ("do", "are")
        return [f"{len(ratios)} more {do} {operations} and {are} not ranked."]
    it_does = "it does" if len(ratios) == 1 else "the others do"
    return [f"{'It is not' if len(ratios) == 1 else 'None is'} directly comparable: {it_does} {operations}."]


def _incomparable(results: Sequence[VariantResult]) -> list[str]:
    """Return how many variants have no ratio, and why."""
    elsewhere = [result for result in results if result.decision == "different workloads" and not result.is_baseline]
    unmeasured = [result.runs for result in results if result.throughput is None and result not in elsewhere]
    sentences = []
    if elsewhere:
        names = f" ({', '.join(dict.fromkeys(result.runs[0].spec.workload for result in elsewhere))})"
        are = "variant of another workload{} is" if len(elsewhere) == 1 else "variants of other workloads{} are"
        sentences.append(_first_short(f"{len(elsewhere)} {are.format(text)} not compared." for text in (names, "")))
    if unmeasured:
        sentences.append(f"{len(unmeasured)} did not measure to the end{describe_group_endings(unmeasured)}.")
    return sentences


def _next_step(
    results: Sequence[VariantResult], ranked: Sequence[VariantResult]
) -> tuple[str, int, Sequence[VariantResult]]:
    """Return what would decide it, how many more repeats that takes, and of which variants; or how sure it is."""
    others = [result for result in ranked if not result.is_baseline]
    if not others or len(ranked) < 2:
        return "", 0, ()
    fewest = min(result.throughput.n for result in results if result.throughput is not None)
    if fewest < MIN_REPEATS:
        return FEW_RUNS_NOTE, MIN_REPEATS - fewest, ()
    required = [result.required_repeats for result in others if result.required_repeats is not None]
    if all(result.decision == "no difference seen" for result in others):
        if not required:
            return HOW_SURE, 0, ()
        most = max(required, key=lambda requirement: requirement.repeats)
        offered = most.repeats if most.repeats <= _MOST_OFFERED else 0
        return units.sentence(_describe_required_repeats(most)), offered, ()
    rivals = may_be_as_fast(ranked) if len(ranked) > 2 else []
    if 0 < len(rivals) < _MOST_RIVALS:
        text, repeats = _describe_rival_repeats(ranked, rivals)
        return (text, repeats, (ranked[0], *rivals)) if 0 < repeats <= _MOST_OFFERED else (text, 0, ())
    return HOW_SURE, 0, ()


def _describe_rival_repeats(ranked: Sequence[VariantResult], rivals: Sequence[VariantResult]) -> tuple[str, int]:
    """Return what more repeats of the first variant and its rivals would tell, and how many that takes."""
    first, of_these = ranked[0].runs, f"these {1 + len(rivals)}"
    samples = [
        (throughputs(first), throughputs(rival.runs), count_looks(first, rival.runs), len(ranked) - 1)
        for rival in rivals
    ]
    repeats = max(repeats_to_tell(*sample) or _MOST_REPEATS for sample in samples)
    if repeats <= _MOST_OFFERED:
        return f"{repeats} more {units.plural('repeat', repeats)} of {of_these} would tell which is fastest.", repeats
    needs = [need for sample in samples if (need := required_repeats(*sample)) is not None]
    if not needs:
        return HOW_SURE, 0
    most = max(needs, key=lambda need: need.repeats)
    helps = _describe_required_repeats(most, "their ratio" if len(rivals) == 1 else "their ratios")
    return units.sentence(helps), most.repeats


def _describe_noise(ranked: Sequence[VariantResult]) -> tuple[str, int]:
    """Return that runs of the baseline differ so much that all intervals are wide, and a run of a steadier one."""
    judged = [result for result in ranked if len(throughputs(result.runs)) >= MIN_REPEATS]
    base = next((result for result in judged if result.is_baseline), None)
    if base is None or base.runs in (steady := steady_variants([result.runs for result in judged])):
        return "", 0
    spread = run_spread(base.runs)
    amount = units.ratio(1 + spread) if is_far_from_one(1 + spread) else percent_of(spread)
    text = f"Runs of the baseline differ by {amount}, which makes intervals wide; choose a steadier one or repeat it."
    return text, min(runs[0].run for runs in steady)


def _describe_required_repeats(required: RequiredRepeats, what: str = "the speed-up") -> str:
    """Return how narrowly more repeats would determine `what`, and how many."""
    if required.repeats > _MOST_REPEATS:
        return "more repeats would hardly help, as runs of one variant differ too much"
    width = units.plus_minus(units.exactly(100 * required.half_width, "%"))
    range_ = f" ({required.fewest:,}–{required.most:,})" if required.fewest < required.most else ""
    more = f"{required.repeats:,} more {units.plural('repeat', required.repeats)} of each{range_}"
    return f"with about {more} {what} would be known to {width}"


EFFECTS_TITLE = "What each setting does by itself"


def effects_method(effects: Sequence[Effect]) -> str:
    """Return what the rows are, as a sentence."""
    has_intervals = any(effect.ratio.interval for effect in effects)
    how = " Intervals are over processes and hold together with those of the variants." if has_intervals else ""
    return f"Geometric mean of the speed-up over pairs of variants that differ in this setting alone.{how}"


def effects_table(effects: Sequence[Effect]) -> TextTable:
    """Return a row for each effect, below what the rows are."""
    return TextTable(
        head=("Setting", "Speed-up", CI, "Pairs", "Range of pairs", "Note"),
        rows=tuple(map(_effect_row, effects)),
        numeric=frozenset({1, 2, 3, 4}),
        caption=effects_method(effects),
    )


def _effect_row(effect: Effect) -> tuple[str, ...]:
    ratio, left_out = effect.ratio.value, effect.single_run_pairs
    return (
        effect_name(effect),
        format_ratio(ratio),
        format_interval(effect.ratio.interval, ratio) or units.ABSENT,
        str(len(effect.pairs)),
        format_interval(effect.spread, ratio) if len(effect.pairs) > 1 else units.ABSENT,
        "; ".join([*effect_notes(effect), *([f"{left_out} with too few runs left out"] if left_out else [])]),
    )


def effect_name(effect: Effect) -> str:
    """Return the change in short: `NHWC → NCHW`, `XLA off → on`, `Batch size 128 → 64`."""
    before, after = _values(effect)
    label = parameter_label(effect.pairs[0].after[0].spec, effect.parameter)
    return f"{before} → {after.removeprefix(f'{label} ')}"


def effect_notes(effect: Effect) -> list[str]:
    """Return what to know about an effect, in a few words each."""
    states = {run.evidence_state for pair in effect.pairs for run in (*pair.before, *pair.after)}
    return [
        *([_describe_difference(effect)] if effect.differs else []),
        *(["includes other work"] if effect.changes_work else []),
        *(["includes what did not run as requested"] if "mismatch" in states else []),
    ]


def _describe_difference(effect: Effect) -> str:
    """Return that the effect is not the same in all pairs, and what it depends on, if that is known."""
    if effect.depends_on is None:
        return "differs by more than chance"
    return f"depends on {label_in_sentence(effect.pairs[0].before[0].spec, effect.depends_on)}"


def _values(effect: Effect, *, in_sentence: bool = False) -> tuple[str, str]:
    """Return the settings before and after the change."""
    pair = effect.pairs[0]
    specs = pair.before[0].spec, pair.after[0].spec
    before, after = (format_setting(spec, effect.parameter, in_sentence=in_sentence) for spec in specs)
    return before, after
