"""How often a device renews a value, found by watching it change."""

from collections import deque

_KEPT = 64
_LEAST = 5


class PeriodWatch:
    """Watches one value. A driver renews it at a fixed period, so changes lie whole periods apart.

    The period is the tenth percentile of the last times between changes: a change may be missed when a value happens to
    stay the same (longer times), or seen a little early or late by the reader's own rhythm (shorter ones).
    """

    def __init__(self) -> None:
        self._value: float | None = None
        self._changed_ns: int | None = None
        self._between_ns: deque[int] = deque(maxlen=_KEPT)

    def see(self, t_ns: int, value: float) -> None:
        """Takes one reading."""
        if value == self._value:
            return
        if self._value is not None:
            if self._changed_ns is not None:
                self._between_ns.append(t_ns - self._changed_ns)
            self._changed_ns = t_ns
        self._value = value

    @property
    def period_ms(self) -> float | None:
        """The period, or None until the value was seen to change often enough."""
        if len(self._between_ns) < _LEAST:
            return None
        return round(sorted(self._between_ns)[len(self._between_ns) // 10] / 1e6, 1)
