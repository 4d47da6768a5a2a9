"""The curves of stored runs: telemetry by device, throughput and loss by block, and the panels of a run's page."""

import numpy as np

from app.analysis.align import TimeSeries, decimate, seconds_since, with_gaps
from app.analysis.energy import gpu_columns
from app.fields import Field, plotted_fields
from app.records import SampleColumns, StoredRun
from app.samples import Device
from app.viewmodels.plot.model import Curve, Panel, Points
from app.viewmodels.plot.panels import device_panels, training_panels

_BUCKETS = 1500
"""Buckets that a curve is reduced to, about one for each pixel of a wide plot."""


def gpu_samples(run: StoredRun) -> list[SampleColumns]:
    """Return the GPUs the run used, in their order; none for a run on the CPU, whatever else the machine has."""
    if run.row.spec.variant.get("gpus") == 0:
        return []
    return sorted(gpu_columns(run), key=lambda gpu: gpu.device.index)


def host_samples(run: StoredRun) -> list[SampleColumns]:
    """Return the host's samples."""
    return [s for s in run.samples if s.device.kind == "host"]


def telemetry_series(columns: SampleColumns, field: Field) -> TimeSeries:
    """Return the values that one device reported of a field, in the stored unit, with NaN for gaps."""
    if field.speed == "fast":
        return with_gaps(TimeSeries(columns.t_ns, columns.fields[field.name]))
    values = columns.slow.get(field.name, np.full(columns.slow_t_ns.size, np.nan))
    present = ~np.isnan(values)  # a slow sample holds only the fields that were due
    series = TimeSeries(columns.slow_t_ns[present], values[present])
    return with_gaps(series) if present.sum() > 2 else series


def throughput_series(run: StoredRun) -> TimeSeries:
    """Return examples per second of each block at its end, once compiling is over."""
    began = next((phase.start_ns for phase in run.phases if phase.name in ("warmup", "measure")), None)
    if began is None:
        return TimeSeries(run.blocks.end_ns[:0], run.blocks.throughput[:0])
    selected = run.blocks.start_ns >= began
    return TimeSeries(run.blocks.end_ns[selected], run.blocks.throughput[selected])


def loss_series(run: StoredRun) -> TimeSeries:
    """Return the loss after each block, at its end."""
    return TimeSeries(run.blocks.end_ns, run.blocks.loss)


def accuracy_series(run: StoredRun) -> TimeSeries:
    """Return the accuracy after each epoch in percent, at the end of its training."""
    end_ns = np.array([epoch.end_ns for epoch in run.epochs], dtype=np.int64)
    return TimeSeries(end_ns, np.array([100 * epoch.accuracy for epoch in run.epochs], dtype=np.float64))


def overview_curve(run: StoredRun) -> Curve | None:
    """Return the curve that stands for a whole run, at times of its clock: its first device's power or load."""
    devices = gpu_samples(run) or host_samples(run)
    fields = plotted_fields("run", devices[0].device.kind) if devices else ()
    series = [*(telemetry_series(devices[0], field) for field in fields), throughput_series(run)]
    found = next((each for each in series if np.isfinite(each.y).any()), None)
    if found is None:
        return None
    return Curve(key="run", label="", colour=0, source=Points(*decimate(found.t_ns / 1e9, found.y, _BUCKETS)))


def run_panels(run: StoredRun, example: str) -> tuple[Panel, ...]:
    """Return the panels of one run as they were while it went on; zero is the run's start."""
    columns = {each.device.device: each for each in gpu_samples(run) or host_samples(run)}
    devices = [each.device for each in columns.values()]

    def points(series: TimeSeries) -> Points | None:
        if not np.isfinite(series.y).any():
            return None
        return Points(*decimate(seconds_since(series.t_ns, run.anchor_t_ns), series.y, _BUCKETS))

    def read(device: Device, field: Field) -> Points | None:
        return points(telemetry_series(columns[device.device], field))

    return (
        *device_panels(devices, read),
        *training_panels(
            example, points(throughput_series(run)), points(loss_series(run)), points(accuracy_series(run))
        ),
        *device_panels(devices, read, speed="slow"),
    )
