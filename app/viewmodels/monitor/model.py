"""Monitor's model: all hosts with their devices in order, and the one that is chosen."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from app import units
from app.events import RunEvent
from app.fields import FIELDS, Sample, SlowSample
from app.samples import HOST, Device, DeviceLost, FieldsUpdated, Inventory, Processes
from app.telemetry.feed import updated_inventory
from app.viewmodels.format.cells import Cell, Column
from app.viewmodels.hosts import HostState
from app.viewmodels.monitor.cells import (
    DEVICE,
    Courses,
    MonitoredHost,
    describe_count,
    device_cells,
    host_cells,
    host_state,
    table_columns,
)
from app.viewmodels.monitor.history import RANGES_S, History, SeriesKey
from app.viewmodels.monitor.readings import SEVERITY_NAMES, TABLE_FIELDS, is_pinnable
from app.viewmodels.plot.telemetry_buffer import TelemetryBuffer

UNFOLDED_AT_MOST = 12
"""So many hosts are unfolded at first; of more only their own rows are."""
_ALL_FIELDS_AT_MOST = 100
"""Of so many devices every field is kept over time; of more those of the table, so that memory is bounded."""
_STORED_FIELDS = tuple(name for name, field in FIELDS.items() if name in TABLE_FIELDS or is_pinnable(field))


class Place(NamedTuple):
    """A row of the table: a host, or a device of it; this machine is the host ""."""

    host: str
    device: str | None = None


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What the user has chosen of Monitor.

    Attributes:
        range: The name of the range of time.
        sort: The column that the rows are sorted by; "" is their natural order.
        ascending: Whether the smallest is first.
        grouped: Whether devices stand below their host.
        pinned: Fields with a column and a plot of their own.
    """

    range: str = "1 min"
    sort: str = ""
    ascending: bool = False
    grouped: bool = True
    pinned: tuple[str, ...] = ()


class MonitorModel:
    """Keeps what all hosts say, and makes the rows that are in sight.

    All that it is asked for is of the last `read`, so that everything in one frame is of one moment: header, rows and
    details. `hosts` has this machine, then the others in their order, as they were then.

    Thread: `handle` that of the host's telemetry, which for this machine is the GUI's; the rest GUI only.

    Args:
        recent: This machine's fast fields as they were read; by default they are kept here.
        clock: Returns now in seconds; of this machine's readings too.
    """

    def __init__(self, recent: TelemetryBuffer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.recent = recent or TelemetryBuffer(short_history=True)
        self.history = History()
        self.settings = TableSettings()
        self._courses = Courses(self.history, RANGES_S[self.settings.range])
        self._lock = threading.Lock()
        self._live = {"": MonitoredHost("", clock)}
        self._names: tuple[str, ...] = ("",)
        self._is_rearranged = False
        self._folded: dict[str, bool] = {}
        self._words: tuple[str, ...] = ()
        self._order: list[Place] | None = None
        self.read()

    def handle(self, event: RunEvent | Inventory | Processes, host: str = "") -> None:
        """Take what a host's telemetry says; events of runs do not matter here."""
        with self._lock:
            known = self._live_host(host)
            match event:
                case Sample():
                    if not host:
                        self.recent.add(event)
                    known.heard_s = self.clock()
                    known.readings_of(event.device).add(event)
                case SlowSample():
                    known.readings_of(event.device).add_slow(event)
                case Processes():
                    known.readings_of(event.device).processes = event
                case Inventory():
                    known.take_inventory(event)
                    self._is_rearranged = True
                case DeviceLost():
                    known.readings_of(event.device).lose(event, event.reason)
                    self._update_inventory(known, event)
                case FieldsUpdated():
                    self._update_inventory(known, event)
                case _:
                    pass

    def update(self, states: Sequence[HostState]) -> None:
        """Take how the connections to the other hosts are now."""
        with self._lock:
            for state in states:
                self._live_host(state.name).take_link(state)
        names = ("", *(state.name for state in states))
        if names != self._names:
            self._names, self._is_rearranged = names, True

    def read(self) -> None:
        """Take everything as it is now, for the next frame."""
        with self._lock:
            now_s = self.clock()
            self.hosts = [self._live[name].at(lambda: now_s) for name in self._names]
            self._hosts = {host.name: host for host in self.hosts}
            if self._is_rearranged:
                self._is_rearranged, self._order = False, None

    def tick(self) -> None:
        """Add the newest values to what is kept over time, and sort anew; once a second."""
        live = [self._live[name] for name in self._names]
        shown = [(host, device) for host in live for device in host.devices]
        names = _STORED_FIELDS if len(shown) <= _ALL_FIELDS_AT_MOST else (*TABLE_FIELDS, *self.settings.pinned)
        found: dict[SeriesKey, float] = {}
        for host, device in shown:
            readings = host.readings_of(device.device)
            if readings.is_current and host.link.stage == "connected":
                values = readings.values()
                found.update(
                    (SeriesKey(host.name, device.device, name), values[name]) for name in names if name in values
                )
        self.history.add(self.clock(), found)
        self._courses = Courses(self.history, RANGES_S[self.settings.range])
        if self.settings.sort or self._words:
            self._order = None

    @property
    def has_other_hosts(self) -> bool:
        """Whether there is any other host than this machine."""
        return len(self.hosts) > 1

    def host(self, name: str) -> MonitoredHost:
        """Return one host."""
        return self._hosts[name]

    def inventory(self, host: str) -> Inventory | None:
        """Return the devices of a host, where they are known by now."""
        known = self._live.get(host)
        return known.inventory if known is not None else None

    def change(self, settings: TableSettings) -> None:
        """Take what the user has chosen, as far as it exists."""
        pinned = tuple(name for name in settings.pinned if name in FIELDS and is_pinnable(FIELDS[name]))
        range_name = settings.range if settings.range in RANGES_S else next(iter(RANGES_S))
        sort = settings.sort if settings.sort in table_columns(pinned) else ""
        self.settings = replace(settings, range=range_name, pinned=pinned, sort=sort)
        self._courses = Courses(self.history, RANGES_S[range_name])
        self._order = None

    def sort_by(self, key: str) -> None:
        """Sort by a column, the largest first, names by number; again turns it round, a third time ends it."""
        first = key == DEVICE
        if self.settings.sort != key:
            self.change(replace(self.settings, sort=key, ascending=first))
        elif self.settings.ascending == first:
            self.change(replace(self.settings, ascending=not first))
        else:
            self.change(replace(self.settings, sort=""))

    def pin(self, field: str, *, pinned: bool) -> None:
        """Give a field a column and a plot of its own, or take them away."""
        others = tuple(name for name in self.settings.pinned if name != field)
        self.change(replace(self.settings, pinned=(*others, field) if pinned else others))

    def search(self, text: str) -> None:
        """Show only devices that a text mentions: by host, name, state, or a process and its user."""
        self._words, self._order = tuple(text.lower().split()), None

    def fold(self, host: str | None = None, folded: bool | None = None) -> None:
        """Fold a host or unfold it; None is all hosts, and without `folded` it is turned round."""
        for name in [each.name for each in self.hosts] if host is None else (host,):
            self._folded[name] = not self.is_folded(name) if folded is None else folded
        self._order = None

    def is_folded(self, host: str) -> bool:
        """Return whether only the row of a host itself is shown."""
        return self._folded.get(host, bool(host) and len(self.hosts) - 1 > UNFOLDED_AT_MOST)

    def layout(self) -> list[Place]:
        """Return the place of every row, in order."""
        if self._order is not None:
            return self._order
        made = self._order = []
        if self.has_host_rows:
            for host in self._sorted_hosts():
                devices = self._sorted(host, [device for device in host.devices if self._is_found(host, device)])
                named = all(word in host.title.lower() for word in self._words)
                if devices or named:
                    made.append(Place(host.name))
                    shown = [] if self.is_folded(host.name) and not self._words else devices
                    made += [Place(host.name, device.device) for device in shown]
        else:
            found = [(host, device) for host in self.hosts for device in host.devices if self._is_found(host, device)]
            if self.has_other_hosts:
                found = [(host, device) for host, device in found if device in host.main_devices]
            made += [Place(host.name, device.device) for host, device in self._in_order(found)]
        return made

    @property
    def has_host_rows(self) -> bool:
        """Whether each host has a row over its devices; a single machine only with several GPUs."""
        return self.settings.grouped and (self.has_other_hosts or len(self._hosts[""].main_devices) > 1)

    def columns(self) -> dict[str, Column]:
        """Return the columns by their key."""
        return table_columns(self.settings.pinned)

    def cells(self, place: Place) -> tuple[Cell, ...]:
        """Return what one row shows now."""
        host, columns = self._hosts[place.host], tuple(self.columns())
        device = None if place.device is None else host.device(place.device)
        if device is None:
            return host_cells(host, columns, self._courses, is_folded=self.is_folded(place.host))
        with_host = self.has_other_hosts and not self.has_host_rows
        return device_cells(host, device, columns, self._courses, with_host=with_host)

    def reason(self, place: Place) -> str:
        """Return why a row has no figures, which then takes the place of them; "" where it has some."""
        host = self._hosts[place.host]
        if place.device is None:
            return "" if host.link.stage == "connected" else host_state(host).text
        return host.readings_of(place.device).loss

    def summary(self) -> str:
        """Return how many GPUs there are, on how many hosts, how many of these fail, and of GPUs are in a bad state."""
        connected = [host for host in self.hosts if host.link.stage == "connected" and host.devices]
        gpus = [(host, device) for host in connected for device in host.devices if device.device != HOST]
        severities = [host.state(device).severity for host, device in gpus]
        counts = {severity: severities.count(severity) for severity in SEVERITY_NAMES}
        found = f"{len(gpus):,} {units.plural('GPU', len(gpus))}" if gpus else "No GPU"
        if self.has_other_hosts:
            found += f" on {len(connected):,} of {len(self.hosts):,} machines"
        if unreached := sum(host.link.stage in ("lost", "failed") for host in self.hosts):
            found += f", {unreached:,} not reached"
        return " · ".join([found, *(describe_count(severity, count) for severity, count in counts.items() if count)])

    def _live_host(self, name: str) -> MonitoredHost:
        """Return a host as events change it; only with the lock."""
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
        found = [(host.total(self.settings.sort), host) for host in self.hosts]
        return [host for _, host in sorted(found, key=lambda each: self._rank(each[0]))]

    def _sorted(self, host: MonitoredHost, devices: list[Device]) -> list[Device]:
        """Return the devices of a host in order; its processors stay last, for they are not of their kind."""
        ordered = [device for _, device in self._in_order([(host, each) for each in devices if each.device != HOST])]
        return [*ordered, *(each for each in devices if each.device == HOST)]

    def _in_order(self, found: list[tuple[MonitoredHost, Device]]) -> list[tuple[MonitoredHost, Device]]:
        key = self.settings.sort
        if key in ("", DEVICE):
            return found[::-1] if key and not self.settings.ascending else found
        return sorted(found, key=lambda each: self._rank(each[0].value(each[1], key)))

    def _rank(self, value: float | None) -> tuple[bool, float]:
        """Return what sorts a value as the user wants it; what is absent comes last either way."""
        if value is None:
            return True, 0.0
        return False, value if self.settings.ascending else -value
