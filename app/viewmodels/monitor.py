"""What the Monitor screen shows: every device with its numbers now and its last minute, without a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.records import RunEvent
from app.samples import HOST, SAMPLE_FIELDS, SLOW_FIELDS, Device, DeviceLost, Inventory, Processes, Sample, SlowSample
from app.viewmodels import units
from app.viewmodels.monitor_figures import Figure, figures_of, untold
from app.viewmodels.panels import Curve, Panel
from app.viewmodels.tracks import Tracks, device_colour, device_label, why_absent

_WINDOW_S = 60.0
_FIELDS = ("power_mw", "load_pct", "memory_bytes")
_MOST_PROCESSES = 8
_WITH_GPU = (
    "With an NVIDIA GPU each card has a row here: curves of its power, load and memory, its temperature and clocks, "
    "what holds it back, and which programs use it.\n\n"
    "Runs measured on two H200s come with the program. Put them into the history; "
    "Replay on a run's page plays what their cards did."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device: who it is, its numbers, who uses it, its plots, and what it does not tell. `lost` says it is gone."""

    device: str
    label: str
    name: str
    figures: tuple[Figure, ...]
    processes: str
    untold: str
    panels: tuple[Panel, ...]
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorState:
    """Everything the monitor shows; where there is no GPU, `note` says why, and `with_gpu` what there would be."""

    rows: tuple[DeviceRow, ...]
    origin_s: float
    window_s: tuple[float, float]
    note: str = ""
    with_gpu: str = ""


class MonitorModel:
    """Folds telemetry; a device stays on the screen when it stops answering, with the reason."""

    def __init__(self) -> None:
        self._inventory: Inventory | None = None
        self._tracks = Tracks(brief=True)
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
                self._tracks.add(event, _FIELDS)
                self._lost.pop(event.device, None)
                self._values.setdefault(event.device, {}).update(_told(event, SAMPLE_FIELDS))
            case SlowSample():
                told = _told(event, SLOW_FIELDS)
                self._values.setdefault(event.device, {}).update(told)
                self._first[event.device] = {**told, **self._first.get(event.device, {})}
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
            origin_s=self._tracks.now_s or 0.0,
            window_s=(-_WINDOW_S, 0.0),
            note=units.sentence(inventory.no_gpu_reason or "") if inventory else "",
            with_gpu=_WITH_GPU if inventory and inventory.no_gpu_reason else "",
        )

    def _row(self, device: Device) -> DeviceRow:
        values = self._values.get(device.device, {})
        lost = self._lost.get(device.device, "")
        return DeviceRow(
            device=device.device,
            label=device_label(device),
            name=device.name,
            figures=figures_of(device, values, self._first.get(device.device, {})),
            processes="" if lost else _process_words(self._processes.get(device.device)),
            untold="" if lost else untold(device),
            panels=self._panels(device, values),
            lost=lost,
        )

    def _panels(self, device: Device, values: Mapping[str, float]) -> tuple[Panel, ...]:
        scale, unit = units.bytes_unit(device.memory_total_bytes or 2**30)
        total = device.memory_total_bytes / scale if device.memory_total_bytes else None
        limit = values["power_limit_mw"] / 1000 if "power_limit_mw" in values else None
        load = self._panel(device, "load_pct", "Load", "%", 1.0, 100.0)
        memory = self._panel(device, "memory_bytes", "Memory", unit, scale, total)
        if device.device == HOST and why_absent(device, "power_mw"):
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
        reason = why_absent(device, field)
        shown = title if reason is None else f"{title} ({reason})"
        return Panel(key=field, title=shown, unit=unit, curves=(curve,), y_range=(0.0, top) if top else None)


def _told(sample: Sample | SlowSample, names: tuple[str, ...]) -> dict[str, float]:
    values = ((name, getattr(sample, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _process_words(found: Processes | None) -> str:
    """Who uses a GPU, a line each, the largest first; "" where the driver does not say."""
    if found is None:
        return ""
    if not found.processes:
        return "No process uses it"
    largest = sorted(found.processes, key=lambda process: -(process.memory_bytes or 0))
    lines = [f"{each.name} · {each.pid} · {units.byte_size(each.memory_bytes)}" for each in largest[:_MOST_PROCESSES]]
    more = len(largest) - _MOST_PROCESSES
    return "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])
