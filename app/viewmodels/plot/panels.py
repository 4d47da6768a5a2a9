"""The panels of a run: its devices' telemetry and its training curves, live, replayed or stored."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from app import units
from app.fields import FIELDS, Field, plotted_fields
from app.samples import Device
from app.viewmodels.format.telemetry_fields import format_field
from app.viewmodels.plot.model import Curve, CurveSource, LiveSeries, Panel, Span
from app.viewmodels.plot.telemetry_buffer import (
    HOST_COLOUR,
    WORKER_COLOUR,
    absence_reason,
    device_colour,
    device_label,
)

ReadCurve = Callable[[Device, Field], CurveSource | None]
"""Gives a device's curve of a field, in the stored unit; None leaves it out."""

PERCENT_RANGE: Span = (0.0, 100.0)
_THROUGHPUT_COLOUR, _LOSS_COLOUR, _ACCURACY_COLOUR = 2, 3, 4
_GIB = 2**30


def gpu_devices(devices: Sequence[Device]) -> list[Device]:
    """Return the GPUs among devices."""
    return [device for device in devices if device.kind == "gpu"]


def device_panels(
    devices: Sequence[Device], read: ReadCurve, *, speed: Literal["fast", "slow"] = "fast", cpu_count: int = 0
) -> tuple[Panel, ...]:
    """Return a panel per plotted field, with a curve per device; those without any curve are left out.

    `speed` says which fields: those of every tick, or those read rarely. The worker's load is a share of `cpu_count`
    processors, 0 where that is not known.
    """
    if not devices:
        return ()
    kind = devices[0].kind
    panels: dict[str, list[Field]] = {}
    for field in plotted_fields("run", kind):
        if field.speed == speed and (cpu_count or field.name != "worker_load_pct"):
            panels.setdefault(field.panel, []).append(field)
    built = (_device_panel(FIELDS[name], fields, devices, read, cpu_count) for name, fields in panels.items())
    return tuple(panel for panel in built if panel.curves)


def per_gpu_panels(gpus: Sequence[Device], read: ReadCurve) -> tuple[Panel, ...]:
    """Return a panel per plotted field and GPU, those of one field next to each other."""
    of_gpus = [
        [
            replace(panel, key=f"{panel.key} {gpu.device}", title=f"{panel.title} of {device_label(gpu)}")
            for panel in device_panels([gpu], read)
        ]
        for gpu in gpus
    ]
    return tuple(panel for panels in zip(*of_gpus, strict=True) for panel in panels)


def training_panels(
    example: str, throughput: CurveSource | None, loss: CurveSource | None, accuracy: CurveSource | None
) -> tuple[Panel, ...]:
    """Return the panels of a run's training; those without a curve are left out."""
    specs = (
        ("throughput", "Throughput", units.rate_unit(example), "Block", _THROUGHPUT_COLOUR, throughput),
        ("loss", "Loss", "", "Last step", _LOSS_COLOUR, loss),
        ("accuracy", "Accuracy", "%", "After an epoch", _ACCURACY_COLOUR, accuracy),
    )
    formats: dict[str, Callable[[float | None], str]] = {
        "throughput": lambda value: units.rate(value, example),
        "loss": units.number,
        "accuracy": lambda value: units.percent(value, 1),
    }
    return tuple(
        Panel(
            key=key,
            title=title,
            unit=unit,
            curves=(make_curve("run", label, colour, source, formats[key]),),
            y_range=PERCENT_RANGE if key == "accuracy" else None,
        )
        for key, title, unit, label, colour, source in specs
        if source is not None
    )


def make_curve(
    key: str,
    label: str,
    colour: int,
    source: CurveSource,
    format_value: Callable[[float | None], str],
    scale: float = 1.0,
) -> Curve:
    """Return a curve; one that grows shows its newest value.

    `scale` is the divisor that turns stored values, which `format_value` writes, into the panel's unit.
    """
    return Curve(
        key=key,
        label=label,
        colour=colour,
        source=source,
        scale=scale,
        format_value=format_value,
        value_text=format_value(source.last) if isinstance(source, LiveSeries) else "",
    )


def _device_panel(
    shown: Field, fields: Sequence[Field], devices: Sequence[Device], read: ReadCurve, cpu_count: int
) -> Panel:
    """Return the panel of one field, which may hold others: the worker's next to the host's."""
    found = [
        (field, device, source) for field in fields for device in devices if (source := read(device, field)) is not None
    ]
    scale, unit = _display_scale(shown, devices, [source for _, _, source in found])
    if shown.name == "load_pct" and cpu_count and devices[0].kind == "host":
        unit = f"% of {cpu_count} {units.plural('processor', cpu_count)}"
    marks = {device.device: str(device.index) for device in devices} if len(devices) > 1 else {}
    curves = [
        replace(_device_curve(field, device, source, scale, cpu_count), mark=marks.get(device.device, ""))
        for field, device, source in found
    ]
    return Panel(
        key=shown.name,
        title=shown.label_on(devices[0].kind),
        unit=unit,
        curves=tuple(curves),
        y_range=PERCENT_RANGE if shown.kind == "share" else None,
    )


def _display_scale(field: Field, devices: Sequence[Device], sources: Sequence[CurveSource]) -> tuple[float, str]:
    """Return the divisor of stored values and the unit; bytes are in the unit of the device's memory or of the data."""
    if not field.unit.startswith("bytes"):
        return field.scale, field.display_unit
    total = max((device.memory_total_bytes or 0 for device in devices), default=0) if field.unit == "bytes" else 0
    scale, unit = units.bytes_unit(total or _highest(sources) or _GIB)
    return scale, field.unit.replace("bytes", unit)


def _highest(sources: Sequence[CurveSource]) -> float:
    values = [source.points()[1] for source in sources]
    return max((float(np.nanmax(y)) for y in values if np.isfinite(y).any()), default=0.0)


def _device_curve(field: Field, device: Device, source: CurveSource, scale: float, cpu_count: int) -> Curve:
    format_value = _formatter(field, device, cpu_count)
    if device.kind == "host":
        if field.topic == "worker":
            scale = float(cpu_count) if field.unit == "%" else scale
            return make_curve("worker", "Worker", WORKER_COLOUR, source, format_value, scale)
        return make_curve("host", "All", HOST_COLOUR, source, format_value, scale)
    curve = make_curve(device.device, device_label(device), device_colour(device), source, format_value, scale)
    reason = absence_reason(device, field.name)
    return replace(curve, value_text=reason) if reason else curve


def _formatter(field: Field, device: Device, cpu_count: int) -> Callable[[float | None], str]:
    """Return what writes a stored value with its unit."""
    if field.name == "worker_load_pct":
        return lambda value: units.percent(None if value is None else value / cpu_count)
    if field.name == "memory_bytes":
        return lambda value: units.bytes_of_total(value, device.memory_total_bytes)
    if field.unit == "mW":
        return units.watts
    if field.unit == "%":
        return units.percent
    return lambda value: format_field(field.name, value)
