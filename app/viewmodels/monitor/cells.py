"""The cells of Monitor's table: a row per device, and one per host above its devices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from app.analysis.pyramid import stroke_columns
from app.values import units
from app.values.fields import FIELDS
from app.values.limits import IMPLAUSIBLE
from app.values.records import Floats
from app.values.samples import HOST, Device, Inventory, Processes
from app.viewmodels.format.cells import THIS_MACHINE, Bar, Cell, Column, Tone
from app.viewmodels.format.naming import format_gpu_counts, short_gpu_name
from app.viewmodels.format.telemetry_fields import describe_process, format_field
from app.viewmodels.hosts import SILENT_S, HostState, connect_label, describe_stage
from app.viewmodels.monitor.readings import SEVERITY_NAMES, DeviceState, Readings, worst_state
from app.viewmodels.plot.model import LiveSeries
from app.viewmodels.plot.panels import MONITOR_FIELDS, device_label

COURSE_POINTS = 60
"""The parts of the chosen range; a sparkline shows the highest value of each."""

DEVICE, STATE, PROCESSES = "device", "state", "processes"
_HELP: Mapping[str, str] = {
    "load_pct": "Share of the time in which a kernel ran; for a host, the mean of its GPUs",
    "power_mw": "Power now, of the limit; for a host, the sum of its GPUs",
    "memory_bytes": "Memory in use, of the total",
    "temperature_c": "Of the GPU's core; for a host, of its warmest GPU",
}
_COURSES = ("load_pct", "power_mw")
_NBSP = "\N{NO-BREAK SPACE}"
_text_column = partial(Column, numeric=False, shrink="text", least=160)

TABLE_COLUMNS: Mapping[str, Column] = {
    DEVICE: _text_column("Device", "GPUs by number, then the processors; for a host, its name"),
    STATE: _text_column("State", "What is wrong with it, or whether it is busy; the worst first", least=184),
    **{
        name: Column(FIELDS[name].label, text, has_spark=name in _COURSES, shrink="plot" if name in _COURSES else "")
        for name, text in _HELP.items()
    },
    PROCESSES: _text_column("Used by", "Processes that compute on it, with their users", least=112),
}
"""The columns by key, which is the field's name if it shows one."""


def device_title(device: Device) -> str:
    """Return a device in one word, for the devices of one host: `GPU 0`, or `CPU`."""
    return "CPU" if device.device == HOST else device_label(device)


_HERE = HostState(name="", stage="connected")


@dataclass(slots=True)
class MonitoredHost:
    """A host with its devices, the state of its link since `linked_s`, and the time of its last message.

    This machine's name is "".
    """

    name: str
    clock: Callable[[], float]
    link: HostState = _HERE
    inventory: Inventory | None = None
    devices: tuple[Device, ...] = ()
    linked_s: float = 0.0
    heard_s: float = 0.0
    readings: dict[str, Readings] = field(default_factory=dict)

    def at(self, clock: Callable[[], float]) -> "MonitoredHost":
        """Return the current state, as a copy with another clock that no event changes."""
        readings = {device: reading.at(clock) for device, reading in self.readings.items()}
        return replace(self, clock=clock, readings=readings)

    def take_link(self, link: HostState) -> None:
        if link.stage != self.link.stage:
            self.linked_s = self.clock()
        self.link = link

    def take_inventory(self, inventory: Inventory) -> None:
        """Take the devices: GPUs first, then the processors."""
        for device in inventory.devices:
            readings = self.readings_of(device.device)
            if device.lost is not None:
                readings.lose(None, device.lost)
            else:
                readings.loss = ""
        self.inventory = inventory
        self.devices = tuple(sorted(inventory.devices, key=lambda device: (device.device == HOST, device.index)))

    def readings_of(self, device: str) -> Readings:
        readings = self.readings.get(device)
        return self.readings.setdefault(device, Readings(self.clock)) if readings is None else readings

    def device(self, name: str) -> Device | None:
        """Return a device, or None for one that no longer exists."""
        return next((device for device in self.devices if device.device == name), None)

    def state(self, device: Device) -> DeviceState:
        return self.readings_of(device.device).state(device)

    @property
    def title(self) -> str:
        return self.name or THIS_MACHINE.capitalize()

    @property
    def main_devices(self) -> tuple[Device, ...]:
        """Return its GPUs, or its processors if it has none: they determine the host's figures."""
        return tuple(device for device in self.devices if device.device != HOST) or self.devices

    @property
    def machine_text(self) -> str:
        names = [device.name for device in self.devices if device.device != HOST]
        return format_gpu_counts(names) or ("CPU only" if self.devices else "")

    def value(self, device: Device, key: str) -> float | None:
        """Return the number by which a column sorts a device; None if absent."""
        readings = self.readings_of(device.device)
        if key == STATE:
            return readings.state(device).severity
        if key == PROCESSES:
            return None if readings.processes is None else len(readings.processes.processes)
        return readings.values().get(key) if readings.is_current else None

    def total(self, key: str) -> float | None:
        """Return the number by which a column sorts the host; None while it is not connected."""
        devices = self.main_devices if self.link.stage == "connected" else ()
        return combine(key, [self.value(device, key) for device in devices])

    def mentions(self, device: Device, words: Sequence[str]) -> bool:
        """Return whether host, device, its state or its processes contain all these words, given in small letters."""
        listed = self.readings_of(device.device).processes
        processes = listed.processes if listed else ()
        users = (f"{process.name or 'process'} {process.user} {process.pid}" for process in processes)
        text = " ".join((self.title, device_title(device), device.name, self.state(device).text, *users)).lower()
        return all(word in text for word in words)


def combine(key: str, values: Sequence[float | None]) -> float | None:
    """Return the values of a column as one: their sum, the mean of shares, or the highest; None without any."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    if key in ("power_mw", "memory_bytes", PROCESSES):
        return sum(present)
    is_share = key in FIELDS and FIELDS[key].kind == "share"
    return sum(present) / len(present) if is_share else max(present)


SeriesKey = tuple[str, str, str]
"""A host, its device, and one of that one's fields."""


@dataclass(frozen=True, slots=True)
class Courses:
    """The source of sparklines: curves, and the time that they show; each is created once."""

    series: Mapping[SeriesKey, LiveSeries]
    start_s: float
    end_s: float
    _cache: dict[tuple[object, ...], Floats | None] = field(default_factory=dict)

    def of(self, host: MonitoredHost, devices: Sequence[Device], name: str, total: float | None) -> Floats | None:
        """Return a field's course as shares of the total, or of its highest value; for several devices their mean."""
        key = (host.name, name, total, *(device.device for device in devices))
        if key not in self._cache:
            self._cache[key] = self._make(host, devices, name, total)
        return self._cache[key]

    def _make(self, host: MonitoredHost, devices: Sequence[Device], name: str, total: float | None) -> Floats | None:
        series = [self.series.get((host.name, device.device, name)) for device in devices]
        courses = [self._course(curve) for curve in series if curve is not None]
        if not courses:
            return None
        if len(courses) == 1:
            return courses[0] / (total or max(1.0, float(np.fmax.reduce(courses[0]))))
        counts = np.isfinite(courses).sum(axis=0)
        mean: Floats = np.where(counts, np.nan_to_num(courses).sum(axis=0) / np.maximum(counts, 1), np.nan)
        top = total or float(np.fmax.reduce(mean))
        return mean / top if np.isfinite(top) and top else mean

    def _course(self, series: LiveSeries) -> Floats:
        rows = series.window(self.start_s, self.end_s, COURSE_POINTS)
        return stroke_columns(rows, self.start_s, self.end_s, COURSE_POINTS).high


def device_cells(host: MonitoredHost, device: Device, courses: Courses, *, with_host: bool) -> tuple[Cell, ...]:
    """Return the row of a device.

    Sparklines come from `courses`; `with_host` the device is named with its host, as in a list over all hosts.
    """
    readings = host.readings_of(device.device)
    values, state = readings.values(), readings.state(device)
    name = f"{device_title(device)} · {short_gpu_name(device.name)}"
    label = f"{host.title} · {name}" if with_host else name
    cells: dict[str, Cell] = {
        DEVICE: Cell(text=label, key=device.index, tooltip=f"{host.title}\n{device.name}\n{device.device}"),
        STATE: Cell(text=state.reason or state.text, symbol=state.symbol, tone=state.tone, tooltip=state.reason),
        PROCESSES: _processes_cell(readings.processes),
    }
    for key in MONITOR_FIELDS:
        value = values.get(key)
        total = _capacity(host, [device], key)
        text = IMPLAUSIBLE if key in readings.implausible else _figure(key, value, total)
        course = courses.of(host, [device], key, total) if key in _COURSES and value is not None else None
        cells[key] = _figure_cell(key, text, value, total, course, is_current=readings.is_current)
    return tuple(cells[key] for key in TABLE_COLUMNS)


def host_cells(host: MonitoredHost, courses: Courses, *, is_folded: bool) -> tuple[Cell, ...]:
    """Return the row of a host: its link, and the combined figures of its devices."""
    devices, has_link = host.main_devices, host.link.stage == "connected"
    mark = ("▸" if is_folded else "▾") if host.devices else ""
    state = host_state(host)
    cells: dict[str, Cell] = {
        DEVICE: Cell(
            text=" · ".join(filter(None, (host.title, host.machine_text))),
            symbol=mark,
            tooltip="\n".join(filter(None, (host.title, host.machine_text, describe_stage(host.link)[0]))),
        ),
        STATE: Cell(text=state.text, symbol=state.symbol, tone=state.tone, tooltip=state.reason),
        PROCESSES: _users_cell(host),
    }
    for key in MONITOR_FIELDS:
        value, counted = host.total(key), [device for device in devices if host.value(device, key) is not None]
        total = _capacity(host, counted, key)
        has_course = has_link and key in _COURSES and value is not None
        per_device = total / len(counted) if total and key != "load_pct" else total
        course = courses.of(host, devices, key, per_device) if has_course else None
        cells[key] = _figure_cell(key, _figure(key, value, total), value, total, course)
    return tuple(cells[key] for key in TABLE_COLUMNS)


def _capacity(host: MonitoredHost, devices: Sequence[Device], key: str) -> float | None:
    """Return how much of a field devices can have together; None if that is unknown for one."""
    if key == "power_mw":
        limits = [host.readings_of(device.device).values().get("power_limit_mw") for device in devices]
    else:
        limits = [{"load_pct": 100.0, "memory_bytes": device.memory_total_bytes}.get(key) for device in devices]
    return combine(key, limits) if all(limits) else None


def host_state(host: MonitoredHost) -> DeviceState:
    """Return the state of a host: its link's if that has a problem, else its devices'."""
    text, tone = describe_stage(host.link)
    if host.link.stage != "connected":
        symbols: dict[Tone, str] = {"bad": "✖", "busy": "…", "quiet": "○"}
        sentence = host.link.text or units.sentence(text)
        return DeviceState(5 if tone == "bad" else 0, symbols.get(tone, ""), sentence, tone, host.link.text)
    age_s = host.clock() - host.heard_s
    if host.name and host.heard_s and age_s >= SILENT_S:
        return DeviceState(4, "?", f"No data for {units.age(age_s)}", "warning")
    state = worst_state([host.state(device) for device in host.main_devices], describe_count)
    return state if state.text else DeviceState(0, "○", text, "quiet")


def describe_count(severity: int, count: int) -> str:
    """Return how many devices are in a state: "2 throttled"."""
    return f"{count:,} {SEVERITY_NAMES[severity]}"


def _figure_cell(
    key: str, text: str, value: float | None, total: float | None, course: Floats | None, *, is_current: bool = True
) -> Cell:
    """Return a figure with its course, or memory over a bar of its share of the total; quiet if not current."""
    number, _, unit = text.rpartition(_NBSP)
    has_unit = number and key not in _COURSES
    share = value / total if key == "memory_bytes" and value is not None and total else None
    return Cell(
        text=number if has_unit else text,
        unit=unit if has_unit else "",
        key=value,
        tone=None if is_current else "quiet",
        spark=() if course is None else tuple(course.tolist()),
        bar=None if share is None else Bar(min(share, 1.0), leads=is_current),
    )


def _figure(key: str, value: float | None, total: float | None) -> str:
    """Return a value of the table as text, with the total if known; "" without a value."""
    if value is None:
        return ""
    if key == "power_mw" and total:
        return f"{value / 1e3:,.0f} of {units.watts(total)}"
    if key == "memory_bytes":
        return units.bytes_of_total(value, total)
    return units.percent(value) if key == "load_pct" else format_field(key, value)


def _processes_cell(listed: Processes | None) -> Cell:
    if listed is None:
        return Cell(text="")
    if listed.reason is not None:
        return Cell(text="Unknown", tone="quiet", tooltip=units.sentence(f"The driver does not say: {listed.reason}"))
    if not listed.processes:
        return Cell(text="No process", tone="quiet")
    largest = sorted(listed.processes, key=lambda process: -(process.memory_bytes or 0))
    first, more = largest[0], len(largest) - 1
    process_name = first.name or f"process {first.pid}"
    name = f"{process_name} ({first.user})" if first.user else process_name
    lines = "\n".join(map(describe_process, largest))
    return Cell(text=f"{name} and {more} more" if more else name, key=len(largest), tooltip=lines)


def _users_cell(host: MonitoredHost) -> Cell:
    if action := connect_label(host.link):
        return Cell(text=action, tone="busy")
    count = host.total(PROCESSES)
    words: dict[float | None, str] = {None: "", 0: "No process", 1: "1 process"}
    return Cell(text=words.get(count, f"{count or 0:,.0f} processes"), tone="quiet")
