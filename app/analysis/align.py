"""Aligns curves of devices and runs on one time axis, and reduces them to a screen's resolution; pure functions."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from app.values.records import BlockColumns, Floats, Ints

Combination = Literal["sum", "mean", "max"]
"""How several devices become one curve."""

GAP_PERIODS = 3.0
"""A device that is silent for longer than this many of its own periods has a gap, not a value."""


class TimeSeries(NamedTuple):
    """One curve: `t_ns` in ascending order and a value at each, NaN if there is none."""

    t_ns: Ints
    y: Floats


def seconds_since(t_ns: Ints, zero_ns: int) -> Floats:
    """Return times in seconds after `zero_ns`, negative before it; exact to the nanosecond before the division."""
    return np.asarray((t_ns - zero_ns) / 1e9, dtype=np.float64)


def interpolate_done(t_ns: Ints, blocks: BlockColumns, per_block: Ints) -> Floats:
    """Return how many steps or examples were done by each time, counted from the start of `measure`.

    Within a block they grow evenly, between blocks they are constant; before the first and after the last block they
    are unknown (NaN). Earlier ones have negative counts; without `measure` the first block is the start.

    Args:
        t_ns: The times, shape (n,).
        blocks: All blocks of the run.
        per_block: The steps or the examples of each block, shape (blocks,).
    """
    if not len(per_block):
        return np.full(len(t_ns), np.nan)
    done_after = np.cumsum(per_block)
    done_before = done_after - per_block
    first_measured = int(np.argmax(blocks.measured))
    times = np.column_stack([blocks.start_ns, blocks.end_ns]).ravel()
    done = np.column_stack([done_before, done_after]).ravel() - done_before[first_measured]
    return np.asarray(np.interp(t_ns - times[0], times - times[0], done, left=np.nan, right=np.nan), dtype=np.float64)


def combine(tracks: Sequence[TimeSeries], method: Combination) -> TimeSeries:
    """Combine several devices into one curve at the last one's times.

    Each device contributes its latest earlier sample: they are read in turn, so these are of one moment. If one has
    been silent for longer than `GAP_PERIODS` of its periods, the result is NaN, because a sum needs all its parts.
    """
    if not tracks:
        return TimeSeries(np.empty(0, dtype=np.int64), np.empty(0))
    base = with_gaps(tracks[-1]).t_ns
    values = np.stack([_latest_values(track, base) for track in tracks])
    if method == "max":
        return TimeSeries(base, values.max(axis=0))
    return TimeSeries(base, values.sum(axis=0) if method == "sum" else values.mean(axis=0))


def with_gaps(series: TimeSeries) -> TimeSeries:
    """Return the curve with a NaN in every gap longer than `GAP_PERIODS` periods, so that no line bridges it."""
    t_ns, y = series
    limit_ns = _gap_threshold_ns(t_ns)
    gap_indices = np.flatnonzero(np.diff(t_ns) > limit_ns)
    return TimeSeries(
        np.insert(t_ns, gap_indices + 1, t_ns[gap_indices] + limit_ns), np.insert(y, gap_indices + 1, np.nan)
    )


def decimate(x: Floats, y: Floats, buckets: int) -> tuple[Floats, Floats]:
    """Reduce a curve to the lowest and highest point, and the first gap, of each of `buckets` equal ranges of `x`.

    Every point is one of the input's, in its order: peaks, gaps and both ends survive.

    Args:
        x: Ascending and finite, shape (n,).
        y: Values, shape (n,); NaN is a gap.
        buckets: Number of ranges; at most 3 points of each remain.
    """
    if len(x) <= 2 * buckets:
        return x, y
    bucket = np.minimum(((x - x[0]) * (buckets / max(x[-1] - x[0], 1e-12))).astype(np.int64), buckets - 1)
    absent = np.flatnonzero(np.isnan(y))
    present = np.flatnonzero(~np.isnan(y))
    low_to_high = present[np.lexsort((y[present], bucket[present]))]
    selected = (
        _first_per_bucket(low_to_high, bucket),
        _first_per_bucket(low_to_high[::-1], bucket),
        _first_per_bucket(absent, bucket),
        np.array([0, len(x) - 1]),
    )
    index = np.unique(np.concatenate(selected))
    return x[index], y[index]


def running_mean(x: Floats, y: Floats, width: float) -> Floats:
    """Return the mean of the points within half a width of each point, ends included; gaps remain.

    Args:
        x: Ascending, shape (n,).
        y: Values, shape (n,); NaN is a gap and counts in no mean.
        width: The window, in the unit of `x`.
    """
    is_finite = np.isfinite(y)
    starts = np.searchsorted(x, x - width / 2, side="left")
    ends = np.searchsorted(x, x + width / 2, side="right")
    sums = np.concatenate([[0.0], np.cumsum(np.where(is_finite, y, 0.0))])
    counts = np.concatenate([[0], np.cumsum(is_finite)])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (sums[ends] - sums[starts]) / (counts[ends] - counts[starts])
    return np.where(is_finite, mean, np.nan)


def mean_and_range(
    curves: Sequence[tuple[Floats, Floats]], points: int
) -> tuple[Floats, Floats, Floats, Floats] | None:
    """Return the mean, lowest and highest of curves where all of them exist: positions and three values.

    Curves are linear between points; a gap in one leaves a gap in the mean. A single curve is its own mean.

    Args:
        curves: Positions in ascending order and values of each, NaN for gaps.
        points: The most positions; beyond that they are evenly spaced.
    """
    ends = [(x[0], x[-1]) for x, _ in curves if len(x)]
    start, end = max((first for first, _ in ends), default=0.0), min((last for _, last in ends), default=-1.0)
    if len(ends) < len(curves) or start > end:
        return None
    x = np.unique(np.concatenate([x for x, _ in curves]))
    x = x[(x >= start) & (x <= end)]
    if len(x) > points and len(curves) > 1:
        x = np.linspace(start, end, points)
    values = np.stack([np.interp(x, *curve) for curve in curves])
    return x, values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def _first_per_bucket(index: Ints, bucket: Ints) -> Ints:
    groups = bucket[index]
    return index[np.flatnonzero(np.diff(groups, prepend=-1) != 0)]


def _latest_values(track: TimeSeries, at_ns: Ints) -> Floats:
    """Return the track's latest earlier value at each time, NaN before its first and in its gaps."""
    is_present = ~np.isnan(track.y)
    t_ns, y = track.t_ns[is_present], track.y[is_present]
    if len(t_ns) == 0:
        return np.full(len(at_ns), np.nan)
    latest = np.searchsorted(t_ns, at_ns, side="right") - 1
    age_ns = at_ns - t_ns[np.maximum(latest, 0)]
    is_fresh = (latest >= 0) & (age_ns < _gap_threshold_ns(track.t_ns))
    return np.where(is_fresh, y[np.maximum(latest, 0)], np.nan)


def _gap_threshold_ns(t_ns: Ints) -> int:
    """Return the age from which a sample no longer counts as current: `GAP_PERIODS` usual periods, at least 1 ns."""
    return max(int(GAP_PERIODS * float(np.median(np.diff(t_ns)))), 1) if len(t_ns) > 1 else 1
