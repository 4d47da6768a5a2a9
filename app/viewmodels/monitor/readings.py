"""The current state of one device: its newest values, its users, and its states, worst first."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from app.analysis.comparability import ClockEvent
from app.values import units
from app.values.fields import FAST_FIELDS, FIELDS, SLOW_FIELDS, TOPICS, Field, Sample, SlowSample, Topic, fields_of
from app.values.limits import IMPLAUSIBLE
from app.values.samples import HOST, Device, DeviceLost, Processes
from app.viewmodels.format.cells import Tone
from app.viewmodels.format.telemetry_fields import format_field, format_throttle_reasons

Values = Mapping[str, float]

_SHOWN_WITH_ANOTHER = ("power_limit_mw",)
"""Fields without a figure of their own: the power reads `600 W of 700 W`."""


DeviceMetric = tuple[str, str]
"""The word for a number, and the number."""


def device_metrics(device: Device, now: Values, first: Values) -> tuple[DeviceMetric, ...]:
    """Return the figures of a device, by topic.

    `now` has the newest value of each field ever reported, `first` the first reading of each slow field, the origin of
    counters.
    """
    return tuple(metric for topic in TOPICS for metric in _topic_metrics(device, topic, now, first))


def _topic_metrics(device: Device, topic: Topic, now: Values, first: Values) -> list[DeviceMetric]:
    # Lost or implausible fields stay unavailable.
    available = {*now, *device.fields, *(name for name, why in device.absent.items() if why in ("lost", IMPLAUSIBLE))}
    fields = [field for field in fields_of(device.kind) if field.topic == topic != "worker" and field.name in available]
    if topic == "throttled":
        return [("Throttled", _format_throttled(fields, now, first))] if fields else []
    gauges = [field for field in fields if field.kind != "counter" and field.name not in _SHOWN_WITH_ANOTHER]
    metrics = [(field.label_on(device.kind), _format_metric(device, field, now)) for field in gauges]
    if topic == "memory" and fields and device.kind == "gpu":
        metrics.append(("Memory free", _format_memory_free(device, now)))
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


_THROTTLE_CAUSES = {
    "throttled_power_ns": "power",
    "throttled_thermal_ns": "heat",
    "throttled_brake_ns": "power brake",
}
"""The word for the time in each counter."""


def _format_throttled(counters: Sequence[Field], now: Values, first: Values) -> str:
    """Return the throttled time since the first reading, by cause, without causes of no time."""
    since_ns = {
        _THROTTLE_CAUSES[field.name]: now[field.name] - first[field.name]
        for field in counters
        if field.name in now and field.name in first
    }
    if not since_ns:
        return units.ABSENT
    counted = ", ".join(f"{cause} {units.seconds(ns / 1e9)}" for cause, ns in since_ns.items() if ns > 0)
    # The counters are slow fields: for seconds they do not show that throttling has begun.
    return counted or ("now" if format_throttle_reasons(int(now.get("throttle_reasons", 0))) else "never")


def describe_not_reported(device: Device, now: Values = MappingProxyType({})) -> str:
    """Return the fields that a device does not report, by reason, as one sentence; "" if it reports all.

    A field with a value `now` counts as reported, whatever probing said.
    """
    by_reason: dict[str, dict[str, None]] = {}
    for name, reason in device.absent.items():
        field = FIELDS[name]
        label = field.label if field.label[1:2].isupper() else field.label[0].lower() + field.label[1:]
        if name not in now:
            by_reason.setdefault(reason, {})[TOPICS[field.topic] or label] = None
    fields = "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in by_reason.items())
    device_text = "the host" if device.device == HOST else "this GPU"
    return f"Not reported by {device_text}: {fields}." if fields else ""


STALE_S = 3.0
"""After this time without a reading a device's numbers are no longer current."""
_SLOW_STALE_S = 25.0
"""A slow field not read for this long has no value any more: the slowest is read every 10 s."""
_THROTTLED_S = 2.0
"""How long a throttled GPU is shown as such: reasons that change many times a second are unreadable."""
_DRIVER_AWAY = ("Driver Not Loaded", "Uninitialized", "version mismatch")
"""NVML's words in the reason of a loss by the driver, not the GPU."""
_BUSY_PCT = 10.0
"""Below this load a device is not busy: a GPU from `_USED_PCT` on is in use; processors, which always are, are idle."""
_USED_PCT = 1.0
_THROTTLING = ~int(ClockEvent.IDLE | ClockEvent.CLOCKS_SET)


class DeviceState(NamedTuple):
    """The state of a device: severity, mark, a few words with their tone, and the reason as a sentence.

    The mark has its own shape for each severity, so that no state depends on its colour alone.
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
"""Names for a summary of states, by severity."""


def _state(severity: int, text: str, reason: str = "") -> DeviceState:
    symbol, tone = _MARKS[severity]
    return DeviceState(severity, symbol, text, tone, reason)


def worst_state(states: list[DeviceState], count: Callable[[int, int], str]) -> DeviceState:
    """Return several devices' states as one: the worst, with counts; empty without devices.

    `count` returns the words for that many devices of a severity.
    """
    by_severity = {severity: sum(state.severity == severity for state in states) for severity in SEVERITY_NAMES}
    counted = [count(severity, number) for severity, number in by_severity.items() if number]
    worst = max((state.severity for state in states), default=_IDLE)
    text = min((state.text for state in states if state.severity == _BUSY), default="Idle")  # busy rather than in use
    return _state(worst, " · ".join(counted) or (text if states else ""))


@dataclass(slots=True)
class Readings:
    """The newest values of a device with their times; implausible fields; when and why it was lost.

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

    def at(self, clock: Callable[[], float]) -> "Readings":
        """Return a copy with another clock, which no event changes."""
        values = self.sample, self.slow, self.first, self.processes, self.read_s, self.loss, self.lost_s
        return Readings(clock, *values, self.throttled, self.implausible)  # six times as fast as `replace`

    def add(self, sample: Sample) -> None:
        """Take a sample: fields that it lacks no longer have a value."""
        now_s = self.clock()
        self.sample, self.loss, self.lost_s = sample, "", None
        # Most are never displayed: 1,600 devices send thousands per second.
        if sample.load_pct is not None or sample.memory_bytes is not None or self.fast:
            self.read_s = now_s
        reasons = sample.throttle_reasons
        if reasons and (throttling := reasons & _THROTTLING):
            self.throttled = now_s, throttling
        if sample.implausible or self.implausible:
            self._mark(sample, self.fast)

    @property
    def fast(self) -> dict[str, float]:
        """Return the newest fast values."""
        return {} if self.sample is None else _reported(self.sample, FAST_FIELDS)

    def add_slow(self, sample: SlowSample) -> None:
        """Take a slow sample: it lacks fields that were not due."""
        values, now_s = _reported(sample, SLOW_FIELDS), self.clock()
        self.slow = {**self.slow, **{name: (now_s, value) for name, value in values.items()}}
        self.first = {**values, **self.first}
        self._mark(sample, values)

    def lose(self, loss: DeviceLost | None, reason: str) -> None:
        """Record that the device is lost, from now on if the message is new; drop its values."""
        if loss is not None:
            self.lost_s = self.clock()
        self.loss = reason
        self.sample, self.slow, self.first, self.implausible, self.processes = None, {}, {}, {}, None
        self.read_s = math.inf

    def values(self) -> dict[str, float]:
        """Return the newest values, except those not updated for too long."""
        oldest_s = self.clock() - _SLOW_STALE_S
        return {**{name: value for name, (t_s, value) in self.slow.items() if t_s > oldest_s}, **self.fast}

    @property
    def is_current(self) -> bool:
        return not self.loss and self.clock() - self.read_s < STALE_S

    def state(self, device: Device) -> DeviceState:
        """Return the device's worst state, with the others that apply."""
        now_s = self.clock()
        if self.loss:
            since = "" if self.lost_s is None else f" {units.age(now_s - self.lost_s)} ago"
            word = "Driver away" if any(words in self.loss for words in _DRIVER_AWAY) else "Lost"
            word = "No telemetry" if device.device == HOST else word
            return _state(_LOST, word, f"{word}{since}. {units.sentence(self.loss)}")
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
        if load_pct is not None and load_pct >= _BUSY_PCT:
            return _state(_BUSY, "Busy")
        if count or (load_pct is not None and load_pct >= _USED_PCT and device.device != HOST):
            return _state(_BUSY, "In use")
        return _state(_IDLE, "" if load_pct is None else "Idle")

    def _mark(self, sample: Sample | SlowSample, values: Values) -> None:
        """Record the fields whose newest reading is implausible."""
        still = {name: reason for name, reason in self.implausible.items() if name not in values}
        self.implausible = still | dict.fromkeys(sample.implausible, IMPLAUSIBLE)
        self.slow = {name: value for name, value in self.slow.items() if name not in self.implausible}


def _reported(sample: Sample | SlowSample, names: tuple[str, ...]) -> dict[str, float]:
    return {name: value for name in names if (value := getattr(sample, name)) is not None}
