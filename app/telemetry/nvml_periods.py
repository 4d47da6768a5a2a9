"""How often a driver renews its values, found by watching them change."""

import statistics
import time
from collections import deque
from collections.abc import Mapping

import msgspec

from app.samples import FieldInfo

# A device's fields are watched in the first ten seconds of each minute after its start.
_OBSERVE_NS, _OBSERVE_EVERY_NS = 10_000_000_000, 60_000_000_000
_MAX_CHANGES = 64
_MIN_CHANGES = 5
_SAME_PERIOD_READINGS = 1.2
"""Times between changes this many readings apart are of one period: a change is seen up to one reading late."""


class PeriodEstimator:
    """Estimate the period at which a driver renews one value; a reader sees a change at its next reading.

    So the times between changes are a whole number of readings, one more or one less from change to change, and their
    mean is the period. Where a value happens to stay the same a change is missed: such long times are left out. Who
    reads no faster than the driver renews sees a change every time, and learns nothing.
    """

    def __init__(self) -> None:
        self._value: float | None = None
        self._seen_ns = 0
        self._changed_ns: int | None = None
        self._changes: deque[tuple[int, int]] = deque(maxlen=_MAX_CHANGES)

    def add_reading(self, t_ns: int, value: float) -> None:
        """Add one reading."""
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
        if len(changes) < _MIN_CHANGES:
            return None
        gaps_ns = sorted(between for between, _ in changes)
        reading_ns = statistics.median(reading for _, reading in changes)
        typical_ns = gaps_ns[len(gaps_ns) // 4]
        single_periods = [time for time in gaps_ns if abs(time - typical_ns) < _SAME_PERIOD_READINGS * reading_ns]
        period_ns = statistics.fmean(single_periods)
        return round(period_ns / 1e6, 1) if period_ns > 1.1 * reading_ns else None


class FieldPeriods:
    """The periods of one device's fields, as far as they are known.

    Thread: several may add readings, each of its own fields.
    """

    def __init__(self) -> None:
        self._opened_ns = time.monotonic_ns()
        self._estimators: dict[str, PeriodEstimator] = {}

    def __getitem__(self, name: str) -> PeriodEstimator:
        """Return the estimator of a field."""
        return self._estimators.setdefault(name, PeriodEstimator())

    def is_time(self, t_ns: int) -> bool:
        """Return whether it is time to watch the fields."""
        return (t_ns - self._opened_ns) % _OBSERVE_EVERY_NS < _OBSERVE_NS

    def observe(self, t_ns: int, values: Mapping[str, float | None]) -> None:
        """Add one reading of some fields."""
        for name, value in values.items():
            if value is not None:
                self[name].add_reading(t_ns, value)

    def added_to(self, fields: Mapping[str, FieldInfo]) -> dict[str, FieldInfo]:
        """Return the fields with the periods seen so far."""
        periods = {name: estimator.period_ms for name, estimator in list(self._estimators.items())}
        return {
            name: info if periods.get(name) is None else msgspec.structs.replace(info, period_ms=periods[name])
            for name, info in fields.items()
        }
