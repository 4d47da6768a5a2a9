"""How often a device renews a value, found by watching it change."""

import statistics
from collections import deque

_KEPT = 64
_LEAST = 5
_SAME_STEP = 1.2
"""Times between changes this many readings apart are of one period: a change is seen up to one reading late."""


class PeriodWatch:
    """Watches one value. A driver renews it at a fixed period, and a reader sees each change at its next reading.

    So the times between changes are a whole number of readings, one more or one less from change to change, and their
    mean is the period. Where a value happens to stay the same a change is missed: such long times are left out. Who
    reads no faster than the driver renews sees a change every time, and learns nothing.
    """

    def __init__(self) -> None:
        self._value: float | None = None
        self._seen_ns = 0
        self._changed_ns: int | None = None
        self._changes: deque[tuple[int, int]] = deque(maxlen=_KEPT)

    def see(self, t_ns: int, value: float) -> None:
        """Takes one reading."""
        reading_ns, self._seen_ns = t_ns - self._seen_ns, t_ns
        if value == self._value:
            return
        if self._value is not None:
            if self._changed_ns is not None:
                self._changes.append((t_ns - self._changed_ns, reading_ns))
            self._changed_ns = t_ns
        self._value = value

    @property
    def period_ms(self) -> float | None:
        """The period; None until the value was seen to change often enough, and by readings that are close enough."""
        changes = list(self._changes)
        if len(changes) < _LEAST:
            return None
        between_ns = sorted(between for between, _ in changes)
        reading_ns = statistics.median(reading for _, reading in changes)
        usual_ns = between_ns[len(between_ns) // 4]
        of_one_period = [time for time in between_ns if abs(time - usual_ns) < _SAME_STEP * reading_ns]
        period_ns = statistics.fmean(of_one_period)
        return round(period_ns / 1e6, 1) if period_ns > 1.1 * reading_ns else None
