"""What the Monitor screen shows: every device with its numbers now and its last minute, without a run."""

from dataclasses import dataclass

from app.records import HOST, Device, DeviceLost, Inventory, RunEvent, Sample
from app.viewmodels import units
from app.viewmodels.panels import Curve, Panel
from app.viewmodels.tracks import Tracks, device_colour, device_label, why_absent

_WINDOW_S = 60.0
_FIELDS = ("power_mw", "load_pct", "memory_bytes")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its word; `reason` says why the device does not say it."""

    label: str
    value: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device: who it is, its numbers, its plots. `lost` says that it stopped answering."""

    device: str
    label: str
    name: str
    figures: tuple[Figure, ...]
    panels: tuple[Panel, ...]
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorState:
    """Everything the monitor shows; `note` says why there is no GPU, if so."""

    rows: tuple[DeviceRow, ...]
    origin_s: float
    window_s: tuple[float, float]
    note: str = ""


class MonitorModel:
    """Folds telemetry; a device stays on the screen when it stops answering, with the reason."""

    def __init__(self) -> None:
        self._inventory: Inventory | None = None
        self._tracks = Tracks(brief=True)
        self._lost: dict[str, str] = {}

    def handle(self, event: RunEvent | Inventory) -> None:
        """Take one event; those of runs do not matter here."""
        match event:
            case Inventory():
                self._inventory = event
            case Sample():
                self._tracks.add(event, _FIELDS)
                self._lost.pop(event.device, None)
            case DeviceLost():
                self._lost[event.device] = event.reason
            case _:
                pass

    def state(self) -> MonitorState:
        """Everything to show now."""
        inventory = self._inventory
        return MonitorState(
            rows=tuple(self._row(device) for device in inventory.devices) if inventory else (),
            origin_s=self._tracks.now_s or 0.0,
            window_s=(-_WINDOW_S, 0.0),
            note=units.sentence(inventory.no_gpu_reason or "") if inventory else "",
        )

    def _row(self, device: Device) -> DeviceRow:
        sample = self._tracks.latest.get(device.device)
        return DeviceRow(
            device=device.device,
            label="Host" if device.device == HOST else device_label(device),
            name=device.name,
            figures=_figures(device, sample),
            panels=self._panels(device, sample),
            lost=self._lost.get(device.device, ""),
        )

    def _panels(self, device: Device, sample: Sample | None) -> tuple[Panel, ...]:
        scale, unit = units.bytes_unit(device.memory_total_bytes or 2**30)
        limit = sample.power_limit_mw / 1000 if sample and sample.power_limit_mw else None
        load = self._panel(device, "load_pct", "Load", "%", 1.0, 100.0)
        memory = self._panel(device, "memory_bytes", "Memory", unit, scale, None)
        if device.device == HOST:
            return load, memory
        return self._panel(device, "power_mw", "Power", "W", 1000.0, limit), load, memory

    def _panel(self, device: Device, field: str, title: str, unit: str, scale: float, top: float | None) -> Panel:
        curve = Curve(
            key=device.device,
            label="",
            colour=device_colour(device),
            series=self._tracks.series(device.device, field),
            scale=scale,
        )
        shown = title if why_absent(device, field) is None else f"{title} (not supported)"
        return Panel(key=field, title=shown, unit=unit, curves=(curve,), y_range=(0.0, top) if top else None)


def _figures(device: Device, sample: Sample | None) -> tuple[Figure, ...]:
    power, limit = (sample.power_mw, sample.power_limit_mw) if sample else (None, None)
    watts = units.watts(power) if limit is None else f"{units.watts(power)} of {units.watts(limit)}"
    load = _figure(device, "load_pct", "Load", units.percent(sample.load_pct if sample else None))
    memory_words = units.bytes_of(sample.memory_bytes if sample else None, device.memory_total_bytes)
    memory = _figure(device, "memory_bytes", "Memory", memory_words)
    if device.device == HOST:
        return load, memory
    return (
        _figure(device, "power_mw", "Power", watts),
        load,
        memory,
        _figure(device, "temperature_c", "Temperature", units.celsius(sample.temperature_c if sample else None)),
        _figure(device, "sm_clock_mhz", "SM clock", units.megahertz(sample.sm_clock_mhz if sample else None)),
    )


def _figure(device: Device, field: str, label: str, value: str) -> Figure:
    reason = why_absent(device, field)
    return Figure(label, value) if reason is None else Figure(label, "not supported", reason)
