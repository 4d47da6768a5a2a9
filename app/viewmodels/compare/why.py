"""Why a variant's steps take longer or shorter than the baseline's: statements, a waterfall, a table, what-ifs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from app.analysis import why
from app.analysis.intervals import Estimate
from app.analysis.steps import IdleCause
from app.analysis.verdict import work_ratio
from app.analysis.why import Change, Part, PartKind, StepDifference, WhatIf, find_cause, is_traced
from app.values import units
from app.values.records import StoredRun
from app.viewmodels.charts.model import WaterfallBar, WaterfallChart, span_axis
from app.viewmodels.compare.statements import CAUSES, PartChange, Statement
from app.viewmodels.compare.verdict import Verdict
from app.viewmodels.format.cells import example_word
from app.viewmodels.format.naming import SEPARATOR, Name, names_in_parts, short_kernel_names
from app.viewmodels.format.ratios import CI
from app.viewmodels.history.kernel_time import KERNEL_CLASSES

WHY = "why"
"""Key of the charts."""
_INTERVAL = CI
_LABELS: dict[PartKind, str] = {
    **{kind: label for kind, (label, _) in KERNEL_CLASSES.items()},
    "idle": "idle",
    "overlap": "overlap",
    "unexplained": "unexplained",
}
_HELP: dict[PartKind, str] = {
    "idle": "No kernel ran: the measured step less the time in which kernels kept the GPU busy.",
    "overlap": "What ran at the same time as another kernel, which makes a step shorter.",
    "unexplained": "How much longer traced kernels took than the measured step.",
}
_CAUSE_HELP: dict[IdleCause, str] = {
    "host": "The host began to launch the next kernel only after the last one had ended.",
    "kernel": "The next kernel was launched in time and began within 5 µs.",
    "other": "The next kernel was launched in time and began later than that, as one that waits for another stream.",
}
_STEP_HELP = "The measured step; the parts above add up to it."
_NO_TENSOR_CORES = " · no tensor cores"
_MAX_BARS = 6
_SMALLEST_BAR = 0.02
"""Parts whose change is a smaller share of the largest one are drawn together as one bar."""
_MAX_REPORTED = 4
"""Variants in a report."""
_TOOLTIP_KERNELS = 3
"""Kernels that the tooltip of a bar lists."""
CAVEAT = (
    "Parts of a step depend on one another: another layout brings transposes of its own, a convolution may run as a "
    "GEMM. So this is what there is to gain at most."
)
_MAX_NAMED = 3
_NAMED_SHARE, _NOTHING_SHARE = 0.03, 0.01
"""Parts with smaller shares of what a sentence explains are not named; the second limit is for the largest part."""
_BALANCE = 0.5
"""If the opposing changes add up to this share of a difference, both sides are reported instead of shares."""
_ONE_KERNEL = 0.8
"""From this share of a part's change on, one kernel, or one cause of idle time, is nearly all of it."""
_HIDDEN_SHARE = 0.01
"""For equally long steps, a part whose change is this share of the step is worth reporting."""
_LARGE_PART, _SMALL_CHANGE = 0.25, 0.05
"""A part with this share of the step that changes by at most this share of the difference is reported as no cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyRow:
    """One row of the table: a part of a step, a kernel or cause within the part above it, or the step.

    `help` is the full name of a kernel.
    """

    label: str
    kind: Literal["part", "kernel", "cause", "step"]
    cells: tuple[str, ...]
    help: str = ""

    @property
    def is_detail(self) -> bool:
        return self.kind in ("kernel", "cause")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WhyView:
    """Why the steps of one variant's runs differ from the baseline's.

    Without `difference`, the statement says why it is unknown, and the rest is empty. `head` has the cells' titles,
    `gains` what each side would gain from the other's parts.
    """

    name: str
    baseline: str
    runs: tuple[int, ...]
    statements: tuple[Statement, ...]
    difference: StepDifference | None = None
    notes: tuple[Statement, ...] = ()
    chart: WaterfallChart | None = None
    head: tuple[str, ...] = ()
    rows: tuple[WhyRow, ...] = ()
    gains: tuple[Statement, ...] = ()

    @property
    def sentence(self) -> str:
        return " ".join(statement.sentence for statement in self.statements)

    @property
    def changed_share(self) -> float:
        """Return the change of the step as a share of the baseline's; −1 if unknown."""
        step = self.difference.step if self.difference else None
        return abs(step.difference.value) / step.baseline_ms if step else -1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Writes the times of one comparison, all with the same decimals, and as shares of the baseline's step.

    They are of one step, or of so many examples, each called `example`, on one of several GPUs or on all there is.
    """

    decimals: int
    baseline_ms: float
    examples: int | None
    example: str
    of_gpu: bool

    @property
    def per(self) -> str:
        """Return what the times are of: `per step`, `per 1,000 images` or `per 1,000 images of a GPU`."""
        if self.examples is None:
            return "per step"
        return f"per {self.examples:,} {units.plural(self.example)}{' of a GPU' if self.of_gpu else ''}"

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
        return units.quantity(_minus(f"{100 * value / self.baseline_ms:+,.1f}"), "%")

    def number(self, value: float, sign: str = "") -> str:
        """Return `1.31`."""
        return _minus(f"{value:{sign},.{self.decimals}f}")


def _minus(number: str) -> str:
    """Return a formatted number with a typographic minus, and zero without a sign."""
    return number.lstrip("+-") if not number.strip("+-0.,") else units.with_minus(number)


@dataclass(frozen=True, slots=True)
class Pair:
    """A variant and the baseline: their runs, names, and names within a sentence."""

    other: Sequence[StoredRun]
    base: Sequence[StoredRun]
    names: tuple[Name, Name]
    within: tuple[Name, Name]

    @classmethod
    def of(cls, other: Sequence[StoredRun], base: Sequence[StoredRun]) -> "Pair":
        specs = [side[0].row.spec for side in (other, base)]
        names, within = names_in_parts(specs), names_in_parts(specs, in_sentence=True)
        return cls(other, base, (names[0], names[1]), (within[0], within[1]))

    def figures(self, difference: StepDifference) -> Figures:
        """Return figures with as many decimals as the largest change and 0.1 % of a step need."""
        step = difference.step
        changes = [abs(part.change.difference.value) for part in difference.parts]
        largest = max([abs(step.difference.value), *changes]) or 1.0
        decimals = 2 - math.floor(math.log10(largest)), 3 - math.floor(math.log10(step.baseline_ms or 1.0))
        return Figures(
            decimals=min(max(0, *decimals), 6),
            baseline_ms=step.baseline_ms,
            examples=difference.examples,
            example=example_word(self.base[0].row.spec, self.base[0].row.summary),
            of_gpu=any(
                int(run.row.spec.variant.get("gpus", 1)) > 1 for run in (*difference.baseline, *difference.other)
            ),
        )


def why_views(runs: Sequence[StoredRun], verdict: Verdict) -> tuple[WhyView, ...]:
    """Return a view for each variant except the baseline, in the order of the verdict."""
    by_number = {run.row.run: run for run in runs}
    groups = [[by_number[row.run] for row in result.runs] for result in verdict.results]
    base = next((n for n, result in enumerate(verdict.results) if result.is_baseline), 0)
    return tuple(
        why_view(Pair.of(group, groups[base]), verdict.names[n], verdict.names[base])
        for n, group in enumerate(groups)
        if n != base
    )


def largest_differences(views: Sequence[WhyView]) -> list[WhyView]:
    """Return the views for a report: a few with the largest differences, or one that says why there are none."""
    candidates = [view for view in views if view.difference]
    few = sorted(candidates, key=attrgetter("changed_share"), reverse=True)[:_MAX_REPORTED]
    return [view for view in views if view in few] or list(views[:1])


def why_view(pair: Pair, name: str, baseline: str) -> WhyView:
    difference = why.step_difference(pair.other, pair.base)
    numbers = tuple(run.row.run for run in pair.other)
    if isinstance(difference, str):
        return WhyView(name=name, baseline=baseline, runs=numbers, statements=(_state_obstacle(difference, pair),))
    figures = pair.figures(difference)
    return WhyView(
        name=name,
        baseline=baseline,
        runs=numbers,
        statements=tuple(state_difference(difference, pair)),
        difference=difference,
        notes=tuple(_notes(difference, pair)),
        chart=_chart(difference, pair, figures) if difference.on_gpu else None,
        head=(
            *map(SEPARATOR.join, pair.names[::-1]),
            "Change",
            *([_INTERVAL] if _has_intervals(difference) else []),
            "Of the step",
        ),
        rows=tuple(_rows(difference, figures)),
        gains=tuple(_state_gain(gain, pair, figures) for gain in why.what_if(difference)),
    )


def _has_intervals(difference: StepDifference) -> bool:
    return difference.step.difference.interval is not None


def _rows(difference: StepDifference, figures: Figures) -> Iterator[WhyRow]:
    """Yield each part with its kernels below it, and the step last."""

    def interval(text: str) -> list[str]:
        return [text] if _has_intervals(difference) else []

    def cells(change: Change) -> tuple[str, ...]:
        estimate = change.difference
        return (
            *(figures.ms(side) if side else units.ABSENT for side in (change.baseline_ms, change.other_ms)),
            figures.change(estimate.value),
            *interval(figures.ends(estimate)),
            figures.share(estimate.value),
        )

    for part in difference.parts:
        yield WhyRow(label=_LABELS[part.kind], kind="part", cells=cells(part.change), help=_HELP.get(part.kind, ""))
        for cause in part.causes:
            yield WhyRow(
                label=CAUSES[cause.cause], kind="cause", cells=cells(cause.change), help=_CAUSE_HELP[cause.cause]
            )
        names = short_kernel_names([kernel.kernel.name for kernel in part.kernels])
        for name, kernel in zip(names, part.kernels, strict=True):
            yield WhyRow(
                label=f"{name}{_NO_TENSOR_CORES if kernel.kernel.tensor_cores is False else ''}",
                kind="kernel",
                cells=cells(kernel.change),
                help=kernel.kernel.name,
            )
        if part.more:
            label = f"{part.more:,} more {units.plural('kernel', part.more)}"
            more = figures.change(part.more_ms), *interval(""), figures.share(part.more_ms)
            yield WhyRow(label=label, kind="kernel", cells=("", "", *more))
    yield WhyRow(label="step", kind="step", cells=cells(difference.step), help=_STEP_HELP if difference.on_gpu else "")


def _chart(difference: StepDifference, pair: Pair, figures: Figures) -> WaterfallChart:
    """Return the waterfall from the baseline's step to the other one's, largest change first."""
    names = tuple(map(SEPARATOR.join, pair.names[::-1]))
    within, steps = tuple(map(SEPARATOR.join, pair.within)), (difference.step.baseline_ms, difference.step.other_ms)
    runs = [tuple(run.row.run for run in side) for side in (difference.baseline, difference.other)]
    first, last = (
        WaterfallBar(
            runs=numbers,
            label=name,
            tooltip=f"{name}\n{figures.ms(step)} {figures.per}",
            start=0.0,
            end=step,
            role="total",
            figure=figures.ms(step),
        )
        for name, step, numbers in zip(names, steps, runs, strict=True)
    )
    bars = [first]
    for label, estimate, tooltip in _changes(difference, pair, figures):
        bars.append(_change_bar(label, estimate, tooltip, bars[-1].end, figures, (*runs[0], *runs[1])))
    return WaterfallChart(
        key=WHY,
        title=f"From {names[0]} to {names[1]}",
        caption=(
            f"Time {figures.per} on a GPU. Left (green) is less time with {within[0]}, right (orange) is more. "
            f"Percentages are of the step of {within[1]}."
            + (f" Whiskers are {CI} of each change." if _has_intervals(difference) else "")
        ),
        bars=(*bars, last),
        axis=span_axis([bar.end for bar in (*bars, last)], f"ms {figures.per}"),
    )


def _changes(difference: StepDifference, pair: Pair, figures: Figures) -> Iterator[tuple[str, Estimate, str]]:
    """Yield label, change and tooltip of each bar; small changes share one bar."""
    parts = difference.parts
    largest = max(abs(part.change.difference.value) for part in parts)
    large = [part for part in parts[:_MAX_BARS] if abs(part.change.difference.value) >= _SMALLEST_BAR * largest]
    small = parts[len(large) :]
    if len(small) == 1:
        large, small = list(parts), ()
    for part in large:
        yield _LABELS[part.kind], part.change.difference, _tooltip(part, pair, figures)
    if small:
        differences = [part.change.difference.value for part in small]
        lines = [f"{figures.change(ms)}  {_LABELS[part.kind]}" for part, ms in zip(small, differences, strict=True)]
        yield f"{len(small)} smaller parts", Estimate(sum(differences), None, None, 1), "\n".join(lines)


def _tooltip(part: Part, pair: Pair, figures: Figures) -> str:
    change, kernels = part.change, part.kernels[:_TOOLTIP_KERNELS]
    sides = zip(pair.within, (change.other_ms, change.baseline_ms), strict=True)
    names = short_kernel_names([kernel.kernel.name for kernel in kernels])
    interval = figures.ends(change.difference)
    lines = (
        f"{_LABELS[part.kind]}: {figures.change(change.difference.value)} {figures.per}",
        ", ".join(f"{figures.ms(value)} with {SEPARATOR.join(name)}" for name, value in sides),
        *([f"{CI} {units.quantity(interval, 'ms')}"] if interval else []),
        *(f"{figures.change(cause.change.difference.value)}  {CAUSES[cause.cause]}" for cause in part.causes),
        *(
            f"{figures.change(kernel.change.difference.value)}  {name}"
            for kernel, name in zip(kernels, names, strict=True)
        ),
    )
    return "\n".join(lines)


def _change_bar(
    label: str, change: Estimate, tooltip: str, start: float, figures: Figures, runs: tuple[int, ...]
) -> WaterfallBar:
    low, high = (None if end is None else start + end for end in (change.low, change.high))
    return WaterfallBar(
        runs=runs,
        label=label,
        tooltip=tooltip,
        start=start,
        end=start + change.value,
        low=low,
        high=high,
        role="less" if change.value < 0 else "more",
        figure=figures.change(change.value),
        share=figures.share(change.value),
    )


def _state_obstacle(obstacle: why.Obstacle, pair: Pair) -> Statement:
    """Return why two variants cannot be compared by their parts."""
    has = why.is_measured if obstacle == "nothing measured" else is_traced
    sides = zip((pair.base, pair.other), reversed(pair.within), strict=True)
    lacking = tuple(name for side, name in sides if not any(map(has, side)))
    workloads = tuple(side[0].row.spec.workload for side in (pair.other, pair.base))
    first, base = pair.within
    facts = {"workloads": workloads, "lacking": lacking or pair.within, "first": first, "base": base}
    return Statement(obstacle, facts)


def state_difference(difference: StepDifference, pair: Pair) -> Iterator[Statement]:
    """Yield how the steps differ, and which of their parts make the difference."""
    figures, (first, base) = pair.figures(difference), pair.within
    step, change = difference.step, difference.step.difference
    if difference.examples:
        other_batch, base_batch = (why.examples_per_gpu(side[0]) for side in (difference.other, difference.baseline))
        yield Statement("batch", {"batch": other_batch, "base_batch": base_batch, "figures": figures})
    ratio = work_ratio([run.row for run in difference.other], [run.row for run in difference.baseline])
    if ratio is not None:
        yield Statement("work", {"first": first, "ratio": ratio, "example": figures.example})
    sides = {"first": first, "base": base, "change": change, "figures": figures}
    if not difference.on_gpu:
        yield Statement("cpu step", {**sides, "step_ms": step.other_ms})
    elif not step.is_certain:
        yield Statement("same" if change.interval else "same_single", sides)
        yield from _state_hidden(difference, figures)
    else:
        yield Statement("step", sides)
        yield from _state_causes(difference, figures)


def _state_causes(difference: StepDifference, figures: Figures) -> Iterator[Statement]:
    """Yield the cause of a difference, if most of it has a known cause, and its parts."""
    cause = find_cause(difference)
    if cause and cause.kind == "clock":
        share_pct = 100 * cause.ms / difference.step.difference.value
        yield Statement("clock", {"share_pct": share_pct, "clock_mhz": cause.other, "base_clock_mhz": cause.baseline})
        yield Statement("largest_part", {"part": _changes_of(difference.parts[:1])[0], "figures": figures})
        return
    if cause and cause.kind == "data":
        yield Statement("data", {"wait_ms": cause.other, "base_wait_ms": cause.baseline, "figures": figures})
    elif cause:
        launches = {"launches": cause.other, "base_launches": cause.baseline}
        yield Statement("launches", {**launches, "figures": figures})
    yield from _explain(difference, figures)


def _changes_of(parts: Sequence[Part]) -> tuple[PartChange, ...]:
    changes = ((part.kind, part.change) for part in parts)
    return tuple(PartChange(kind, change.difference.value, change.is_certain) for kind, change in changes)


def _explain(difference: StepDifference, figures: Figures) -> Iterator[Statement]:
    """Yield the composition of a difference: the shares of its parts, or their sums on both sides.

    The largest part is always included, and opposing parts if shares add up to more than 100 %.
    """
    change_ms = difference.step.difference.value
    with_it, against = _sides(difference, change_ms)
    lost = sum(part.change.difference.value for part in against if part.change.is_certain)
    if against[:1] == [difference.parts[0]] or abs(lost) >= _BALANCE * abs(change_ms):
        yield from _balance(difference, figures)
        return
    named = _named(with_it, abs(change_ms))
    yield Statement("shares", {"parts": _changes_of(named), "change_ms": change_ms})
    shares = (round(100 * part.change.difference.value / change_ms) for part in named)
    opposed = _named(against, abs(change_ms)) if sum(shares) > 100 else []
    if opposed:
        key = "lost_again" if change_ms < 0 else "won_back"
        yield Statement(key, {"parts": _changes_of(opposed), "figures": figures})
    yield from _main_causes([*named, *opposed])
    step_ms = difference.step.baseline_ms
    unchanged = tuple(
        part.kind
        for part in sorted(difference.parts, key=lambda part: -part.change.baseline_ms)
        if part not in (*named, *opposed)
        and part.change.baseline_ms >= _LARGE_PART * step_ms
        and abs(part.change.difference.value) <= _SMALL_CHANGE * abs(change_ms)
    )
    if unchanged:
        yield Statement("hardly", {"parts": unchanged})


def _sides(difference: StepDifference, sign: float) -> tuple[list[Part], list[Part]]:
    directed = [(part, part.change.difference.value * sign) for part in difference.parts]
    return [part for part, way in directed if way > 0], [part for part, way in directed if way < 0]


def _state_hidden(difference: StepDifference, figures: Figures) -> Iterator[Statement]:
    hidden = _HIDDEN_SHARE * difference.step.baseline_ms
    if any(part.change.is_certain and abs(part.change.difference.value) >= hidden for part in difference.parts):
        yield from _balance(difference, figures)
        return
    yield Statement("no_part", {"share_pct": 100 * _HIDDEN_SHARE})
    if difference.parts[0].change.difference.value:
        yield Statement("largest_change", {"part": _changes_of(difference.parts[:1])[0], "figures": figures})


def _balance(difference: StepDifference, figures: Figures) -> Iterator[Statement]:
    largest = abs(difference.parts[0].change.difference.value)
    saved, lost = (_named(side, largest) for side in _sides(difference, -1))
    for key, parts in (("saves", saved), ("loses", lost)):
        if parts:
            yield Statement(key, {"parts": _changes_of(parts), "figures": figures})
    yield from _main_causes([*saved, *lost])


def _named(side: Sequence[Part], largest: float) -> list[Part]:
    """Return the largest part of a side unless negligible, and its other large parts that are certain."""
    first = [part for part in side[:1] if abs(part.change.difference.value) >= _NOTHING_SHARE * largest]
    matter = (part for part in side[1:] if abs(part.change.difference.value) >= _NAMED_SHARE * largest)
    certain = [part for part in matter if part.change.is_certain]
    return [*first, *certain[: _MAX_NAMED - 1]]


def _main_causes(parts: Sequence[Part]) -> Iterator[Statement]:
    for part in parts:
        slow = [("no tensor cores", one.change) for one in part.kernels[:1] if one.kernel.tensor_cores is False]
        for cause, change in (*slow, *((one.cause, one.change) for one in part.causes[:1])):
            share = change.difference.value / (part.change.difference.value or math.inf)
            if part.change.is_certain and share >= _ONE_KERNEL:
                yield Statement("one_cause", {"part": part.kind, "cause": cause})


def _notes(difference: StepDifference, pair: Pair) -> Iterator[Statement]:
    runs = (*difference.baseline, *difference.other)
    if any(len(run.evidence.devices) > 1 for run in runs if run.evidence):
        yield Statement("mean_of_gpus")
    if compilers := why.merging_compilers(runs):
        yield Statement("merged_kernels", {"compilers": tuple(sorted(compilers, reverse=True))})
    with_steps = (run for run in (*pair.base, *pair.other) if run.row.summary.throughput)
    if untraced := tuple(run.row.run for run in with_steps if not is_traced(run)):
        yield Statement("untraced", {"runs": untraced}, untraced)
    if any(part.causes for part in difference.parts):
        yield Statement("idle_by_cause")
    if difference.step.difference.interval is None:
        yield Statement("no_intervals")


def _state_gain(gain: WhatIf, pair: Pair, figures: Figures) -> Statement:
    giver, taker = pair.within if gain.of_baseline else pair.within[::-1]
    sides = {"of_baseline": gain.of_baseline, "taker": taker, "giver": giver, "kinds": gain.kinds}
    return Statement("what_if", {**sides, "speedup": gain.speedup, "step_ms": gain.step_ms, "figures": figures})
