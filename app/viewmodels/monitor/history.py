"""The readings of many devices, one a second, in bounded memory: the longer ago, the coarser."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.records import Floats
from app.viewmodels.plot.model import Envelope

RANGES_S: Mapping[str, float] = {"1 min": 60.0, "10 min": 600.0, "1 h": 3_600.0, "8 h": 28_800.0}
"""The ranges of time that Monitor offers; the last one is as long as anything is kept."""

_LEVELS = ((1, 660), (10, 400), (60, 520))
"""Readings to a row, and the rows that are kept: of ten minutes, an hour and eight hours, with some to spare."""
_ROW_S = 60.0
"""The longest time that a row stands for."""
_GAP_S = 5.0
"""Without a reading for so long, as where the machine slept, the curves have a gap."""


_Values = NDArray[np.float32]


class SeriesKey(NamedTuple):
    """One quantity of one device."""

    host: str
    device: str
    field: str


class _Level:
    """A ring of rows: their times, and the smallest and largest value of every curve; `per_row` of the finer level."""

    def __init__(self, per_row: int, rows: int) -> None:
        self.per_row = per_row
        self.count = 0
        self._times = np.full(rows, np.nan)
        self._low: _Values = np.empty((rows, 0), dtype=np.float32)
        self._high = self._low

    @property
    def oldest_s(self) -> float:
        """The time of the first row still kept; minus infinity where all are."""
        rows = len(self._times)
        return -np.inf if self.count < rows else float(self._times[self.count % rows])

    @property
    def memory_bytes(self) -> int:
        return self._low.nbytes + (0 if self._high is self._low else self._high.nbytes)

    def widen(self, columns: int) -> None:
        """Make room for more curves, which have no values so far."""
        is_single = self._high is self._low
        self._low = _widened(self._low, columns)
        self._high = self._low if is_single else _widened(self._high, columns)

    def push(self, t_s: float, low: _Values, high: _Values) -> None:
        row = self.count % len(self._times)
        if high is not low and self._high is self._low:
            self._high = self._low.copy()
        self._times[row], self._low[row], self._high[row] = t_s, low, high
        self.count += 1

    def newest(self, rows: int) -> tuple[_Values, _Values]:
        """Return the smallest and largest value of every curve in the newest rows."""
        order = np.arange(self.count - rows, self.count) % len(self._times)
        return np.fmin.reduce(self._low[order]), np.fmax.reduce(self._high[order])

    def between(self, column: int, start: float, end: float) -> tuple[Floats, Floats, Floats]:
        """Return the rows of one curve after `start` and up to `end`, in order."""
        rows = len(self._times)
        order = np.arange(max(0, self.count - rows), self.count) % rows
        times = self._times[order]
        order = order[(times > start) & (times <= end)]
        return self._times[order], self._low[order, column].astype(float), self._high[order, column].astype(float)


def _widened(values: _Values, columns: int) -> _Values:
    wider = np.full((len(values), columns), np.nan, dtype=np.float32)
    wider[:, : values.shape[1]] = values
    return wider


class History:
    """Curves that all get a value at the same times. Thread: one only."""

    def __init__(self) -> None:
        self._columns: dict[SeriesKey, int] = {}
        self._room = 0
        self._levels = [
            _Level(1 if not n else step // _LEVELS[n - 1][0], size) for n, (step, size) in enumerate(_LEVELS)
        ]
        self.newest_s = -np.inf

    @property
    def memory_bytes(self) -> int:
        """What all curves take."""
        return sum(level.memory_bytes for level in self._levels)

    def add(self, t_s: float, values: Mapping[SeriesKey, float]) -> None:
        """Add the values of one time; a curve without one has a gap there."""
        self._make_room(values)
        row = np.full(self._room, np.nan, dtype=np.float32)
        if values:
            row[[self._columns[key] for key in values]] = list(values.values())
        if self.newest_s + _GAP_S < t_s and self._levels[0].count:
            empty = np.full(self._room, np.nan, dtype=np.float32)
            self._push(self.newest_s + 1, empty)
        self._push(t_s, row)
        self.newest_s = t_s

    def window(self, key: SeriesKey, start: float, end: float) -> Envelope:
        """Return what is kept of a curve between two times, as fine as it is kept that far back."""
        column = self._columns.get(key)
        if column is None:
            nothing = np.empty(0)
            return nothing, nothing, nothing
        reaching = [n for n, level in enumerate(self._levels) if level.oldest_s <= start]
        coarsest = reaching[0] if reaching else len(self._levels) - 1
        parts = []
        for level in reversed(self._levels[: coarsest + 1]):
            parts.append(level.between(column, start, end))
            start = float(parts[-1][0][-1]) if len(parts[-1][0]) else start
        x, low, high = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return x, low, low if np.array_equal(low, high, equal_nan=True) else high

    def course(self, key: SeriesKey, start: float, end: float, columns: int) -> Floats:
        """Return the largest value in each of so many equal parts of a time; NaN where there is none.

        A part without a row, because the next one came a little late, has that row's value.
        """
        x, _, high = self.window(key, start, end)
        largest: Floats = np.full(columns, np.nan)
        if not len(x):
            return largest
        # Rows are of times after `start` up to `end`, both stored with rounding errors.
        bins = np.clip(np.ceil((x - start) / (end - start) * columns - 1e-6).astype(int) - 1, 0, columns - 1)
        np.fmax.at(largest, bins, high)
        parts = np.arange(bins[0], bins[-1] + 1)
        before, after = np.searchsorted(bins, parts, side="right") - 1, np.searchsorted(bins, parts)
        largest[parts] = np.where(x[after] - x[before] <= _GAP_S, largest[bins[after]], np.nan)
        return largest

    def _push(self, t_s: float, row: _Values) -> None:
        low = high = row
        for finer, level in zip([None, *self._levels], self._levels, strict=False):
            if finer is not None:
                if finer.count % level.per_row:
                    return
                low, high = finer.newest(level.per_row)
            level.push(t_s, low, high)

    def _make_room(self, keys: Mapping[SeriesKey, float]) -> None:
        for key in keys:
            self._columns.setdefault(key, len(self._columns))
        if len(self._columns) > self._room:
            self._room = max(32, 2 * self._room, len(self._columns))
            for level in self._levels:
                level.widen(self._room)


@dataclass(frozen=True, slots=True)
class HistoryCurve:
    """One curve of a history, as plots read it."""

    history: History
    key: SeriesKey

    @property
    def newest_s(self) -> float:
        """Time of the newest value of any curve."""
        return self.history.newest_s

    def window(self, start: float, end: float, columns: int) -> Envelope:
        """Return what is kept between two times, with a row before, so that the line reaches the border.

        Smallest and largest of a row that is wider than a pixel column hold for all of its time.
        """
        x, low, high = self.history.window(self.key, start - _ROW_S, end)
        copies = int(np.ceil(_ROW_S * columns / (end - start))) if start < end else 1
        if low is high or copies < 2:
            return x, low, high
        lengths = np.minimum(np.diff(x, prepend=x[0] - 1.0), _ROW_S)
        parts = lengths[:, np.newaxis] * np.arange(copies - 1, -1, -1) / copies
        return (x[:, np.newaxis] - parts).ravel(), low.repeat(copies), high.repeat(copies)

    def points(self) -> tuple[Floats, Floats]:
        """Return all that is kept, the largest values where several became one."""
        x, _, high = self.history.window(self.key, -np.inf, np.inf)
        return x, high

    def range_at(self, x: float) -> tuple[float, float] | None:
        """Return the smallest and largest value at a time; None where there is none."""
        times, low, high = self.history.window(self.key, x - 60.0, x + 60.0)
        if not len(times):
            return None
        nearest = int(np.argmin(np.abs(times - x)))
        return None if np.isnan(low[nearest]) else (float(low[nearest]), float(high[nearest]))
