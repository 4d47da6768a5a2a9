"""The curves and panels of stored runs as arrays ready to draw: telemetry by device, throughput and loss by block."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from app.analysis.align import TimeSeries, decimate, seconds_since, with_gaps
from app.analysis.measured import gpu_columns
from app.fields import FIELDS, Field, plotted_fields
from app.records import Floats, SampleColumns, StoredRun
from app.units import bytes_unit
from app.viewmodels.plot.model import CurveInfo, Plot
from app.viewmodels.plot.telemetry_buffer import HOST_COLOUR, WORKER_COLOUR, device_colour, device_label

BUCKETS = 1500
"""Stretches a curve is reduced to, about one for each pixel of a wide plot."""

_THROUGHPUT_COLOUR, _LOSS_COLOUR, _ACCURACY_COLOUR = 2, 3, 4
_PERCENT_RANGE = (0.0, 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCurve(CurveInfo):
    """One curve: `x` in seconds, `y` in its panel's unit with NaN for gaps."""

    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPanel(Plot[StoredCurve]):
    """One plot of stored curves."""


def gpu_samples(run: StoredRun) -> list[SampleColumns]:
    """The GPUs the run used, in their order; none for a run on the CPU, whatever else the machine has."""
    if run.row.spec.variant.get("gpus") == 0:
        return []
    return sorted(gpu_columns(run), key=lambda gpu: gpu.device.index)


def host_samples(run: StoredRun) -> list[SampleColumns]:
    """The host's samples."""
    return [s for s in run.samples if s.device.kind == "host"]


def telemetry_series(columns: SampleColumns, field: Field) -> TimeSeries:
    """Return the values that one device reported of a field, in the unit of the screens, with NaN for gaps."""
    if field.speed == "fast":
        return with_gaps(TimeSeries(columns.t_ns, columns.fields[field.name] / field.scale))
    values = columns.slow.get(field.name, np.full(columns.slow_t_ns.size, np.nan))
    present = ~np.isnan(values)  # a slow sample holds only the fields that were due
    series = TimeSeries(columns.slow_t_ns[present], values[present] / field.scale)
    return with_gaps(series) if present.sum() > 2 else series


def throughput_series(run: StoredRun) -> TimeSeries:
    """Examples/s of each block at its end, once compiling is over."""
    began = next((phase.start_ns for phase in run.phases if phase.name in ("warmup", "measure")), None)
    if began is None:
        return TimeSeries(run.blocks.end_ns[:0], run.blocks.throughput[:0])
    selected = run.blocks.start_ns >= began
    return TimeSeries(run.blocks.end_ns[selected], run.blocks.throughput[selected])


def loss_series(run: StoredRun) -> TimeSeries:
    """The loss after each block, at its end."""
    return TimeSeries(run.blocks.end_ns, run.blocks.loss)


def accuracy_series(run: StoredRun) -> TimeSeries:
    """The accuracy after each epoch in percent, at the end of its training."""
    end_ns = np.array([epoch.end_ns for epoch in run.epochs], dtype=np.int64)
    return TimeSeries(end_ns, np.array([100 * epoch.accuracy for epoch in run.epochs], dtype=np.float64))


def stored_curve(series: TimeSeries, zero_ns: int, *, key: str, label: str, colour: int) -> StoredCurve:
    """A curve with its zero at `zero_ns`, reduced to what a screen can show."""
    x, y = decimate(seconds_since(series.t_ns, zero_ns), series.y, BUCKETS)
    return StoredCurve(key=key, label=label, colour=colour, x=x, y=y)


def stored_panel(key: str, title: str, unit: str, curves: Iterable[StoredCurve]) -> StoredPanel | None:
    """A panel of the curves that have any value; None without one. Bytes come in the power of 1024 that suits them."""
    present = tuple(curve for curve in curves if np.isfinite(curve.y).any())
    if not present:
        return None
    if not unit.startswith("bytes"):
        y_range = _PERCENT_RANGE if unit == "%" else None
        return StoredPanel(key=key, title=title, unit=unit, curves=present, y_range=y_range)
    scale, name = bytes_unit(max(float(np.nanmax(curve.y)) for curve in present))
    scaled = tuple(replace(curve, y=curve.y / scale) for curve in present)
    return StoredPanel(key=key, title=title, unit=unit.replace("bytes", name), curves=scaled)


def value_at(curve: StoredCurve, x: float) -> float | None:
    """The value at the last point before `x`; None before the first, after the last, and in a gap."""
    before = int(np.searchsorted(curve.x, x, side="right")) - 1
    if before < 0 or x > curve.x[-1]:
        return None
    value = float(curve.y[before])
    return None if np.isnan(value) else value


def run_panels(run: StoredRun, rate_unit: str) -> tuple[StoredPanel, ...]:
    """The panels of one run as they were while it went on, its devices apart; zero is the run's start."""
    zero = run.anchor_t_ns
    rate = stored_curve(throughput_series(run), zero, key="throughput", label="Block", colour=_THROUGHPUT_COLOUR)
    losses = stored_curve(loss_series(run), zero, key="loss", label="Last step", colour=_LOSS_COLOUR)
    accuracies = stored_curve(
        accuracy_series(run), zero, key="accuracy", label="After an epoch", colour=_ACCURACY_COLOUR
    )
    panels = [
        *_device_panels(run, zero, "fast"),
        stored_panel("throughput", "Throughput", rate_unit, [rate]),
        stored_panel("loss", "Loss", "", [losses]),
        stored_panel("accuracy", "Accuracy", "%", [accuracies]),
        *_device_panels(run, zero, "slow"),
    ]
    return tuple(each for each in panels if each is not None)


def _device_panels(run: StoredRun, zero: int, speed: Literal["fast", "slow"]) -> list[StoredPanel | None]:
    """Return a panel per plotted field of the GPUs, or of the host, without those that no device reports."""
    devices = gpu_samples(run) or host_samples(run)
    kind = devices[0].device.kind if devices else "host"
    panels: dict[str, list[StoredCurve]] = {}
    for field in plotted_fields("run", kind):
        if field.speed == speed and field.name != "worker_load_pct":
            panels.setdefault(field.panel, []).extend(_curve(columns, field, zero) for columns in devices)
    return [
        stored_panel(name, FIELDS[name].label_on(kind), FIELDS[name].display_unit, curves)
        for name, curves in panels.items()
    ]


def _curve(columns: SampleColumns, field: Field, zero_ns: int) -> StoredCurve:
    device = columns.device
    label, colour = device_label(device), device_colour(device)
    if device.kind == "host":
        label, colour = ("Worker", WORKER_COLOUR) if field.topic == "worker" else ("All", HOST_COLOUR)
    key = f"{device.device} {field.name}"
    return stored_curve(telemetry_series(columns, field), zero_ns, key=key, label=label, colour=colour)
