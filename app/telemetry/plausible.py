"""Removes implausible readings from samples at their source: no consumer sees them (docs/telemetry.md)."""

import math
from typing import Any

from app.values.fields import FIELDS, DeviceKind, fields_of
from app.values.limits import SLACK_S


class PlausibleReadings:
    """The limits of one device's fields, computed once, and its counters' previous readings.

    The highest power limit seen determines the power's limit: power follows a lower one only after a while.

    Thread: `remove` on the one that reads fast fields, `remove_slow` on the one that reads slow ones.
    """

    def __init__(self, kind: DeviceKind, memory_total_bytes: int | None = None) -> None:
        self._kind = kind
        self._capacities: dict[str, float | None] = {"memory_total_bytes": memory_total_bytes}
        self._highest_limit_mw = 0
        self._counters: dict[str, tuple[int, float]] = {}
        self._limits = self._work_out_limits()

    def _work_out_limits(self) -> dict[str, tuple[float, float]]:
        limits = {field.name: field.limits for field in fields_of(self._kind)}
        return {name: (limit.low, limit.highest(self._capacities.get(limit.of))) for name, limit in limits.items()}

    def remove(self, values: dict[str, Any]) -> tuple[str, ...]:
        """Set fast fields beyond their limits to None; return their names."""
        limit_mw = values.get("power_limit_mw")
        if limit_mw is not None and self._highest_limit_mw < limit_mw <= self._limits["power_limit_mw"][1]:
            self._capacities["power_limit_mw"] = self._highest_limit_mw = limit_mw
            self._limits = self._work_out_limits()
        return self._remove_beyond_limits(values)

    def remove_slow(self, t_ns: int, values: dict[str, Any]) -> tuple[str, ...]:
        """Set slow fields to None that are beyond their limits, or count backwards or too fast; return their names."""
        beyond = self._remove_beyond_limits(values)
        wrong = [name for name, value in values.items() if value is not None and not self._counts_up(name, t_ns, value)]
        values.update(dict.fromkeys(wrong))
        return (*beyond, *wrong)

    def _remove_beyond_limits(self, values: dict[str, Any]) -> tuple[str, ...]:
        limits = self._limits
        wrong = [
            name
            for name, value in values.items()
            if value is not None and not (limit := limits[name])[0] <= value <= limit[1]
        ]
        if not wrong:
            return ()
        values.update(dict.fromkeys(wrong))
        return tuple(wrong)

    def _counts_up(self, name: str, t_ns: int, value: float) -> bool:
        """Return whether a counter may follow its previous reading; after a reset it counts on from there."""
        if FIELDS[name].kind != "counter":
            return True
        last, self._counters[name] = self._counters.get(name), (t_ns, value)
        if last is None:
            return True
        fastest = self._limits.get(FIELDS[name].limits.rate, (0.0, math.inf))[1]
        return 0 <= value - last[1] <= fastest * ((t_ns - last[0]) / 1e9 + SLACK_S)
