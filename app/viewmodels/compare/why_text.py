"""Why a variant's steps take longer or shorter than the baseline's: statements and their sentences."""

import math
from collections.abc import Iterator, Mapping, Sequence
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
        return example_word(self.base[0].row.spec, self.base[0].row.summary)


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

    def number(self, value: float, sign: str = "") -> str:
        """Return `1.31`."""
        return _minus(f"{value:{sign},.{self.decimals}f}")


def _gpus(run: StoredRun) -> int:
    return int(run.row.spec.variant.get("gpus", 1))


def _minus(number: str) -> str:
    """Return a formatted number with a typographic minus, and zero without a sign."""
    return number.lstrip("+-") if not number.strip("+-0.,") else units.with_minus(number)


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is said of why: a key of `SENTENCES`, and the words and figures that its sentence names."""

    key: str
    facts: Mapping[str, str]

    @property
    def sentence(self) -> str:
        return SENTENCES[self.key].format(**self.facts)


SENTENCES: Mapping[str, str] = {
    "other workload": "{workloads} are different workloads: their steps have nothing in common to compare.",
    "nothing measured": "No run of {lacking} has a measured step.",
    "no trace": "Why is not known: there is no trace of {lacking}. Runs with evidence “Graph and trace” would tell.",
    "processor and GPU": "Only one of {first} and {base} ran on GPUs. A step on the CPU has other parts.",
    "batch": "The batch is {batch} in place of {base_batch} {examples}, so times are {per}.",
    "batch_gpu": "Each GPU has {batch} in place of {base_batch} {examples}, so times are {per}.",
    "work": "{first_does} {ratio} the operations per {example}: some of this is other work.",
    "cpu": "{first_takes} {step} against {base_step} {per}. Which operations make up the difference is not known: on "
    "the CPU several run at once, and tracing slows them.",
    "same": "{first} and {base} do not differ significantly.",
    "same_single": "{first} and {base} differ no more than runs of one variant do.",
    "step": "{first_takes} {change} {direction} {per} than {base} ({interval}).",
    "step_single": "{first_takes} {change} {direction} {per} than {base}.",
    "clock": "Up to {share} of that comes from the clock of the GPU, {clock} in place of {base_clock}.",
    "data": "Waiting for training data takes {wait} in place of {base_wait}.",
    "launches": "The host launches {launches} in place of {base_launches} kernels {per}.",
    "shares": "Of that, {shares}.",
    "lost": "Some of it is lost again: {parts}.",
    "won": "Some of it is won back: {parts}.",
    "saves": "The first saves {parts}.",
    "loses": "The first loses {parts}.",
    "one_cause": "Nearly all of that in {part} is {cause}.",
    "unchanged": "Hardly any of it is in {parts}.",
    "no_part": "No part of a step surely changes by more than {share} of it.",
    "largest_part": "The largest part is {part}.",
    "largest_change": "The largest change is {part}.",
}
"""The sentence of each key."""


def state_obstacle(obstacle: Obstacle, pair: Pair) -> Reason:
    """Return why two variants cannot be compared by their parts."""
    has = why.is_measured if obstacle == "nothing measured" else is_traced
    sides = zip((pair.base, pair.other), reversed(pair.within), strict=True)
    workloads = join_with_and(side[0].row.spec.workload for side in (pair.other, pair.base))
    lacking = [name for side, name in sides if not any(map(has, side))]
    first, base = pair.within
    facts = {"workloads": workloads, "lacking": join_with_and(lacking or pair.within), "first": first, "base": base}
    return Reason(obstacle, facts)


def state_difference(difference: StepDifference, pair: Pair, figures: Figures) -> Iterator[Reason]:
    other, base = difference.other[0], difference.baseline[0]
    if difference.examples:
        facts = {
            "batch": f"{examples_per_gpu(other):,.6g}",
            "base_batch": f"{examples_per_gpu(base):,.6g}",
            "examples": units.plural(pair.example),
            "per": figures.per,
        }
        yield Reason("batch_gpu" if max(_gpus(other), _gpus(base)) > 1 else "batch", facts)
    ratio = work_ratio([run.row for run in difference.other], [run.row for run in difference.baseline])
    if ratio is not None:
        does = agree(pair.first, "does")
        yield Reason("work", {"first_does": does, "ratio": units.ratio(ratio), "example": pair.example})
    yield from _state_step(difference, pair, figures)


def _state_step(difference: StepDifference, pair: Pair, figures: Figures) -> Iterator[Reason]:
    step, change = difference.step, difference.step.difference
    sides = {
        "first": pair.first,
        "first_takes": agree(pair.first, "takes"),
        "base": pair.within[1],
        "step": figures.number(step.other_ms),
        "base_step": figures.ms(step.baseline_ms),
        "change": figures.ms(abs(change.value)),
        "direction": "less" if change.value < 0 else "more",
        "per": figures.per,
    }
    if not difference.on_gpu:
        yield Reason("cpu", sides)
        return
    if not step.is_certain:
        yield Reason("same" if change.interval else "same_single", sides)
        yield from _state_hidden(difference, figures)
        return
    if change.interval:
        low, high = sorted(map(abs, change.interval))
        yield Reason("step", {**sides, "interval": units.span(figures.number(low), figures.ms(high))})
    else:
        yield Reason("step_single", sides)
    yield from _state_causes(difference, figures)


def _state_causes(difference: StepDifference, figures: Figures) -> Iterator[Reason]:
    """Yield what lies behind a difference, if that is known of most of it, and its parts."""
    cause = find_cause(difference)
    if cause and cause.kind == "clock":
        share = units.percent(100 * cause.ms / difference.step.difference.value)
        clocks = {"clock": units.megahertz(cause.other), "base_clock": units.megahertz(cause.baseline)}
        yield Reason("clock", {"share": share, **clocks})
        yield Reason("largest_part", {"part": _signed_clause(difference.parts[0], figures)})
        return
    if cause and cause.kind == "data":
        yield Reason("data", {"wait": figures.number(cause.other), "base_wait": figures.ms(cause.baseline)})
    elif cause:
        launches = {"launches": f"{cause.other:,.0f}", "base_launches": f"{cause.baseline:,.0f}"}
        yield Reason("launches", {**launches, "per": figures.per})
    yield from _explain(difference, figures)


def _explain(difference: StepDifference, figures: Figures) -> Iterator[Reason]:
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
    first, *others = (f"{units.percent(share)}{{}} in {_noun(part)}" for share, part in zip(shares, named, strict=True))
    clauses = [first.format(" is"), *(clause.format("") for clause in others)]
    yield Reason("shares", {"shares": join_with_and(clauses)})
    opposed = _named(against, abs(change_ms)) if sum(map(round, shares)) > 100 else []
    if opposed:
        yield Reason("lost" if change_ms < 0 else "won", {"parts": _clauses(opposed, figures)})
    yield from _main_causes([*named, *opposed])
    yield from _state_unchanged(difference, [*named, *opposed])


def _sides(difference: StepDifference, sign: float) -> tuple[list[Part], list[Part]]:
    directed = [(part, part.change.difference.value * sign) for part in difference.parts]
    return [part for part, way in directed if way > 0], [part for part, way in directed if way < 0]


def _state_unchanged(difference: StepDifference, named: Sequence[Part]) -> Iterator[Reason]:
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
        yield Reason("unchanged", {"parts": join_with_and(unchanged)})


def _state_hidden(difference: StepDifference, figures: Figures) -> Iterator[Reason]:
    hidden = _HIDDEN_SHARE * difference.step.baseline_ms
    if any(part.change.is_certain and abs(part.change.difference.value) >= hidden for part in difference.parts):
        yield from _balance(difference, figures)
        return
    yield Reason("no_part", {"share": units.percent(100 * _HIDDEN_SHARE)})
    if difference.parts[0].change.difference.value:
        yield Reason("largest_change", {"part": _signed_clause(difference.parts[0], figures)})


def _balance(difference: StepDifference, figures: Figures) -> Iterator[Reason]:
    largest = abs(difference.parts[0].change.difference.value)
    saved, lost = (_named(side, largest) for side in _sides(difference, -1))
    if saved:
        yield Reason("saves", {"parts": _clauses(saved, figures)})
    if lost:
        yield Reason("loses", {"parts": _clauses(lost, figures)})
    yield from _main_causes([*saved, *lost])


def _clauses(parts: Sequence[Part], figures: Figures) -> str:
    """Return `3.17 ms in convolutions and 0.20 ms in copies`."""
    return join_with_and(f"{figures.ms(abs(part.change.difference.value))} in {_noun(part)}" for part in parts)


def _signed_clause(part: Part, figures: Figures) -> str:
    """Return `−3.17 ms in convolutions`."""
    return f"{figures.change(part.change.difference.value)} in {_noun(part)}"


def _named(side: Sequence[Part], largest: float) -> list[Part]:
    """Return the largest part of a side, if it is not next to nothing, and its largest others that are certain."""
    first = [part for part in side[:1] if abs(part.change.difference.value) >= _NOTHING_SHARE * largest]
    matter = (part for part in side[1:] if abs(part.change.difference.value) >= _NAMED_SHARE * largest)
    certain = [part for part in matter if part.change.is_certain]
    return [*first, *certain[: _MAX_NAMED - 1]]


def _noun(part: Part) -> str:
    return NOUNS[part.kind] if part.change.is_certain else f"{NOUNS[part.kind]} (not certain)"


def _main_causes(parts: Sequence[Part]) -> Iterator[Reason]:
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
                yield Reason("one_cause", {"part": NOUNS[part.kind], "cause": what})


def notes(difference: StepDifference, pair: Pair) -> Iterator[str]:
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
