"""The effect of each parameter by itself, in sentences and as rows, the same in window, report and terminal."""

import math
from collections.abc import Collection, Sequence

from app import units
from app.analysis.effects import Effect, step_differences
from app.viewmodels.format import cells
from app.viewmodels.format.cells import TextTable
from app.viewmodels.format.naming import format_setting, label_in_sentence, parameter_label
from app.viewmodels.format.ratios import (
    CI,
    agree,
    compare_speed,
    describe_ratio_interval,
    describe_speed_interval,
    describe_speed_range,
)
from app.viewmodels.format.sentences import join_with_and
from workloads.protocol import RunSpec

_MAX_SENTENCES = 4
"""Parameters of which an effect gets a sentence."""
EFFECTS_TITLE = "What each setting does by itself"


def effects_method(effects: Sequence[Effect]) -> str:
    """Return what the rows are, as a sentence."""
    has_intervals = any(effect.ratio.interval for effect in effects)
    how = ", with intervals over processes that hold together with those of the variants" if has_intervals else ""
    return f"Geometric mean of the speed-up over pairs of variants that differ in this setting alone{how}."


def effects_table(effects: Sequence[Effect]) -> TextTable:
    """Return a row for each effect, below what the rows are."""
    return TextTable(
        head=("Setting", "Speed-up", CI, "Pairs", "Range of pairs", "Note"),
        rows=tuple(map(_effect_row, effects)),
        numeric=frozenset({1, 2, 3, 4}),
        caption=effects_method(effects),
    )


def _effect_row(effect: Effect) -> tuple[str, ...]:
    interval, left_out, (low, high) = effect.ratio.interval, effect.single_run_pairs, effect.spread
    return (
        effect_name(effect),
        cells.ratio(effect.ratio.value).text,
        units.ratio_interval(interval, effect.ratio.value) or units.ABSENT,
        str(len(effect.pairs)),
        units.span(units.ratio_figures(low), units.ratio_figures(high)) if len(effect.pairs) > 1 else units.ABSENT,
        "; ".join([*effect_notes(effect), *([f"{left_out} with too few runs left out"] if left_out else [])]),
    )


def effect_name(effect: Effect) -> str:
    """Return the change in short: `NHWC → NCHW`, `XLA off → on`, `Batch size 128 → 64`."""
    before, after = _values(effect)
    label = parameter_label(effect.pairs[0].after[0].spec, effect.parameter)
    return f"{before} → {after.removeprefix(f'{label} ')}"


def effect_notes(effect: Effect) -> list[str]:
    """Return what to know about an effect, in a few words each."""
    return [
        *([_describe_difference(effect)] if effect.differs else []),
        *(["includes other work"] if effect.changes_work else []),
    ]


def effect_sentences(effects: Sequence[Effect], parameters: Collection[str]) -> list[str]:
    """Return a sentence on the largest effect of each of these parameters: first those with an interval, by size.

    Those that include another amount of work have none.
    """
    found: dict[str, list[Effect]] = {}
    for effect in effects:
        if effect.parameter in parameters and not effect.changes_work:
            found.setdefault(effect.parameter, []).append(effect)
    largest = [(max(of_one, key=_size), len(of_one)) for of_one in found.values()]
    largest.sort(key=lambda each: (each[0].ratio.interval is not None, _size(each[0])), reverse=True)
    return [_sentence(effect, count) for effect, count in largest[:_MAX_SENTENCES]]


def describe_joint_difference(other: RunSpec, base: RunSpec, effects: Sequence[Effect]) -> str:
    """Return in which settings two variants differ, if in several, and which of these cannot be told from others."""
    names = step_differences(base, other)
    if len(names) < 2:
        return ""
    known = {(effect.parameter, effect.before, effect.after) for effect in effects}
    unknown = [name for name in names if (name, base.variant.get(name), other.variant.get(name)) not in known]
    statement = f"in {len(names)} settings ({_join_labels(base, names)})"
    if len(unknown) == len(names):
        return f"{statement}, and no two variants differ in only one of them, so their effects cannot be separated"
    return f"{statement}, and no two variants in {_join_labels(base, unknown)} alone" if unknown else statement


def _sentence(effect: Effect, count: int) -> str:
    """Return an effect in words, and of how many of its parameter it is the largest."""
    _, first = _values(effect)
    before, _ = _values(effect, in_sentence=True)
    interval = effect.ratio.interval
    pairs = f"{len(effect.pairs)} {units.plural('pair', len(effect.pairs))} of variants"
    if interval is None:
        change = f"{compare_speed(effect.ratio.value, past_tense=True)} {before}, all else being equal ({pairs})"
    elif interval[0] <= 1 <= interval[1]:
        evidence = f"{describe_ratio_interval(*interval)}, {pairs}"
        answer = "has no significant effect" if effect.ratio.is_known else "has an effect that is not known yet"
        change = f"instead of {before} {answer}, all else being equal ({evidence})"
    else:
        evidence = f"{describe_speed_interval(effect.ratio)}, {pairs}"
        change = f"{compare_speed(effect.ratio.value, past_tense=False)} {before}, all else being equal ({evidence})"
    label = label_in_sentence(effect.pairs[0].before[0].spec, effect.parameter)
    largest = f"; the largest of {count} effects of {label}" if count > 1 else ""
    return f"{agree(first, change)}{_describe_spread(effect)}{largest}."


def _describe_spread(effect: Effect) -> str:
    low, high = effect.spread
    if units.ratio_figures(low) == units.ratio_figures(high):
        return ""
    difference = f": it {_describe_difference(effect)}" if effect.differs else ""
    return f", {describe_speed_range(low, high)} across pairs{difference}"


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


def _size(effect: Effect) -> float:
    """Return how far an effect is from none."""
    return abs(math.log(effect.ratio.value))


def _join_labels(spec: RunSpec, names: Sequence[str]) -> str:
    return join_with_and(label_in_sentence(spec, name) for name in names)
