"""The Monitor screen: every device with its current metrics, its processes and its last minute."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from app import units
from app.fields import FAST_FIELDS, FIELDS, SLOW_FIELDS, TOPICS, Field, Sample, SlowSample, Topic, fields_of
from app.limits import IMPLAUSIBLE
from app.records import RunEvent
from app.samples import HOST, Device, DeviceLost, FieldsUpdated, Inventory, Processes
from app.telemetry.feed import updated_inventory
from app.viewmodels.format.telemetry_fields import format_field, process_parts
from app.viewmodels.plot.model import Curve, Panel
from app.viewmodels.plot.telemetry_buffer import (
    MONITOR_FIELDS,
    TelemetryBuffer,
    absence_reason,
    device_colour,
    device_label,
)

Values = Mapping[str, float]

_SHOWN_WITH_ANOTHER = ("power_limit_mw",)
"""Fields without a figure of their own: the power reads `600 W of 700 W`."""


@dataclass(frozen=True, slots=True)
class DeviceMetric:
    """One number with its word."""

    label: str
    value: str


def device_metrics(device: Device, now: Values, first: Values) -> tuple[DeviceMetric, ...]:
    """Return the figures of a device, by topic.

    Args:
        device: The device as it was probed.
        now: The newest value of each field that was ever reported.
        first: The first reading of each slow field, from which counters count.
    """
    return tuple(metric for topic in TOPICS for metric in _topic_metrics(device, topic, now, first))


def _topic_metrics(device: Device, topic: Topic, now: Values, first: Values) -> list[DeviceMetric]:
    fields = [field for field in fields_of(device.kind) if field.topic == topic and _is_available(device, field, now)]
    if topic == "throttled":
        return [DeviceMetric("Throttled", _format_throttled(fields, now, first))] if fields else []
    gauges = [field for field in fields if field.kind != "counter" and field.name not in _SHOWN_WITH_ANOTHER]
    metrics = [DeviceMetric(field.label_on(device.kind), _format_metric(device, field, now)) for field in gauges]
    if topic == "memory" and fields and device.kind == "gpu":
        metrics.append(DeviceMetric("Memory free", _format_memory_free(device, now)))
    return metrics


def _format_metric(device: Device, field: Field, now: Values) -> str:
    value = now.get(field.name)
    if device.absent.get(field.name) == IMPLAUSIBLE:
        return IMPLAUSIBLE
    if field.name == "memory_bytes":
        return units.bytes_of_total(value, device.memory_total_bytes)
    if field.name == "power_mw" and "power_limit_mw" in now:
        return f"{units.watts(value)} of {units.watts(now['power_limit_mw'])}"
    return format_field(field.name, value)


def _format_memory_free(device: Device, now: Values) -> str:
    if device.memory_total_bytes is None or "memory_bytes" not in now:
        return units.ABSENT
    return units.byte_size(device.memory_total_bytes - now["memory_bytes"] - now.get("memory_reserved_bytes", 0))


def _format_throttled(counters: Sequence[Field], now: Values, first: Values) -> str:
    """Return the time throttled since the first reading, by cause; causes of no time are left out."""
    since_ns = {
        field.label.removeprefix("Throttled by "): now[field.name] - first[field.name]
        for field in counters
        if field.name in now and field.name in first
    }
    if not since_ns:
        return units.ABSENT
    return ", ".join(f"{cause} {units.seconds(ns / 1e9)}" for cause, ns in since_ns.items() if ns > 0) or "never"


def describe_not_reported(device: Device, now: Values = MappingProxyType({})) -> str:
    """Return the fields that a device does not report, by reason, as one sentence; "" where it reports all.

    Args:
        device: The device.
        now: Its values; what has one is reported, whatever was found at first.
    """
    by_reason: dict[str, dict[str, None]] = {}
    for name, reason in device.absent.items():
        field = FIELDS[name]
        if name not in now:
            by_reason.setdefault(reason, {})[TOPICS[field.topic] or _lower_first(field.label)] = None
    fields = "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in by_reason.items())
    device_text = "the host" if device.device == HOST else "this GPU"
    return f"Not reported by {device_text}: {fields}." if fields else ""


def _is_available(device: Device, field: Field, now: Values) -> bool:
    """Return whether a field is reported: when the device was probed, or now; what was lost or is implausible stays."""
    return field.topic != "worker" and (
        field.name in now or field.name in device.fields or device.absent.get(field.name) in ("lost", IMPLAUSIBLE)
    )


def _lower_first(label: str) -> str:
    return label if label[1:2].isupper() else label[0].lower() + label[1:]


_WINDOW_S = 60.0
_STALE_S = 3.0
"""Without a reading for so long, a device's numbers are no longer those of now."""
_SLOW_STALE_S = 25.0
"""A slow field that was not read for so long has no value any more: the slowest is read every 10 s."""
_MAX_PROCESSES = 8
_WITH_GPU = (
    "With an NVIDIA GPU each GPU has a row here: curves of its power, load and memory, its temperature and clocks, "
    "clock limits, and which programs use it.\n\n"
    "Runs measured on two H200s come with the program. Put them into the history; "
    "Replay on a run's page plays what their GPUs did."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredDevice:
    """One device: who it is, its numbers, who uses it, its plots, and what it does not tell.

    `lost` and `stale` say why its numbers are not those of now: it is gone, or has said nothing for some seconds.
    """

    device: str
    label: str
    name: str
    metrics: tuple[DeviceMetric, ...]
    processes: str
    not_reported: str
    panels: tuple[Panel, ...]
    lost: str = ""
    stale: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorState:
    """Everything the monitor shows; where there is no GPU, `note` says why, and `with_gpu` what there would be."""

    rows: tuple[MonitoredDevice, ...]
    origin_s: float
    window_s: tuple[float, float]
    note: str = ""
    gpu_hint: str = ""


@dataclass(slots=True)
class _Readings:
    """The newest values of a device and when they were read; fields that are implausible; when and why it was lost."""

    fast: dict[str, float] = field(default_factory=dict)
    slow: dict[str, tuple[int, float]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    processes: Processes | None = None
    read_ns: int | None = None
    loss: DeviceLost | None = None
    implausible: dict[str, str] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Take a sample: what it lacks has no value any more."""
        self.fast, self.loss = _reported(sample, FAST_FIELDS), None
        if self.fast:
            self.read_ns = sample.t_ns
        self._mark(sample, self.fast)

    def add_slow(self, sample: SlowSample) -> None:
        """Take a slow sample: it lacks what was not due."""
        values = _reported(sample, SLOW_FIELDS)
        self.slow |= {name: (sample.t_ns, value) for name, value in values.items()}
        self.first = {**values, **self.first}
        self._mark(sample, values)

    def _mark(self, sample: Sample | SlowSample, values: Values) -> None:
        """Note the fields whose newest reading cannot be true."""
        still = {name: reason for name, reason in self.implausible.items() if name not in values}
        self.implausible = still | dict.fromkeys(sample.implausible, IMPLAUSIBLE)
        self.slow = {name: value for name, value in self.slow.items() if name not in self.implausible}

    def values(self, now_ns: int) -> dict[str, float]:
        """Return the newest values, without those that were not renewed for too long."""
        oldest_ns = now_ns - int(_SLOW_STALE_S * 1e9)
        return {**{name: value for name, (t_ns, value) in self.slow.items() if t_ns > oldest_ns}, **self.fast}

    def stale(self, now_ns: int) -> str:
        """Return for how long there was no reading; "" where there was one just now, or never one."""
        age_s = 0.0 if self.read_ns is None else (now_ns - self.read_ns) / 1e9
        return f"No reading for {units.age(age_s)}." if age_s >= _STALE_S else ""


class MonitorModel:
    """The Monitor's model; a device stays on the screen when it stops answering, with the reason."""

    def __init__(self, recent: TelemetryBuffer | None = None) -> None:
        self._inventory: Inventory | None = None
        self._recent = recent or TelemetryBuffer(short_history=True)
        self._readings: defaultdict[str, _Readings] = defaultdict(_Readings)

    def handle(self, event: RunEvent | Inventory | Processes) -> None:
        """Take one event; those of runs do not matter here."""
        match event:
            case Inventory():
                self._inventory = event
                for device in event.devices:
                    if device.lost is None:
                        self._readings[device.device].loss = None
            case Sample():
                self._recent.add(event)
                self._readings[event.device].add(event)
            case SlowSample():
                self._readings[event.device].add_slow(event)
            case Processes():
                self._readings[event.device].processes = event
            case DeviceLost():
                self._readings[event.device] = _Readings(loss=event)
            case FieldsUpdated() if self._inventory is not None:
                self._inventory = updated_inventory(self._inventory, event)
            case _:
                pass

    def state(self, now_ns: int | None = None) -> MonitorState:
        """Return everything to show at a time of the clock; without one at the newest sample's."""
        inventory = self._inventory
        if now_ns is None:
            now_ns = int((self._recent.now_s or 0.0) * 1e9)
        return MonitorState(
            rows=tuple(self._row(device, now_ns) for device in inventory.devices) if inventory else (),
            origin_s=self._recent.now_s or 0.0,
            window_s=(-_WINDOW_S, 0.0),
            note=units.sentence(inventory.no_gpu_reason or "") if inventory else "",
            gpu_hint=_WITH_GPU if inventory and inventory.no_gpu_reason else "",
        )

    def _row(self, device: Device, now_ns: int) -> MonitoredDevice:
        readings = self._readings[device.device]
        lost = _describe_loss(device, readings.loss, now_ns)
        values = {} if lost else readings.values(now_ns)
        shown = msgspec.structs.replace(device, absent={**device.absent, **readings.implausible})
        return MonitoredDevice(
            device=device.device,
            label=device_label(device),
            name=device.name,
            metrics=device_metrics(shown, values, readings.first),
            processes="" if lost else _describe_processes(readings.processes),
            not_reported="" if lost else describe_not_reported(device, values),
            panels=self._panels(shown, values),
            lost=lost,
            stale="" if lost else readings.stale(now_ns),
        )

    def _panels(self, device: Device, values: Mapping[str, float]) -> tuple[Panel, ...]:
        shown = [FIELDS[name] for name in MONITOR_FIELDS]
        if device.kind == "host" and absence_reason(device, "power_mw"):
            shown = shown[1:]
        return tuple(self._panel(device, field, values) for field in shown)

    def _panel(self, device: Device, field: Field, values: Mapping[str, float]) -> Panel:
        scale, unit = field.scale, field.display_unit
        if field.unit == "bytes":
            scale, unit = units.bytes_unit(device.memory_total_bytes or 2**30)
        tops = {"load_pct": 100.0, "memory_bytes": device.memory_total_bytes, "power_mw": values.get("power_limit_mw")}
        top = tops[field.name]
        reason = absence_reason(device, field.name)
        title = field.label_on(device.kind)
        source = self._recent.series(device.device, field.name)
        curve = Curve(key=device.device, label="", colour=device_colour(device), source=source, scale=scale)
        return Panel(
            key=field.name,
            title=title if reason in (None, "lost") else f"{title} ({reason})",
            unit=unit,
            curves=(curve,),
            y_range=(0.0, top / scale) if top else None,
        )


def _reported(sample: Sample | SlowSample, names: tuple[str, ...]) -> dict[str, float]:
    values = ((name, getattr(sample, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _describe_loss(device: Device, loss: DeviceLost | None, now_ns: int) -> str:
    """Return for how long a device has not answered, where that is known, and why; "" for one that answers."""
    reason = loss.reason if loss else device.lost
    if reason is None:
        return ""
    since = f" {units.age((now_ns - loss.t_ns) / 1e9)} ago" if loss else ""
    return f"Lost{since}. {units.sentence(reason)}"


def _describe_processes(found: Processes | None) -> str:
    """Return the processes on a GPU, a line each, the largest first, or why nobody knows; "" before they are listed."""
    if found is None:
        return ""
    if found.reason is not None:
        return f"Processes unknown: {found.reason}"
    if not found.processes:
        return "No process uses it"
    largest = sorted(found.processes, key=lambda process: -(process.memory_bytes or 0))
    lines = [" · ".join(process_parts(each)) for each in largest[:_MAX_PROCESSES]]
    more = len(largest) - _MAX_PROCESSES
    return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])
