"""Curves of compared runs on a common axis (seconds, steps or examples) that starts with the measured part."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from app.analysis.align import (
    Combination,
    TimeSeries,
    combine,
    decimate,
    interpolate_done,
    mean_and_range,
    seconds_since,
)
from app.analysis.verdict import group_by_variant
from app.values import units
from app.values.fields import DeviceKind, Field, plotted_fields
from app.values.records import Floats, Ints, RunRow, StoredRun
from app.viewmodels.format import cells
from app.viewmodels.format.naming import variant_names
from app.viewmodels.plot.model import Band, Curve, Panel, Points, Span
from app.viewmodels.plot.panels import (
    PERCENT_RANGE,
    accuracy_series,
    gpu_samples,
    host_samples,
    loss_series,
    telemetry_series,
    throughput_series,
)

Alignment = Literal["time", "steps", "examples"]
ALIGNMENTS: tuple[Alignment, ...] = ("time", "steps", "examples")

_REDUCTION_NAMES: Mapping[Combination, str] = {"sum": "sum", "mean": "mean", "max": "highest"}
_MOST_POINTS = 50_000
"""The most points of a curve to draw: more than any screen shows, even zoomed in."""
_MAX_HEADING_CHARS = 13
"""Characters that fit above a small panel."""
_MARGIN_BEFORE, _MARGIN_AFTER = 0.06, 0.02
"""Margin shown around the measured part, as a share of its length."""
_SINGLE_POINT_MARGIN = 0.5
"""Margin shown around a single point, in seconds, steps or examples."""


_MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MEAN_POINTS = 2_000
"""Positions of a mean whose runs have more points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveGroup:
    """The drawn runs of one variant: its name in the comparison, and the letter that marks its curves."""

    name: str
    mark: str
    runs: tuple[int, ...]
    style: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareCurves:
    """The panels, each with a curve per run; `measured` is the range to show first, `full_range` the whole one.

    `means` are the same panels with one curve per variant; empty unless a variant has two runs.
    """

    align: Alignment = "time"
    groups: tuple[CurveGroup, ...] = ()
    panels: tuple[Panel, ...] = ()
    means: tuple[Panel, ...] = ()
    bands: tuple[Band, ...] = ()
    measured: Span = (0.0, 1.0)
    full_range: Span = (0.0, 1.0)


def curve_groups(rows: Sequence[RunRow], drawn: Collection[int], styles: Mapping[int, int]) -> tuple[CurveGroup, ...]:
    """Return the variants with drawn runs; runs of a single variant are distinguished like variants."""
    variants = group_by_variant(rows)
    names = variant_names([group[0].spec for group in variants])
    drawn_runs = [tuple(row.run for row in group if row.run in drawn) for group in variants]
    named_runs = [(name, runs) for name, runs in zip(names, drawn_runs, strict=True) if runs]
    if len(variants) == 1:
        named_runs = [(f"Run {run}", (run,)) for run in drawn_runs[0]]
    return tuple(
        CurveGroup(name=name, mark=mark if len(named_runs) > 1 else "", runs=runs, style=styles[runs[0]])
        for (name, runs), mark in zip(named_runs, _MARKS, strict=False)
    )


def compare_curves(
    runs: Sequence[StoredRun], groups: Sequence[CurveGroup], styles: Mapping[int, int], align: Alignment
) -> CompareCurves:
    """Return the curves of these runs; slow enough to belong off the GUI thread."""
    panels = tuple(_panels(runs, _CurveBuilder(align, styles, {run: group for group in groups for run in group.runs})))
    full_range = start, end = _full_span(panels)
    length = max((_measured_length(run, align) for run in runs), default=0.0)
    completed = {run.row.run for run in runs if run.row.completed}
    bands = (Band("before", start, 0.0), Band("measure", 0.0, length, strong=True), Band("after", length, end))
    return CompareCurves(
        align=align,
        groups=tuple(groups),
        panels=panels,
        means=tuple(replace(panel, curves=tuple(_group_curves(panel, groups, completed))) for panel in panels)
        if any(len(group.runs) > 1 for group in groups)
        else (),
        bands=tuple(band for band in bands if length and band.start < band.end),
        measured=(max(-_MARGIN_BEFORE * length, start), min((1 + _MARGIN_AFTER) * length, end))
        if length
        else full_range,
        full_range=full_range,
    )


def _full_span(panels: Sequence[Panel]) -> Span:
    """Return the range from the first point to the last; a single point has a margin on both sides."""
    start = min((float(curve.x[0]) for panel in panels for curve in panel.curves), default=0.0)
    end = max((float(curve.x[-1]) for panel in panels for curve in panel.curves), default=1.0)
    return (start, end) if start < end else (start - _SINGLE_POINT_MARGIN, end + _SINGLE_POINT_MARGIN)


def _group_curves(panel: Panel, groups: Sequence[CurveGroup], completed: Collection[int]) -> Iterator[Curve]:
    """Yield one curve per variant: the mean of its runs, in front of the range from lowest to highest.

    A mean ends with its shortest run, so runs that are not `completed` count only if none is.
    """
    by_key = {curve.key: curve for curve in panel.curves}
    for group in groups:
        runs = [run for run in group.runs if run in completed] or group.runs
        curves = [by_key[str(run)] for run in runs if str(run) in by_key]
        if not curves:
            continue
        count = f" · mean of {len(curves)} runs" if len(curves) > 1 else ""
        mean_range = mean_and_range([curve.source.points() for curve in curves], _MEAN_POINTS)
        if mean_range is not None:
            x, mean, low, high = mean_range
            yield replace(
                curves[0],
                key=str(group.runs[0]),
                label=f"{group.name}{count}",
                source=Points(x, mean),
                spread=(Points(x, low), Points(x, high)) if len(curves) > 1 else None,
            )


def small_multiples(panels: Sequence[Panel], runs: Sequence[int], span: Span) -> tuple[Panel, ...]:
    """Return one row of panels per run; only the first row is titled.

    The values in `span`, a range of the axis, set the scale of each column.
    """
    scaled = [
        replace(_with_short_title(panel), y_range=panel.y_range or (0.0, _highest(panel, span))) for panel in panels
    ]
    return tuple(
        replace(
            panel,
            key=f"{panel.key} {run}",
            title=panel.title if row == 0 else "",
            unit=panel.unit if row == 0 else "",
            curves=tuple(curve for curve in panel.curves if curve.key == str(run)),
        )
        for row, run in enumerate(runs)
        for panel in scaled
    )


def _with_short_title(panel: Panel) -> Panel:
    """Return the panel with a title for a small one; a title without room is replaced by the unit."""
    title = panel.title.partition(",")[0]
    crowded = panel.unit and len(title) + len(panel.unit) > _MAX_HEADING_CHARS
    return replace(panel, title=panel.unit, unit="") if crowded else replace(panel, title=title)


@dataclass(frozen=True, slots=True)
class _CurveBuilder:
    """Puts a run's series on the axis, in the run's style."""

    align: Alignment
    styles: Mapping[int, int]
    groups: Mapping[int, CurveGroup]

    def curve(self, run: StoredRun, series: TimeSeries, scale: float = 1.0) -> Curve:
        x = self._x(run, series.t_ns)
        is_finite = np.isfinite(x)
        x, y = decimate(x[is_finite], series.y[is_finite], _MOST_POINTS // 2)
        number = run.row.run
        style = self.styles[number]
        group = self.groups[number]
        label = group.name if len(group.runs) == 1 else f"{group.name} · run {number}"
        return Curve(
            key=str(number),
            label=label,
            colour=style,
            source=Points(x, y),
            scale=scale,
            mark=group.mark,
        )

    def _x(self, run: StoredRun, t_ns: Ints) -> Floats:
        if self.align != "time":
            return interpolate_done(t_ns, run.blocks, _amounts(run, self.align))
        start = run.measure_start_ns
        return seconds_since(t_ns, run.anchor_t_ns if start is None else start)


def _amounts(run: StoredRun, align: Alignment) -> Ints:
    return run.blocks.steps if align == "steps" else run.blocks.examples


def _measured_length(run: StoredRun, align: Alignment) -> float:
    """Return the length of the measured part on the axis; 0 without one."""
    measured = run.blocks.measured
    start = run.measure_start_ns
    if start is None or not measured.any():
        return 0.0
    return (
        (int(run.blocks.end_ns[measured][-1]) - start) / 1e9
        if align == "time"
        else float(_amounts(run, align)[measured].sum())
    )


def _highest(panel: Panel, span: Span) -> float:
    seen = [curve.y[(curve.x >= span[0]) & (curve.x <= span[1])] for curve in panel.curves]
    return max((float(np.nanmax(values)) for values in seen if not np.isnan(values).all()), default=0.0) or 1.0


def _panels(runs: Sequence[StoredRun], builder: _CurveBuilder) -> list[Panel]:
    on_gpu = [run for run in runs if gpu_samples(run)]
    on_cpu = [run for run in runs if not gpu_samples(run)]
    rate_unit = units.rate_unit(cells.group_example_word([run.row for run in runs]))

    def block_panel(key: str, title: str, unit: str, series: Callable[[StoredRun], TimeSeries]) -> Panel | None:
        return _panel(key, title, unit, [builder.curve(run, series(run)) for run in runs])

    panels = [
        block_panel("throughput", "Throughput", rate_unit, throughput_series),
        *(_telemetry("gpu", field, on_gpu, builder) for field in plotted_fields("compare", "gpu")),
        *(_telemetry("host", field, on_cpu, builder) for field in plotted_fields("compare", "host")),
        block_panel("loss", "Loss", "", loss_series),
        block_panel("accuracy", "Accuracy", "%", accuracy_series),
    ]
    return [panel for panel in panels if panel is not None]


def _telemetry(kind: DeviceKind, field: Field, runs: Sequence[StoredRun], builder: _CurveBuilder) -> Panel | None:
    """Return one field of all these runs; GPUs of one run become one curve, and the title says how."""
    several = any(len(gpu_samples(run)) > 1 for run in runs)
    label = field.label_on(kind)
    title = f"{label}, {_REDUCTION_NAMES[field.combination]} of a run's GPUs" if several else label
    curves = []
    for run in runs:
        devices = gpu_samples(run) or host_samples(run)
        series = [telemetry_series(device, field) for device in devices]
        combined = series[0] if len(series) == 1 else combine(series, field.combination)
        curves.append(builder.curve(run, combined, field.scale))
    return _panel(f"{'gpu' if kind == 'gpu' else 'cpu'} {field.name}", title, field.display_unit, curves)


def _panel(key: str, title: str, unit: str, curves: Sequence[Curve]) -> Panel | None:
    """Return a panel of the curves that have values; None without any. Bytes are in the best unit."""
    present = [curve for curve in curves if np.isfinite(curve.y).any()]
    if not present:
        return None
    if unit == "bytes":
        scale, unit = units.bytes_unit(max(float(np.nanmax(curve.y)) for curve in present))
        present = [replace(curve, scale=scale) for curve in present]
    y_range = PERCENT_RANGE if unit == "%" else None
    return Panel(key=key, title=title, unit=unit, curves=tuple(present), y_range=y_range)
