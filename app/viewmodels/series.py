"""Curves as arrays: a growing one for live data, and the envelope that a given number of pixels can show."""

import numpy as np

from app.records import Floats

_FIRST_CAPACITY = 256


class Series:
    """Points in time order in preallocated arrays, never more than `limit`.

    When full, the older half is thinned to the smallest and largest value of every four points, so peaks stay.
    """

    def __init__(self, limit: int = 16_384) -> None:
        self._limit = limit
        self._x = np.empty(_FIRST_CAPACITY)
        self._y = np.empty(_FIRST_CAPACITY)
        self._count = 0
        self.version = 0

    def __len__(self) -> int:
        return self._count

    @property
    def x(self) -> Floats:
        """Times of the points: a view, valid until the next append."""
        return self._x[: self._count]

    @property
    def y(self) -> Floats:
        """Values of the points, NaN where there is none: a view, valid until the next append."""
        return self._y[: self._count]

    @property
    def last(self) -> float | None:
        """The newest value; None where there is none or it is NaN."""
        if self._count == 0 or np.isnan(self._y[self._count - 1]):
            return None
        return float(self._y[self._count - 1])

    def append(self, x: float, y: float | None) -> None:
        """Add one point; None is a gap."""
        if self._count == len(self._x):
            self._make_room()
        self._x[self._count] = x
        self._y[self._count] = np.nan if y is None else y
        self._count += 1
        self.version += 1

    def drop_before(self, x: float) -> None:
        """Forget the points older than `x` once they fill half of the room in use."""
        first = int(np.searchsorted(self.x, x))
        if first > len(self._x) // 2:
            self._keep(self.x[first:].copy(), self.y[first:].copy())

    def _make_room(self) -> None:
        if len(self._x) < self._limit:
            self._x = np.concatenate([self._x, np.empty_like(self._x)])
            self._y = np.concatenate([self._y, np.empty_like(self._y)])
            return
        half = self._count // 2
        old_x, old_y = _pairs(self.x[:half], self.y[:half], np.arange(0, half, 4))
        self._keep(np.concatenate([old_x, self.x[half:]]), np.concatenate([old_y, self.y[half:]]))

    def _keep(self, x: Floats, y: Floats) -> None:
        self._x[: len(x)] = x
        self._y[: len(y)] = y
        self._count = len(x)
        self.version += 1


def envelope(x: Floats, y: Floats, start: float, end: float, columns: int) -> tuple[Floats, Floats]:
    """The curve between `start` and `end` as at most about two points (smallest, largest) a pixel column.

    One point beyond each end is kept so that lines reach the border. `x` must be in order; NaN stays a gap.
    """
    first = max(0, int(np.searchsorted(x, start)) - 1)
    last = min(len(x), int(np.searchsorted(x, end, side="right")) + 1)
    x, y = x[first:last], y[first:last]
    if columns < 1 or len(x) <= 2 * columns:
        return x, y
    column = np.floor((x - start) / (end - start) * columns)
    starts = np.flatnonzero(np.diff(column, prepend=-np.inf))
    return _pairs(x, y, starts)


def _pairs(x: Floats, y: Floats, starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[Floats, Floats]:
    low = np.fmin.reduceat(y, starts)
    high = np.fmax.reduceat(y, starts)
    rising = y[starts] <= y[np.append(starts[1:], len(y)) - 1]
    out_x = np.repeat(x[starts], 2)
    out_y = np.empty(2 * len(starts))
    out_y[0::2] = np.where(rising, low, high)
    out_y[1::2] = np.where(rising, high, low)
    return out_x, out_y
