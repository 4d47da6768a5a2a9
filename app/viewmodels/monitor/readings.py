"""What is known of one device now: its newest values, who uses it, and the state it is in, the worst first."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from app import units
from app.analysis.comparability import ClockEvent
from app.fields import FAST_FIELDS, SLOW_FIELDS, Sample, SlowSample
from app.limits import IMPLAUSIBLE
from app.samples import HOST, Device, DeviceLost, Processes
from app.viewmodels.format.cells import Tone
from app.viewmodels.format.telemetry_fields import format_throttle_reasons
from app.viewmodels.monitor.figures import Values

STALE_S = 3.0
"""Without a reading for so long, a device's numbers are no longer those of now."""
_SLOW_STALE_S = 25.0
"""A slow field that was not read for so long has no value any more: the slowest is read every 10 s."""
_THROTTLED_S = 2.0
"""For so long a throttled GPU is said to be throttled: reasons that come and go many times a second nobody can read."""
_DRIVER_AWAY = ("Driver Not Loaded", "Uninitialized", "version mismatch")
"""NVML's words in the reason of a loss that is the driver's, not the GPU's."""
_LOWEST_LOAD_PCT = {HOST: 10.0}
_LOWEST_GPU_LOAD_PCT = 1.0
"""Below it a device is idle; some program or other always uses a little of the processors."""
_THROTTLING = ~int(ClockEvent.IDLE | ClockEvent.CLOCKS_SET)


class DeviceState(NamedTuple):
    """The state of a device: how bad, its mark, a few words, the tone of them, and the reason as a sentence.

    The mark has a shape of its own for each severity, so that no state is told by its colour alone.
    """

    severity: int
    symbol: str
    text: str
    tone: Tone
    reason: str = ""


_LOST, _STALE, _THROTTLED, _SHARED, _BUSY, _IDLE = range(5, -1, -1)
_MARKS: dict[int, tuple[str, Tone]] = {
    _LOST: ("✖", "bad"),
    _STALE: ("?", "warning"),
    _THROTTLED: ("▲", "warning"),
    _SHARED: ("◆", "warning"),
    _BUSY: ("●", "good"),
    _IDLE: ("○", "quiet"),
}
SEVERITY_NAMES = {_LOST: "lost", _STALE: "not read", _THROTTLED: "throttled", _SHARED: "shared"}
"""The states that a summary counts, by their severity."""


def _state(severity: int, text: str, reason: str = "") -> DeviceState:
    symbol, tone = _MARKS[severity]
    return DeviceState(severity, symbol, text, tone, reason)


def worst_state(states: list[DeviceState], count: Callable[[int, int], str]) -> DeviceState:
    """Return several devices' states as one: the worst, and how many have which; of none an empty one.

    Args:
        states: Those of the devices.
        count: Returns the words for so many devices of a severity.
    """
    by_severity = {severity: sum(state.severity == severity for state in states) for severity in SEVERITY_NAMES}
    counted = [count(severity, number) for severity, number in by_severity.items() if number]
    worst = max((state.severity for state in states), default=_IDLE)
    return _state(worst, " · ".join(counted) or (f"{'Busy' if worst == _BUSY else 'Idle'}" if states else ""))


@dataclass(slots=True)
class Readings:
    """The newest values of a device and when they came; fields that are implausible; when and why it was lost.

    Nothing is changed in place. Thread: one writes, any reads.
    """

    clock: Callable[[], float]
    sample: Sample | None = None
    slow: dict[str, tuple[float, float]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    processes: Processes | None = None
    read_s: float = math.inf
    loss: str = ""
    lost_s: float | None = None
    throttled: tuple[float, int] = (-math.inf, 0)
    implausible: dict[str, str] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Take a sample: what it lacks has no value any more."""
        now_s = self.clock()
        self.sample, self.loss, self.lost_s = sample, "", None
        # Most come without being looked at: of 1,600 devices thousands a second.
        if sample.load_pct is not None or sample.memory_bytes is not None or self.fast:
            self.read_s = now_s
        reasons = sample.throttle_reasons
        if reasons and (throttling := reasons & _THROTTLING):
            self.throttled = now_s, throttling
        if sample.implausible or self.implausible:
            self._mark(sample, self.fast)

    @property
    def fast(self) -> dict[str, float]:
        """The newest fast values."""
        return {} if self.sample is None else _reported(self.sample, FAST_FIELDS)

    def add_slow(self, sample: SlowSample) -> None:
        """Take a slow sample: it lacks what was not due."""
        values, now_s = _reported(sample, SLOW_FIELDS), self.clock()
        self.slow = {**self.slow, **{name: (now_s, value) for name, value in values.items()}}
        self.first = {**values, **self.first}
        self._mark(sample, values)

    def lose(self, loss: DeviceLost | None, reason: str) -> None:
        """Note that the device is lost, since now where that was said just now; nothing is left of its values."""
        if loss is not None:
            self.lost_s = self.clock()
        self.loss = reason
        self.sample, self.slow, self.first, self.implausible, self.processes = None, {}, {}, {}, None
        self.read_s = math.inf

    def values(self) -> dict[str, float]:
        """Return the newest values, without those that were not renewed for too long."""
        oldest_s = self.clock() - _SLOW_STALE_S
        return {**{name: value for name, (t_s, value) in self.slow.items() if t_s > oldest_s}, **self.fast}

    @property
    def is_current(self) -> bool:
        """Whether its values are those of now."""
        return not self.loss and self.clock() - self.read_s < STALE_S

    def state(self, device: Device) -> DeviceState:
        """Return the state of the device, the worst that is true of it first, with what else is."""
        now_s = self.clock()
        if self.loss:
            return self._lost_state(device, now_s)
        if self.read_s == math.inf:
            return _state(_IDLE, "No reading yet")
        if now_s - self.read_s >= STALE_S:
            return _state(_STALE, f"No reading for {units.age(now_s - self.read_s)}")
        count = len(self.processes.processes) if self.processes is not None else 0
        since_s, reasons = self.throttled
        if now_s - since_s < _THROTTLED_S:
            others = [f"shared by {count}"] if count > 1 else []
            return _state(_THROTTLED, " · ".join([f"Throttled: {format_throttle_reasons(reasons)}", *others]))
        if count > 1:
            return _state(_SHARED, f"Shared by {count} processes")
        load_pct = self.sample.load_pct if self.sample is not None else None
        if load_pct is None:
            return _state(_BUSY if count else _IDLE, "In use" if count else "")
        if load_pct < _LOWEST_LOAD_PCT.get(device.device, _LOWEST_GPU_LOAD_PCT):
            return _state(_BUSY if count else _IDLE, "In use" if count else "Idle")
        return _state(_BUSY, "Busy")

    def _lost_state(self, device: Device, now_s: float) -> DeviceState:
        since = "" if self.lost_s is None else f" {units.age(now_s - self.lost_s)} ago"
        word = "Driver away" if any(words in self.loss for words in _DRIVER_AWAY) else "Lost"
        word = "No telemetry" if device.device == HOST else word
        return _state(_LOST, word, f"{word}{since}. {units.sentence(self.loss)}")

    def _mark(self, sample: Sample | SlowSample, values: Values) -> None:
        """Note the fields whose newest reading cannot be true."""
        still = {name: reason for name, reason in self.implausible.items() if name not in values}
        self.implausible = still | dict.fromkeys(sample.implausible, IMPLAUSIBLE)
        self.slow = {name: value for name, value in self.slow.items() if name not in self.implausible}


def _reported(sample: Sample | SlowSample, names: tuple[str, ...]) -> dict[str, float]:
    return {name: value for name in names if (value := getattr(sample, name)) is not None}
