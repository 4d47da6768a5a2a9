"""How well a variant scales to more GPUs, and what limits it, as text and chart data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.analysis.intervals import MIN_REPEATS
from app.analysis.scaling import VARYING_PARAMETERS, Cause, GpuCountResult, Scaling, scalings
from app.analysis.why import lack_of_trace
from app.values import units
from app.values.records import StoredRun
from app.viewmodels.compare.statements import Statement
from app.viewmodels.format.naming import gpus_label, variant_names
from app.viewmodels.format.ratios import CI, Unit, format_ratio, unit_of
from app.viewmodels.history.evidence import ABOUT_WHAT_RAN, describe_mismatches, mismatches
from workloads.protocol import RunSpec, Value

_KINDS = {"strong": "the same global batch", "weak": "the same batch per GPU"}
_COMPUTING = {
    "strong": "in kernels: smaller batches use a GPU less well",
    "weak": "in kernels: the same work took longer",
}
_UNEXPLAINED: Mapping[Cause, str] = {
    "loss not known": f"Whether anything is lost is not known: the interval includes {units.percent(100)}.",
    "few runs": f"Whether anything is lost is not known: an interval takes {MIN_REPEATS} runs of each side.",
    "small loss": "So little is lost that no cause is named.",
    "shorter step": "A step is shorter than an ideal one.",
}
_FEW = 4
"""The most pairs drawn in the report of a comparison."""
NO_SCALING_PAIRS = (
    "No two of these runs differ in their GPUs alone, at the same global batch or the same batch per GPU. "
    "Run one variant on one GPU and on two."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingView:
    """One pair of GPU counts as text: efficiency, the most likely cause, the figures of both sides.

    `rows` have a label and a figure for the few and for the many GPUs. `variant` is their variant without GPUs and
    batches.
    """

    scaling: Scaling
    title: str
    variant: str
    efficiency: str
    interval: str
    speedup: str
    cause: str
    sides: tuple[str, str]
    rows: tuple[tuple[str, str, str], ...]


def scaling_views(runs: Sequence[StoredRun]) -> list[ScalingView]:
    """Return one view for each pair among the runs that differs only in its GPUs."""
    pairs = scalings(runs)
    many = [pair.many.runs[0].row.spec for pair in pairs]  # the all-reduce is that of the many GPUs
    same: dict[str, Value] = dict.fromkeys(VARYING_PARAMETERS - {"all_reduce"}, "")
    specs = [RunSpec(workload=spec.workload, variant={**spec.variant, **same}) for spec in many]
    unique_specs = [spec for index, spec in enumerate(specs) if spec not in specs[:index]]
    names = variant_names(unique_specs) if len(unique_specs) > 1 else [spec.workload for spec in unique_specs]
    unit = unit_of(pair.speedup.value for pair in pairs)
    return [
        _view(pair, names[unique_specs.index(spec)], len(unique_specs) > 1, unit)
        for pair, spec in zip(pairs, specs, strict=True)
    ]


def scaling_mismatches(views: Sequence[ScalingView]) -> str:
    """Return which runs of these pairs did not run as requested, and the consequence; "" if all did."""
    sides = [side for view in views for side in (view.scaling.few, view.scaling.many)]
    rows = {run.row.run: run.row for side in sides for run in side.runs}
    wrong = describe_mismatches(mismatches(list(rows.values())))
    return f"{wrong} {ABOUT_WHAT_RAN}" if wrong else ""


def worst_pairs(views: Sequence[ScalingView]) -> list[ScalingView]:
    """Return the pairs to draw: all if they are few, else the worst of each variant, up to a limit."""
    if len(views) <= _FEW:
        return list(views)
    worst: dict[str, ScalingView] = {}
    for view in sorted(views, key=lambda view: view.scaling.efficiency.value):
        worst.setdefault(view.variant, view)
    few = list(worst.values())[:_FEW]
    return [view for view in views if any(view is other for other in few)]


def _view(scaling: Scaling, variant: str, among_others: bool, unit: Unit) -> ScalingView:
    few, many = scaling.few, scaling.many
    prefix = f"{variant}, " if among_others else ""
    names = tuple(f"{gpus_label(side.gpus)}, batch {side.batch_size:,}" for side in (few, many))
    return ScalingView(
        scaling=scaling,
        title=f"{prefix}{few.gpus} to {many.gpus} GPUs, {_KINDS[scaling.kind]} ({scaling.kind} scaling)",
        variant=variant,
        efficiency=units.percent(100 * scaling.efficiency.value, 1),
        interval=_interval(scaling),
        speedup=format_ratio(scaling.speedup.value, unit),
        cause=describe_cause(scaling),
        sides=(names[0], names[1]),
        rows=tuple(_rows(few, many)),
    )


def _interval(scaling: Scaling) -> str:
    if scaling.efficiency.interval is None:
        return f"no interval: each side needs {MIN_REPEATS} runs or more"
    low, high = scaling.efficiency.interval
    family = f", {scaling.comparisons} comparisons together" if scaling.comparisons > 1 else ""
    return f"{CI} {units.quantity(units.span(f'{100 * low:.1f}', f'{100 * high:.1f}'), '%')}{family}"


def describe_cause(scaling: Scaling) -> str:
    """Return what limits scaling, in a sentence or two."""
    if scaling.cause in _UNEXPLAINED:
        return _UNEXPLAINED[scaling.cause]
    if scaling.cause == "trace does not fit":
        return _describe_misfit(scaling)
    if scaling.lost is None:
        return Statement(lack_of_trace((*scaling.few.runs, *scaling.many.runs)), {"lacking": "one side"}).sentence
    too_long = f"a step takes {units.milliseconds(scaling.lost.step_ms)} too long"
    reasons = {
        "data": (scaling.lost_data_ms, "waiting for training data from the host"),
        "communication": (scaling.lost.communication_ms, "exchanging gradients while nothing is computed"),
        "launching": (scaling.lost.idle_ms, "while GPUs wait for the host. Larger batches or fewer launches help"),
        "imbalance": (
            scaling.many.straggler_ms or 0.0,
            f"due to the slowest GPU, which computes {_share(scaling.many.imbalance or 0.0)} longer",
        ),
        "computing": (scaling.lost.compute_ms, _COMPUTING[scaling.kind]),
    }
    if scaling.cause not in reasons:
        return f"The cause is not known: {too_long}, and no single part makes up most of that."
    part_ms, reason = reasons[scaling.cause]
    what = "computing itself" if scaling.cause == "computing" else scaling.cause
    # If other parts are shorter than in an ideal step, one part may exceed the total loss.
    share = f"{units.milliseconds(part_ms)} of that" if part_ms <= scaling.lost.step_ms else "all of that"
    saved = f" Other parts save {units.milliseconds(part_ms - scaling.lost.step_ms)}." if share == "all of that" else ""
    return f"Most likely {what}: {too_long}, {share} {reason}.{saved}"


def _describe_misfit(scaling: Scaling) -> str:
    side = scaling.few if scaling.few.parts is None else scaling.many
    busy_ms, step_ms = side.traced.busy_ms if side.traced else None, side.step_ms
    return (
        f"Why is not known: by the trace on {gpus_label(side.gpus)} kernels run for {units.milliseconds(busy_ms)} a "
        f"step, longer than the measured step of {units.milliseconds(step_ms)}. Run that side again."
    )


def _rows(few: GpuCountResult, many: GpuCountResult) -> list[tuple[str, str, str]]:
    def row(label: str, figure: Callable[[GpuCountResult], str]) -> tuple[str, str, str]:
        return label, figure(few), figure(many)

    rows = [
        row("Throughput", lambda side: units.number(side.throughput.value, 4)),
        row("Runs", lambda side: str(len(side.runs))),
        row("Step", lambda side: units.milliseconds(side.step_ms)),
        row("GPU time", lambda side: units.milliseconds(side.traced.busy_ms if side.traced else None)),
        row("Computing", lambda side: _part(side, "compute_ms")),
        row("Communicating alone", lambda side: _part(side, "communication_ms")),
        row("No kernel", lambda side: _part(side, "idle_ms")),
        row("Communication, of kernel time", lambda side: _share(side.communication_share)),
        row("Kernels a step", lambda side: units.number(side.traced.kernels if side.traced else None, 3)),
        row("Between two kernels", lambda side: units.amount(side.gap_us, "µs", 2)),
        row("Imbalance", lambda side: _share(side.imbalance)),
        row("Waiting for data", lambda side: units.milliseconds(side.data_ms)),
        row("Sent over NVLink", lambda side: units.byte_size(side.nvlink_bytes)),
        row("Sent over PCIe", lambda side: units.byte_size(side.pcie_bytes)),
    ]
    return [row for row in rows if row[1:] != (units.ABSENT, units.ABSENT)]


def _part(side: GpuCountResult, name: str) -> str:
    return units.milliseconds(getattr(side.parts, name)) if side.parts else units.ABSENT


def _share(value: float | None) -> str:
    return units.ABSENT if value is None else units.percent(100 * value, 1)
