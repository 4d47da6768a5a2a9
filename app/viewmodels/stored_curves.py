"""The curves of stored runs as arrays ready to draw: telemetry by device, throughput and loss by block."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from app.analysis.align import Series, decimate, seconds_since, with_gaps
from app.records import Floats, SampleColumns, StoredRun
from app.viewmodels.units import bytes_unit

BUCKETS = 1500
"""Stretches a curve is reduced to, about one for each pixel of a wide plot."""

BYTES = "bytes"
"""The unit of a panel whose values are still plain bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One curve: `x` in seconds, `y` in its panel's unit with NaN for gaps; `colour` is a GPU's or a run's index."""

    key: str
    label: str
    colour: int
    x: Floats
    y: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot. `note` says how the curves were made where that is not plain."""

    key: str
    title: str
    unit: str
    curves: tuple[Curve, ...]
    note: str = ""


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
HOST_QUANTITIES = (
    Quantity("load_pct", "CPU load", "%"),
    Quantity("worker_memory_bytes", "Memory of the run", BYTES),
)


def gpus_of(run: StoredRun) -> list[SampleColumns]:
    """The GPUs the run used, in their order; none for a run on the CPU, whatever else the machine has."""
    if run.row.spec.variant.get("gpus") == 0:
        return []
    return sorted((s for s in run.samples if s.device.kind == "gpu"), key=lambda s: s.device.index)


def hosts_of(run: StoredRun) -> list[SampleColumns]:
    """The host's samples."""
    return [s for s in run.samples if s.device.kind == "host"]


def telemetry(columns: SampleColumns, quantity: Quantity) -> Series:
    """One device's field in the shown unit."""
    return Series(columns.t_ns, columns.fields[quantity.field] * quantity.scale)


def throughput(run: StoredRun) -> Series:
    """Examples/s of each block, at its end."""
    return Series(run.blocks.end_ns, run.blocks.throughput)


def loss(run: StoredRun) -> Series:
    """The loss after each block, at its end."""
    return Series(run.blocks.end_ns, run.blocks.loss)


def drawn(series: Series, zero_ns: int, *, key: str, label: str, colour: int) -> Curve:
    """A curve with its zero at `zero_ns`, reduced to what a screen can show."""
    x, y = decimate(seconds_since(series.t_ns, zero_ns), series.y, BUCKETS)
    return Curve(key=key, label=label, colour=colour, x=x, y=y)


def panel(key: str, title: str, unit: str, curves: Iterable[Curve], note: str = "") -> Panel | None:
    """A panel of the curves that have any value; None without one. Bytes come in the power of 1024 that suits them."""
    present = tuple(curve for curve in curves if np.isfinite(curve.y).any())
    if not present:
        return None
    if unit != BYTES:
        return Panel(key=key, title=title, unit=unit, curves=present, note=note)
    scale, name = bytes_unit(max(float(np.nanmax(curve.y)) for curve in present))
    scaled = tuple(replace(curve, y=curve.y / scale) for curve in present)
    return Panel(key=key, title=title, unit=name, curves=scaled, note=note)


def run_panels(run: StoredRun, rate_unit: str) -> tuple[Panel, ...]:
    """The panels of one run, its devices apart; zero is the run's start."""
    zero = run.anchor_t_ns
    gpus = gpus_of(run)
    panels = [
        panel(
            quantity.field,
            quantity.title,
            quantity.unit,
            [_device_curve(d, quantity, zero) for d in gpus or hosts_of(run)],
        )
        for quantity in (GPU_QUANTITIES if gpus else HOST_QUANTITIES)
    ]
    rate = drawn(throughput(run), zero, key="throughput", label="", colour=0)
    panels.append(panel("throughput", "Throughput", rate_unit, [rate]))
    panels.append(panel("loss", "Loss", "", [drawn(loss(run), zero, key="loss", label="", colour=0)]))
    return tuple(each for each in panels if each is not None)


def _device_curve(columns: SampleColumns, quantity: Quantity, zero_ns: int) -> Curve:
    device = columns.device
    label = f"GPU {device.index}" if device.kind == "gpu" else "CPU"
    series = with_gaps(telemetry(columns, quantity))
    return drawn(series, zero_ns, key=device.device, label=label, colour=max(device.index, 0))
