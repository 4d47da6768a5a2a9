"""Why a variant's steps take longer or shorter than the baseline's, in sentences."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app import units
from app.analysis.intervals import Estimate
from app.analysis.verdict import work_ratio
from app.analysis.why import Obstacle, Part, PartKind, StepDifference, WhatIf, is_traced
from app.records import StoredRun
from app.viewmodels.format.cells import example_word
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.ratios import CI, percent_of
from app.viewmodels.format.sentences import format_run_numbers, join_with_and

CAVEAT = (
    "Parts of a step depend on one another: another layout brings transposes of its own, a convolution may run as a "
    "GEMM. So this is what there is to gain at most."
)
_NOUNS: dict[PartKind, str] = {
    "gemm": "GEMM",
    "convolution": "convolutions",
    "rnn": "RNN kernels",
    "batch_norm": "batch norm",
    "pooling": "pooling",
    "reduction": "reductions",
    "pointwise": "point-wise kernels",
    "transpose": "transposes",
    "copy": "copies",
    "communication": "communication",
    "other": "other kernels",
    "idle": "idle time",
    "overlap": "overlap of kernels",
    "unexplained": "what is unexplained",
}
_ON_CPU = (
    "On the CPU operations run on several threads at once, and tracing slows them: which of them make up the "
    "difference is not known, only how long each took in the traced steps."
)
_MAX_NAMED = 3
_NAMED_SHARE = 0.03
"""Parts that make up a smaller share of what a sentence explains are not named."""
_BALANCE = 0.5
"""If what is against a difference adds up to this share of it, both sides are told instead of shares."""
_ONE_KERNEL = 0.8
"""Share of a part's change from which on one kernel is nearly all of it."""
_HIDDEN_SHARE = 0.01
"""Of equally long steps, a part whose change is this share of the step is worth telling."""
_LARGE_PART, _SMALL_CHANGE = 0.25, 0.05
"""A part with this share of the step that changes by this share of the difference at most is told as no cause."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A variant and the baseline: their runs, their names, and their names within a sentence."""

    other: Sequence[StoredRun]
    base: Sequence[StoredRun]
    names: tuple[str, str]
    within: tuple[str, str]

    @classmethod
    def of(cls, other: Sequence[StoredRun], base: Sequence[StoredRun]) -> "Pair":
        """Return the pair, each named by what tells it from the other one."""
        specs = [side[0].row.spec for side in (other, base)]
        first, second = variant_names(specs)
        first_within, second_within = variant_names(specs, in_sentence=True)
        return cls(other, base, (first, second), (first_within, second_within))

    @property
    def first(self) -> str:
        """Return the variant's name at the start of a sentence."""
        return self.names[0][:1] + self.within[0][1:]

    @property
    def example(self) -> str:
        """Return what one example is called."""
        return example_word(self.base[0].row.spec)


@dataclass(frozen=True, slots=True)
class Figures:
    """Formats the times of one comparison, all with as many decimals as its largest change and 0.1 % of a step need."""

    found: StepDifference
    example: str
    decimals: int

    @classmethod
    def of(cls, found: StepDifference, example: str) -> "Figures":
        """Return the figures of a difference; `example` is what one example is called."""
        changes = [abs(part.change.difference.value) for part in found.parts]
        largest = max([abs(found.step.difference.value), *changes]) or 1.0
        wanted = 2 - math.floor(math.log10(largest)), 3 - math.floor(math.log10(found.step.baseline_ms or 1.0))
        return cls(found, example, min(max(0, *wanted), 6))

    @property
    def per(self) -> str:
        """Return what the times are of: `per step` or `per 1,000 images`."""
        examples = self.found.examples
        return "per step" if examples is None else f"per {examples:,} {units.plural(self.example)}"

    def ms(self, value: float) -> str:
        """Return `1.31 ms`."""
        return units.quantity(self.number(value), "ms")

    def change(self, value: float) -> str:
        """Return `−1.31 ms`."""
        return units.quantity(self.number(value, sign="+"), "ms")

    def ends(self, change: Estimate) -> str:
        """Return both ends of the interval of a change, "" without one."""
        return units.span(*(self.number(end, sign="+") for end in change.interval)) if change.interval else ""

    def share(self, value: float) -> str:
        """Return a time as a signed share of the baseline's step, `−5.2 %`."""
        return units.quantity(_minus(f"{100 * value / self.found.step.baseline_ms:+,.1f}"), "%")

    def steps(self) -> str:
        """Return the steps of both: `23.36 against 25.01 ms per step`."""
        step = self.found.step
        return f"{self.number(step.other_ms)} against {self.ms(step.baseline_ms)} {self.per}"

    def number(self, value: float, sign: str = "") -> str:
        """Return `1.31`."""
        return _minus(f"{value:{sign},.{self.decimals}f}")


def _minus(number: str) -> str:
    """Return a formatted number with a typographic minus, and zero without a sign."""
    return number.lstrip("+-") if not number.strip("+-0.,") else units.with_minus(number)


def describe_obstacle(obstacle: Obstacle, pair: Pair) -> str:
    """Return in a sentence why two variants cannot be compared by their parts."""
    match obstacle:
        case "other workload":
            workloads = join_with_and(each[0].row.spec.workload for each in (pair.other, pair.base))
            return f"{workloads} are different workloads: their steps have nothing in common to compare."
        case "nothing measured":
            return f"No run of {_lacking(pair, lambda run: bool(run.row.summary.throughput))} has a measured step."
        case "no trace":
            without = _lacking(pair, is_traced)
            return f"Why is not known: there is no trace of {without}; run it again with -s evidence=trace."
        case "processor and GPU":
            return f"Only one of {pair.within[0]} and {pair.within[1]} ran on GPUs: a step on the CPU has other parts."


def _lacking(pair: Pair, has: Callable[[StoredRun], bool]) -> str:
    """Return the names of the variants of which no run has something."""
    sides = zip((pair.base, pair.other), reversed(pair.within), strict=True)
    return join_with_and([name for side, name in sides if not any(map(has, side))])


def describe_difference(found: StepDifference, pair: Pair, figures: Figures) -> str:
    """Return the difference of the steps and what it consists of, in a sentence or two."""
    change, base = found.step.difference, pair.within[1]
    if not found.on_gpu:
        return f"{pair.first} takes {figures.steps()}. {_ON_CPU}"
    changed = [part for part in found.parts if part.change.is_certain]
    if not found.step.is_certain:
        head = f"{pair.first} and {base} do not differ significantly ({figures.steps()})"
        return f"{head}{_describe_hidden(changed, found, figures)}."
    ends = sorted(map(abs, change.interval or ()))
    interval = f"; {CI} {units.span(figures.number(ends[0]), figures.ms(ends[1]))}" if ends else ""
    verb = "takes" if ends else "took"
    amount = f"{figures.ms(abs(change.value))} {'less' if change.value < 0 else 'more'} {figures.per}"
    steps = figures.steps().removesuffix(f" {figures.per}")
    return f"{pair.first} {verb} {amount} than {base} ({steps}{interval}){_explain(changed, found, figures)}."


def _explain(changed: Sequence[Part], found: StepDifference, figures: Figures) -> str:
    """Return what a difference consists of: the shares of its parts, or what they add up to on both sides."""
    difference = found.step.difference.value
    with_it = [part for part in changed if part.change.difference.value * difference > 0]
    against = sum(part.change.difference.value for part in changed if part not in with_it)
    if with_it and abs(against) >= _BALANCE * abs(difference):
        return f", the balance of {_balance(changed, figures)}"
    named = _named(with_it, abs(difference))
    if not named:
        return ", without a large part that surely differs"
    clauses = [
        f"{figures.ms(abs(part.change.difference.value))}{'' if n else ' of it'}"
        f" ({units.percent(100 * part.change.difference.value / difference)}) in {_noun(part, figures)}"
        for n, part in enumerate(named)
    ]
    return f", {join_with_and(clauses)}{_describe_unchanged(found, figures)}"


def _describe_unchanged(found: StepDifference, figures: Figures) -> str:
    """Return which large parts are not the cause: `; convolutions hardly differ (−0.07 ms)`."""
    difference, step = found.step.difference.value, found.step.baseline_ms
    unchanged = [
        part
        for part in sorted(found.parts, key=lambda part: -part.change.baseline_ms)
        if part.change.baseline_ms >= _LARGE_PART * step
        and abs(part.change.difference.value) <= _SMALL_CHANGE * abs(difference)
    ]
    if not unchanged:
        return ""
    names = join_with_and(f"{_NOUNS[part.kind]} ({figures.change(part.change.difference.value)})" for part in unchanged)
    return f"; hardly anything in {names}"


def _describe_hidden(changed: Sequence[Part], found: StepDifference, figures: Figures) -> str:
    """Return what differs between steps that take equally long."""
    if not any(abs(part.change.difference.value) >= _HIDDEN_SHARE * found.step.baseline_ms for part in changed):
        return f", nor does any part of a step by more than {units.percent(100 * _HIDDEN_SHARE)} of it for certain"
    return f", but what their steps consist of does: {_balance(changed, figures)}"


def _balance(changed: Sequence[Part], figures: Figures) -> str:
    """Return the parts that take less against those that take more."""
    largest = max(abs(part.change.difference.value) for part in changed)
    less = [part for part in changed if part.change.difference.value < 0]
    sides = (less, [part for part in changed if part not in less])
    return " against ".join(
        join_with_and(f"{figures.change(part.change.difference.value)} in {_noun(part, figures)}" for part in named)
        for side in sides
        if (named := _named(side, largest))
    )


def _named(parts: Sequence[Part], whole: float) -> list[Part]:
    """Return the largest parts, as far as they matter to the whole."""
    return [part for part in parts[:_MAX_NAMED] if abs(part.change.difference.value) >= _NAMED_SHARE * whole]


def _noun(part: Part, figures: Figures) -> str:
    """Return what a part is called, and that its change is nearly all one kernel without tensor cores, if it is."""
    for kernel in part.kernels[:1]:
        of_kernel = kernel.change.difference.value
        if kernel.kernel.tensor_cores is False and of_kernel / part.change.difference.value >= _ONE_KERNEL:
            return f"{_NOUNS[part.kind]} (one kernel without tensor cores: {figures.change(of_kernel)})"
    return _NOUNS[part.kind]


def notes(found: StepDifference, pair: Pair, figures: Figures) -> Iterator[str]:
    """Yield what a reader has to know about the figures."""
    runs = (*found.baseline, *found.other)
    if found.examples:
        yield f"Their batch sizes differ, so all times are {figures.per}."
    if any(len(run.evidence.devices) > 1 for run in runs if run.evidence):
        yield "Times of several GPUs are their mean."
    ratio = work_ratio([run.row for run in found.other], [run.row for run in found.baseline])
    if ratio is not None:
        yield f"{pair.first} does {units.ratio(ratio)} the operations per {pair.example}: some of this is other work."
    if len({run.row.spec.variant.get("xla") for run in runs}) > 1:
        yield (
            "XLA merges operations into kernels of its own (fusions), each of which counts in one class: "
            "what only moved to another class is no gain or loss."
        )
    untraced = [run.row.run for run in (*pair.base, *pair.other) if run.row.summary.throughput and not is_traced(run)]
    if untraced:
        has, is_ = ("has", "is") if len(untraced) == 1 else ("have", "are")
        yield f"{format_run_numbers(untraced).capitalize()} {has} no trace and {is_} left out."
    if found.step.difference.interval is None:
        yield "No intervals: they take two traced runs or more of each variant."


def describe_gain(gain: WhatIf, pair: Pair, figures: Figures) -> str:
    """Return `NHWC with the pooling of NCHW: 5.5 % faster (95 % CI 5.4–5.7 %), 23.70 ms per step`."""
    taker, giver = pair.within[::-1] if gain.of_baseline else pair.within
    speedup = gain.speedup
    ends = [_minus(f"{100 * (end - 1):.1f}") for end in speedup.interval or ()]
    interval = f" ({CI} {units.quantity(units.span(*ends), '%')})" if ends else ""
    is_large = speedup.value >= 2
    faster = f"{units.ratio(speedup.value)} as fast" if is_large else f"{percent_of(speedup.value - 1)} faster"
    parts = join_with_and(_NOUNS[kind] for kind in gain.kinds)
    return f"{taker} with the {parts} of {giver}: {faster}{interval}, {figures.ms(gain.step_ms)} {figures.per}"
