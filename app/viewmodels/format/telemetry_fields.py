"""Telemetry fields as text: labels, values with units, throttle reasons and throttled intervals of a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

from app import units
from app.analysis.comparability import ClockEvent
from app.fields import FAST_FIELDS, FIELDS, SLOW_FIELDS, Sample
from app.samples import HOST

_THROTTLE_REASONS = {
    ClockEvent.POWER_CAP: "power cap",
    ClockEvent.HARDWARE_SLOWDOWN: "hardware slowdown",
    ClockEvent.SYNC_BOOST: "sync boost",
    ClockEvent.THERMAL_LIMIT: "thermal limit",
    ClockEvent.HARDWARE_THERMAL_LIMIT: "hardware thermal limit",
    ClockEvent.POWER_BRAKE: "power brake",
    ClockEvent.DISPLAY_CLOCKS: "display clocks",
}
_GAP_NS = 2_000_000_000
_MAX_INTERVALS = 256
"""Stretches kept of each GPU while it is watched. When there are more, neighbours of the older half are joined."""


@dataclass(frozen=True, slots=True)
class ThrottleInterval:
    """One GPU held back for one set of reasons; times in seconds of the monotonic clock."""

    device: str
    start_s: float
    end_s: float
    reasons: int

    @property
    def text(self) -> str:
        """The reasons, as `power cap, thermal limit`."""
        return format_throttle_reasons(self.reasons)


@dataclass(slots=True)
class _Interval:
    reasons: int
    start_ns: int
    end_ns: int


def format_throttle_reasons(reasons: int) -> str:
    """NVML's bits in words; idle and a chosen application clock hold nothing back."""
    bits = reasons & ~(ClockEvent.IDLE | ClockEvent.CLOCKS_SET)
    parts = [word for bit, word in _THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~sum(_THROTTLE_REASONS)
    return ", ".join([*parts, *([f"reason 0x{unknown:x}"] if unknown else [])])


class ThrottleTracker:
    """The stretches in which each GPU was held back; old ones that come thick and fast are told as one.

    `most` of each GPU are kept apart; None is all.
    """

    def __init__(self, max_intervals: int | None = _MAX_INTERVALS) -> None:
        self._max_intervals = max_intervals
        self._intervals: dict[str, list[_Interval]] = {}
        self._newest: dict[str, _Interval] = {}

    def add(self, sample: Sample) -> None:
        """Take what a sample says; a device that does not say has no stretches. A reason holds until another sample."""
        if sample.throttle_reasons is None:
            return
        reasons = sample.throttle_reasons & ~(ClockEvent.IDLE | ClockEvent.CLOCKS_SET)
        newest = self._newest.get(sample.device)
        continues = newest is not None and sample.t_ns - newest.end_ns < _GAP_NS
        if newest is not None and continues:
            newest.end_ns = sample.t_ns
        if newest is None or not continues or newest.reasons != reasons:
            self._begin(sample.device, _Interval(reasons, sample.t_ns, sample.t_ns))

    def overlapping(self, start_s: float, end_s: float) -> list[ThrottleInterval]:
        """The stretches that reach into a window."""
        return [
            ThrottleInterval(device, each.start_ns / 1e9, each.end_ns / 1e9, each.reasons)
            for device, intervals in self._intervals.items()
            for each in intervals
            if each.end_ns / 1e9 >= start_s and each.start_ns / 1e9 <= end_s
        ]

    def _begin(self, device: str, interval: _Interval) -> None:
        self._newest[device] = interval
        if not interval.reasons:
            return
        intervals = self._intervals.setdefault(device, [])
        intervals.append(interval)
        if self._max_intervals is not None and len(intervals) > self._max_intervals:
            older = intervals[: self._max_intervals // 2]
            joined = [
                _Interval(first.reasons | second.reasons, first.start_ns, second.end_ns)
                for first, second in zip(older[0::2], older[1::2], strict=True)
            ]
            intervals[: self._max_intervals // 2] = joined


_LABELS: Mapping[str, str] = {
    "power_mw": "Power",
    "power_average_mw": "Average power (1 s)",
    "power_limit_mw": "Power limit",
    "energy_mj": "Energy counter",
    "load_pct": "Load",
    "memory_load_pct": "Memory load",
    "memory_bytes": "Memory used",
    "memory_reserved_bytes": "Memory reserved",
    "temperature_c": "Temperature",
    "memory_temperature_c": "Memory temperature",
    "sm_clock_mhz": "SM clock",
    "memory_clock_mhz": "Memory clock",
    "throttle_reasons": "Clocks held back by",
    "throttled_power_ns": "Throttled by power",
    "throttled_thermal_ns": "Throttled by heat",
    "throttled_brake_ns": "Throttled by power brake",
    "fan_pct": "Fan",
    "pcie_tx_bytes_per_s": "PCIe out",
    "pcie_rx_bytes_per_s": "PCIe in",
    "nvlink_tx_bytes_per_s": "NVLink out",
    "nvlink_rx_bytes_per_s": "NVLink in",
    "sm_active_pct": "SM active",
    "sm_occupancy_pct": "SM occupancy",
    "tensor_active_pct": "Tensor cores",
    "fp32_active_pct": "FP32 pipe",
    "fp16_active_pct": "FP16 pipe",
    "dram_active_pct": "DRAM bandwidth",
    "worker_load_pct": "Worker's load",
    "worker_memory_bytes": "Worker's memory",
    "sampler_cpu_s": "Sampler's processor time",
}
_NOT_THROTTLING = ((ClockEvent.IDLE, "idle"), (ClockEvent.CLOCKS_SET, "clocks set by the user"))
"""Clock event reasons that hold nothing back; the others are in `throttling`."""
_HOST_ONLY = ("worker_load_pct", "worker_memory_bytes", "sampler_cpu_s")
_HOST_FIELDS = ("power_mw", "load_pct", "memory_bytes", *_HOST_ONLY)


def device_fields(device: str) -> tuple[str, ...]:
    """Every field a device may have, in the order of the records."""
    fields = (*FAST_FIELDS, *SLOW_FIELDS)
    if device == HOST:
        return tuple(name for name in fields if name in _HOST_FIELDS)
    return tuple(name for name in fields if name not in _HOST_ONLY)


def field_label(name: str) -> str:
    """What a field is called."""
    return _LABELS[name]


def format_field(name: str, value: float | None) -> str:
    """A field's value with its unit as a reader wants it: watts for milliwatts, GiB for bytes, words for bits."""
    if value is None:
        return units.ABSENT
    unit = FIELDS[name].unit
    if unit == "bits":
        return format_clock_events(int(value))
    if unit == "bytes/s":
        return f"{units.byte_size(value)}/s"
    if unit == "bytes":
        return units.byte_size(value)
    if unit == "mW":
        return units.with_unit(value / 1000, "W", 1)
    if unit == "mJ":
        return units.with_unit(value / 1000, "J")
    if unit == "ns":
        return units.seconds(value / 1e9) if value else units.with_unit(0, "s")
    return units.with_unit(value, unit, 1 if unit in ("%", "s") and value != int(value) else 0)


def format_clock_events(mask: int) -> str:
    """A mask of clock event reasons in words, those too that hold nothing back."""
    parts = [*(word for bit, word in _NOT_THROTTLING if mask & bit), format_throttle_reasons(mask)]
    return ", ".join(filter(None, parts)) or "nothing"
