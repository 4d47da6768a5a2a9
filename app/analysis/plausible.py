"""Take readings that cannot be true out of stored samples: those that older programs stored, or that were imported.

The sampler removes what is beyond a field's limits as it reads (`app/telemetry/plausible.py`). Here the same limits
hold for columns, and two rules that need a span of time: the energy counter and the power must agree, and a power that
never changes while the load does is not read anew.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.fields import FIELDS
from app.limits import SLACK_S
from app.records import Floats, Ints, SampleColumns

AGREEMENT = 2.0
"""Counter and integral of power agree within this factor; those of two H200s did within 1.13, from second to second."""
SPAN_NS = 10_000_000_000
"""They are compared from each reading of the counter to the next, over spans of at least so long, and over all."""
SLACK_MJ = 10_000.0
"""Energy by which they may differ beyond that and beyond `SLACK_S` of the highest power: a sleeping card's."""
FROZEN_NS = 60_000_000_000
FROZEN_LOAD_PCT = 50.0
"""A power that stays the same to the milliwatt for so long, while the load changes by so much, is not read anew."""

_COUNTERS = tuple(name for name, field in FIELDS.items() if field.kind == "counter")

Marks = NDArray[np.bool_]
Found = Iterator[tuple[str, Marks]]
"""Fields with implausible readings, and which these are."""


_COPIED_VALUES = 1 << 20


def plausible_samples(columns: SampleColumns) -> SampleColumns:
    """Return a device's samples with NaN for readings that cannot be true, which its `implausible` counts too.

    The same object where all are plausible.
    """
    for find in (_beyond_limits, _wrong_counts, _contradictions, _frozen_power):
        columns = _without(columns, dict(find(columns)))
    return columns


def _without(columns: SampleColumns, found: Mapping[str, Marks]) -> SampleColumns:
    if not found:
        return columns
    counts = Counter(columns.device.implausible) + Counter({name: int(marks.sum()) for name, marks in found.items()})
    fast, slow = (
        {name: np.where(found[name], np.nan, values) if name in found else values for name, values in table.items()}
        for table in (columns.fields, columns.slow)
    )
    return replace(
        columns, device=msgspec.structs.replace(columns.device, implausible=dict(counts)), fields=fast, slow=slow
    )


def _highest_limit_mw(columns: SampleColumns) -> float:
    """Return the highest power limit that is plausible: power follows a lower one only after a while; 0 if none is."""
    limits_mw = columns.fields.get("power_limit_mw")
    if limits_mw is None:
        return 0.0
    return float(limits_mw.max(initial=0.0, where=limits_mw <= FIELDS["power_limit_mw"].limits.high))


@lru_cache(maxsize=64)
def _bounds(names: tuple[str, ...], total_bytes: int | None, limit_mw: float) -> tuple[Floats, Floats]:
    """Return the least and the highest plausible values of fields; runs of a machine share them."""
    known = {"memory_total_bytes": total_bytes, "power_limit_mw": limit_mw}
    limits = [FIELDS[name].limits for name in names]
    return np.array([each.low for each in limits]), np.array([each.highest(known.get(each.of)) for each in limits])


def _beyond_limits(columns: SampleColumns) -> Found:
    limit_mw = _highest_limit_mw(columns)
    total_bytes = columns.device.memory_total_bytes if columns.device.kind == "gpu" else None
    for table in (columns.fields, columns.slow):
        size = max((values.size for values in table.values()), default=0)
        if not size:
            continue
        # All fields at once, for each alone costs more than its comparison; but their copy must stay small.
        together = max(1, _COPIED_VALUES // size)
        for start in range(0, len(table), together):
            names = tuple(table)[start : start + together]
            readings = np.array([table[name] for name in names])
            low, high = _bounds(names, total_bytes, limit_mw)
            wrong = (np.fmin.reduce(readings, axis=1) < low) | (np.fmax.reduce(readings, axis=1) > high)
            for row in np.flatnonzero(wrong):
                yield names[row], (readings[row] < low[row]) | (readings[row] > high[row])


def _wrong_counts(columns: SampleColumns) -> Found:
    """Find counters that go back, or faster than what they count can."""
    names = [name for name in _COUNTERS if name in columns.slow]
    if not names or not columns.slow_t_ns.size:
        return
    counts = np.array([columns.slow[name] for name in names])
    backward = np.any(counts < np.fmax.accumulate(counts, axis=1), axis=1)
    for name, goes_back in zip(names, backward, strict=True):
        rate = FIELDS[name].limits.rate
        if not goes_back and not rate:
            continue
        readings, t_ns, values = _present(columns.slow_t_ns, columns.slow[name])
        steps = np.diff(values)
        wrong = steps < 0
        if rate:
            limits = FIELDS[rate].limits
            fastest = limits.highest(_highest_limit_mw(columns))
            wrong |= steps > fastest * (np.diff(t_ns) / 1e9 + SLACK_S)
        if wrong.any():
            yield name, _marks(columns.slow_t_ns.size, readings[1:][wrong])


def _contradictions(columns: SampleColumns) -> Found:
    """Find readings of the energy counter against which the power speaks; and the power too where it never changed.

    Not where power is missing for a while, or where either had implausible readings already.
    """
    if not columns.device.implausible.keys().isdisjoint(("power_mw", "energy_mj")):
        return
    power_readings, power_t_ns, power_mw = _present(columns.t_ns, columns.fields.get("power_mw"))
    if power_mw.size < 2:
        return
    readings, t_ns, counted_mj = _present(columns.slow_t_ns, columns.slow.get("energy_mj"))
    covered = (t_ns >= power_t_ns[0]) & (t_ns <= power_t_ns[-1])
    readings, t_ns, counted_mj = readings[covered], t_ns[covered], counted_mj[covered]
    gap_s = np.diff(power_t_ns) / 1e9
    integral_mj = np.concatenate(([0.0], np.cumsum(gap_s * (power_mw[1:] + power_mw[:-1]) / 2)))
    drawn_mj = np.interp(t_ns - power_t_ns[0], power_t_ns - power_t_ns[0], integral_mj)
    slack_mj = SLACK_S * float(power_mw.max()) + SLACK_MJ
    if t_ns.size < 2 or np.ptp(counted_mj - drawn_mj) <= slack_mj:
        return  # no span can disagree by more
    first, last = _spans(t_ns)
    gaps = np.concatenate(([0], np.cumsum(gap_s > SLACK_S)))
    before, after = np.searchsorted(power_t_ns, t_ns, "right") - 1, np.searchsorted(power_t_ns, t_ns)
    counted, drawn = counted_mj[last] - counted_mj[first], drawn_mj[last] - drawn_mj[first]
    wrong = (counted > AGREEMENT * drawn + slack_mj) | (counted < drawn / AGREEMENT - slack_mj)
    wrong &= gaps[after[last]] == gaps[before[first]]
    if not wrong.any():
        return
    yield "energy_mj", _marks(columns.slow_t_ns.size, readings[last[wrong]])
    frozen = [
        power_readings[a : b + 1]
        for a, b in zip(before[first[wrong & (counted > 0)]], after[last[wrong & (counted > 0)]], strict=True)
        if np.ptp(power_mw[a : b + 1]) == 0
    ]
    if frozen:
        yield "power_mw", _marks(columns.t_ns.size, np.concatenate(frozen))


def _spans(t_ns: Ints) -> tuple[Ints, Ints]:
    """Return the first and the last reading of each span over which counter and power are compared."""
    later = np.searchsorted(t_ns, t_ns + SPAN_NS)
    starts = np.flatnonzero(later < t_ns.size)
    first = np.concatenate((np.arange(t_ns.size - 1), starts, [0]))
    return first, np.concatenate((np.arange(1, t_ns.size), later[starts], [t_ns.size - 1]))


def _frozen_power(columns: SampleColumns) -> Found:
    readings, t_ns, power_mw = _present(columns.t_ns, columns.fields.get("power_mw"))
    load_pct = columns.fields.get("load_pct")
    if load_pct is None or not t_ns.size or t_ns[-1] - t_ns[0] < FROZEN_NS:
        return
    changes = np.flatnonzero(np.diff(power_mw))
    starts, ends = np.concatenate(([0], changes + 1)), np.concatenate((changes, [t_ns.size - 1]))
    long = t_ns[ends] - t_ns[starts] >= FROZEN_NS
    ranges = [readings[start : end + 1] for start, end in zip(starts[long], ends[long], strict=True)]
    loads = [load_pct[span] for span in ranges]
    frozen = [
        span
        for span, load in zip(ranges, loads, strict=True)
        if np.fmax.reduce(load) - np.fmin.reduce(load) >= FROZEN_LOAD_PCT
    ]
    if frozen:
        yield "power_mw", _marks(columns.t_ns.size, np.concatenate(frozen))


def _present(t_ns: Ints, values: Floats | None) -> tuple[Ints, Ints, Floats]:
    """Return which readings have a value, their times and the values."""
    if values is None:
        return np.zeros(0, dtype=np.int64), t_ns[:0], np.zeros(0)
    readings = np.flatnonzero(~np.isnan(values))
    return readings, t_ns[readings], values[readings]


def _marks(size: int, readings: Ints) -> Marks:
    marks = np.zeros(size, dtype=np.bool_)
    marks[readings] = True
    return marks
