"""When the GPUs held their clocks back, and why, in words."""

from dataclasses import dataclass

from app.analysis.clock_events import ClockEvent
from app.samples import Sample

_WORDS = {
    ClockEvent.POWER_CAP: "power cap",
    ClockEvent.HARDWARE_SLOWDOWN: "hardware slowdown",
    ClockEvent.SYNC_BOOST: "sync boost",
    ClockEvent.THERMAL_LIMIT: "thermal limit",
    ClockEvent.HARDWARE_THERMAL_LIMIT: "hardware thermal limit",
    ClockEvent.POWER_BRAKE: "power brake",
    ClockEvent.DISPLAY_CLOCKS: "display clocks",
}
_SILENCE_NS = 2_000_000_000
_MOST = 256
"""Stretches kept of each GPU while it is watched. When there are more, neighbours of the older half are joined."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """One GPU held back for one set of reasons; times in seconds of the monotonic clock."""

    device: str
    start_s: float
    end_s: float
    reasons: int

    @property
    def words(self) -> str:
        """The reasons, as `power cap, thermal limit`."""
        return throttle_words(self.reasons)


@dataclass(slots=True)
class _Stretch:
    reasons: int
    start_ns: int
    end_ns: int


def throttle_words(reasons: int) -> str:
    """NVML's bits in words; idle and a chosen application clock hold nothing back."""
    bits = reasons & ~(ClockEvent.IDLE | ClockEvent.CLOCKS_SET)
    known = [word for bit, word in _WORDS.items() if bits & bit]
    unknown = bits & ~sum(_WORDS)
    return ", ".join([*known, *([f"reason 0x{unknown:x}"] if unknown else [])])


class Throttling:
    """The stretches in which each GPU was held back; old ones that come thick and fast are told as one.

    `most` of each GPU are kept apart; None is all.
    """

    def __init__(self, most: int | None = _MOST) -> None:
        self._most = most
        self._stretches: dict[str, list[_Stretch]] = {}
        self._newest: dict[str, _Stretch] = {}

    def add(self, sample: Sample) -> None:
        """Take what a sample says; a device that does not say has no stretches. A reason holds until another sample."""
        if sample.throttle_reasons is None:
            return
        reasons = sample.throttle_reasons & ~(ClockEvent.IDLE | ClockEvent.CLOCKS_SET)
        newest = self._newest.get(sample.device)
        goes_on = newest is not None and sample.t_ns - newest.end_ns < _SILENCE_NS
        if newest is not None and goes_on:
            newest.end_ns = sample.t_ns
        if newest is None or not goes_on or newest.reasons != reasons:
            self._begin(sample.device, _Stretch(reasons, sample.t_ns, sample.t_ns))

    def between(self, start_s: float, end_s: float) -> list[Throttle]:
        """The stretches that reach into a window."""
        return [
            Throttle(device, each.start_ns / 1e9, each.end_ns / 1e9, each.reasons)
            for device, stretches in self._stretches.items()
            for each in stretches
            if each.end_ns / 1e9 >= start_s and each.start_ns / 1e9 <= end_s
        ]

    def _begin(self, device: str, stretch: _Stretch) -> None:
        self._newest[device] = stretch
        if not stretch.reasons:
            return
        stretches = self._stretches.setdefault(device, [])
        stretches.append(stretch)
        if self._most is not None and len(stretches) > self._most:
            older = stretches[: self._most // 2]
            joined = [
                _Stretch(first.reasons | second.reasons, first.start_ns, second.end_ns)
                for first, second in zip(older[0::2], older[1::2], strict=True)
            ]
            stretches[: self._most // 2] = joined
