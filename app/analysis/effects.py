"""The effect of each parameter by itself: ratios over pairs of variants that differ only in that parameter.

It is the only source of such ratios, so that the answer to a question about a setting, tables and charts agree.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np

from app.analysis.intervals import MIN_REPEATS, Estimate, level_at, mean_ratio
from app.analysis.verdict import count_looks, decide, same_workload, throughputs, without, work_ratio
from app.values.records import Floats, RunRow
from workloads.catalog import OF_REPEATS, OUTSIDE_STEP, has_parameter
from workloads.protocol import RunSpec, Value

_EXPLAINED = 0.5
"""A parameter explains why pairs differ if it accounts for at least this adjusted share of their variance."""

Variant = tuple[RunRow, ...]
"""The runs of one variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedPair:
    """Two variants that differ only in one parameter, and the ratio of their throughput.

    The intervals of one effect's pairs hold together, regardless of other effects.
    """

    before: Variant
    after: Variant
    ratio: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Neighbouring values of the parameter on which an effect depends, with the same result.

    Numbers are in order, other values as they first appear. `ratio` covers all pairs at these values.
    """

    values: tuple[Value, ...]
    ratio: Estimate
    decision: Literal["faster", "slower", "not known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The change of throughput when only one parameter changes from one value to another.

    Effects and the variants' ratios to the baseline are one family, so the result of a single pair has one interval.

    Attributes:
        ratio: Geometric mean over the pairs.
        pairs: Pairs with an interval, if there are any; else all.
        single_run_pairs: How many pairs without an interval were left out.
        differs: Whether pairs differ by more than their intervals allow; None if unknown.
        depends_on: The parameter that separates decided results, else the one that explains most of that difference.
        spans: Where it is faster, slower or undecided along that parameter.
        changes_work: Whether the ratio includes a change of the work per example.
    """

    parameter: str
    before: Value
    after: Value
    ratio: Estimate
    pairs: tuple[MatchedPair, ...]
    single_run_pairs: int
    differs: bool | None
    depends_on: str | None
    spans: tuple[Span, ...]
    changes_work: bool

    @property
    def spread(self) -> tuple[float, float]:
        ratios = [pair.ratio.value for pair in self.pairs]
        return min(ratios), max(ratios)


def step_differences(first: RunSpec, second: RunSpec) -> list[str]:
    """Return the parameters that affect a step in which two variants differ, as far as both frameworks read them."""
    return [
        name
        for name in dict.fromkeys((*first.variant, *second.variant))
        if name not in OUTSIDE_STEP
        and first.variant.get(name) != second.variant.get(name)
        and has_parameter(first, name)
        and has_parameter(second, name)
    ]


class _Change(NamedTuple):
    """A change of a parameter, and the variants before and after it that are otherwise equal."""

    parameter: str
    before: Value
    after: Value
    pairs: tuple[tuple[Variant, Variant], ...]


def compute_effects(
    variants: Sequence[Variant], baseline: Variant, before: Mapping[str, Value] | None = None
) -> tuple[Effect, ...]:
    """Return each parameter's separate effect in the baseline's workload, in one family.

    A parameter changes from the baseline's value, or from the value with the most pairs if the baseline's has none.
    With `before`, only its parameters are covered, each changed from its value there.
    """
    base = baseline[0].spec
    measured = [variant for variant in variants if same_workload(variant, baseline) and throughputs(variant)]
    specs = [variant[0].spec for variant in measured]
    names = [
        name
        for name in base.variant
        if name not in OUTSIDE_STEP and len({spec.variant.get(name) for spec in specs if has_parameter(spec, name)}) > 1
    ]
    preferred = {**base.variant, **(before or {})}
    changes = [change for name in names for change in _changes(name, measured, preferred[name])]
    compared = sum(_is_repeated((variant, baseline)) for variant in measured if variant is not baseline)
    comparisons = max(compared, sum(any(map(_is_repeated, change.pairs)) for change in changes))
    return tuple(_effect(change, comparisons) for change in changes if before is None or change.parameter in before)


def answered_setting(effects: Sequence[Effect], asked: str = "") -> str:
    """Return the setting that effects are about: the one asked, or without pairs for it the one with the most.

    Settings that change the work per example come last.
    """
    if any(effect.parameter == asked for effect in effects):
        return asked
    best = max(effects, key=lambda effect: (not effect.changes_work, len(effect.pairs)), default=None)
    return best.parameter if best else ""


def effects_of_best(
    effects: Sequence[Effect], parameter: str, variants: Sequence[Variant], baseline: Variant
) -> tuple[Effect, ...]:
    """Return the effects of a parameter from its fastest value to each other one, the second fastest first."""
    of_one = [effect for effect in effects if effect.parameter == parameter]
    fastest = max(of_one, key=lambda effect: effect.ratio.value)
    if fastest.ratio.value > 1:
        of_one = list(compute_effects(variants, baseline, {parameter: fastest.after}))
    return tuple(sorted(of_one, key=lambda effect: -effect.ratio.value))


def _changes(name: str, variants: Sequence[Variant], preferred: Value) -> list[_Change]:
    """Return the changes of a parameter from one of its values that a matched pair shows.

    When the framework changes, settings that one of them lacks do not count, and the fastest of the variants that
    differ only in these represents it. TensorFlow can switch XLA, while JAX always uses it.
    """
    specs = [variant[0].spec for variant in variants]
    compared = specs[0].variant if name == "framework" else ()
    lacked = (other for other in compared if not all(has_parameter(spec, other) for spec in specs))
    ignored = (name, *OF_REPEATS, *lacked)
    alike: dict[tuple[object, ...], dict[Value, Variant]] = {}
    for variant in sorted(variants, key=lambda variant: sum(throughputs(variant)) / len(throughputs(variant))):
        spec = variant[0].spec
        if name in spec.variant:
            settings = tuple(sorted(without(spec, ignored).variant.items()))
            alike.setdefault(settings, {})[spec.variant[name]] = variant
    matched = [by_value for by_value in alike.values() if len(by_value) > 1]
    counts = Counter(value for by_value in matched for value in by_value)
    if not counts:
        return []
    before = preferred if preferred in counts else counts.most_common(1)[0][0]
    pairs = {
        after: tuple((group[before], group[after]) for group in matched if before in group and after in group)
        for after in counts
        if after != before
    }
    return [_Change(name, before, after, matches) for after, matches in pairs.items() if matches]


def _is_repeated(pair: tuple[Variant, Variant]) -> bool:
    return all(len(throughputs(variant)) >= MIN_REPEATS for variant in pair)


def _effect(change: _Change, comparisons: int) -> Effect:
    """Return the effect of a change, in a family of that many intervals; all pairs get the highest number of looks."""
    used = [pair for pair in change.pairs if _is_repeated(pair)] or list(change.pairs)
    figures = [(throughputs(after), throughputs(before)) for before, after in used]
    looks = max(count_looks(after, before) for before, after in used)
    pair_level = level_at(looks, len(used) if len(used) > 1 else comparisons)
    pairs = tuple(
        MatchedPair(before=before, after=after, ratio=mean_ratio([values], pair_level))
        for (before, after), values in zip(used, figures, strict=True)
    )
    intervals = [pair.ratio.interval for pair in pairs if pair.ratio.interval is not None]
    differs = max(low for low, _ in intervals) > min(high for _, high in intervals) if len(intervals) > 1 else None
    depends_on, spans = _deciding_spans(pairs, change.parameter, looks) if len(pairs) > 1 else (None, ())
    if depends_on is None and differs and (depends_on := _explaining_parameter(pairs, change.parameter)):
        spans = _spans(pairs, depends_on, pair_level)
    return Effect(
        parameter=change.parameter,
        before=change.before,
        after=change.after,
        ratio=mean_ratio(figures, level_at(looks, comparisons)),
        pairs=pairs,
        single_run_pairs=len(change.pairs) - len(used),
        differs=differs,
        depends_on=depends_on,
        spans=spans,
        changes_work=any(work_ratio(after, before) is not None for before, after in used),
    )


def _deciding_spans(pairs: Sequence[MatchedPair], changed: str, looks: int) -> tuple[str | None, tuple[Span, ...]]:
    """Return the setting that best separates decided results, and its spans; None if all are decided.

    It is the one with the most pairs in decided spans, on a tie the one that explains most of the difference. The level
    covers the values of all settings tried, because the choice depends on them.
    """
    names = _varying_parameters(pairs, changed)
    values = sum(len({pair.before[0].spec.variant[name] for pair in pairs}) for name in names)
    level = level_at(looks, max(len(pairs), values))
    logs = np.log([pair.ratio.value for pair in pairs])

    def tells(name: str) -> tuple[int, float]:
        settings = [pair.before[0].spec.variant[name] for pair in pairs]
        decided = {value for span in spans[name] if span.decision != "not known" for value in span.values}
        return sum(value in decided for value in settings), explained_share(logs, settings)

    spans = {name: _spans(pairs, name, level) for name in names}
    best = max(spans, key=tells, default=None)
    if best is None or len(spans[best]) == 1 or not tells(best)[0]:
        return None, ()
    return best, spans[best]


def _varying_parameters(pairs: Sequence[MatchedPair], changed: str) -> list[str]:
    settings = [pair.before[0].spec.variant for pair in pairs]
    named_by_all = [name for name in settings[0] if name != changed and all(name in setting for setting in settings)]
    return [name for name in named_by_all if len({setting[name] for setting in settings}) > 1]


def _spans(pairs: Sequence[MatchedPair], name: str, level: float) -> tuple[Span, ...]:
    by_value: dict[Value, list[MatchedPair]] = {}
    for pair in pairs:
        by_value.setdefault(pair.before[0].spec.variant[name], []).append(pair)
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in by_value)
    values = sorted(by_value, key=float) if is_number else list(by_value)

    def mean(values: Sequence[Value]) -> Estimate:
        alike = [pair for value in values for pair in by_value[value]]
        return mean_ratio([(throughputs(pair.after), throughputs(pair.before)) for pair in alike], level)

    def decision(value: Value) -> Literal["faster", "slower", "not known"]:
        decided = decide(mean([value]))
        return decided if decided in ("faster", "slower") else "not known"

    groups = [(decided, tuple(alike)) for decided, alike in groupby(values, decision)]
    return tuple(Span(values=alike, ratio=mean(alike), decision=decided) for decided, alike in groups)


def _explaining_parameter(pairs: Sequence[MatchedPair], changed: str) -> str | None:
    """Return the parameter whose values best group the pairs by ratio (adjusted share of variance); or None.

    R² is adjusted for the number of values (Ezekiel 1930, "Methods of Correlation Analysis"): as many values as pairs
    explain any difference, which means something only if nothing else differs.
    """
    logs = np.log([pair.ratio.value for pair in pairs])
    settings, varying = [pair.before[0].spec.variant for pair in pairs], _varying_parameters(pairs, changed)
    if len(varying) == 1:
        return varying[0]
    shares = {name: explained_share(logs, [setting[name] for setting in settings]) for name in varying}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best is not None and shares[best] >= _EXPLAINED else None


def explained_share(logs: Floats, values: Sequence[object]) -> float:
    """Return the adjusted share of the variance of `logs` that the means of groups of equal `values` explain."""
    groups = [logs[[distinct == value for value in values]] for distinct in dict.fromkeys(values)]
    degrees, variance = len(logs) - len(groups), float(logs.var(ddof=1))
    if not degrees or not variance:
        return 0.0
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    return 1 - (within / degrees) / variance
