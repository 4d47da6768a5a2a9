"""The Monitor screen: every device with its current metrics, its processes and its last minute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app import units
from app.fields import FAST_FIELDS, FIELDS, SLOW_FIELDS, TOPICS, Field, Sample, SlowSample, Topic, fields_of
from app.records import RunEvent
from app.samples import HOST, Device, DeviceLost, Inventory, Processes
from app.viewmodels.format.telemetry_fields import format_field
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


def describe_not_reported(device: Device) -> str:
    """Return the fields that a device does not report, by reason, as one sentence; "" where it reports all."""
    by_reason: dict[str, dict[str, None]] = {}
    for name, reason in device.absent.items():
        field = FIELDS[name]
        by_reason.setdefault(reason, {})[TOPICS[field.topic] or _lower_first(field.label)] = None
    fields = "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in by_reason.items())
    device_text = "the host" if device.device == HOST else "this GPU"
    return f"Not reported by {device_text}: {fields}." if fields else ""


def _is_available(device: Device, field: Field, now: Values) -> bool:
    """Return whether a field is reported: when the device was probed, or now; one that was lost stays."""
    return field.topic != "worker" and (
        field.name in now or field.name in device.fields or device.absent.get(field.name) == "lost"
    )


def _lower_first(label: str) -> str:
    return label if label[1:2].isupper() else label[0].lower() + label[1:]


_WINDOW_S = 60.0
_MAX_PROCESSES = 8
_WITH_GPU = (
    "With an NVIDIA GPU each GPU has a row here: curves of its power, load and memory, its temperature and clocks, "
    "clock limits, and which programs use it.\n\n"
    "Runs measured on two H200s come with the program. Put them into the history; "
    "Replay on a run's page plays what their GPUs did."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredDevice:
    """One device: who it is, its numbers, who uses it, its plots, and what it does not tell. `lost` says it is gone."""

    device: str
    label: str
    name: str
    metrics: tuple[DeviceMetric, ...]
    processes: str
    not_reported: str
    panels: tuple[Panel, ...]
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorState:
    """Everything the monitor shows; where there is no GPU, `note` says why, and `with_gpu` what there would be."""

    rows: tuple[MonitoredDevice, ...]
    origin_s: float
    window_s: tuple[float, float]
    note: str = ""
    gpu_hint: str = ""


class MonitorModel:
    """The Monitor's model; a device stays on the screen when it stops answering, with the reason."""

    def __init__(self, recent: TelemetryBuffer | None = None) -> None:
        self._inventory: Inventory | None = None
        self._recent = recent or TelemetryBuffer(short_history=True)
        self._values: dict[str, dict[str, float]] = {}
        self._first: dict[str, dict[str, float]] = {}
        self._processes: dict[str, Processes] = {}
        self._lost: dict[str, str] = {}

    def handle(self, event: RunEvent | Inventory | Processes) -> None:
        """Take one event; those of runs do not matter here."""
        match event:
            case Inventory():
                self._inventory = event
            case Sample():
                self._recent.add(event)
                self._lost.pop(event.device, None)
                self._values.setdefault(event.device, {}).update(_reported(event, FAST_FIELDS))
            case SlowSample():
                values = _reported(event, SLOW_FIELDS)
                self._values.setdefault(event.device, {}).update(values)
                self._first[event.device] = {**values, **self._first.get(event.device, {})}
            case Processes():
                self._processes[event.device] = event
            case DeviceLost():
                self._lost[event.device] = event.reason
                self._values.pop(event.device, None)
                self._processes.pop(event.device, None)
            case _:
                pass

    def state(self) -> MonitorState:
        """Return everything to show now."""
        inventory = self._inventory
        return MonitorState(
            rows=tuple(self._row(device) for device in inventory.devices) if inventory else (),
            origin_s=self._recent.now_s or 0.0,
            window_s=(-_WINDOW_S, 0.0),
            note=units.sentence(inventory.no_gpu_reason or "") if inventory else "",
            gpu_hint=_WITH_GPU if inventory and inventory.no_gpu_reason else "",
        )

    def _row(self, device: Device) -> MonitoredDevice:
        values = self._values.get(device.device, {})
        lost = self._lost.get(device.device, "")
        return MonitoredDevice(
            device=device.device,
            label=device_label(device),
            name=device.name,
            metrics=device_metrics(device, values, self._first.get(device.device, {})),
            processes="" if lost else _describe_processes(self._processes.get(device.device)),
            not_reported="" if lost else describe_not_reported(device),
            panels=self._panels(device, values),
            lost=lost,
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
            title=title if reason is None else f"{title} ({reason})",
            unit=unit,
            curves=(curve,),
            y_range=(0.0, top / scale) if top else None,
        )


def _reported(sample: Sample | SlowSample, names: tuple[str, ...]) -> dict[str, float]:
    values = ((name, getattr(sample, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _describe_processes(found: Processes | None) -> str:
    """Return the processes on a GPU, a line each, the largest first; "" where the driver does not report them."""
    if found is None:
        return ""
    if not found.processes:
        return "No process uses it"
    largest = sorted(found.processes, key=lambda process: -(process.memory_bytes or 0))
    lines = [f"{each.name} · {each.pid} · {units.byte_size(each.memory_bytes)}" for each in largest[:_MAX_PROCESSES]]
    more = len(largest) - _MAX_PROCESSES
    return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])
