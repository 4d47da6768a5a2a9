"""The curves and panels of stored runs as arrays ready to draw: telemetry by device, throughput and loss by block."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from app.analysis.align import TimeSeries, decimate, seconds_since, with_gaps
from app.analysis.measured import gpu_columns
from app.records import Floats, SampleColumns, StoredRun
from app.units import bytes_unit
from app.viewmodels.plot.model import CurveInfo, Plot
from app.viewmodels.plot.telemetry_buffer import HOST_COLOUR, WORKER_COLOUR, device_colour, device_label

BUCKETS = 1500
"""Stretches a curve is reduced to, about one for each pixel of a wide plot."""

BYTES = "bytes"
"""The unit of a panel whose values are still plain bytes."""

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


@dataclass(frozen=True, slots=True)
class Quantity:
    """A telemetry field as a panel: `scale` turns the stored unit into the shown one."""

    field: str
    title: str
    unit: str
    scale: float = 1.0


GPU_QUANTITIES = (
    Quantity("power_mw", "Power", "W", 1e-3),
    Quantity("load_pct", "Load", "%"),
    Quantity("memory_bytes", "Memory", BYTES),
)
GPU_STATE = (
    Quantity("sm_clock_mhz", "SM clock", "MHz"),
    Quantity("temperature_c", "Temperature", "°C"),
)
SLOW_QUANTITIES = (
    Quantity("tensor_active_pct", "Tensor cores active", "%"),
    Quantity("sm_active_pct", "SM active", "%"),
    Quantity("dram_active_pct", "DRAM bandwidth", "%"),
    Quantity("memory_temperature_c", "Memory temperature", "°C"),
)
SLOW_PAIRS = (
    ("PCIe", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    ("NVLink", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
)
"""Bytes a second, out of the GPU and into it."""

HOST_QUANTITIES = (
    Quantity("load_pct", "CPU load", "%"),
    Quantity("worker_memory_bytes", "Memory of the run", BYTES),
)


def gpu_samples(run: StoredRun) -> list[SampleColumns]:
    """The GPUs the run used, in their order; none for a run on the CPU, whatever else the machine has."""
    if run.row.spec.variant.get("gpus") == 0:
        return []
    return sorted(gpu_columns(run), key=lambda gpu: gpu.device.index)


def host_samples(run: StoredRun) -> list[SampleColumns]:
    """The host's samples."""
    return [s for s in run.samples if s.device.kind == "host"]


def telemetry_series(columns: SampleColumns, quantity: Quantity) -> TimeSeries:
    """One device's field in the shown unit."""
    return TimeSeries(columns.t_ns, columns.fields[quantity.field] * quantity.scale)


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
    if unit != BYTES:
        y_range = _PERCENT_RANGE if unit == "%" else None
        return StoredPanel(key=key, title=title, unit=unit, curves=present, y_range=y_range)
    scale, name = bytes_unit(max(float(np.nanmax(curve.y)) for curve in present))
    scaled = tuple(replace(curve, y=curve.y / scale) for curve in present)
    return StoredPanel(key=key, title=title, unit=name, curves=scaled)


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
        *_device_panels(run, zero),
        stored_panel("throughput", "Throughput", rate_unit, [rate]),
        stored_panel("loss", "Loss", "", [losses]),
        stored_panel("accuracy", "Accuracy", "%", [accuracies]),
        *_slow_panels(run, zero),
    ]
    return tuple(each for each in panels if each is not None)


def _device_panels(run: StoredRun, zero: int) -> list[StoredPanel | None]:
    gpus, hosts = gpu_samples(run), host_samples(run)
    if gpus:
        return [stored_panel(q.field, q.title, q.unit, [_curve(d, q, zero) for d in gpus]) for q in GPU_QUANTITIES]
    load, worker = HOST_QUANTITIES
    used = Quantity("memory_bytes", "Memory", BYTES)
    memory = [(used, "All", HOST_COLOUR), (worker, "Worker", WORKER_COLOUR)]
    return [
        stored_panel("load_pct", load.title, load.unit, [_curve(host, load, zero, "All") for host in hosts]),
        stored_panel(
            "memory", "Memory", BYTES, [_curve(h, q, zero, label, colour) for h in hosts for q, label, colour in memory]
        ),
    ]


def _slow_panels(run: StoredRun, zero: int) -> list[StoredPanel | None]:
    """What is read rarely: one panel a quantity, bytes out and bytes in apart; only those that some GPU gives."""
    gpus = gpu_samples(run)
    gauges = [
        stored_panel(q.field, q.title, q.unit, [_slow_curve(gpu, q, zero) for gpu in gpus]) for q in SLOW_QUANTITIES
    ]
    rates = [
        stored_panel(
            field, f"{title} {way}", BYTES, [_slow_curve(gpu, Quantity(field, title, BYTES), zero) for gpu in gpus]
        )
        for title, out, into in SLOW_PAIRS
        for field, way in ((out, "out"), (into, "in"))
    ]
    return [*gauges, *(replace(rate, unit=f"{rate.unit}/s") if rate else None for rate in rates)]


def _slow_curve(columns: SampleColumns, quantity: Quantity, zero_ns: int) -> StoredCurve:
    """The readings that have this field; a slow sample holds only what was due."""
    values = columns.slow.get(quantity.field, np.full(columns.slow_t_ns.size, np.nan))
    present = ~np.isnan(values)
    series = TimeSeries(columns.slow_t_ns[present], values[present] * quantity.scale)
    device = columns.device
    return stored_curve(
        with_gaps(series) if present.sum() > 2 else series,
        zero_ns,
        key=f"{device.device} {quantity.field}",
        label=device_label(device),
        colour=device_colour(device),
    )


def _curve(
    columns: SampleColumns, quantity: Quantity, zero_ns: int, label: str | None = None, colour: int | None = None
) -> StoredCurve:
    device = columns.device
    return stored_curve(
        with_gaps(telemetry_series(columns, quantity)),
        zero_ns,
        key=f"{device.device} {quantity.field}",
        label=device_label(device) if label is None else label,
        colour=device_colour(device) if colour is None else colour,
    )
