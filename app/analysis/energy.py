"""Energy of a window of time: the difference of the card's own counter, or the integral of its power.

The counter misses nothing between readings, so it is preferred. Either way the ends of a window are uncertain: a value
read at one moment may be as old as the driver's renewal period, and the nearest reading may lie a little off the edge.
`Energy.error_mj` bounds what that can make of it: (period + distance) x mean power, at both ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.records import Floats, Ints, SampleColumns

COUNTER = "energy counter"
INTEGRAL = "integral of power"


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy in millijoules, a bound of its error, and how it was had."""

    energy_mj: float
    error_mj: float
    source: str


def of_gpus(gpus: Sequence[SampleColumns], start_ns: int, end_ns: int) -> Energy | None:
    """The energy of all GPUs together over a window; None where one of them has none."""
    parts = [of_gpu(gpu, start_ns, end_ns) for gpu in gpus]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    sources = dict.fromkeys(part.source for part in known)
    return Energy(
        energy_mj=sum(part.energy_mj for part in known),
        error_mj=sum(part.error_mj for part in known),
        source=" and ".join(sources),
    )


def of_gpu(gpu: SampleColumns, start_ns: int, end_ns: int) -> Energy | None:
    """One GPU's energy over a window, by its counter if that covers it, else by its power; None if neither does.

    A window shorter than the renewal period has no energy: the counter may not have moved.
    """
    return _by_counter(gpu, start_ns, end_ns) or _by_power(gpu, start_ns, end_ns)


def _by_counter(gpu: SampleColumns, start_ns: int, end_ns: int) -> Energy | None:
    t_ns, energy_mj = _present(gpu.slow_t_ns, gpu.slow.get("energy_mj"))
    if t_ns.size < 2 or t_ns[0] > start_ns or t_ns[-1] < end_ns or np.any(np.diff(energy_mj) < 0):
        return None
    period_ns = _period_ns(gpu, "energy_mj", t_ns)
    if end_ns - start_ns <= period_ns:
        return None
    at_start, at_end = np.interp([0, end_ns - start_ns], t_ns - start_ns, energy_mj)
    used_mj = float(at_end - at_start)
    return Energy(used_mj, _error_mj(used_mj, t_ns, start_ns, end_ns, period_ns), COUNTER)


def _by_power(gpu: SampleColumns, start_ns: int, end_ns: int) -> Energy | None:
    """The trapezoid rule; a window whose edges the samples miss by more than a fifth of its length has no energy."""
    t_ns, power_mw = _present(gpu.t_ns, gpu.fields.get("power_mw"))
    inside = (t_ns > start_ns) & (t_ns < end_ns)
    slack_ns = (end_ns - start_ns) / 5
    if inside.sum() < 2 or t_ns[0] > start_ns + slack_ns or t_ns[-1] < end_ns - slack_ns:
        return None
    period_ns = _period_ns(gpu, "power_mw", t_ns)
    if end_ns - start_ns <= period_ns:
        return None
    t_s = (t_ns - start_ns) / 1e9
    length_s = (end_ns - start_ns) / 1e9
    edges = np.interp([0.0, length_s], t_s, power_mw)
    times = np.concatenate(([0.0], t_s[inside], [length_s]))
    used_mj = float(np.trapezoid(np.concatenate((edges[:1], power_mw[inside], edges[1:])), times))
    return Energy(used_mj, _error_mj(used_mj, t_ns, start_ns, end_ns, period_ns), INTEGRAL)


def _present(t_ns: Ints, values: Floats | None) -> tuple[Ints, Floats]:
    if values is None:
        return t_ns[:0], np.zeros(0)
    there = ~np.isnan(values)
    return t_ns[there], values[there]


def _period_ns(gpu: SampleColumns, field: str, t_ns: Ints) -> float:
    """How often the driver renews the field: as seen, else the shortest time between two of its readings."""
    facts = gpu.device.fields.get(field)
    if facts is not None and facts.period_ms is not None:
        return facts.period_ms * 1e6
    return float(np.diff(t_ns).min())


def _error_mj(used_mj: float, t_ns: Ints, start_ns: int, end_ns: int, period_ns: float) -> float:
    distances_ns = [float(np.abs(t_ns - edge_ns).min()) for edge_ns in (start_ns, end_ns)]
    return used_mj * sum(period_ns + distance_ns for distance_ns in distances_ns) / (end_ns - start_ns)
