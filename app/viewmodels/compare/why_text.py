"""Why a variant's steps take longer or shorter than the baseline's, in sentences."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.analysis import why
from app.analysis.intervals import Estimate
from app.analysis.steps import IdleCause
from app.analysis.verdict import work_ratio
from app.analysis.why import Obstacle, Part, PartKind, StepDifference, WhatIf, examples_per_gpu, find_cause, is_traced
from app.values import units
from app.values.records import StoredRun
from app.viewmodels.format.cells import example_word
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.ratios import agree, describe_speed, format_interval
from app.viewmodels.format.sentences import format_run_numbers, join_with_and, shorten_name

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
    "Which operations make up the difference is not known: on the CPU several run at once, and tracing slows them."
)
_MAX_NAMED = 3
_NAMED_SHARE, _NOTHING_SHARE = 0.03, 0.01
"""Parts that make up a smaller share of what a sentence explains are not named; the largest from the second on."""
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
        first_within, second_within = map(shorten_name, variant_names(specs, in_sentence=True))
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

    difference: StepDifference
    example: str
    decimals: int

    @classmethod
    def of(cls, difference: StepDifference, example: str) -> "Figures":
        """Return the figures of a difference; `example` is what one example is called."""
        changes = [abs(part.change.difference.value) for part in difference.parts]
        largest = max([abs(difference.step.difference.value), *changes]) or 1.0
        decimals = 2 - math.floor(math.log10(largest)), 3 - math.floor(math.log10(difference.step.baseline_ms or 1.0))
        return cls(difference, example, min(max(0, *decimals), 6))

    @property
    def per(self) -> str:
        """Return what the times are of: `per step`, `per 1,000 images` or `per 1,000 images of a GPU`."""
        examples = self.difference.examples
        if examples is None:
            return "per step"
        of_gpu = " of a GPU" if max(map(_gpus, (*self.difference.baseline, *self.difference.other))) > 1 else ""
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
        return units.quantity(_minus(f"{100 * value / self.difference.step.baseline_ms:+,.1f}"), "%")

    def steps(self) -> str:
        """Return the steps of both: `23.36 against 25.01 ms per step`."""
        step = self.difference.step
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
            workloads = join_with_and(side[0].row.spec.workload for side in (pair.other, pair.base))
            return f"{workloads} are different workloads: their steps have nothing in common to compare."
        case "nothing measured":
            return f"No run of {_lacking(pair, why.is_measured)} has a measured step."
        case "no trace":
            without = _lacking(pair, is_traced)
            return f"Why is not known: there is no trace of {without}. Runs with evidence “Graph and trace” would tell."
        case "processor and GPU":
            return f"Only one of {pair.within[0]} and {pair.within[1]} ran on GPUs. A step on the CPU has other parts."


def _lacking(pair: Pair, has: Callable[[StoredRun], bool]) -> str:
    """Return the names of the variants of which no run has something."""
    sides = zip((pair.base, pair.other), reversed(pair.within), strict=True)
    return join_with_and([name for side, name in sides if not any(map(has, side))])


def describe_difference(difference: StepDifference, pair: Pair, figures: Figures) -> str:
    """Return which work differs, the difference of the steps, and what it consists of: sentences to be read aloud."""
    return " ".join([*_describe_work(difference, pair, figures), *_describe_step(difference, pair, figures)])


def _describe_work(difference: StepDifference, pair: Pair, figures: Figures) -> Iterator[str]:
    """Yield in which way the variants do other work: another batch, other operations."""
    other, base = difference.other[0], difference.baseline[0]
    if difference.examples:
        batches = (
            f"{examples_per_gpu(other):,.6g} in place of {examples_per_gpu(base):,.6g} {units.plural(pair.example)}"
        )
        where = "Each GPU has" if max(_gpus(other), _gpus(base)) > 1 else "The batch is"
        yield f"{where} {batches}, so times are {figures.per}."
    ratio = work_ratio([run.row for run in difference.other], [run.row for run in difference.baseline])
    if ratio is not None:
        does = agree(pair.first, f"does {units.ratio(ratio)}")
        yield f"{does} the operations per {pair.example}: some of this is other work."


def _describe_step(difference: StepDifference, pair: Pair, figures: Figures) -> Iterator[str]:
    """Yield the difference of the steps and what it consists of."""
    change, base = difference.step.difference, pair.within[1]
    if not difference.on_gpu:
        yield f"{agree(pair.first, f'takes {figures.steps()}')}. {_ON_CPU}"
        return
    if not difference.step.is_certain:
        how = "do not differ significantly" if change.interval else "differ no more than runs of one variant do"
        yield f"{pair.first} and {base} {how}."
        yield from _describe_hidden(difference, figures)
        return
    ends = sorted(map(abs, change.interval or ()))
    interval = f" ({units.span(figures.number(ends[0]), figures.ms(ends[1]))})" if ends else ""
    amount = f"{figures.ms(abs(change.value))} {'less' if change.value < 0 else 'more'}"
    per_step = "" if difference.examples else " per step"
    yield f"{agree(pair.first, f'takes {amount}{per_step} than')} {base}{interval}."
    yield from _describe_causes(difference, figures)


def _describe_causes(difference: StepDifference, figures: Figures) -> Iterator[str]:
    """Yield what lies behind a difference, if that is known of most of it, and its parts."""
    cause = find_cause(difference)
    if cause and cause.kind == "clock":
        share = units.percent(100 * cause.ms / difference.step.difference.value)
        clocks = f"{units.megahertz(cause.other)} in place of {units.megahertz(cause.baseline)}"
        yield f"Up to {share} of that comes from the clock of the GPU, {clocks}."
        yield f"The largest part is {_signed_clauses(difference.parts[:1], figures)}."
        return
    if cause and cause.kind == "data":
        waits = f"{figures.number(cause.other)} in place of {figures.ms(cause.baseline)}"
        yield f"Waiting for training data takes {waits}."
    elif cause:
        yield f"The host launches {cause.other:,.0f} in place of {cause.baseline:,.0f} kernels {figures.per}."
    yield from _explain(difference, figures)


def _explain(difference: StepDifference, figures: Figures) -> Iterator[str]:
    """Yield what a difference consists of: the shares of its parts, or what they add up to on both sides.

    The largest part is always among them, and what is against the difference where shares add up to more than all.
    """
    change_ms = difference.step.difference.value
    with_it, against = _sides(difference, change_ms)
    lost = sum(part.change.difference.value for part in against if part.change.is_certain)
    if against[:1] == [difference.parts[0]] or abs(lost) >= _BALANCE * abs(change_ms):
        yield from _balance(difference, figures)
        return
    named = _named(with_it, abs(change_ms))
    shares = [100 * part.change.difference.value / change_ms for part in named]
    clauses = [f"{units.percent(share)} in {_noun(part)}" for share, part in zip(shares, named, strict=True)]
    yield f"Of that, {join_with_and(clauses).replace(' in ', ' is in ', 1)}."
    opposed = _named(against, abs(change_ms)) if sum(map(round, shares)) > 100 else []
    if opposed:
        yield f"Some of it is {'lost again' if change_ms < 0 else 'won back'}: {_clauses(opposed, figures)}."
    yield from _main_causes([*named, *opposed])
    yield from _describe_unchanged(difference, [*named, *opposed])


def _sides(difference: StepDifference, sign: float) -> tuple[list[Part], list[Part]]:
    """Return the parts that change in the direction of a number, and those that change against it."""
    directed = [(part, part.change.difference.value * sign) for part in difference.parts]
    return [part for part, way in directed if way > 0], [part for part, way in directed if way < 0]


def _describe_unchanged(difference: StepDifference, named: Sequence[Part]) -> Iterator[str]:
    """Yield which large parts are not the cause."""
    change_ms, step = difference.step.difference.value, difference.step.baseline_ms
    unchanged = [
        NOUNS[part.kind]
        for part in sorted(difference.parts, key=lambda part: -part.change.baseline_ms)
        if part not in named
        and part.change.baseline_ms >= _LARGE_PART * step
        and abs(part.change.difference.value) <= _SMALL_CHANGE * abs(change_ms)
    ]
    if unchanged:
        yield f"Hardly any of it is in {join_with_and(unchanged)}."


def _describe_hidden(difference: StepDifference, figures: Figures) -> Iterator[str]:
    """Yield what differs between steps that take equally long."""
    hidden = _HIDDEN_SHARE * difference.step.baseline_ms
    if any(part.change.is_certain and abs(part.change.difference.value) >= hidden for part in difference.parts):
        yield from _balance(difference, figures)
        return
    yield f"No part of a step surely changes by more than {units.percent(100 * _HIDDEN_SHARE)} of it."
    if difference.parts[0].change.difference.value:
        yield f"The largest change is {_signed_clauses(difference.parts[:1], figures)}."


def _balance(difference: StepDifference, figures: Figures) -> Iterator[str]:
    """Yield the parts in which the variant takes less, and those in which it takes more."""
    largest = abs(difference.parts[0].change.difference.value)
    saved, lost = (_named(side, largest) for side in _sides(difference, -1))
    if saved:
        yield f"The first saves {_clauses(saved, figures)}."
    if lost:
        yield f"The first loses {_clauses(lost, figures)}."
    yield from _main_causes([*saved, *lost])


def _clauses(parts: Sequence[Part], figures: Figures) -> str:
    """Return `3.17 ms in convolutions and 0.20 ms in copies`."""
    return join_with_and(f"{figures.ms(abs(part.change.difference.value))} in {_noun(part)}" for part in parts)


def _signed_clauses(parts: Sequence[Part], figures: Figures) -> str:
    """Return `−3.17 ms in convolutions and −0.20 ms in copies`."""
    return join_with_and(f"{figures.change(part.change.difference.value)} in {_noun(part)}" for part in parts)


def _named(side: Sequence[Part], largest: float) -> list[Part]:
    """Return the largest part of a side, if it is not next to nothing, and its largest others that are certain."""
    first = [part for part in side[:1] if abs(part.change.difference.value) >= _NOTHING_SHARE * largest]
    matter = (part for part in side[1:] if abs(part.change.difference.value) >= _NAMED_SHARE * largest)
    certain = [part for part in matter if part.change.is_certain]
    return [*first, *certain[: _MAX_NAMED - 1]]


def _noun(part: Part) -> str:
    """Return what a part is called, and whether its change is uncertain."""
    return NOUNS[part.kind] if part.change.is_certain else f"{NOUNS[part.kind]} (not certain)"


def _main_causes(parts: Sequence[Part]) -> Iterator[str]:
    """Yield of each part that has one cause, a kernel or a kind of waiting, what nearly all of its change is."""
    for part in parts:
        if not part.change.is_certain:
            continue
        slow = [kernel.change for kernel in part.kernels[:1] if kernel.kernel.tensor_cores is False]
        causes = [
            *((change, "one kernel without tensor cores") for change in slow),
            *((cause.change, IDLE_CAUSES[cause.cause]) for cause in part.causes[:1]),
        ]
        for change, what in causes:
            if change.difference.value / part.change.difference.value >= _ONE_KERNEL:
                yield f"Nearly all of that in {NOUNS[part.kind]} is {what}."


def notes(difference: StepDifference, pair: Pair) -> Iterator[str]:
    """Yield what a reader has to know about the figures."""
    runs = (*difference.baseline, *difference.other)
    if any(len(run.evidence.devices) > 1 for run in runs if run.evidence):
        yield "Times of several GPUs are their mean."
    if compilers := sorted(why.merging_compilers(runs), reverse=True):
        merge, own = ("merges", "its") if len(compilers) == 1 else ("merge", "their")
        yield (
            f"{join_with_and(compilers)} {merge} operations into kernels of {own} own (fusions), each of which counts "
            "in one class. What only moved to another class is no gain or loss."
        )
    untraced = [run.row.run for run in (*pair.base, *pair.other) if run.row.summary.throughput and not is_traced(run)]
    if untraced:
        has, is_ = ("has", "is") if len(untraced) == 1 else ("have", "are")
        yield f"{format_run_numbers(untraced).capitalize()} {has} no trace and {is_} left out."
    if any(part.causes for part in difference.parts):
        yield (
            "The measured idle time is split by cause as the gaps of the trace are: tracing makes gaps longer, so only "
            "their shares count."
        )
    if difference.step.difference.interval is None:
        yield "No intervals: they take two traced runs or more of each variant."


def describe_gain(gain: WhatIf, pair: Pair, figures: Figures) -> str:
    """Return `NHWC with the pooling of NCHW: 5.5 % faster (+5.4 to +5.7 %), 23.70 ms per step`."""
    taker, giver = pair.within[::-1] if gain.of_baseline else pair.within
    speedup = gain.speedup
    interval = format_interval(speedup.interval, speedup.value)
    faster = f"{describe_speed(speedup.value)}{f' ({interval})' if interval else ''}"
    parts = join_with_and(NOUNS[kind] for kind in gain.kinds)
    return f"{taker} with the {parts} of {giver}: {faster}, {figures.ms(gain.step_ms)} {figures.per}"
