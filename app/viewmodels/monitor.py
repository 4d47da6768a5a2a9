"""The Monitor screen: every device with its current metrics, its processes and its last minute."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app import units
from app.fields import FAST_FIELDS, SLOW_FIELDS, Sample, SlowSample
from app.records import RunEvent
from app.samples import HOST, Device, DeviceLost, Inventory, Processes
from app.viewmodels.format.telemetry_fields import field_label, format_field
from app.viewmodels.plot.live_panels import LiveCurve, LivePanel
from app.viewmodels.plot.telemetry_buffer import TelemetryBuffer, absence_reason, device_colour, device_label

Values = Mapping[str, float]

_GPM = (
    "sm_active_pct",
    "sm_occupancy_pct",
    "tensor_active_pct",
    "fp32_active_pct",
    "fp16_active_pct",
    "dram_active_pct",
)
_PAIRS = (("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"))
_THROTTLED = {"throttled_power_ns": "power", "throttled_thermal_ns": "heat", "throttled_brake_ns": "brake"}
_GROUP_LABELS = {
    **dict.fromkeys(_GPM, "GPM metrics"),
    **dict.fromkeys(_PAIRS[0], "PCIe bytes"),
    **dict.fromkeys(_PAIRS[1], "NVLink bytes"),
    **dict.fromkeys(_THROTTLED, "throttled time"),
}


@dataclass(frozen=True, slots=True)
class DeviceMetric:
    """One number with its word."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class _MetricSpec:
    """A figure made of these fields; it is left out where the device has none of them."""

    label: str
    fields: tuple[str, ...]
    format_value: Callable[[Device, Values, Values], str]


def _field_metric(field: str, label: str = "") -> _MetricSpec:
    return _MetricSpec(
        label or field_label(field), (field,), lambda _device, now, _first: format_field(field, now.get(field))
    )


def _power(_device: Device, now: Values, _first: Values) -> str:
    power, limit = units.watts(now.get("power_mw")), now.get("power_limit_mw")
    return power if limit is None else f"{power} of {units.watts(limit)}"


def _memory_used(device: Device, now: Values, _first: Values) -> str:
    return units.bytes_of_total(now.get("memory_bytes"), device.memory_total_bytes)


def _memory_free(device: Device, now: Values, _first: Values) -> str:
    if device.memory_total_bytes is None or "memory_bytes" not in now:
        return units.ABSENT
    return units.byte_size(device.memory_total_bytes - now["memory_bytes"] - now.get("memory_reserved_bytes", 0))


def _throttled(_device: Device, now: Values, first: Values) -> str:
    """Time since the first reading, by cause; causes of no time are left out."""
    since = {word: now[name] - first[name] for name, word in _THROTTLED.items() if name in now and name in first}
    if not since:
        return units.ABSENT
    return ", ".join(f"{word} {units.seconds(ns / 1e9)}" for word, ns in since.items() if ns > 0) or "not yet"


_GPU_METRICS = (
    _MetricSpec("Power", ("power_mw",), _power),
    _field_metric("power_average_mw", "Average power"),
    _field_metric("load_pct"),
    _field_metric("memory_load_pct"),
    _MetricSpec("Memory", ("memory_bytes",), _memory_used),
    _field_metric("memory_reserved_bytes"),
    _MetricSpec("Memory free", ("memory_bytes",), _memory_free),
    _field_metric("temperature_c"),
    _field_metric("memory_temperature_c", "Memory temp."),
    _field_metric("sm_clock_mhz"),
    _field_metric("memory_clock_mhz"),
    _field_metric("throttle_reasons", "Held back by"),
    _MetricSpec("Throttled", tuple(_THROTTLED), _throttled),
    _field_metric("fan_pct"),
    *(_field_metric(field) for field in _GPM),
    *(_field_metric(field) for pair in _PAIRS for field in pair),
)
_HOST_METRICS = (
    _field_metric("load_pct"),
    _MetricSpec("Memory", ("memory_bytes",), _memory_used),
    _field_metric("power_mw"),
)


def device_metrics(device: Device, now: Values, first: Values) -> tuple[DeviceMetric, ...]:
    """The numbers a device gives; `first` are the first readings of counters."""
    specs = _HOST_METRICS if device.device == HOST else _GPU_METRICS
    return tuple(
        DeviceMetric(kind.label, kind.format_value(device, now, first))
        for kind in specs
        if any(_is_available(device, name, now) for name in kind.fields)
    )


def describe_not_reported(device: Device) -> str:
    """What a device does not tell, by reason, in one quiet sentence; "" where it tells everything."""
    by_reason: dict[str, dict[str, None]] = {}
    for name, reason in device.absent.items():
        by_reason.setdefault(reason, {})[_GROUP_LABELS.get(name) or _lower_first(field_label(name))] = None
    fields = "; ".join(f"{', '.join(words)} ({reason})" for reason, words in by_reason.items())
    device_text = "the host" if device.device == HOST else "this card"
    return f"Not told by {device_text}: {fields}." if fields else ""


def _is_available(device: Device, name: str, now: Values) -> bool:
    """Whether a field was found when the device was probed, or is told now; one that was lost keeps its place."""
    return name in now or name in device.fields or device.absent.get(name) == "lost"


def _lower_first(word: str) -> str:
    return word if word[1:2].isupper() else word[0].lower() + word[1:]


_WINDOW_S = 60.0
_FIELDS = ("power_mw", "load_pct", "memory_bytes")
_MAX_PROCESSES = 8
_WITH_GPU = (
    "With an NVIDIA GPU each card has a row here: curves of its power, load and memory, its temperature and clocks, "
    "what holds it back, and which programs use it.\n\n"
    "Runs measured on two H200s come with the program. Put them into the history; "
    "Replay on a run's page plays what their cards did."
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
    panels: tuple[LivePanel, ...]
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
    """Folds telemetry; a device stays on the screen when it stops answering, with the reason."""

    def __init__(self) -> None:
        self._inventory: Inventory | None = None
        self._telemetry = TelemetryBuffer(short_history=True)
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
                self._telemetry.add(event, _FIELDS)
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
        """Everything to show now."""
        inventory = self._inventory
        return MonitorState(
            rows=tuple(self._row(device) for device in inventory.devices) if inventory else (),
            origin_s=self._telemetry.now_s or 0.0,
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

    def _panels(self, device: Device, values: Mapping[str, float]) -> tuple[LivePanel, ...]:
        scale, unit = units.bytes_unit(device.memory_total_bytes or 2**30)
        total = device.memory_total_bytes / scale if device.memory_total_bytes else None
        limit = values["power_limit_mw"] / 1000 if "power_limit_mw" in values else None
        load = self._panel(device, "load_pct", "Load", "%", 1.0, 100.0)
        memory = self._panel(device, "memory_bytes", "Memory", unit, scale, total)
        if device.device == HOST and absence_reason(device, "power_mw"):
            return load, memory
        return self._panel(device, "power_mw", "Power", "W", 1000.0, limit), load, memory

    def _panel(self, device: Device, field: str, title: str, unit: str, scale: float, top: float | None) -> LivePanel:
        curve = LiveCurve(
            key=device.device,
            label="",
            colour=device_colour(device),
            series=self._telemetry.series(device.device, field),
            scale=scale,
        )
        reason = absence_reason(device, field)
        shown = title if reason is None else f"{title} ({reason})"
        return LivePanel(key=field, title=shown, unit=unit, curves=(curve,), y_range=(0.0, top) if top else None)


def _reported(sample: Sample | SlowSample, names: tuple[str, ...]) -> dict[str, float]:
    values = ((name, getattr(sample, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _describe_processes(found: Processes | None) -> str:
    """Who uses a GPU, a line each, the largest first; "" where the driver does not say."""
    if found is None:
        return ""
    if not found.processes:
        return "No process uses it"
    largest = sorted(found.processes, key=lambda process: -(process.memory_bytes or 0))
    lines = [f"{each.name} · {each.pid} · {units.byte_size(each.memory_bytes)}" for each in largest[:_MAX_PROCESSES]]
    more = len(largest) - _MAX_PROCESSES
    return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])
