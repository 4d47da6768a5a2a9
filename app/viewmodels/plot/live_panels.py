"""The panels of live telemetry: power, load and memory of the GPUs, or of the host and the worker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app import units
from app.records import Floats
from app.samples import HOST, Device
from app.viewmodels.format.telemetry_fields import ThrottleInterval
from app.viewmodels.plot.model import CurveInfo, LiveSeries, Plot, ShiftedCurve
from app.viewmodels.plot.telemetry_buffer import (
    HOST_COLOUR,
    NOT_SUPPORTED,
    WORKER_COLOUR,
    TelemetryBuffer,
    absence_reason,
    device_colour,
    device_label,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCurve(CurveInfo):
    """One curve: `series` divided by `scale`; `value` is its newest value with the unit, `words` tells any other."""

    series: LiveSeries
    value_text: str = ""
    scale: float = 1.0
    format_value: Callable[[float | None], str] = units.number

    @property
    def y(self) -> Floats:
        """Values in the panel's unit, those still held whole."""
        return np.asarray(self.series.y / self.scale, dtype=np.float64)

    def shifted(self, origin_s: float) -> ShiftedCurve:
        """What to draw, in the panel's unit, on an axis with its zero at `origin_s`."""
        return ShiftedCurve(self.series, origin_s, self.scale)

    def value_at(self, t_s: float) -> str:
        """The value at a time; of older times, known only as a range, both ends."""
        found = self.series.range_at(t_s)
        if found is None:
            return units.ABSENT
        low, high = (self.format_value(value) for value in found)
        return low if low == high else f"{low} … {high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePanel(Plot[LiveCurve]):
    """One plot; `throttles` are marked at its foot in their GPU's colour."""

    throttles: tuple[tuple[ThrottleInterval, Device], ...] = ()


def gpu_devices(devices: Sequence[Device]) -> list[Device]:
    """The GPUs among devices."""
    return [device for device in devices if device.kind == "gpu"]


def device_panels(
    devices: Sequence[Device], telemetry: TelemetryBuffer, cpu_count: int, *, per_gpu: bool = False
) -> tuple[LivePanel, ...]:
    """Power, load and memory of the GPUs; where there is none, load and memory of the host and of the worker.

    All GPUs share a panel, or stand in panels `apart`.
    """
    gpus = gpu_devices(devices)
    if gpus:
        if not per_gpu:
            return _power(gpus, telemetry), _load(gpus, telemetry), _memory(gpus, telemetry)
        return tuple(
            _single_gpu_panel(make([gpu], telemetry), gpu) for make in (_power, _load, _memory) for gpu in gpus
        )
    host = next((device for device in devices if device.device == HOST), None)
    return () if host is None else (_host_load(telemetry, cpu_count), _host_memory(host, telemetry))


def with_throttles(panel: LivePanel, throttles: Sequence[tuple[ThrottleInterval, Device]]) -> LivePanel:
    """A power panel with the times at which its GPUs were held back; any other as it is."""
    if not throttles or panel.key.split()[0] != "power":
        return panel
    keys = {curve.key for curve in panel.curves}
    return replace(panel, throttles=tuple(pair for pair in throttles if pair[1].device in keys))


def _single_gpu_panel(panel: LivePanel, gpu: Device) -> LivePanel:
    return replace(panel, key=f"{panel.key} {gpu.device}", title=f"{panel.title} of {device_label(gpu)}")


def _power(gpus: Sequence[Device], telemetry: TelemetryBuffer) -> LivePanel:
    samples = [telemetry.latest.get(gpu.device) for gpu in gpus]
    limits = [s.power_limit_mw for s in samples if s is not None and s.power_limit_mw is not None]
    curves = tuple(_curve(gpu, "power_mw", telemetry, 1000.0, units.watts) for gpu in gpus)
    return LivePanel(
        key="power",
        title="Power",
        unit="W",
        curves=curves,
        y_range=(0, max(limits) / 1000) if limits else None,
    )


def _load(gpus: Sequence[Device], telemetry: TelemetryBuffer) -> LivePanel:
    curves = tuple(_curve(gpu, "load_pct", telemetry, 1.0, units.percent) for gpu in gpus)
    return LivePanel(key="load", title="Load", unit="%", curves=curves, y_range=(0, 100))


def _memory(gpus: Sequence[Device], telemetry: TelemetryBuffer) -> LivePanel:
    total = max((gpu.memory_total_bytes or 0 for gpu in gpus), default=0)
    scale, unit = units.bytes_unit(total or 2**30)
    curves = tuple(
        _curve(gpu, "memory_bytes", telemetry, scale, _memory_formatter(gpu.memory_total_bytes)) for gpu in gpus
    )
    return LivePanel(key="memory", title="Memory", unit=unit, curves=curves)


def _memory_formatter(total: int | None) -> Callable[[float | None], str]:
    return lambda value: units.bytes_of_total(value, total)


def _curve(
    device: Device, field: str, telemetry: TelemetryBuffer, scale: float, format_value: Callable[[float | None], str]
) -> LiveCurve:
    sample = telemetry.latest.get(device.device)
    value = format_value(getattr(sample, field) if sample else None)
    return LiveCurve(
        key=device.device,
        label=device_label(device),
        colour=device_colour(device),
        series=telemetry.series(device.device, field),
        value_text=NOT_SUPPORTED if absence_reason(device, field) else value,
        scale=scale,
        format_value=format_value,
    )


def _host_load(telemetry: TelemetryBuffer, cpu_count: int) -> LivePanel:
    """Of a recording that does not tell how many processors there were, the worker's share of them is not known."""
    total, worker = telemetry.series(HOST, "load_pct"), telemetry.series(HOST, "worker_load_pct")
    curves = [_host_curve("host", "All", HOST_COLOUR, total, units.percent, 1.0)]
    if cpu_count:
        curves.append(
            _host_curve("worker", "Worker", WORKER_COLOUR, worker, _cpu_share_formatter(cpu_count), float(cpu_count))
        )
    return LivePanel(
        key="load",
        title="CPU load",
        unit=f"% of {cpu_count} {units.plural('processor', cpu_count)}" if cpu_count else "%",
        y_range=(0, 100),
        curves=tuple(curves),
    )


def _host_memory(host: Device, telemetry: TelemetryBuffer) -> LivePanel:
    total = host.memory_total_bytes
    scale, unit = units.bytes_unit(total or 2**30)
    used, worker = telemetry.series(HOST, "memory_bytes"), telemetry.series(HOST, "worker_memory_bytes")
    return LivePanel(
        key="memory",
        title="Memory",
        unit=unit,
        curves=(
            _host_curve("host", "All", HOST_COLOUR, used, _memory_formatter(total), scale),
            _host_curve("worker", "Worker", WORKER_COLOUR, worker, units.byte_size, scale),
        ),
    )


def _cpu_share_formatter(cpu_count: int) -> Callable[[float | None], str]:
    return lambda value: units.percent(None if value is None else value / cpu_count)


def _host_curve(
    key: str, label: str, colour: int, series: LiveSeries, format_value: Callable[[float | None], str], scale: float
) -> LiveCurve:
    return LiveCurve(
        key=key,
        label=label,
        colour=colour,
        series=series,
        value_text=format_value(series.last),
        scale=scale,
        format_value=format_value,
    )
