"""The monotonic clock of another host as this program knows it: an offset and how far it may be off.

Only drawing, and telling which sample belongs to which moment, use it: durations never cross a clock.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from app.runs.host import ClockAnchor

_PINGS = 16
"""Pings, one a second."""
_DRIFT = 200e-6
"""How much two clocks may drift apart: each oscillator is within 100 ppm (https://www.ntp.org/ntpfaq/ntp-s-sw-clocks-quality)."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A host's clock minus this machine's, in nanoseconds, off by `error_ns` at most, and the round trip it is from."""

    offset_ns: int
    error_ns: int
    round_trip_ns: int


@dataclass(frozen=True, slots=True)
class _Ping:
    offset_ns: int
    round_trip_ns: int
    received_ns: int

    def at(self, now_ns: int) -> ClockOffset:
        """Return what it says of the offset at a later time."""
        drift_ns = round(_DRIFT * max(0, now_ns - self.received_ns + self.round_trip_ns))
        return ClockOffset(self.offset_ns, self.round_trip_ns // 2 + 1 + drift_ns, self.round_trip_ns)


class HostClock:
    """The offset of a host's monotonic clock, from the last pings.

    Each ping bounds it: the host read its clock between sending and receiving, so the true offset is within half the
    round trip of the middle (Cristian, https://doi.org/10.1007/BF01784024). The ping whose bound is the closest counts.
    A ping that contradicts an older one is right: one of the clocks stood still meanwhile, as in a suspended machine.

    Thread: any.
    """

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Know nothing yet; `now_ns` is this machine's clock."""
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._pings: deque[_Ping] = deque(maxlen=_PINGS)

    def add(self, sent_ns: int, received_ns: int, host_ns: int) -> None:
        """Add a ping: when it was sent and its answer received, here, and when the host answered, there."""
        new = _Ping(host_ns - (sent_ns + received_ns) // 2, received_ns - sent_ns, received_ns)
        now = new.at(received_ns)
        with self._lock:
            agreeing = [
                ping
                for ping in self._pings
                if abs(ping.offset_ns - new.offset_ns) <= ping.at(received_ns).error_ns + now.error_ns
            ]
            self._pings = deque([*agreeing, new], maxlen=_PINGS)

    def offset(self) -> ClockOffset:
        """Return the offset now; before the first ping `LookupError` is raised."""
        now_ns = self._now_ns()
        with self._lock:
            if not self._pings:
                raise LookupError("no ping was answered yet")
            return min((ping.at(now_ns) for ping in self._pings), key=lambda offset: offset.error_ns)

    def now(self) -> ClockAnchor:
        """Return this moment on the host's monotonic clock and this machine's wall clock."""
        found = self.offset()
        return ClockAnchor(self._now_ns() + found.offset_ns, time.time_ns(), found.error_ns)

    def now_ns(self) -> int:
        """Return now on the host's monotonic clock."""
        return self.now().t_ns
