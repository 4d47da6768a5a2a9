"""Monitor's model: all hosts with their devices in order, and the chosen one."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.telemetry.feed import updated_inventory
from app.values import units
from app.values.events import RunEvent
from app.values.fields import Sample, SlowSample
from app.values.samples import HOST, Device, DeviceLost, FieldsUpdated, Inventory, Processes
from app.viewmodels.format.cells import Cell, Column
from app.viewmodels.hosts import HostState
from app.viewmodels.monitor.cells import (
    DEVICE,
    STATE,
    TABLE_COLUMNS,
    Courses,
    MonitoredHost,
    SeriesKey,
    describe_count,
    device_cells,
    host_cells,
    host_state,
)
from app.viewmodels.monitor.readings import SEVERITY_NAMES
from app.viewmodels.plot.model import MONITOR_RANGES, TIME_RANGES, LiveSeries
from app.viewmodels.plot.panels import MONITOR_FIELDS, TelemetryBuffer
from app.viewmodels.run.live import TimeAxis, TimeView

FINE_RANGES = ("1 min",)
"""Ranges drawn from every reading of this machine; longer ones use one reading per second."""
UNFOLDED_AT_MOST = 12
"""The most hosts that are unfolded at first; with more, only hosts' rows are visible."""


class RowKey(NamedTuple):
    """A row of the table: a host, or one of its devices; this machine is the host ""."""

    host: str
    device: str | None = None


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The user's choices in Monitor; an empty `sort` leaves the rows in their natural order."""

    range: str = "1 min"
    sort: str = ""
    ascending: bool = False
    grouped: bool = True


class MonitorModel:
    """Stores the messages of all hosts, and builds the visible rows.

    Everything it returns is from the last `read`, so that header, rows and details of one frame belong to one moment.
    `hosts` has this machine, then the others in order, as of that moment.

    Thread: `handle` on that of the host's telemetry, which for this machine is the GUI's; the rest GUI only.

    Args:
        recent: This machine's fast fields; by default they are stored here.
        clock: Returns the time in seconds, on the clock of this machine's readings.
    """

    def __init__(self, recent: TelemetryBuffer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.recent = recent or TelemetryBuffer(short_history=True)
        self.history: dict[SeriesKey, LiveSeries] = {}
        """One value per second of each field of the table."""
        self.settings = TableSettings()
        self.view = TimeView(self.settings.range)
        self._newest_s = clock()
        self._courses = self._show_courses()
        self._lock = threading.Lock()
        self._live = {"": MonitoredHost("", clock)}
        self._names: tuple[str, ...] = ("",)
        self._is_rearranged = False
        self._folded: dict[str, bool] = {}
        self._words: tuple[str, ...] = ()
        self._order: list[RowKey] | None = None
        self.read()

    def handle(self, event: RunEvent | Inventory | Processes, host: str = "") -> None:
        """Take a message of a host's telemetry; events of runs do not matter here."""
        with self._lock:
            live_host = self._live_host(host)
            match event:
                case Sample():
                    if not host:
                        self.recent.add(event)
                    live_host.heard_s = self.clock()
                    live_host.readings_of(event.device).add(event)
                case SlowSample():
                    live_host.readings_of(event.device).add_slow(event)
                case Processes():
                    live_host.readings_of(event.device).processes = event
                case Inventory():
                    live_host.take_inventory(event)
                    self._is_rearranged = True
                case DeviceLost():
                    live_host.readings_of(event.device).lose(event, event.reason)
                    self._update_inventory(live_host, event)
                case FieldsUpdated():
                    self._update_inventory(live_host, event)
                case _:
                    pass

    def update(self, states: Sequence[HostState]) -> None:
        with self._lock:
            for state in states:
                self._live_host(state.name).take_link(state)
        names = ("", *(state.name for state in states))
        if names != self._names:
            self._names, self._is_rearranged = names, True

    def read(self) -> None:
        with self._lock:
            now_s = self.clock()
            self.hosts = [self._live[name].at(lambda: now_s) for name in self._names]
            self._hosts = {host.name: host for host in self.hosts}
            if self._is_rearranged:
                self._is_rearranged, self._order = False, None

    def tick(self) -> None:
        """Add the newest values to the history, and sort again; called once per second."""
        self._newest_s = self.clock()
        live = [(host, device) for name in self._names for host in (self._live[name],) for device in host.devices]
        for host, device in live:
            readings = host.readings_of(device.device)
            values = readings.values() if readings.is_current and host.link.stage == "connected" else {}
            for name in MONITOR_FIELDS:
                if name in values:
                    self.series(host.name, device.device, name).append(self._newest_s, values[name])
        self._courses = self._show_courses()
        if self.settings.sort or self._words:
            self._order = None

    @property
    def has_other_hosts(self) -> bool:
        return len(self.hosts) > 1

    def host(self, name: str) -> MonitoredHost:
        return self._hosts[name]

    def inventory(self, host: str) -> Inventory | None:
        """Return the devices of a host, if known."""
        live_host = self._live.get(host)
        return live_host.inventory if live_host is not None else None

    def change(self, settings: TableSettings) -> None:
        range_name = settings.range if settings.range in MONITOR_RANGES else MONITOR_RANGES[0]
        sort = settings.sort if settings.sort in TABLE_COLUMNS else ""
        self.settings = replace(settings, range=range_name, sort=sort)
        self.view.window = range_name
        self._courses = self._show_courses()
        self._order = None

    def series(self, host: str, device: str, field: str) -> LiveSeries:
        """Return one value per second of a device's field: nine hours take at most 45 kB."""
        key = host, device, field
        return self.history.get(key) or self.history.setdefault(key, LiveSeries(4, keep=256, base_s=2.0))

    def time_axis(self) -> TimeAxis:
        """Return the time that plots show; one-second values do not change in between."""
        is_fine = self.settings.range in FINE_RANGES
        return self.view.recent_axis(self.clock() if is_fine else self._newest_s, 0.0)

    def follow(self, window: str | None = None) -> None:
        self.change(replace(self.settings, range=window or self.settings.range))
        self.view.follow()

    def toggle_pause(self) -> None:
        """Freeze the plots, or follow again."""
        self.view.toggle_pause(self.time_axis())

    def hold(self, start: float, end: float) -> None:
        self.view.hold(self.time_axis(), start, end)

    def _show_courses(self) -> Courses:
        length_s = TIME_RANGES[self.settings.range].last_s or 0.0
        return Courses(self.history, self._newest_s - length_s, self._newest_s)

    def sort_by(self, key: str) -> None:
        """Sort by a column, largest first, names by number; again reverses it, a third time ends it."""
        first = key == DEVICE
        if self.settings.sort != key:
            self.change(replace(self.settings, sort=key, ascending=first))
        elif self.settings.ascending == first:
            self.change(replace(self.settings, ascending=not first))
        else:
            self.change(replace(self.settings, sort=""))

    def search(self, text: str) -> None:
        """Show only devices that match a text: by host, name, state, or a process and its user."""
        self._words, self._order = tuple(text.lower().split()), None

    def fold(self, host: str | None = None, folded: bool | None = None) -> None:
        """Fold or unfold a host; None means all hosts, and without `folded` the state is toggled."""
        for name in [monitored.name for monitored in self.hosts] if host is None else (host,):
            self._folded[name] = not self.is_folded(name) if folded is None else folded
        self._order = None

    def is_folded(self, host: str) -> bool:
        """Return whether only the host's own row is visible."""
        return self._folded.get(host, bool(host) and len(self.hosts) - 1 > UNFOLDED_AT_MOST)

    def layout(self) -> list[RowKey]:
        if self._order is not None:
            return self._order
        rows = self._order = []
        if self.has_host_rows:
            for host in self._sorted_hosts():
                devices = self._sorted(host, [device for device in host.devices if self._is_found(host, device)])
                named = all(word in host.title.lower() for word in self._words)
                if devices or named:
                    rows.append(RowKey(host.name))
                    if self._words or not self.is_folded(host.name):
                        rows += [RowKey(host.name, device.device) for device in devices]
        else:
            pairs = [(host, device) for host in self.hosts for device in host.devices if self._is_found(host, device)]
            if self.has_other_hosts:
                pairs = [(host, device) for host, device in pairs if device in host.main_devices]
            rows += [RowKey(host.name, device.device) for host, device in self._in_order(pairs)]
        return rows

    @property
    def has_host_rows(self) -> bool:
        """Return whether each host has a row above its devices; a single machine only with several GPUs."""
        return self.settings.grouped and (self.has_other_hosts or len(self._hosts[""].main_devices) > 1)

    def columns(self) -> Mapping[str, Column]:
        """Return the columns by key; without GPUs only those of processors."""
        devices = [device for host in self._hosts.values() for device in host.devices]
        filled = {name for device in devices for name in device.fields}
        if not filled or any(device.kind == "gpu" for device in devices):
            return TABLE_COLUMNS
        filled |= {DEVICE, STATE}
        return {key: column for key, column in TABLE_COLUMNS.items() if key in filled}

    def cells(self, row_key: RowKey) -> tuple[Cell, ...]:
        """Return the current cells of a row, in the order of `columns`."""
        host, columns = self._hosts[row_key.host], self.columns()
        device = None if row_key.device is None else host.device(row_key.device)
        if device is None:
            row = host_cells(host, self._courses, is_folded=self.is_folded(row_key.host))
        else:
            with_host = self.has_other_hosts and not self.has_host_rows
            row = device_cells(host, device, self._courses, with_host=with_host)
        return tuple(cell for key, cell in zip(TABLE_COLUMNS, row, strict=True) if key in columns)

    def reason(self, row_key: RowKey) -> str:
        """Return why a row has no figures, to replace them; "" if it has some."""
        host = self._hosts[row_key.host]
        if row_key.device is None:
            return "" if host.link.stage == "connected" else host_state(host).text
        return host.readings_of(row_key.device).loss

    def summary(self) -> str:
        """Return the numbers of GPUs and hosts, of failing hosts, and of GPUs in a bad state."""
        connected = [host for host in self.hosts if host.link.stage == "connected" and host.devices]
        gpus = [(host, device) for host in connected for device in host.devices if device.device != HOST]
        severities = [host.state(device).severity for host, device in gpus]
        counts = {severity: severities.count(severity) for severity in SEVERITY_NAMES}
        text = f"{len(gpus):,} {units.plural('GPU', len(gpus))}" if gpus else "No GPU"
        if self.has_other_hosts:
            text += f" on {len(connected):,} of {len(self.hosts):,} machines"
        if unreached := sum(host.link.stage in ("lost", "failed") for host in self.hosts):
            text += f", {unreached:,} not reached"
        return " · ".join([text, *(describe_count(severity, count) for severity, count in counts.items() if count)])

    def _live_host(self, name: str) -> MonitoredHost:
        """Return a host as events change it; only under the lock."""
        return self._live.get(name) or self._live.setdefault(
            name, MonitoredHost(name, self.clock, HostState(name=name))
        )

    def _update_inventory(self, host: MonitoredHost, update: DeviceLost | FieldsUpdated) -> None:
        if host.inventory is not None:
            host.take_inventory(updated_inventory(host.inventory, update))
            self._is_rearranged = True

    def _is_found(self, host: MonitoredHost, device: Device) -> bool:
        return not self._words or host.mentions(device, self._words)

    def _sorted_hosts(self) -> list[MonitoredHost]:
        if self.settings.sort in ("", DEVICE):
            return self.hosts
        totals = [(host.total(self.settings.sort), host) for host in self.hosts]
        return [host for _, host in sorted(totals, key=lambda pair: self._rank(pair[0]))]

    def _sorted(self, host: MonitoredHost, devices: list[Device]) -> list[Device]:
        """Return the devices of a host in order, processors last."""
        pairs = self._in_order([(host, device) for device in devices if device.device != HOST])
        return [*(device for _, device in pairs), *(device for device in devices if device.device == HOST)]

    def _in_order(self, pairs: list[tuple[MonitoredHost, Device]]) -> list[tuple[MonitoredHost, Device]]:
        key = self.settings.sort
        if key in ("", DEVICE):
            return pairs[::-1] if key and not self.settings.ascending else pairs
        return sorted(pairs, key=lambda pair: self._rank(pair[0].value(pair[1], key)))

    def _rank(self, value: float | None) -> tuple[bool, float]:
        """Return a value's sort key in the user's direction; absent values come last either way."""
        if value is None:
            return True, 0.0
        return False, value if self.settings.ascending else -value
