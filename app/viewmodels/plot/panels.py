"""The panels of a run: its devices' telemetry and its training curves, live or stored."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from app.analysis.align import TimeSeries, decimate, seconds_since, with_gaps
from app.analysis.energy import gpu_columns
from app.analysis.pyramid import LEVELS
from app.values import units
from app.values.fields import FIELDS, DeviceKind, Field, Sample, plotted_fields
from app.values.records import SampleColumns, StoredRun
from app.values.samples import HOST, Device, Inventory
from app.values.units import sentence
from app.viewmodels.format.naming import format_gpu_counts
from app.viewmodels.format.telemetry_fields import ThrottleInterval, ThrottleTracker, format_field
from app.viewmodels.plot.model import SHORT_HISTORY_LEVELS, Curve, CurveSource, LiveSeries, Panel, Points, Span

ReadCurve = Callable[[Device, Field], CurveSource | None]
"""Returns a device's curve of a field, in the stored unit; None leaves it out."""

PERCENT_RANGE: Span = (0.0, 100.0)
_THROUGHPUT_COLOUR, _LOSS_COLOUR, _ACCURACY_COLOUR = 2, 3, 4
_GIB = 2**30


def gpu_devices(devices: Sequence[Device]) -> list[Device]:
    return [device for device in devices if device.kind == "gpu"]


def device_panels(
    devices: Sequence[Device],
    read: ReadCurve,
    *,
    speed: Literal["fast", "slow"] = "fast",
    cpu_count: int = 0,
    names: Sequence[str] = (),
) -> tuple[Panel, ...]:
    """Return a panel per plotted field, with a curve per device; those without any curve are left out.

    `speed` selects the fields of every tick, or those read rarely; `names` replaces a run's fields. The worker's load
    is a share of `cpu_count` processors, 0 if unknown.
    """
    if not devices:
        return ()
    kind = devices[0].kind
    panels: dict[str, list[Field]] = {}
    named = [FIELDS[name] for name in names if kind in FIELDS[name].devices]
    for field in named or plotted_fields("run", kind):
        if field.speed == speed and (cpu_count or field.name != "worker_load_pct"):
            panels.setdefault(field.panel, []).append(field)
    built = (_device_panel(FIELDS[name], fields, devices, read, cpu_count) for name, fields in panels.items())
    return tuple(panel for panel in built if panel.curves)


def per_gpu_panels(gpus: Sequence[Device], read: ReadCurve) -> tuple[Panel, ...]:
    of_gpus = [
        [
            replace(panel, key=f"{panel.key} {gpu.device}", title=f"{panel.title} of {device_label(gpu)}")
            for panel in device_panels([gpu], read)
        ]
        for gpu in gpus
    ]
    return tuple(panel for panels in zip(*of_gpus, strict=True) for panel in panels)


def with_limits(panel: Panel, limits_mw: Mapping[str, float | None], throttles: Sequence[ThrottleInterval]) -> Panel:
    """Return a power panel with its curves' highest power limit as range, and the throttled times of its GPUs.

    `limits_mw` are by the curves' keys. Other panels do not change.
    """
    if panel.key.split()[0] != "power_mw":
        return panel
    keys = [curve.key for curve in panel.curves]
    limits = [limit_mw for key in keys if (limit_mw := limits_mw.get(key)) is not None]
    return replace(
        panel,
        y_range=(0.0, max(limits) / 1000) if limits else None,
        throttles=tuple(throttle for throttle in throttles if throttle.device in keys),
    )


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
    main_field: Field, fields: Sequence[Field], devices: Sequence[Device], read: ReadCurve, cpu_count: int
) -> Panel:
    """Return the panel of one field, which may contain others: the worker's with the host's."""
    curve_sources = [
        (field, device, source) for field in fields for device in devices if (source := read(device, field)) is not None
    ]
    scale, unit = _display_scale(main_field, devices, [source for _, _, source in curve_sources])
    if main_field.name == "load_pct" and cpu_count and devices[0].kind == "host":
        unit = f"% of {cpu_count} {units.plural('processor', cpu_count)}"
    marks = {device.device: str(device.index) for device in devices} if len(devices) > 1 else {}
    curves = [
        replace(_device_curve(field, device, source, scale, cpu_count), mark=marks.get(device.device, ""))
        for field, device, source in curve_sources
    ]
    return Panel(
        key=main_field.name,
        title=main_field.label_on(devices[0].kind),
        unit=unit,
        curves=tuple(curves),
        y_range=PERCENT_RANGE if main_field.kind == "share" else None,
    )


def _display_scale(field: Field, devices: Sequence[Device], sources: Sequence[CurveSource]) -> tuple[float, str]:
    """Return the divisor of stored values and the unit; bytes use the unit of the device's memory or of the data."""
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
        return make_curve(device.device, "All", HOST_COLOUR, source, format_value, scale)
    curve = make_curve(device.device, device_label(device), device_colour(device), source, format_value, scale)
    reason = absence_reason(device, field.name)
    return replace(curve, value_text=reason) if reason else curve


def _formatter(field: Field, device: Device, cpu_count: int) -> Callable[[float | None], str]:
    if field.name == "worker_load_pct":
        return lambda value: units.percent(None if value is None else value / cpu_count)
    if field.name == "memory_bytes":
        return lambda value: units.bytes_of_total(value, device.memory_total_bytes)
    if field.unit == "mW":
        return units.watts
    if field.unit == "%":
        return units.percent
    return lambda value: format_field(field.name, value)


HOST_COLOUR = 7
WORKER_COLOUR = 1
_SHORT_HISTORY_S = 3600.0

MONITOR_FIELDS = ("load_pct", "power_mw", "memory_bytes", "temperature_c")
"""The fields of Monitor's table, plotted for every device."""


def _buffered_fields(kind: DeviceKind) -> tuple[str, ...]:
    on_run = (field.name for field in plotted_fields("run", kind) if field.speed == "fast")
    return tuple(dict.fromkeys((*MONITOR_FIELDS, *on_run)))


_GPU_FIELDS, _HOST_FIELDS = _buffered_fields("gpu"), _buffered_fields("host")


class TelemetryBuffer:
    """The plotted fast fields of each device as curves, with its throttled times, in seconds on one clock.

    Args:
        short_history: Store some minutes instead of hours.
    """

    def __init__(self, *, short_history: bool = False) -> None:
        self._levels = SHORT_HISTORY_LEVELS if short_history else LEVELS
        self._longest_s = _SHORT_HISTORY_S if short_history else math.inf
        self._series: dict[tuple[str, str], LiveSeries] = {}
        self.latest: dict[str, Sample] = {}
        self.throttling = ThrottleTracker()
        self.now_s: float | None = None
        self._first_s = math.inf

    @property
    def elapsed_s(self) -> float:
        """Return the length of what is stored; for a short history, at most what it certainly holds."""
        return min((self.now_s or 0.0) - self._first_s, self._longest_s) if self.now_s is not None else 0.0

    def add(self, sample: Sample) -> None:
        """Append a sample; one just appended by another model that shares this buffer is ignored."""
        if self.latest.get(sample.device) is sample:
            return
        t_s = sample.t_ns / 1e9
        self.latest[sample.device] = sample
        self.now_s = max(t_s, self.now_s or t_s)
        self._first_s = min(self._first_s, t_s)
        for name in _HOST_FIELDS if sample.device == HOST else _GPU_FIELDS:
            self.series(sample.device, name).append(t_s, getattr(sample, name))
        self.throttling.add(sample)

    def series(self, device: str, field: str) -> LiveSeries:
        """Return the curve of one field of one device, empty until it is reported."""
        series = self._series.get((device, field))
        if series is None:
            series = self._series[device, field] = LiveSeries(self._levels)
        return series

    def read_curve(self, device: Device, field: Field) -> LiveSeries:
        return self.series(device.device, field.name)


def device_label(device: Device) -> str:
    return "Host" if device.device == HOST else f"GPU {device.index}"


def device_colour(device: Device) -> int:
    return HOST_COLOUR if device.device == HOST else device.index


def absence_reason(device: Device, field: str) -> str | None:
    return device.absent.get(field) if device.lost is None else "lost"


class MachineState(NamedTuple):
    """The machine in a few words, their tone (good, warning or bad), and an explanation."""

    text: str
    tone: str
    help: str


def machine_state(inventory: Inventory) -> MachineState:
    """Return the machine as `2× H200 · driver 580`, `CPU only · no NVIDIA driver` or `1 of 2 GPUs lost`."""
    lost = [device for device in inventory.devices if device.lost is not None]
    if any(device.device == HOST for device in lost):
        # The host itself cannot be lost, so its sampler was given up.
        return MachineState("No telemetry", "bad", lost[-1].lost or "")
    gpus, driver = inventory.machine.gpus, inventory.driver
    if lost:
        count = len(gpus) + len(lost)
        text = f"{len(lost)} of {count} GPUs lost" if count > 1 else "GPU lost"
    elif gpus:
        text = format_gpu_counts(gpu.name for gpu in gpus)
    else:
        lacking = "hidden GPUs" if inventory.machine.hidden_by else f"no NVIDIA {'driver' if driver is None else 'GPU'}"
        text = f"CPU only · {lacking}"
    explanation = describe_lost(inventory) or inventory.no_gpu_reason or "Telemetry is running."
    with_driver = f"{text} · driver {driver.split('.')[0]}" if driver and (gpus or lost) else text
    return MachineState(with_driver, "bad" if lost else "good", explanation)


def describe_lost(inventory: Inventory) -> str:
    """Return which devices are lost and why; "" without any."""
    lost = (f"{device_label(device)} is lost: {device.lost}" for device in inventory.devices if device.lost is not None)
    return " ".join(map(sentence, lost))


_BUCKETS = 1500
"""Buckets to which a curve is reduced, about one for each pixel of a wide plot."""


def gpu_samples(run: StoredRun) -> list[SampleColumns]:
    """Return the GPUs that the run used, in order; none for a run on the CPU."""
    if run.row.spec.variant.get("gpus") == 0:
        return []
    return sorted(gpu_columns(run), key=lambda gpu: gpu.device.index)


def host_samples(run: StoredRun) -> list[SampleColumns]:
    return [s for s in run.samples if s.device.kind == "host"]


def telemetry_series(columns: SampleColumns, field: Field) -> TimeSeries:
    """Return the values of one device's field, in the stored unit, with NaN for gaps."""
    if field.speed == "fast":
        return with_gaps(TimeSeries(columns.t_ns, columns.fields[field.name]))
    values = columns.slow.get(field.name, np.full(columns.slow_t_ns.size, np.nan))
    present = ~np.isnan(values)  # a slow sample holds only the fields that were due
    series = TimeSeries(columns.slow_t_ns[present], values[present])
    return with_gaps(series) if present.sum() > 2 else series


def throughput_series(run: StoredRun) -> TimeSeries:
    """Return each block's examples per second at its end, after compiling."""
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


def run_panels(run: StoredRun, example: str) -> tuple[Panel, ...]:
    """Return the panels of one run; zero is the run's start."""
    columns = {samples.device.device: samples for samples in gpu_samples(run) or host_samples(run)}
    devices = [samples.device for samples in columns.values()]

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


Spark = tuple[float, ...]


class Sparks(NamedTuple):
    """Throughput and power of a run's measured part, each from 0 to its highest value."""

    throughput: Spark = ()
    power: Spark = ()


NO_SPARKS = Sparks()
SPARK_FIELDS = ("power_mw",)
"""The telemetry fields for sparklines."""
_SPARK_POINTS = 24


def run_sparks(run: StoredRun) -> Sparks:
    """Return throughput and first-GPU power of a run's measured part."""
    gpus = gpu_samples(run)
    return Sparks(
        throughput=_spark(throughput_series(run), run),
        power=_spark(telemetry_series(gpus[0], FIELDS["power_mw"]), run) if gpus else (),
    )


def _spark(series: TimeSeries, run: StoredRun) -> Spark:
    """Return the means of equal parts of a series from the start of the measured part, from 0 to the highest."""
    measured = run.blocks.measured
    if run.measure_start_ns is None or not measured.any():
        return ()
    inside = (series.t_ns >= run.measure_start_ns) & (series.t_ns <= run.blocks.end_ns[measured][-1])
    values = series.y[inside & np.isfinite(series.y)]
    if values.size < 2 or not values.max() > 0:
        return ()
    starts = np.linspace(0, values.size, min(_SPARK_POINTS, values.size), endpoint=False).astype(np.int64)
    sums, counts = np.add.reduceat(values, starts), np.diff(starts, append=values.size)
    return tuple((sums / counts / values.max()).tolist())
