"""Why a variant's steps take longer or shorter than the baseline's, in sentences."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app import units
from app.analysis.intervals import Estimate
from app.analysis.steps import IdleCause
from app.analysis.verdict import work_ratio
from app.analysis.why import Obstacle, Part, PartKind, StepDifference, WhatIf, examples_per_gpu, find_cause, is_traced
from app.records import StoredRun
from app.viewmodels.format.cells import example_word
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.ratios import CI, agree, percent_of
from app.viewmodels.format.sentences import format_run_numbers, join_with_and

CAVEAT = (
    "Parts of a step depend on one another: another layout brings transposes of its own, a convolution may run as a "
    "GEMM. So this is what there is to gain at most."
)
NOUNS: dict[PartKind, str] = {
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
IDLE_CAUSES: dict[IdleCause, str] = {
    "host": "waiting for the host to launch",
    "kernel": "between two kernels",
    "other": "other waiting",
}
_ON_CPU = (
    "On the CPU operations run on several threads at once, and tracing slows them: which of them make up the "
    "difference is not known, only how long each took in the traced steps."
)
_MS = "ms"
_MAX_NAMED = 3
_NAMED_SHARE = 0.03
"""Parts that make up a smaller share of what a sentence explains are not named."""
_BALANCE = 0.5
"""If what is against a difference adds up to this share of it, both sides are told instead of shares."""
_ONE_KERNEL = 0.8
"""Share of a part's change from which on one kernel, or one cause of idle time, is nearly all of it."""
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
        """Return what the times are of: `per step`, `per 1,000 images` or `per 1,000 images of a GPU`."""
        examples = self.found.examples
        if examples is None:
            return "per step"
        of_gpu = " of a GPU" if max(map(_gpus, (*self.found.baseline, *self.found.other))) > 1 else ""
        return f"per {examples:,} {units.plural(self.example)}{of_gpu}"

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


def _gpus(run: StoredRun) -> int:
    return int(run.row.spec.variant.get("gpus", 1))


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
            return f"Why is not known: there is no trace of {without}; run it again with evidence “Graph and trace”."
        case "processor and GPU":
            return f"Only one of {pair.within[0]} and {pair.within[1]} ran on GPUs: a step on the CPU has other parts."


def _lacking(pair: Pair, has: Callable[[StoredRun], bool]) -> str:
    """Return the names of the variants of which no run has something."""
    sides = zip((pair.base, pair.other), reversed(pair.within), strict=True)
    return join_with_and([name for side, name in sides if not any(map(has, side))])


def describe_difference(found: StepDifference, pair: Pair, figures: Figures) -> str:
    """Return which work differs, the difference of the steps, and what it consists of, in a few sentences."""
    return " ".join([*_describe_work(found, pair, figures), _describe_step(found, pair, figures)])


def _describe_work(found: StepDifference, pair: Pair, figures: Figures) -> Iterator[str]:
    """Yield in which way the variants do other work: another batch, other operations."""
    other, base = found.other[0], found.baseline[0]
    if found.examples:
        batches = (
            f"{examples_per_gpu(other):,.6g} in place of {examples_per_gpu(base):,.6g} {units.plural(pair.example)}"
        )
        where = "Each GPU has" if max(_gpus(other), _gpus(base)) > 1 else "The batch is"
        yield f"{where} {batches}, so times are {figures.per}."
    ratio = work_ratio([run.row for run in found.other], [run.row for run in found.baseline])
    if ratio is not None:
        does = agree(pair.first, f"does {units.ratio(ratio)}")
        yield f"{does} the operations per {pair.example}: some of this is other work."


def _describe_step(found: StepDifference, pair: Pair, figures: Figures) -> str:
    """Return the difference of the steps and what it consists of, in a sentence or two."""
    change, base = found.step.difference, pair.within[1]
    if not found.on_gpu:
        return f"{agree(pair.first, f'takes {figures.steps()}')}. {_ON_CPU}"
    if not found.step.is_certain:
        beyond = "significantly" if change.interval else "by more than single runs of one variant may"
        return f"{pair.first} and {base} do not differ {beyond} ({figures.steps()}){_describe_hidden(found, figures)}."
    ends = sorted(map(abs, change.interval or ()))
    interval = f"; {CI} {units.span(figures.number(ends[0]), figures.ms(ends[1]))}" if ends else ""
    verb = "takes" if ends else "took"
    amount = f"{figures.ms(abs(change.value))} {'less' if change.value < 0 else 'more'} {figures.per}"
    steps = figures.steps().removesuffix(f" {figures.per}")
    takes = agree(pair.first, f"{verb} {amount}")
    return f"{takes} than {base} ({steps}{interval}){_describe_causes(found, figures)}."


def _describe_causes(found: StepDifference, figures: Figures) -> str:
    """Return what lies behind a difference, if that is known of most of it, and its parts."""
    cause = find_cause(found)
    if cause is None:
        return _explain(found, figures)
    if cause.kind == "clock":
        share = units.percent(100 * cause.ms / found.step.difference.value)
        clocks = f"{units.megahertz(cause.other)} in place of {units.megahertz(cause.baseline)}"
        largest = f"the largest part is {_signed_clauses(found.parts[:1], figures)}"
        return f", up to {figures.ms(abs(cause.ms))} of it ({share}) by the clock of the GPU, {clocks}; {largest}"
    if cause.kind == "data":
        what = f"{figures.number(cause.other)} in place of {figures.ms(cause.baseline)} of waiting for training data"
    else:
        launched = f"{cause.other:,.0f} in place of {cause.baseline:,.0f} kernels {figures.per}"
        what = f"{launched} for the host to launch"
    return f", with {what}{_explain(found, figures)}"


def _explain(found: StepDifference, figures: Figures) -> str:
    """Return what a difference consists of: the shares of its parts, or what they add up to on both sides.

    The largest part is always among them, and what is against the difference where shares add up to more than all.
    """
    difference = found.step.difference.value
    with_it, against = _sides(found, difference)
    lost = sum(part.change.difference.value for part in against if part.change.is_certain)
    if against[:1] == [found.parts[0]] or abs(lost) >= _BALANCE * abs(difference):
        return f", the balance of {_balance(found, figures)}"
    named = _named(with_it, abs(difference))
    shares = [units.percent(100 * part.change.difference.value / difference) for part in named]
    clauses = [
        f"{figures.ms(abs(part.change.difference.value))}{'' if n else ' of it'} ({share}) in {_noun(part, figures)}"
        for n, (part, share) in enumerate(zip(named, shares, strict=True))
    ]
    total = sum(round(100 * part.change.difference.value / difference) for part in named)
    opposed = _named(against, abs(difference)) if total > 100 else []
    counter = f", against {_signed_clauses(opposed, figures)}" if opposed else ""
    return f", {join_with_and(clauses)}{counter}{_describe_unchanged(found, [*named, *opposed], figures)}"


def _sides(found: StepDifference, sign: float) -> tuple[list[Part], list[Part]]:
    """Return the parts that change in the direction of a number, and those that change against it."""
    directed = [(part, part.change.difference.value * sign) for part in found.parts]
    return [part for part, way in directed if way > 0], [part for part, way in directed if way < 0]


def _describe_unchanged(found: StepDifference, named: Sequence[Part], figures: Figures) -> str:
    """Return which large parts are not the cause: `; convolutions hardly differ (−0.07 ms)`."""
    difference, step = found.step.difference.value, found.step.baseline_ms
    unchanged = [
        part
        for part in sorted(found.parts, key=lambda part: -part.change.baseline_ms)
        if part not in named
        and part.change.baseline_ms >= _LARGE_PART * step
        and abs(part.change.difference.value) <= _SMALL_CHANGE * abs(difference)
    ]
    if not unchanged:
        return ""
    names = join_with_and(f"{NOUNS[part.kind]} ({figures.change(part.change.difference.value)})" for part in unchanged)
    return f"; hardly anything in {names}"


def _describe_hidden(found: StepDifference, figures: Figures) -> str:
    """Return what differs between steps that take equally long."""
    hidden = _HIDDEN_SHARE * found.step.baseline_ms
    if not any(part.change.is_certain and abs(part.change.difference.value) >= hidden for part in found.parts):
        surely = f", nor does any part of a step by more than {units.percent(100 * _HIDDEN_SHARE)} of it for certain"
        return f"{surely}; the largest change is {_signed_clauses(found.parts[:1], figures)}"
    return f", but what their steps consist of does: {_balance(found, figures)}"


def _balance(found: StepDifference, figures: Figures) -> str:
    """Return the parts that take less against those that take more."""
    largest = abs(found.parts[0].change.difference.value)
    return " against ".join(_signed_clauses(_named(side, largest), figures) for side in _sides(found, -1) if side)


def _signed_clauses(parts: Sequence[Part], figures: Figures) -> str:
    """Return `−3.17 ms in convolutions and −0.20 ms in copies`."""
    return join_with_and(f"{figures.change(part.change.difference.value)} in {_noun(part, figures)}" for part in parts)


def _named(side: Sequence[Part], whole: float) -> list[Part]:
    """Return the largest part of a side, and its largest others that are certain and matter to the whole."""
    matter = (part for part in side[1:] if abs(part.change.difference.value) >= _NAMED_SHARE * whole)
    certain = [part for part in matter if part.change.is_certain]
    return [*side[:1], *certain[: _MAX_NAMED - 1]]


def _noun(part: Part, figures: Figures) -> str:
    """Return what a part is called, whether its change is uncertain, and if nearly all of it has one cause."""
    if not part.change.is_certain:
        ends = figures.ends(part.change.difference)
        return f"{NOUNS[part.kind]} (not certain{ends and f': {units.quantity(ends, _MS)}'})"
    for kernel in part.kernels[:1]:
        of_kernel = kernel.change.difference.value
        if kernel.kernel.tensor_cores is False and of_kernel / part.change.difference.value >= _ONE_KERNEL:
            return f"{NOUNS[part.kind]} (one kernel without tensor cores: {figures.change(of_kernel)})"
    for each in part.causes[:1]:
        of_cause = each.change.difference.value
        if of_cause / part.change.difference.value >= _ONE_KERNEL:
            return f"{NOUNS[part.kind]} ({IDLE_CAUSES[each.cause]}: {figures.change(of_cause)})"
    return NOUNS[part.kind]


def notes(found: StepDifference, pair: Pair) -> Iterator[str]:
    """Yield what a reader has to know about the figures."""
    runs = (*found.baseline, *found.other)
    if any(len(run.evidence.devices) > 1 for run in runs if run.evidence):
        yield "Times of several GPUs are their mean."
    if len({run.row.spec.variant.get("xla") for run in runs}) > 1:
        yield (
            "XLA merges operations into kernels of its own (fusions), each of which counts in one class: "
            "what only moved to another class is no gain or loss."
        )
    untraced = [run.row.run for run in (*pair.base, *pair.other) if run.row.summary.throughput and not is_traced(run)]
    if untraced:
        has, is_ = ("has", "is") if len(untraced) == 1 else ("have", "are")
        yield f"{format_run_numbers(untraced).capitalize()} {has} no trace and {is_} left out."
    if any(part.causes for part in found.parts):
        yield (
            "The measured idle time is split by cause as the gaps of the trace are: tracing makes gaps longer, so only "
            "their shares count."
        )
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
    parts = join_with_and(NOUNS[kind] for kind in gain.kinds)
    return f"{taker} with the {parts} of {giver}: {faster}{interval}, {figures.ms(gain.step_ms)} {figures.per}"
