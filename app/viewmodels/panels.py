"""The panels of the Run screen as values: which curves, which range, which words beside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.records import Floats
from app.samples import HOST, Device
from app.viewmodels import units
from app.viewmodels.plotted import Line, Plot
from app.viewmodels.series import Series, Shifted
from app.viewmodels.throttling import Throttle
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
class Curve(Line):
    """One curve: `series` divided by `scale`; `value` is its newest value with the unit, `words` tells any other."""

    series: Series
    value: str = ""
    scale: float = 1.0
    words: Callable[[float | None], str] = units.number

    @property
    def y(self) -> Floats:
        """Values in the panel's unit, those still held whole."""
        return np.asarray(self.series.y / self.scale, dtype=np.float64)

    def on_axis(self, origin_s: float) -> Shifted:
        """What to draw, in the panel's unit, on an axis with its zero at `origin_s`."""
        return Shifted(self.series, origin_s, self.scale)

    def value_at(self, t_s: float) -> str:
        """The value at a time; of older times, known only as a range, both ends."""
        found = self.series.at(t_s)
        if found is None:
            return units.ABSENT
        low, high = (self.words(value) for value in found)
        return low if low == high else f"{low} … {high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel(Plot[Curve]):
    """One plot; `throttles` are marked at its foot in their GPU's colour."""

    throttles: tuple[tuple[Throttle, Device], ...] = ()


def gpus_among(devices: Sequence[Device]) -> list[Device]:
    """The GPUs among devices."""
    return [device for device in devices if device.kind == "gpu"]


def device_panels(
    devices: Sequence[Device], tracks: Tracks, cpu_count: int, *, apart: bool = False
) -> tuple[Panel, ...]:
    """Power, load and memory of the GPUs; where there is none, load and memory of the host and of the worker.

    All GPUs share a panel, or stand in panels `apart`.
    """
    gpus = gpus_among(devices)
    if gpus:
        if not apart:
            return _power(gpus, tracks), _load(gpus, tracks), _memory(gpus, tracks)
        return tuple(_alone(make([gpu], tracks), gpu) for make in (_power, _load, _memory) for gpu in gpus)
    host = next((device for device in devices if device.device == HOST), None)
    return () if host is None else (_host_load(tracks, cpu_count), _host_memory(host, tracks))


def with_throttles(panel: Panel, throttles: Sequence[tuple[Throttle, Device]]) -> Panel:
    """A power panel with the times at which its GPUs were held back; any other as it is."""
    if not throttles or panel.key.split()[0] != "power":
        return panel
    own = {curve.key for curve in panel.curves}
    return replace(panel, throttles=tuple(pair for pair in throttles if pair[1].device in own))


def _alone(panel: Panel, gpu: Device) -> Panel:
    return replace(panel, key=f"{panel.key} {gpu.device}", title=f"{panel.title} of {device_label(gpu)}")


def _power(gpus: Sequence[Device], tracks: Tracks) -> Panel:
    samples = [tracks.latest.get(gpu.device) for gpu in gpus]
    limits = [s.power_limit_mw for s in samples if s is not None and s.power_limit_mw is not None]
    curves = tuple(_curve(gpu, "power_mw", tracks, 1000.0, units.watts) for gpu in gpus)
    return Panel(
        key="power",
        title="Power",
        unit="W",
        curves=curves,
        y_range=(0, max(limits) / 1000) if limits else None,
    )


def _load(gpus: Sequence[Device], tracks: Tracks) -> Panel:
    curves = tuple(_curve(gpu, "load_pct", tracks, 1.0, units.percent) for gpu in gpus)
    return Panel(key="load", title="Load", unit="%", curves=curves, y_range=(0, 100))


def _memory(gpus: Sequence[Device], tracks: Tracks) -> Panel:
    total = max((gpu.memory_total_bytes or 0 for gpu in gpus), default=0)
    scale, unit = units.bytes_unit(total or 2**30)
    curves = tuple(_curve(gpu, "memory_bytes", tracks, scale, _of_total(gpu.memory_total_bytes)) for gpu in gpus)
    return Panel(key="memory", title="Memory", unit=unit, curves=curves)


def _of_total(total: int | None) -> Callable[[float | None], str]:
    return lambda value: units.bytes_of(value, total)


def _curve(device: Device, field: str, tracks: Tracks, scale: float, words: Callable[[float | None], str]) -> Curve:
    sample = tracks.latest.get(device.device)
    value = words(getattr(sample, field) if sample else None)
    return Curve(
        key=device.device,
        label=device_label(device),
        colour=device_colour(device),
        series=tracks.series(device.device, field),
        value=NOT_SUPPORTED if why_absent(device, field) else value,
        scale=scale,
        words=words,
    )


def _host_load(tracks: Tracks, cpu_count: int) -> Panel:
    """Of a recording that does not tell how many processors there were, the worker's share of them is not known."""
    everything, worker = tracks.series(HOST, "load_pct"), tracks.series(HOST, "worker_load_pct")
    curves = [_host_curve("host", "All", HOST_COLOUR, everything, units.percent, 1.0)]
    if cpu_count:
        curves.append(_host_curve("worker", "Worker", WORKER_COLOUR, worker, _share_of(cpu_count), float(cpu_count)))
    return Panel(
        key="load",
        title="CPU load",
        unit=f"% of {cpu_count} {units.plural('processor', cpu_count)}" if cpu_count else "%",
        y_range=(0, 100),
        curves=tuple(curves),
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
            _host_curve("host", "All", HOST_COLOUR, used, _of_total(total), scale),
            _host_curve("worker", "Worker", WORKER_COLOUR, worker, units.byte_size, scale),
        ),
    )


def _share_of(cpu_count: int) -> Callable[[float | None], str]:
    return lambda value: units.percent(None if value is None else value / cpu_count)


def _host_curve(
    key: str, label: str, colour: int, series: Series, words: Callable[[float | None], str], scale: float
) -> Curve:
    return Curve(key=key, label=label, colour=colour, series=series, value=words(series.last), scale=scale, words=words)
