"""The verdict of a comparison, the same in window, report and terminal; tables show the rest."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.analysis.effects import Effect, answered_setting, compute_effects, effects_of_best, step_differences
from app.analysis.intervals import LEVEL, MIN_REPEATS, Estimate, RequiredRepeats, repeats_to_tell, required_repeats
from app.analysis.verdict import (
    VariantResult,
    count_looks,
    decide,
    default_baseline,
    energies,
    family_ratios,
    join_repeats,
    judge,
    may_be_as_fast,
    rank_results,
    ratios_of_first,
    run_spread,
    same_workload,
    steady_variants,
    throughputs,
    work_ratio,
)
from app.values import units
from app.values.records import RunRow
from app.viewmodels.compare.statements import Gap, Region, Statement
from app.viewmodels.compare.warnings import evidence_warnings
from app.viewmodels.format.cells import TextTable, group_example_word
from app.viewmodels.format.naming import (
    Name,
    format_setting,
    label_in_sentence,
    names_in_parts,
    parameter_label,
    variant_names,
)
from app.viewmodels.format.ratios import CI, Unit, format_interval, format_ratio, unit_of
from app.viewmodels.format.sentences import run_ending
from workloads.protocol import RunSpec, Value

METHOD = "Welch's t on the logarithm of each process's throughput, widened so that runs may be added and judged again"
NO_METHOD = f"No interval: it takes {MIN_REPEATS} or more runs of each variant"
_MOST_REPEATS = 1000
"""What would need more repeats than this is noise to track down, not to average out."""
_MOST_OFFERED = 100
"""The most repeats that one click may request."""
_MOST_RIVALS = 5
"""The most variants that may be as fast as the fastest for which more repeats are worthwhile."""
_MOST_SPANS = 3
"""The most ranges of values that a sentence can distinguish."""
_MOST_GAPS = 2
"""The most variants behind the fastest that a sentence names; of more, the next, and if one setting varies the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The results and names of all variants in order, the effects of parameters, and the decision in a word or two.

    Attributes:
        asked: The setting that the answer is about; "" if it is about who is fastest.
        statements: The answer first, then qualifications, and what would decide it or how certain it is.
        answers: How many of the first statements are answers: one for each workload with two or more variants.
        steps: How many of the last statements say what would decide it.
        more_repeats: The repeats of each variant that would decide it; 0 if it is decided, or they would be too many.
        repeated: The variants that need these repeats; empty for all.
        steadier: A run of a variant whose runs differ less, if the baseline's differ too much; else 0.
    """

    results: tuple[VariantResult, ...] = ()
    names: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    decision: str = "nothing to compare"
    asked: str = ""
    statements: tuple[Statement, ...] = ()
    answers: int = 1
    steps: int = 0
    more_repeats: int = 0
    repeated: tuple[RunSpec, ...] = ()
    steadier: int = 0

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return its sentences except those on runs that did not run as requested, which a warning also covers."""
        return tuple(statement.sentence for statement in self.statements if statement.severity != "warning")

    @property
    def answer(self) -> str:
        return " ".join(statement.sentence for statement in self.statements[: self.answers])

    @property
    def next_step(self) -> str:
        """Return what would decide it, or how certain it is; "" without either."""
        return " ".join(self.sentences[len(self.sentences) - self.steps :])

    @property
    def text(self) -> str:
        """Return all sentences, first what did not run as requested, if the answer is about it."""
        answered = {run for statement in self.statements[: self.answers] for run in statement.runs}
        ordered = sorted(self.statements, key=lambda one: one.severity == "note" or answered.isdisjoint(one.runs))
        return " ".join(statement.sentence for statement in ordered)


def compute_verdict(
    rows: Sequence[RunRow], baseline_run: int = 0, margin_pct: float | None = None, asked: str = ""
) -> Verdict:
    """Return the verdict on these runs, repeats joined, against the variant of run `baseline_run`.

    If that run is not among them, the default baseline is used, so that all callers get the same answer. `asked` is the
    setting that an experiment asks about; by default it is what differs, or what most pairs show.
    """
    rows, _ = join_repeats(rows)
    if all(row.run != baseline_run for row in rows):
        baseline_run = default_baseline(rows)
    results = judge(rows, baseline_run, margin_pct)
    base = next(result for result in results if result.is_baseline)
    ranked, variants = rank_results(results), [result.runs for result in results]
    effects = compute_effects(variants, base.runs)
    steps: list[Statement] = []
    repeated: Sequence[VariantResult] = ()
    more_repeats = steadier = 0
    if len(ranked) < 2:
        answers = [_why_no_answer(results, base)]
    else:
        answer, *others = _answers(ranked, results, effects, answered_setting(effects, asked))
        if any(result.decision == "different workloads" for result in results):
            answer = replace(answer, facts={**answer.facts, "workload": base.runs[0].spec.workload})
        answers = [answer, *others, *_notes(results, ranked, base)]
        steps, steadier = _describe_noise(ranked)
        step, more_repeats, repeated = _next_step(ranked)
        steps = [*steps, step]
    elsewhere = []
    for workload in dict.fromkeys(row.spec.workload for row in rows if not same_workload([row], base.runs)):
        verdict = compute_verdict([row for row in rows if row.spec.workload == workload], 0, margin_pct, asked)
        if len(rank_results(verdict.results)) > 1:
            answer = verdict.statements[0]
            elsewhere.append(replace(answer, facts={**answer.facts, "workload": workload}))
    decisions = [result.decision for result in results if not result.is_baseline]
    return Verdict(
        results=tuple(results),
        names=tuple(variant_names([result.runs[0].spec for result in results])),
        effects=effects if len({effect.parameter for effect in effects}) > 1 else (),
        decision=decisions[0] if len(decisions) == 1 else "several variants" if decisions else "nothing to compare",
        asked=str(answers[0].facts.get("parameter", "")),
        statements=(*answers[:1], *elsewhere, *evidence_warnings(rows), *answers[1:], *steps),
        answers=1 + len(elsewhere),
        steps=len(steps),
        more_repeats=more_repeats,
        repeated=tuple(result.runs[0].spec for result in repeated),
        steadier=steadier,
    )


def describe_method(results: Sequence[VariantResult]) -> str:
    """Return how the speed-ups' intervals were computed, and which of them hold together."""
    compared = max((result.comparisons for result in results), default=0)
    if not compared:
        return NO_METHOD
    looks = max(result.looks for result in results if not result.is_baseline)
    look = f" This is look {looks}." if looks > 1 else ""
    family = f" Šidák's correction is for {compared} comparisons with one baseline." if compared > 1 else ""
    return f"{METHOD}.{look}{family}" if look or family else METHOD


def _answers(
    ranked: Sequence[VariantResult], results: Sequence[VariantResult], effects: Sequence[Effect], asked: str
) -> list[Statement]:
    """Return the effect of the setting asked about, and who is fastest overall if that differs."""
    answering = [effect for effect in effects if effect.parameter == asked]
    if len(ranked) == 2 and (not answering or asked in step_differences(*(result.runs[0].spec for result in ranked))):
        return [_answer_on_two(ranked)]
    is_all = len(ranked) == 1 + len(answering) and all(len(effect.pairs) == 1 for effect in answering)
    fastest = [_rank(ranked, results, asked if is_all else "")]
    if is_all or not answering:
        return fastest
    if any(effect.changes_work for effect in answering):
        fastest.insert(0, Statement("includes other work", runs=_runs_of(answering)))
    base = next(result for result in results if result.is_baseline)
    best = effects_of_best(effects, asked, [result.runs for result in results], base.runs)
    if 1 in (len(answering), len(best)) or best[0].ratio.value > 1:  # pairs of different values contradict each other
        answer = _effect_statement(max(answering, key=lambda effect: effect.ratio.value))
    else:
        gaps = [Gap(name=_value_names(effect)[1], ratio=effect.ratio.inverse) for effect in best]
        label = label_in_sentence(base.runs[0].spec, asked)
        of = "values" if label.endswith("s") else units.plural(label)
        answer = _ranking(_value_names(best[0])[0], gaps, _runs_of(best), asked, of)
    return [answer, *fastest]


def _answer_on_two(ranked: Sequence[VariantResult]) -> Statement:
    specs = [result.runs[0].spec for result in ranked]
    first, other = names_in_parts(specs, in_sentence=True)
    (ratio,) = ratios_of_first(ranked)
    differing, equivalence = step_differences(*specs), next(filter(None, (one.equivalence for one in ranked)), None)
    parameter = differing[0] if len(differing) == 1 else ""
    facts, runs = _pair_facts(first, other, ratio, parameter, 1, specs), _runs(ranked)
    if decide(ratio) == "no difference seen" and equivalence is not None and equivalence.decision == "equal":
        return Statement("equal", {**facts, "margin_pct": equivalence.margin_pct}, runs)
    return Statement(_way(ratio), facts, runs)


def _way(ratio: Estimate) -> str:
    """Return the kind of statement for a ratio of at least 1."""
    if ratio.interval is None:
        return "no difference" if math.isclose(ratio.value, 1) else "not sure"
    return "effect" if decide(ratio) == "faster" else "no difference" if ratio.is_known else "not known"


def _pair_facts(
    winner: Name, other: Name, ratio: Estimate, parameter: str, pairs: int, specs: Iterable[RunSpec]
) -> dict[str, Any]:
    trains = all(spec.variant.get("mode", "train") == "train" for spec in specs)
    sides = {"winner": winner, "other": other, "ratio": ratio, "parameter": parameter}
    return {**sides, "pairs": pairs, "pairs_ahead": 0, "trains": trains}


def _effect_statement(effect: Effect) -> Statement:
    """Return the effect of a setting with two values, and on which other setting it depends."""
    before, after = _value_names(effect)
    spec, by = effect.pairs[0].before[0].spec, effect.depends_on
    decided = [span for span in effect.spans if span.decision != "not known"]
    by_region = bool(decided) and 1 < len(effect.spans) <= _MOST_SPANS
    widest = max(decided, key=lambda span: len(span.values)) if by_region else None
    ratio = widest.ratio if widest else effect.ratio
    winner, other = (after, before) if ratio.value >= 1 else (before, after)
    facts = _pair_facts(winner, other, _from_winner(ratio), effect.parameter, len(effect.pairs), [spec])
    key = _way(facts["ratio"])
    ahead = (pair.ratio if winner == after else pair.ratio.inverse for pair in effect.pairs)
    facts["pairs_ahead"] = sum(decide(ratio) == "faster" for ratio in ahead)
    if effect.differs:
        facts["by"] = label_in_sentence(spec, by) if by else ""
        pairs = sorted(effect.pairs, key=lambda pair: pair.ratio.value)
        ends = [_region(effect, [pair.before[0].spec.variant[by]] if by else [], pair.ratio) for pair in pairs]
        key, facts["regions"] = "varies", (ends[0], ends[-1])
    if widest:
        spans = sorted(effect.spans, key=lambda span: span is not widest)
        key, facts["by"] = "by region", label_in_sentence(spec, by) if by else ""
        facts["regions"] = tuple(_region(effect, span.values, span.ratio) for span in spans)
    return Statement(key, facts, _runs_of([effect]))


def _from_winner(ratio: Estimate) -> Estimate:
    return ratio if ratio.value >= 1 else ratio.inverse


def _region(effect: Effect, values: Sequence[Value], ratio: Estimate) -> Region:
    before, after = _value_names(effect)
    name = effect.depends_on
    specs = {pair.before[0].spec.variant[name]: pair.before[0].spec for pair in effect.pairs} if name else {}
    ordered = [value for span in effect.spans for value in span.values]
    return Region(
        winner=after if ratio.value >= 1 else before,
        ratio=_from_winner(ratio),
        decided=decide(ratio) in ("faster", "slower"),
        settings=tuple((format_setting(specs[value], name, in_sentence=True),) for value in values if name),
        is_lowest=bool(values) and values[0] == ordered[0],
        is_highest=bool(values) and values[-1] == ordered[-1],
        is_number=all(type(value) in (int, float) for value in ordered),
    )


def _value_names(effect: Effect) -> tuple[Name, Name]:
    pair = effect.pairs[0]
    specs = pair.before[0].spec, pair.after[0].spec
    before, after = (format_setting(spec, effect.parameter, in_sentence=True) for spec in specs)
    return (before,), (after,)


def _runs_of(effects: Iterable[Effect]) -> tuple[int, ...]:
    pairs = (pair for effect in effects for pair in effect.pairs)
    return tuple(dict.fromkeys(row.run for pair in pairs for row in (*pair.before, *pair.after)))


def _judged(ranked: Sequence[VariantResult]) -> Sequence[VariantResult]:
    """Return the ranked variants with enough runs, or all if fewer than two have them."""
    enough = [result for result in ranked if result.is_baseline or (result.speedup and result.speedup.interval)]
    return enough if len(enough) > 1 else ranked


def _rank(ranked: Sequence[VariantResult], results: Sequence[VariantResult], asked: str) -> Statement:
    alike = [result for result in results if result.decision != "different workloads"]
    names = names_in_parts([result.runs[0].spec for result in alike], in_sentence=True)
    first, *others = _judged(ranked)
    ratios = zip(others, ratios_of_first([first, *others]), strict=True)
    gaps = [Gap(name=names[alike.index(result)], ratio=ratio) for result, ratio in ratios]
    return _ranking(names[alike.index(first)], gaps, _runs([first, *others]), asked)


def _ranking(
    winner: Name, gaps: Sequence[Gap], runs: tuple[int, ...], parameter: str, of: str = "variants"
) -> Statement:
    rivals = [gap for gap in gaps if decide(gap.ratio) != "faster"]
    first = (rivals or gaps)[0]
    others = [gap for gap in gaps if gap is not first]
    named = [first, *(others[-1:] if parameter or len(gaps) <= _MOST_GAPS else [])]
    facts = {"winner": winner, "gaps": tuple(named), "count": len(gaps) + 1, "rivals": len(rivals)}
    return Statement("leads" if rivals else "fastest", {**facts, "parameter": parameter, "of": of}, runs)


def _runs(results: Iterable[VariantResult]) -> tuple[int, ...]:
    return tuple(row.run for result in results for row in result.runs)


def _why_no_answer(results: Sequence[VariantResult], base: VariantResult) -> Statement:
    others = [result for result in results if not result.is_baseline]
    if not others:
        return Statement("one variant", runs=_runs([base]))
    if all(result.decision == "different workloads" for result in others):
        workloads = tuple(dict.fromkeys(result.runs[0].spec.workload for result in (*others, base)))
        return Statement("different workloads", {"workloads": workloads}, _runs(results))
    if len(others) > 1 and base.throughput is not None:
        return Statement("no other result", runs=_runs(others))
    silent = base if base.throughput is None else others[0]
    names = names_in_parts([result.runs[0].spec for result in results], in_sentence=True)
    endings = tuple(dict.fromkeys(run_ending(row)[0] for row in silent.runs))
    return Statement("no result", {"name": names[results.index(silent)], "endings": endings}, _runs([silent]))


def _notes(results: Sequence[VariantResult], ranked: Sequence[VariantResult], base: VariantResult) -> list[Statement]:
    """Return the qualifications of the answer: energy, settings, margin, and what is not compared."""
    notes = _energy(results, ranked)
    if len(ranked) == 2:
        other = next(result for result in ranked if not result.is_baseline)
        names = step_differences(base.runs[0].spec, other.runs[0].spec)
        labels = tuple(label_in_sentence(other.runs[0].spec, name) for name in names)
        notes += [Statement("settings", {"labels": labels})] if len(names) > 1 else []
    equivalences = [result.equivalence for result in ranked if result.equivalence is not None]
    decisions = [equivalence.decision for equivalence in equivalences]
    if decisions and (decisions != ["equal"] or any(result.decision in ("faster", "slower") for result in ranked)):
        counts = {decision: decisions.count(decision) for decision in dict.fromkeys(decisions)}
        notes += [Statement("margin", {"margin_pct": equivalences[0].margin_pct, "counts": counts})]
    working = [(ratio, one) for one in results if one.speedup and (ratio := work_ratio(one.runs, base.runs))]
    if working and len(ranked) == sum(result.speedup is not None for result in results):
        work = {"ratios": tuple(ratio for ratio, _ in working), "example": group_example_word(base.runs)}
        notes.append(Statement("other work", work, _runs(result for _, result in working)))
    judged = _judged(ranked)
    apart = {
        "other_work": [result for _, result in working if result not in ranked],
        "few_runs": [result for result in ranked if result not in judged],
        "other_workloads": [result for result in results if result.decision == "different workloads"],
        "unmeasured": [result for result in results if result.decision == "nothing to compare"],
    }
    if any(apart.values()):
        numbers = {why: len(some) for why, some in apart.items() if some}
        runs = _runs(result for some in apart.values() for result in some)
        notes.append(Statement("not ranked", {"counts": numbers}, runs))
    return notes


def _energy(results: Sequence[VariantResult], ranked: Sequence[VariantResult]) -> list[Statement]:
    """Return which variant uses the least energy, and how much more the next one uses."""
    measured = [(result.energy_ratio.value, n) for n, result in enumerate(ranked) if result.energy_ratio]
    if len(measured) < 2:
        return []
    least = ranked[min(measured)[1]]
    ratios = family_ratios([result.runs for result in results], least.runs, energies, within_gpus=True)
    pairs = [pair for pair in zip(results, ratios, strict=True) if len(ranked) > 2 or pair[0] in ranked]
    names = names_in_parts([result.runs[0].spec for result, _ in pairs], in_sentence=True)
    more = {n: ratio for n, (one, ratio) in enumerate(pairs) if ratio and one in ranked and one is not least}
    nearest = min(more, key=lambda n: more[n].value)
    facts = {
        "least": next(name for name, (one, _) in zip(names, pairs, strict=True) if one is least),
        "more": names[nearest],
        "ratio": more[nearest],
        "count": 1 + len(more),
        "rivals": sum(_way(ratio) in ("no difference", "not known") for ratio in more.values()),
        "example": group_example_word(least.runs),
    }
    return [Statement("energy", facts, _runs(ranked))]


def _next_step(ranked: Sequence[VariantResult]) -> tuple[Statement, int, Sequence[VariantResult]]:
    """Return what would decide it, with the number of repeats and the variants; or how certain it is."""
    sure = Statement("sure", {"level_pct": 100 * LEVEL})
    others = [result for result in ranked if not result.is_baseline]
    fewest = min(result.throughput.n for result in ranked if result.throughput is not None)
    if fewest < MIN_REPEATS:
        return Statement("repeats for an interval", {"repeats": MIN_REPEATS}), MIN_REPEATS - fewest, ()
    required = [result.required_repeats for result in others if result.required_repeats is not None]
    if all(result.decision == "no difference seen" for result in others):
        if not required:
            return sure, 0, ()
        most = max(required, key=lambda requirement: requirement.repeats)
        return _repeats_for(most, 1), most.repeats if most.repeats <= _MOST_OFFERED else 0, ()
    rivals = may_be_as_fast(ranked) if len(ranked) > 2 else []
    if not 0 < len(rivals) < _MOST_RIVALS:
        return sure, 0, ()
    first = ranked[0].runs
    samples = [
        (throughputs(first), throughputs(rival.runs), count_looks(first, rival.runs), len(ranked) - 1)
        for rival in rivals
    ]
    repeats = max(repeats_to_tell(*sample) or _MOST_REPEATS for sample in samples)
    repeated = (ranked[0], *rivals)
    if repeats <= _MOST_OFFERED:
        facts = {"repeats": repeats, "count": len(repeated)}
        return Statement("repeats to tell", facts, _runs(repeated)), repeats, repeated
    needs = [need for sample in samples if (need := required_repeats(*sample)) is not None]
    if not needs:
        return sure, 0, ()
    most = max(needs, key=lambda need: need.repeats)
    offered = most.repeats if most.repeats <= _MOST_OFFERED else 0
    return _repeats_for(most, len(rivals)), offered, repeated if offered else ()


def _repeats_for(required: RequiredRepeats, ratios: int) -> Statement:
    """Return how narrowly further repeats would determine these ratios, and how many; or that they hardly help."""
    if required.repeats > _MOST_REPEATS:
        return Statement("repeats hardly help", {"repeats": required.repeats})
    facts = {"repeats": required.repeats, "fewest": required.fewest, "most": required.most, "ratios": ratios}
    return Statement("repeats for a width", {**facts, "half_width_pct": 100 * required.half_width})


def _describe_noise(ranked: Sequence[VariantResult]) -> tuple[list[Statement], int]:
    judged = [result for result in ranked if len(throughputs(result.runs)) >= MIN_REPEATS]
    rows = sorted((row for result in judged for row in result.runs), key=lambda row: row.run)
    base = next((result for result in judged if result.is_baseline), None)
    if base is None or base.runs in steady_variants([result.runs for result in judged]):
        return [], 0
    noisy = Statement("noisy baseline", {"ratio": 1 + run_spread(base.runs)}, _runs([base]))
    steadier = default_baseline(rows)
    return [noisy], 0 if any(row.run == steadier for row in base.runs) else steadier


EFFECTS_TITLE = "What each setting does by itself"


def effects_method(effects: Sequence[Effect]) -> str:
    has_intervals = any(effect.ratio.interval for effect in effects)
    how = " Intervals are over processes and hold together with those of the variants." if has_intervals else ""
    return f"Geometric mean of the speed-up over pairs of variants that differ in this setting alone.{how}"


def effects_table(effects: Sequence[Effect]) -> TextTable:
    unit = unit_of(effect.ratio.value for effect in effects)
    return TextTable(
        head=("Setting", "Speed-up", CI, "Pairs", "Range of pairs", "Note"),
        rows=tuple(_effect_row(effect, unit) for effect in effects),
        numeric=frozenset({1, 2, 3, 4}),
        caption=effects_method(effects),
    )


def _effect_row(effect: Effect, unit: Unit) -> tuple[str, ...]:
    ratio, left_out = effect.ratio.value, effect.single_run_pairs
    return (
        effect_name(effect),
        format_ratio(ratio, unit),
        format_interval(effect.ratio.interval, ratio, unit) or units.ABSENT,
        str(len(effect.pairs)),
        format_interval(effect.spread, ratio, unit) if len(effect.pairs) > 1 else units.ABSENT,
        "; ".join([*effect_notes(effect), *([f"{left_out} with too few runs left out"] if left_out else [])]),
    )


def effect_name(effect: Effect) -> str:
    """Return the change in short: `NHWC → NCHW`, `XLA off → on`, `Batch size 128 → 64`."""
    specs = effect.pairs[0].before[0].spec, effect.pairs[0].after[0].spec
    before, after = (format_setting(spec, effect.parameter) for spec in specs)
    return f"{before} → {after.removeprefix(f'{parameter_label(specs[1], effect.parameter)} ')}"


def effect_notes(effect: Effect) -> list[str]:
    states = {run.evidence_state for pair in effect.pairs for run in (*pair.before, *pair.after)}
    name = effect.depends_on
    depends = f"depends on {label_in_sentence(effect.pairs[0].before[0].spec, name)}" if name else ""
    return [
        *([depends or "differs by more than chance"] if effect.differs else []),
        *(["includes other work"] if effect.changes_work else []),
        *(["includes what did not run as requested"] if "mismatch" in states else []),
    ]
