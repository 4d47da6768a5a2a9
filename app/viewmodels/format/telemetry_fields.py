"""Telemetry values as text with units, clock event reasons in words, and the throttled intervals of GPUs."""

from dataclasses import dataclass

from app.analysis.comparability import ClockEvent
from app.values import units
from app.values.fields import FIELDS, Sample
from app.values.samples import GpuProcess, Processes

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
"""The most intervals stored per GPU of a live view. Beyond it, adjacent ones of the older half are joined."""


@dataclass(frozen=True, slots=True)
class ThrottleInterval:
    """One GPU throttled for one set of reasons; times in seconds of the monotonic clock."""

    device: str
    start_s: float
    end_s: float
    reasons: int

    @property
    def text(self) -> str:
        """Return the reasons, such as `power cap, thermal limit`."""
        return format_throttle_reasons(self.reasons)


@dataclass(slots=True)
class _Interval:
    reasons: int
    start_ns: int
    end_ns: int


def format_throttle_reasons(reasons: int) -> str:
    """Return NVML's bits in words; idle and a chosen application clock do not throttle."""
    bits = reasons & ~(ClockEvent.IDLE | ClockEvent.CLOCKS_SET)
    reasons_text = [word for bit, word in _THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~sum(_THROTTLE_REASONS)
    return ", ".join([*reasons_text, *([f"reason 0x{unknown:x}"] if unknown else [])])


class ThrottleTracker:
    """Collects the intervals in which each GPU was throttled.

    Args:
        max_intervals: Most intervals per GPU; beyond it, the older half are joined in pairs. None stores all.
    """

    def __init__(self, max_intervals: int | None = _MAX_INTERVALS) -> None:
        self._max_intervals = max_intervals
        self._intervals: dict[str, list[_Interval]] = {}
        self._newest: dict[str, _Interval] = {}

    def add(self, sample: Sample) -> None:
        """Take a sample; its reasons hold until the next one. A device that reports none has no intervals."""
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
        """Return the intervals that overlap a window, in seconds of the monotonic clock."""
        return [
            ThrottleInterval(device, interval.start_ns / 1e9, interval.end_ns / 1e9, interval.reasons)
            for device, intervals in self._intervals.items()
            for interval in intervals
            if interval.end_ns / 1e9 >= start_s and interval.start_ns / 1e9 <= end_s
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


_NOT_THROTTLING = ((ClockEvent.IDLE, "idle"), (ClockEvent.CLOCKS_SET, "clocks set by the user"))
"""Clock event reasons that do not throttle."""


def format_field(name: str, value: float | None) -> str:
    """Return a field's value in the screens' unit: watts for milliwatts, GiB for bytes, reasons for bits."""
    if value is None:
        return units.ABSENT
    field = FIELDS[name]
    if field.unit == "bits":
        return format_clock_events(int(value))
    if field.unit == "bytes/s":
        return f"{units.byte_size(value)}/s"
    if field.unit == "bytes":
        return units.byte_size(value)
    if field.unit == "mW":
        return units.watts(value)
    amount = value / field.scale
    if field.unit == "ns" and amount:
        return units.seconds(amount)
    has_decimal = field.unit in ("%", "s") and amount != int(amount)
    return units.with_unit(amount, field.display_unit, 1 if has_decimal else 0)


def format_clock_events(mask: int) -> str:
    """Return a mask of clock event reasons in words, including those that do not throttle."""
    texts = [*(text for bit, text in _NOT_THROTTLING if mask & bit), format_throttle_reasons(mask)]
    return ", ".join(filter(None, texts)) or "none"


def process_parts(process: GpuProcess) -> tuple[str, ...]:
    """Return a process in parts: name and id, user, running time, memory."""
    running = units.ABSENT if process.running_s is None else units.age(process.running_s)
    memory = units.byte_size(process.memory_bytes)
    return process.title, process.user or units.ABSENT, running, memory


def describe_process(process: GpuProcess) -> str:
    """Return what is known of a process in words, or that its user is unknown."""
    owned = process.title + (f" of {process.user}" if process.user else "")
    running = "" if process.running_s is None else f"running for {units.age(process.running_s)}"
    memory = "" if process.memory_bytes is None else units.byte_size(process.memory_bytes)
    hidden = "" if process.user else "whose user the system hides"
    return ", ".join(filter(None, (owned, hidden, running, memory)))


def describe_users(users: Processes) -> str:
    """Return the users of a GPU, largest first, or why they are unknown, in one line."""
    if users.reason is not None:
        return f"who uses it is not known ({users.reason})"
    largest = sorted(users.processes, key=lambda process: -(process.memory_bytes or 0))
    return f"used by {'; '.join(map(describe_process, largest))}" if largest else "used by no process"
