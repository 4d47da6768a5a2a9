"""Curves at several resolutions in bounded memory, with their minimum and maximum per pixel column.

Level 0 holds samples, level k one row (time, smallest, largest) for each range of `BASE_S * 4 ** k` seconds. Each level
keeps at least its newest `KEEP` rows and drops the oldest: older data are coarser, but no peak is lost.

A curve takes 0.26 MB of samples and at most 0.39 MB per level, allocated as the history grows. An 8 h session at 20 Hz
takes 2 MB per curve, so 8 curves on each of 2 GPUs take 32 MB. A window that ends now has pixel resolution on up to
`KEEP / 4` columns, however long it is, for samples no closer than `BASE_S`; a short window long ago is as coarse as its
remaining rows.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from app.values.records import Floats

BASE_S = 0.01
KEEP_ROWS = 8192
LEVELS = 10
FACTOR = 4
FOLD_BATCH = 64
_INITIAL_CAPACITY = 256

Indices = NDArray[np.intp]


class Pyramid:
    """Samples in time order, read by window. Rows go into the next level in batches: amortised O(1) per sample."""

    def __init__(self, levels: int = LEVELS, keep: int = KEEP_ROWS, base_s: float = BASE_S) -> None:
        self._keep = keep
        self._levels = [_Level(base_s * FACTOR**k, keep, is_first=not k, last=k == levels - 1) for k in range(levels)]
        self.version = 0

    def __len__(self) -> int:
        return self._levels[0].count

    @property
    def x(self) -> Floats:
        """Return the times of the samples still kept: a view, valid until the next change."""
        x: Floats = self._levels[0].rows(0)[0]
        return x

    @property
    def y(self) -> Floats:
        """Return their values, NaN for a gap: a view, valid until the next change."""
        y: Floats = self._levels[0].rows(0)[1]
        return y

    @property
    def memory_bytes(self) -> int:
        return sum(level.memory_bytes for level in self._levels)

    def append(self, x: float, y: float) -> bool:
        """Add one sample, NaN for a gap; one not later than the newest is dropped and returns False."""
        samples = self._levels[0]
        if x <= samples.newest:
            return False
        samples.push_one(x, y)
        self.version += 1
        if samples.unfolded >= samples.fold_at:
            self._fold()
        return True

    def extend(self, x: Floats, y: Floats) -> None:
        """Add many samples; those not later than all before them are dropped."""
        newest = np.maximum.accumulate(np.append(self._levels[0].newest, x))[:-1]
        accepted = np.stack([x[x > newest], y[x > newest]])
        for first in range(0, accepted.shape[1], self._keep):
            self._levels[0].push(accepted[:, first : first + self._keep])
            self._fold()
        self.version += 1

    def window(self, start: float, end: float, columns: int) -> tuple[Floats, Floats, Floats]:
        """Return the rows from `start` to `end` as times, smallest and largest values, each of shape (n,).

        One row beyond each end is included, so that lines reach the border. NaN is a gap; one narrower than a pixel may
        close. If samples are few enough, smallest and largest are the same array.

        There are a few rows for each pixel column.
        """
        return self._rows(self._level_for(start, (end - start) / max(1, columns)), start, end)

    def nearest(self, x: float, max_distance: float) -> tuple[float, float] | None:
        """Return the smallest and largest value of the row nearest to `x`; None in a gap or out of reach."""
        level = self._level_for(x, 0.0)
        times, low, high = self._rows(level, x, x)
        if not len(times):
            return None
        nearest = int(np.argmin(np.abs(times - x)))
        if math.isnan(low[nearest]) or abs(times[nearest] - x) > max(max_distance, self._levels[level].width_s):
            return None
        return float(low[nearest]), float(high[nearest])

    def _level_for(self, start: float, width: float) -> int:
        """Return the coarsest level with rows no wider than `width`, or a coarser one if only that reaches `start`."""
        level, last = 0, len(self._levels) - 1
        while level < last and (self._levels[level + 1].width_s <= width or not self._levels[level].reaches(start)):
            level += 1
        return level

    def _rows(self, level: int, start: float, end: float) -> tuple[Floats, Floats, Floats]:
        """Return a level's rows in a window, then each finer level's newest rows, which coarser levels lack."""
        if level == 0:
            x, y = _rows_between(self._levels[0].rows(0), start, end)
            return x, y, y
        levels = [_rows_between(self._levels[level].rows(0), start, end)]
        for finer in reversed(self._levels[:level]):
            rows = _rows_between(finer.rows(finer.folded), start, end)
            levels.append(rows if len(rows) == 3 else rows[[0, 1, 1]])
        x, low, high = np.concatenate(levels, axis=1)
        return x, low, high

    def _fold(self) -> None:
        for lower, upper in zip(self._levels, self._levels[1:], strict=False):
            if lower.unfolded < lower.fold_at:
                return
            upper.push(lower.fold(upper.width_s))


class _Level:
    """Rows of one resolution in one array, the newest at its end; the next level contains `folded` of them."""

    def __init__(self, width_s: float, keep: int, *, is_first: bool, last: bool) -> None:
        self.width_s = width_s
        self.newest = -math.inf
        self.count = 0
        self.folded = 0
        self.fold_at = FOLD_BATCH
        self._keep = keep
        self._last = last
        self._dropped = False
        self._array = np.empty((2 if is_first else 3, _INITIAL_CAPACITY))

    @property
    def unfolded(self) -> int:
        return 0 if self._last else self.count - self.folded

    @property
    def memory_bytes(self) -> int:
        return self._array.nbytes

    def rows(self, start: int) -> Floats:
        return self._array[:, start : self.count]

    def reaches(self, start: float) -> bool:
        return not self._dropped or bool(self._array[0, 0] <= start)

    def push_one(self, x: float, y: float) -> None:
        if self.count == self._array.shape[1]:
            self._ensure_capacity(1)
        self._array[0, self.count] = x
        self._array[1, self.count] = y
        self.newest = x
        self.count += 1

    def push(self, rows: Floats) -> None:
        count = rows.shape[1]
        if not count:
            return
        if self.count + count > self._array.shape[1]:
            self._ensure_capacity(count)
        self._array[:, self.count : self.count + count] = rows
        self.newest = float(rows[0, -1])
        self.count += count

    def fold(self, width_s: float) -> Floats:
        """Return the complete ranges of `width_s` among the rows not folded yet; the last range is not complete."""
        rows_before = min(1, self.folded)  # the previous row shows how long a gap is
        rows = self.rows(self.folded - rows_before)
        starts = _group_starts(rows[0], rows[1], width_s)
        starts = np.append(rows_before, starts[starts > rows_before])
        complete = int(starts[-1])
        self.fold_at = FOLD_BATCH if len(starts) > 1 else 2 * self.unfolded
        self.folded += complete - rows_before
        low = np.fmin.reduceat(rows[1, :complete], starts[:-1]) if len(starts) > 1 else rows[1, :0]
        high = np.fmax.reduceat(rows[-1, :complete], starts[:-1]) if len(starts) > 1 else rows[-1, :0]
        return np.stack([rows[0, starts[:-1]], low, high])

    def _ensure_capacity(self, new_rows: int) -> None:
        """Grow up to twice the rows to keep; from then on drop old rows that the next level has."""
        surplus = self.count - self._keep
        if surplus > 0 and self.count + new_rows > 2 * self._keep and (self._last or self.folded >= surplus):
            self._array[:, : self._keep] = self._array[:, surplus : self.count].copy()
            self.count = self._keep
            self.folded = max(0, self.folded - surplus)
            self._dropped = True
        capacity = self._array.shape[1]
        while capacity < self.count + new_rows:
            capacity *= 2
        if capacity > self._array.shape[1]:
            grown = np.empty((len(self._array), capacity))
            grown[:, : self.count] = self.rows(0)
            self._array = grown


def _group_starts(x: Floats, low: Floats, width: float) -> Indices:
    """Return where ranges of `width` begin. A gap longer than a range is a separate group, so that it survives."""
    starts = np.empty(len(x), dtype=np.bool_)
    starts[:1] = True
    interval = np.floor(x / width)
    np.not_equal(interval[1:], interval[:-1], out=starts[1:])
    gaps = np.isnan(low)
    if gaps.any():
        next_x, previous_x = np.append(x[1:], x[-1]), np.append(x[0], x[:-1])
        gaps &= next_x - previous_x > width
        starts |= gaps
        starts[1:] |= gaps[:-1]
    return np.flatnonzero(starts)


def _rows_between(rows: Floats, start: float, end: float) -> Floats:
    x = rows[0]
    return rows[:, max(0, int(x.searchsorted(start)) - 1) : int(x.searchsorted(end, side="right")) + 1]


Rows = tuple[Floats, Floats, Floats]
"""Times, smallest and largest values, each of shape (n,); NaN is a gap."""


@dataclass(frozen=True, slots=True, eq=False)
class Stroke:
    """The lowest and highest value of a line in every pixel column, NaN where it is not.

    `top` and `bottom` are the extremes over all columns, `dots` the columns that stand alone.
    """

    low: Floats
    high: Floats
    top: float
    bottom: float
    dots: Indices


def stroke_columns(rows: Rows, start: float, end: float, columns: int) -> Stroke:
    """Return the line through rows, by pixel columns; a row of NaN breaks it."""
    x, lowest, highest = rows
    low, high = _between_columns(rows, start, end, columns)
    first, last = x.searchsorted((start, end))
    if last > first:
        column_of = ((x[first:last] - start) * (columns / (end - start))).astype(np.intp)
        starts = np.concatenate([[0], (column_of[1:] != column_of[:-1]).nonzero()[0] + 1])
        column_of = np.minimum(column_of[starts], columns - 1)
        low[column_of] = np.fmin(low[column_of], np.fmin.reduceat(lowest[first:last], starts))
        high[column_of] = np.fmax(high[column_of], np.fmax.reduceat(highest[first:last], starts))
    padded = np.concatenate([[True], np.isnan(low), [True]])
    dots = np.flatnonzero(~padded[1:-1] & padded[:-2] & padded[2:])
    return Stroke(low, high, float(np.fmax.reduce(high)), float(np.fmin.reduce(low)), dots)


def _between_columns(rows: Rows, start: float, end: float, columns: int) -> tuple[Floats, Floats]:
    """Return for every column the lower and the higher of the values where the line enters and leaves it."""
    x, lowest, highest = rows
    if len(x) < 2:
        return np.full(columns, np.nan), np.full(columns, np.nan)
    middle = lowest if lowest is highest else (lowest + highest) / 2
    borders = np.interp(_column_borders(start, end, columns), x, middle, left=np.nan, right=np.nan)
    return np.fmin(borders[:-1], borders[1:]), np.fmax(borders[:-1], borders[1:])


@lru_cache(maxsize=4)
def _column_borders(start: float, end: float, columns: int) -> Floats:
    """Return the times between pixel columns, and those at both edges; all curves of a stack of plots share them."""
    return np.linspace(start, end, columns + 1)
