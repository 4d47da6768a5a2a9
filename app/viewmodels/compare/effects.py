"""The effect of each parameter by itself, in sentences and as rows, the same in window, report and terminal."""

from collections.abc import Sequence

from app import units
from app.analysis.effects import Effect
from app.viewmodels.format.cells import TextTable
from app.viewmodels.format.naming import format_setting, label_in_sentence, parameter_label
from app.viewmodels.format.ratios import CI, format_interval, format_ratio

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
