"""The panels of the Run screen as values: which curves, which range, which words beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.records import HOST, Device, Floats, Sample
from app.viewmodels import units
from app.viewmodels.series import Series
from app.viewmodels.tracks import (
    HOST_COLOUR,
    NOT_SUPPORTED,
    WORKER_COLOUR,
    Tracks,
    device_colour,
    device_label,
    why_absent,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One curve: `y` is `series` divided by `scale`; `value` is its newest value with the unit."""

    key: str
    label: str
    colour: int
    series: Series
    value: str = ""
    scale: float = 1.0

    @property
    def y(self) -> Floats:
        """Values in the panel's unit."""
        return np.asarray(self.series.y / self.scale, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot; without `y_range` y grows with the data."""

    key: str
    title: str
    unit: str
    curves: tuple[Curve, ...]
    y_range: tuple[float, float] | None = None
    from_zero: bool = True


def device_panels(devices: Sequence[Device], tracks: Tracks, cpu_count: int) -> tuple[Panel, ...]:
    """Power, load and memory of the GPUs; where there is none, load and memory of the host and of the worker."""
    gpus = [device for device in devices if device.kind == "gpu"]
    if gpus:
        return _power(gpus, tracks), _load(gpus, tracks), _memory(gpus, tracks)
    host = next((device for device in devices if device.device == HOST), None)
    return () if host is None else (_host_load(tracks, cpu_count), _host_memory(host, tracks))


def _power(gpus: Sequence[Device], tracks: Tracks) -> Panel:
    samples = [tracks.latest.get(gpu.device) for gpu in gpus]
    limits = [s.power_limit_mw for s in samples if s is not None and s.power_limit_mw is not None]
    curves = tuple(
        _curve(gpu, "power_mw", tracks, 1000.0, units.watts(s.power_mw if s else None))
        for gpu, s in zip(gpus, samples, strict=True)
    )
    return Panel(
        key="power", title="Power", unit="W", curves=curves, y_range=(0, max(limits) / 1000) if limits else None
    )


def _load(gpus: Sequence[Device], tracks: Tracks) -> Panel:
    curves = tuple(
        _curve(gpu, "load_pct", tracks, 1.0, units.percent(tracks.series(gpu.device, "load_pct").last)) for gpu in gpus
    )
    return Panel(key="load", title="Load", unit="%", curves=curves, y_range=(0, 100))


def _memory(gpus: Sequence[Device], tracks: Tracks) -> Panel:
    total = max((gpu.memory_total_bytes or 0 for gpu in gpus), default=0)
    scale, unit = units.bytes_unit(total or 2**30)
    curves = tuple(
        _curve(gpu, "memory_bytes", tracks, scale, _memory_words(tracks.latest.get(gpu.device), gpu)) for gpu in gpus
    )
    return Panel(key="memory", title="Memory", unit=unit, curves=curves)


def _memory_words(sample: Sample | None, device: Device) -> str:
    return units.bytes_of(sample.memory_bytes if sample else None, device.memory_total_bytes)


def _curve(device: Device, field: str, tracks: Tracks, scale: float, value: str) -> Curve:
    return Curve(
        key=device.device,
        label=device_label(device),
        colour=device_colour(device),
        series=tracks.series(device.device, field),
        value=NOT_SUPPORTED if why_absent(device, field) else value,
        scale=scale,
    )


def _host_load(tracks: Tracks, cpu_count: int) -> Panel:
    everything, worker = tracks.series(HOST, "load_pct"), tracks.series(HOST, "worker_load_pct")
    worker_pct = None if worker.last is None else worker.last / cpu_count
    words = "processor" if cpu_count == 1 else "processors"
    return Panel(
        key="load",
        title="CPU load",
        unit=f"% of {cpu_count} {words}",
        y_range=(0, 100),
        curves=(
            _host_curve("host", "All", HOST_COLOUR, everything, units.percent(everything.last), 1.0),
            _host_curve("worker", "Worker", WORKER_COLOUR, worker, units.percent(worker_pct), float(cpu_count)),
        ),
    )


def _host_memory(host: Device, tracks: Tracks) -> Panel:
    total = host.memory_total_bytes
    scale, unit = units.bytes_unit(total or 2**30)
    used, worker = tracks.series(HOST, "memory_bytes"), tracks.series(HOST, "worker_memory_bytes")
    return Panel(
        key="memory",
        title="Memory",
        unit=unit,
        curves=(
            _host_curve("host", "All", HOST_COLOUR, used, units.bytes_of(used.last, total), scale),
            _host_curve("worker", "Worker", WORKER_COLOUR, worker, units.byte_size(worker.last), scale),
        ),
    )


def _host_curve(key: str, label: str, colour: int, series: Series, value: str, scale: float) -> Curve:
    return Curve(key=key, label=label, colour=colour, series=series, value=value, scale=scale)
