"""Monitor's list of hosts: a section each, with its link, the age of its data and its GPUs."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app import units
from app.fields import Sample
from app.samples import HOST, Device, DeviceLost, FieldsUpdated, Inventory
from app.telemetry.feed import updated_inventory
from app.telemetry.messages import SamplerMessage
from app.viewmodels.format.cells import Tone
from app.viewmodels.format.naming import format_gpu_counts
from app.viewmodels.hosts import SILENT_S, HostState, describe_stage
from app.viewmodels.plot.telemetry_buffer import device_label

Order = Literal["name", "load"]
"""By what hosts are ordered; by load the busiest is first."""

HISTORY = 60
"""Seconds of load that are drawn next to a device."""
UNFOLDED_AT_MOST = 12
"""So many hosts are unfolded at first; of more only their lines are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """One device of a host: its figures as text, and the load of its last minute in percent, the newest last."""

    label: str
    name: str
    load: str
    power: str
    memory: str
    temperature: str
    load_pct: float | None
    history: Sequence[float]
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    """The line of a host: what it is, how its link is, how old its data are.

    `is_stale` is true where figures are of earlier; `problem` says why there are none.
    """

    host: str
    machine: str
    link: str
    tone: Tone
    age: str
    load_pct: float | None
    is_stale: bool
    is_folded: bool
    has_devices: bool
    problem: str = ""
    can_connect: bool = False


Line = HostLine | DeviceLine


class _HostData:
    """The newest of one host. The thread of its telemetry writes single references, which the GUI thread reads."""

    def __init__(self) -> None:
        self.inventory: Inventory | None = None
        self.devices: tuple[Device, ...] = ()
        self.samples: dict[str, Sample] = {}
        self.heard_s = 0.0

    def take_inventory(self, inventory: Inventory) -> None:
        """Take the devices: what is shown are the GPUs, or the processors where there is none."""
        self.devices = tuple(each for each in inventory.devices if each.device != HOST) or inventory.devices
        self.inventory = inventory
        self.history: dict[str, deque[float]] = {}


class HostsModel:
    """Keeps the newest figures of all hosts, and makes the lines that are in view.

    Thread: `handle` that of the host's telemetry; the rest GUI only.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._data: dict[str, _HostData] = {}
        self._states: dict[str, HostState] = {}
        self._folded: dict[str, bool] = {}
        self._names: tuple[str, ...] = ()
        self._positions: list[tuple[str, int | None]] | None = None
        self.order: Order = "name"

    def handle(self, host: str, message: SamplerMessage) -> None:
        """Take what a host's telemetry says."""
        data = self._data.setdefault(host, _HostData())
        match message:
            case Sample():
                data.samples[message.device] = message
                data.heard_s = self._clock()
            case Inventory():
                data.take_inventory(message)
                self._positions = None
            case DeviceLost() | FieldsUpdated():
                if data.inventory is not None:
                    data.take_inventory(updated_inventory(data.inventory, message))
                    self._positions = None

    def update(self, states: Sequence[HostState]) -> None:
        """Take how the connections are now."""
        self._states = {state.name: state for state in states}
        self._arrange()

    def tick(self) -> None:
        """Add the newest loads to what is drawn of each device; once a second."""
        for name, state in self._states.items():
            if state.stage == "connected" and (data := self._data.get(name)) is not None:
                for device, sample in data.samples.copy().items():
                    load = float("nan") if sample.load_pct is None else sample.load_pct
                    data.history.setdefault(device, deque(maxlen=HISTORY)).append(load)
        if self.order == "load":
            self._arrange()

    def sort(self, order: Order) -> None:
        """Order the hosts."""
        self.order = order
        self._arrange()

    def fold(self, host: str | None = None, folded: bool | None = None) -> None:
        """Fold a host or unfold it; None is all hosts, and without `folded` it is turned round."""
        self._positions = None
        for name in self._names if host is None else (host,):
            self._folded[name] = not self.is_folded(name) if folded is None else folded

    def is_folded(self, host: str) -> bool:
        """Return whether only the line of a host itself is shown."""
        return self._folded.get(host, len(self._states) > UNFOLDED_AT_MOST)

    def inventory(self, host: str) -> Inventory | None:
        """Return the devices of a host, where they are known."""
        data = self._data.get(host)
        return data.inventory if data is not None else None

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts, in order."""
        return self._names

    def layout(self) -> list[tuple[str, int | None]]:
        """Return the place of every line: its host, and the number of its device; None is the host's own line."""
        if (known := self._positions) is not None:
            return known
        positions: list[tuple[str, int | None]] = []
        self._positions = positions  # before it is filled: what comes meanwhile makes it anew
        for name in self._names:
            positions.append((name, None))
            if not self.is_folded(name):
                positions += [(name, index) for index in range(len(self._devices(name)))]
        return positions

    def line(self, host: str, device: int | None) -> Line:
        """Return what one line shows now."""
        if device is None:
            return self._host_line(host)
        return self._device_line(host, self._devices(host)[device])

    def summary(self) -> str:
        """Return how many hosts and GPUs there are: "3 of 4 hosts connected · 14 GPUs"."""
        connected = [name for name, state in self._states.items() if state.stage == "connected"]
        gpus = sum(len(found.machine.gpus) for name in connected if (found := self.inventory(name)) is not None)
        total = len(self._states)
        hosts = f"{len(connected)} of {total:,} {units.plural('host', total)} connected"
        return " · ".join([hosts, *([f"{gpus:,} {units.plural('GPU', gpus)}"] if gpus else [])])

    def _arrange(self) -> None:
        names = list(self._states)
        if self.order == "load":
            names.sort(key=lambda name: -(self._load_pct(name) or -1.0))
        if self._names != tuple(names):
            self._names, self._positions = tuple(names), None

    def _devices(self, host: str) -> tuple[Device, ...]:
        """Return the GPUs of a host, or its processors where it has none."""
        data = self._data.get(host)
        return data.devices if data is not None else ()

    def _load_pct(self, host: str) -> float | None:
        """Return the mean load of a host's GPUs, or of its processors where it has none."""
        data = self._data.get(host)
        if data is None or self._states[host].stage != "connected":
            return None
        samples = (data.samples.get(device.device) for device in self._devices(host))
        loads = [sample.load_pct for sample in samples if sample is not None and sample.load_pct is not None]
        return sum(loads) / len(loads) if loads else None

    def _host_line(self, host: str) -> HostLine:
        state, inventory = self._states[host], self.inventory(host)
        link, tone = describe_stage(state)
        data = self._data.get(host)
        age_s = self._clock() - data.heard_s if data is not None else 0.0
        is_connected = state.stage == "connected"
        names = [gpu.name for gpu in inventory.machine.gpus] if inventory is not None else []
        machine = "" if inventory is None else format_gpu_counts(names) or "CPU only"
        return HostLine(
            host=host,
            machine=machine,
            link=link,
            tone=tone,
            age=_describe_age(age_s) if is_connected and data is not None else "",
            load_pct=self._load_pct(host),
            is_stale=not is_connected or age_s >= SILENT_S,
            is_folded=self.is_folded(host),
            has_devices=bool(self._devices(host)),
            problem="" if is_connected else state.text,
            can_connect=state.can_retry,
        )

    def _device_line(self, host: str, device: Device) -> DeviceLine:
        data = self._data[host]
        sample = data.samples.get(device.device)
        known = sample or Sample(t_ns=0, device=device.device)
        return DeviceLine(
            label=device_label(device),
            name=device.name,
            load=units.percent(known.load_pct),
            power=units.watts(known.power_mw),
            memory=units.bytes_of_total(known.memory_bytes, device.memory_total_bytes),
            temperature=units.celsius(known.temperature_c),
            load_pct=known.load_pct,
            history=tuple(data.history.get(device.device, ())),
            lost=device.lost or "",
        )


def _describe_age(age_s: float) -> str:
    return "now" if age_s < SILENT_S else f"data {units.age(age_s)} old"
