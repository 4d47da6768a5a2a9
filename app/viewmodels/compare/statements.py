"""What a verdict can say: a record of the kind, its numbers and names, and one sentence for each kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

from app.analysis.intervals import Estimate
from app.values import units
from app.viewmodels.format.naming import SEPARATOR, Name
from app.viewmodels.format.ratios import Unit, agree, format_interval, is_far_from_one, is_plural, percent_of, unit_of
from app.viewmodels.format.sentences import join_with_and
from app.viewmodels.history.evidence import ABOUT_WHAT_RAN
from workloads.catalog import WORKLOADS


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How many times as fast as something the fastest is."""

    name: Name
    ratio: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Which side is how many times as fast at some values of another setting, and whether that is decided.

    Attributes:
        settings: These values, neighbours in their order; none where no setting explains the difference.
        is_lowest: Whether they begin with the first of all.
        is_highest: Whether they end with the last.
        is_number: Whether they are numbers, of which a range can be told.
    """

    winner: Name
    ratio: Estimate
    decided: bool
    settings: tuple[Name, ...]
    is_lowest: bool
    is_highest: bool
    is_number: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Something that a verdict says: its kind, the numbers and names of it, and the runs that it is about."""

    key: str
    values: Mapping[str, Any]
    runs: tuple[int, ...] = ()
    severity: Literal["note", "warning"] = "note"

    @property
    def sentence(self) -> str:
        workload = f"{self.values['workload']}: " if "workload" in self.values else ""
        return f"{workload}{SENTENCES[self.key](SimpleNamespace(**self.values))}"


def _painted(name: Name, *, begins: bool = False) -> str:
    """Return a name as text, at the beginning of a sentence with a capital; cuDNN and a workload's name stay."""
    text = SEPARATOR.join(name)
    if not begins or any(text.split(" ")[0] == workload.name for workload in WORKLOADS):
        return text
    return units.sentence(text).rstrip(".")


def _is_faster(winner: Name, ratio: float, unit: Unit, *, trains: bool, begins: bool = False) -> str:
    """Return who is how fast, but not compared with what: `NCHW trains 6.4 % faster`, `cuDNN is 10.4× as fast`."""
    verb = "trains" if trains else "runs"
    fast = f"is {units.ratio(ratio)} as fast" if unit == "×" else f"{verb} {percent_of(ratio - 1)} faster"
    return agree(_painted(winner, begins=begins), fast)


def _beats(v: Any, unit: Unit) -> str:
    says = _is_faster(v.winner, v.ratio.value, unit, trains=v.trains, begins=True)
    return f"{says} {'as' if unit == '×' else 'than'} {_painted(v.other)}"


def _interval(ratio: Estimate, unit: Unit | None = None) -> str:
    return f" ({format_interval(ratio.interval, ratio.value, unit) or 'not yet sure'})"


def _in_pairs(v: Any) -> str:
    return f"{_interval(v.ratio)}{f', in {v.pairs} pairs' if v.pairs > 1 else ''}"


def _of_pairs(v: Any) -> str:
    return f"{_in_pairs(v)}{f', of which {v.pairs_ahead} show {_painted(v.winner)} ahead' if v.pairs_ahead else ''}"


def _at(region: Region) -> str:
    """Return at which values of a setting: `from batch size 256 up`, `at batch size 128`, `with JAX and PyTorch`."""
    first, last = _painted(region.settings[0]), _painted(region.settings[-1])
    if not region.is_number:
        return f"with {join_with_and(map(_painted, region.settings))}"
    if first == last:
        return f"at {first}"
    if region.is_highest:
        return f"from {first} up"
    return f"up to {last}" if region.is_lowest else f"from {first} to {last}"


def _by_region(v: Any) -> str:
    unit = unit_of([v.ratio.value, *(region.ratio.value for region in v.regions if region.decided)])
    first, *others = v.regions
    texts = [f"{_beats(v, unit)} {_at(first)}{_interval(v.ratio, unit)}"]
    for region in others:
        says = f"{_is_faster(region.winner, region.ratio.value, unit, trains=v.trains)}{_interval(region.ratio, unit)}"
        texts.append(f"{_at(region)} {says if region.decided else 'it is not known'}")
    return f"{'; '.join(texts)}."


def _varies(v: Any) -> str:
    unit = unit_of([v.ratio.value, *(region.ratio.value for region in v.regions)])
    ends = [_is_faster(region.winner, region.ratio.value, unit, trains=v.trains) for region in v.regions]
    texts = (f"{end} {_at(region)}" if v.by else end for end, region in zip(ends, v.regions, strict=True))
    why = f"it depends on {v.by}" if v.by else "they differ"
    return f"{_beats(v, unit)} in the mean of {v.pairs} pairs{_interval(v.ratio, unit)}; {why}: {', '.join(texts)}."


def _ranks(v: Any) -> str:
    unit = unit_of(gap.ratio.value for gap in v.gaps)
    texts: list[str] = []
    for gap in v.gaps:
        amount = units.ratio(gap.ratio.value) if unit == "×" else percent_of(gap.ratio.value - 1)
        words = (" as fast as", " as") if unit == "×" else (" ahead of", " of")
        ends = "" if texts else _interval(gap.ratio, unit)
        texts.append(f"{amount}{words[bool(texts)]} {_painted(gap.name)}{ends}")
    slowest = ", the slowest" if 1 < len(v.gaps) < v.count - 1 else ""
    may_be = f"; {v.rivals} {'other' if v.rivals == 1 else 'others'} may be as fast" if v.rivals else ""
    leads = f"leads {v.count} {v.of}" if v.rivals else f"is the fastest of {v.count}"
    head = agree(_painted(v.winner, begins=True), leads)
    return f"{head}: {', '.join(texts)}{slowest}{may_be}."


def _no_result(v: Any) -> str:
    if v.count > 1:
        return "No variant but the baseline has a complete run."
    return f"No run of {_painted(v.name)} measured to its end ({'; '.join(v.endings)})."


_APART = {
    "other_work": "with other work",
    "few_runs": "with too few runs",
    "other_workloads": "of other workloads",
    "unmeasured": "without a complete run",
}


def describe_apart(counts: Mapping[str, int]) -> list[str]:
    """Return how many variants are not ranked for each reason."""
    return [f"{count} {_APART[why]}" for why, count in counts.items()]


def _energy_differs(v: Any) -> str:
    ratio, verb = v.ratio.value, "use" if is_plural(_painted(v.more)) else "uses"
    amount = f"{units.ratio(ratio)} the" if is_far_from_one(ratio) else f"{percent_of(ratio - 1)} more"
    return f"{_painted(v.more, begins=True)} {verb} {amount} energy per {v.example}{_interval(v.ratio)}."


def _margin(v: Any) -> str:
    labels = {"equal": "equal to the baseline", "cannot tell": "undecided"}
    parts = [f"{count} {labels.get(decision, f'{decision} by more')}" for decision, count in v.counts.items()]
    return f"With a margin of {units.exactly(v.margin_pct, '%')}: {join_with_and(parts)}."


def _other_work(v: Any) -> str:
    subject, do = ("It is not", "it does") if len(v.ratios) == 1 else ("None is", "the others do")
    operations = f"{units.range_of(v.ratios, units.ratio_figures)}× the operations per {v.example}"
    return f"{subject} directly comparable: {do} {operations}."


def _repeats_for_a_width(v: Any) -> str:
    range_ = f" ({v.fewest:,}–{v.most:,})" if v.fewest < v.most else ""
    more = f"{v.repeats:,} more {units.plural('repeat', v.repeats)} of each{range_}"
    width = units.plus_minus(units.exactly(v.half_width_pct, "%"))
    return f"With about {more} the {units.plural('ratio', v.ratios)} would be known to {width}."


def _noisy_baseline(v: Any) -> str:
    amount = units.ratio(v.ratio) if is_far_from_one(v.ratio) else percent_of(v.ratio - 1)
    return f"Runs of the baseline differ by {amount}, which makes intervals wide; choose a steadier one or repeat it."


SENTENCES: Mapping[str, Callable[[Any], str]] = {
    "effect": lambda v: f"{_beats(v, unit_of([v.ratio.value]))}{_in_pairs(v)}.",
    "not sure": lambda v: f"{_beats(v, unit_of([v.ratio.value]))}{_in_pairs(v)}.",
    "no difference": lambda v: (
        f"No difference seen between {_painted(v.winner)} and {_painted(v.other)}{_of_pairs(v)}."
    ),
    "not known": lambda v: f"Not known yet which is faster, {_painted(v.winner)} or {_painted(v.other)}{_of_pairs(v)}.",
    "equal": lambda v: (
        f"{_painted(v.winner, begins=True)} and {_painted(v.other)} are equal within "
        f"{units.exactly(v.margin_pct, '%')}{_in_pairs(v)}."
    ),
    "by region": _by_region,
    "varies": _varies,
    "fastest": _ranks,
    "leads": _ranks,
    "not ranked": lambda v: f"Not ranked: {', '.join(describe_apart(v.counts))}.",
    "one variant": lambda _: "All chosen runs are of one variant: there is nothing to compare it with.",
    "different workloads": lambda v: (
        f"{join_with_and(v.workloads)} are different workloads, so their speeds are not compared."
    ),
    "no result": _no_result,
    "no runs": lambda _: "No run of this experiment has a result yet.",
    "only one": lambda v: f"Only {_painted(v.name)} has runs yet: there is nothing to compare it with so far.",
    "mismatch": lambda v: f"{v.text} {ABOUT_WHAT_RAN}",
    "energy": _energy_differs,
    "no energy difference": lambda v: f"No difference seen in energy per {v.example}{_interval(v.ratio)}.",
    "settings": lambda v: f"They differ in {len(v.labels)} settings: {join_with_and(v.labels)}.",
    "margin": _margin,
    "other work": _other_work,
    "includes other work": lambda _: "That includes another amount of work per example.",
    "sure": lambda v: f"The intervals hold at {units.percent(v.level_pct)}, however often you look.",
    "repeats for an interval": lambda v: f"An interval takes {v.repeats} runs of each variant.",
    "repeats for a width": _repeats_for_a_width,
    "repeats to tell": lambda v: (
        f"{v.repeats} more {units.plural('repeat', v.repeats)} of these {v.count} would tell which is fastest."
    ),
    "repeats hardly help": lambda _: "More repeats would hardly help, as runs of one variant differ too much.",
    "baseline": lambda v: (
        f"The baseline is {_painted(v.name)}: its runs are enough and steady. You can choose another."
    ),
    "noisy baseline": _noisy_baseline,
}
"""One sentence for each kind of statement, of its values."""
