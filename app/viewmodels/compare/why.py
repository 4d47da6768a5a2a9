"""Why a variant's steps take longer or shorter than the baseline's: a sentence, a waterfall, a table, and what if."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from app.analysis.intervals import Estimate
from app.analysis.steps import IdleCause
from app.analysis.why import Change, Part, PartKind, StepDifference, WhatIf, step_difference, what_if
from app.values import units
from app.values.records import StoredRun
from app.viewmodels.charts.model import WaterfallBar, WaterfallChart, span_axis
from app.viewmodels.compare.verdict import Verdict
from app.viewmodels.compare.why_text import (
    IDLE_CAUSES,
    Figures,
    Pair,
    Reason,
    describe_gain,
    notes,
    state_difference,
    state_obstacle,
)
from app.viewmodels.format.naming import short_kernel_names
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
"""Parts whose change is a smaller share of the largest one are drawn as one bar."""
_MAX_REPORTED = 4
"""Variants in a report."""
_TOOLTIP_KERNELS = 3
"""Kernels that the tooltip of a bar lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyRow:
    """One row of the table: a part of a step, a kernel or a cause of the part above it, or the step.

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
    """Why the steps of one variant, of these runs, differ from the baseline's.

    Without `difference`, the statement says why that is not known, and the rest is empty. `head` has the titles of the
    cells. `gains` has a sentence for each of `what_ifs`.
    """

    name: str
    baseline: str
    runs: tuple[int, ...]
    statements: tuple[Reason, ...]
    difference: StepDifference | None = None
    notes: tuple[str, ...] = ()
    chart: WaterfallChart | None = None
    head: tuple[str, ...] = ()
    rows: tuple[WhyRow, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    gains: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return " ".join(statement.sentence for statement in self.statements)

    @property
    def changed_share(self) -> float:
        """Return the change of the step as a share of the baseline's; −1 where it is not known."""
        step = self.difference.step if self.difference else None
        return abs(step.difference.value) / step.baseline_ms if step else -1.0


def why_views(runs: Sequence[StoredRun], verdict: Verdict) -> tuple[WhyView, ...]:
    """Return a view for each variant but the baseline, in the order of the verdict."""
    by_number = {run.row.run: run for run in runs}
    groups = [[by_number[row.run] for row in result.runs] for result in verdict.results]
    base = next((n for n, result in enumerate(verdict.results) if result.is_baseline), 0)
    return tuple(
        why_view(Pair.of(group, groups[base]), verdict.names[n], verdict.names[base])
        for n, group in enumerate(groups)
        if n != base
    )


def largest_differences(views: Sequence[WhyView]) -> list[WhyView]:
    """Return the views to put into a report: a few with the largest differences, or one that says why there is none."""
    candidates = [view for view in views if view.difference]
    few = sorted(candidates, key=attrgetter("changed_share"), reverse=True)[:_MAX_REPORTED]
    return [view for view in views if view in few] or list(views[:1])


def why_view(pair: Pair, name: str, baseline: str) -> WhyView:
    difference = step_difference(pair.other, pair.base)
    numbers = tuple(run.row.run for run in pair.other)
    if isinstance(difference, str):
        return WhyView(name=name, baseline=baseline, runs=numbers, statements=(state_obstacle(difference, pair),))
    figures = Figures.of(difference, pair.example)
    what_ifs = what_if(difference)
    return WhyView(
        name=name,
        baseline=baseline,
        runs=numbers,
        statements=tuple(state_difference(difference, pair, figures)),
        difference=difference,
        notes=tuple(notes(difference, pair)),
        chart=_chart(difference, pair, figures) if difference.on_gpu else None,
        head=(*pair.names[::-1], "Change", *([_INTERVAL] if _has_intervals(difference) else []), "Of the step"),
        rows=tuple(_rows(difference, figures)),
        what_ifs=what_ifs,
        gains=tuple(describe_gain(gain, pair, figures) for gain in what_ifs),
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
                label=IDLE_CAUSES[cause.cause], kind="cause", cells=cells(cause.change), help=_CAUSE_HELP[cause.cause]
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
    """Return the way from the baseline's step to the other one's, the largest change first."""
    names, steps = pair.names[::-1], (difference.step.baseline_ms, difference.step.other_ms)
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
            f"Time {figures.per} on a GPU. Left (green) is less time with {pair.within[0]}, right (orange) is more. "
            f"Percentages are of the step of {pair.within[1]}."
            + (f" Whiskers are {CI} of each change." if _has_intervals(difference) else "")
        ),
        bars=(*bars, last),
        axis=span_axis([bar.end for bar in (*bars, last)], f"ms {figures.per}"),
    )


def _changes(difference: StepDifference, pair: Pair, figures: Figures) -> Iterator[tuple[str, Estimate, str]]:
    """Yield label, change and tooltip of each bar; small changes are one bar."""
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
        ", ".join(f"{figures.ms(value)} with {name}" for name, value in sides),
        *([f"{CI} {units.quantity(interval, 'ms')}"] if interval else []),
        *(f"{figures.change(cause.change.difference.value)}  {IDLE_CAUSES[cause.cause]}" for cause in part.causes),
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
