"""Curves by pixel columns: what a plot paints of them. As time passes, only the newest columns are recomputed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from app.values.records import Floats

ColumnIndices = NDArray[np.intp]
Rows = tuple[Floats, Floats, Floats]
"""Times, smallest and largest values, each of shape (n,); NaN is a gap."""

_FEW = 16
"""So many new samples, over that many columns, are taken one by one; arrays cost less only for more of them."""

_ON_BORDER = 1e-3
"""What is no further from the border of a column, in columns, may be on it: times are rounded."""


@dataclass(frozen=True, slots=True, eq=False)
class Stroke:
    """The lowest and highest value of a line in every pixel column, NaN where it is not.

    `top` and `bottom` are the extremes over all columns, `dots` the columns that stand alone. `start` is the time at
    the left edge, `width` that of a column, `horizon` the time before which rows that come later change nothing.
    """

    low: Floats
    high: Floats
    top: float
    bottom: float
    dots: ColumnIndices
    start: float
    width: float
    horizon: float


def stroke_columns(rows: Rows, start: float, end: float, columns: int) -> Stroke:
    """Return the line through rows, by pixel columns; a row of NaN breaks it."""
    low, high = _columns(rows, start, end, columns)
    return Stroke(low, high, *_extent(low, high), start, (end - start) / columns, _horizon(rows, start, end))


def continued_stroke(
    earlier: Stroke | None, window: Callable[[float, float, int], Rows], start: float, end: float, columns: int
) -> Stroke:
    """Return a stroke whose columns are those of an earlier one where they can be, moved: only the newest are made.

    The left edge is then up to half a column beside `start`. No column moves over the data as the time continues, so a
    curve does not shimmer, and a column only ever grows: rows that were reduced meanwhile lose no peak.

    `window` returns the rows between two times and one beyond each end, no finer than that many columns need.
    """
    width = (end - start) / columns
    if earlier is None or len(earlier.low) != columns or not math.isclose(earlier.width, width, rel_tol=1e-9):
        return stroke_columns(window(start, end, columns), start, end, columns)
    width = earlier.width  # the very same, or the right edge moves to and fro by a rounding
    shift = round((start - earlier.start) / width)
    column = _first_open(earlier, shift)
    if shift < 0 or column <= 0:
        return stroke_columns(window(start, end, columns), start, end, columns)
    start = earlier.start + shift * width
    end = start + columns * width
    low, high = _moved(earlier.low, shift), _moved(earlier.high, shift)
    rows = window(earlier.horizon, end, columns)
    horizon = _horizon(rows, start, end)
    is_new = horizon != earlier.horizon
    if is_new and rows[1] is rows[2] and len(rows[0]) <= _FEW and horizon - earlier.horizon <= _FEW * width:
        _add_samples(low, high, _crossings(rows, earlier.horizon, start, columns, width))
    elif is_new:
        edge = start + column * width
        lowest, highest = _columns(window(edge, end, columns - column), edge, end, columns - column)
        np.fmin(low[column:], lowest, out=low[column:])
        np.fmax(high[column:], highest, out=high[column:])
    return Stroke(low, high, *_extent(low, high), start, width, horizon)


def _first_open(earlier: Stroke, shift: int) -> int:
    """Return the first column that later rows may still change, after a move by that many columns.

    A row stands where its first sample was, up to a column before its last one. What is known up to the border of a
    column, as up to the right edge, ends in the column before it, however the times are rounded.
    """
    return int((earlier.horizon - earlier.start) / earlier.width - _ON_BORDER) - 1 - shift


def _moved(values: Floats, shift: int) -> Floats:
    """Return the values of columns moved to the left, NaN if there was nothing."""
    return np.concatenate([values[shift:], np.full(shift, np.nan)]) if shift else values.copy()


def _add_samples(low: Floats, high: Floats, crossings: Iterator[tuple[int, float]]) -> None:
    """Widen columns by values of theirs; columns out of view are left out."""
    for column, value in crossings:
        if 0 <= column < len(low):
            if not low[column] <= value:  # which NaN is not either
                low[column] = value
            if not high[column] >= value:
                high[column] = value


def _crossings(rows: Rows, horizon: float, start: float, columns: int, width: float) -> Iterator[tuple[int, float]]:
    """Yield the columns of samples with their values, and those that the line to each of them enters and leaves.

    The line up to `horizon`, the time of the newest sample so far, is there.
    """
    x0 = y0 = math.nan
    for x, y in zip(rows[0].tolist(), rows[1].tolist(), strict=True):
        if x >= horizon and not math.isnan(y):
            yield int((x - start) / width), y
            if not math.isnan(y0) and x > horizon:
                first, last = (int((time - start) / width) for time in (max(x0, horizon), x))
                for border in range(first, min(last, columns) + 1):
                    at = start + border * width
                    if at >= x0:
                        value = y0 + (at - x0) * (y - y0) / (x - x0)
                        yield border - 1, value
                        yield border, value
        x0, y0 = x, y


def _columns(rows: Rows, start: float, end: float, columns: int) -> tuple[Floats, Floats]:
    x, lowest, highest = rows
    low, high = _between_columns(rows, start, end, columns)
    first, last = x.searchsorted((start, end))
    if last > first:
        column_of = ((x[first:last] - start) * (columns / (end - start))).astype(np.intp)
        starts = (column_of[1:] != column_of[:-1]).nonzero()[0]
        starts += 1
        starts = np.concatenate([[0], starts])
        column_of = np.minimum(column_of[starts], columns - 1)
        low[column_of] = np.fmin(low[column_of], np.fmin.reduceat(lowest[first:last], starts))
        high[column_of] = np.fmax(high[column_of], np.fmax.reduceat(highest[first:last], starts))
    return low, high


def _horizon(rows: Rows, start: float, end: float) -> float:
    return min(float(rows[0][-1]), end) if len(rows[0]) else start


def _extent(low: Floats, high: Floats) -> tuple[float, float, ColumnIndices]:
    """Return the highest and the lowest value over all columns, and the columns that stand alone."""
    return float(np.fmax.reduce(high)), float(np.fmin.reduce(low)), _isolated_columns(np.isnan(low))


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


def _isolated_columns(empty: NDArray[np.bool_]) -> ColumnIndices:
    if not empty.any():
        return np.empty(0, dtype=np.intp)
    padded = np.concatenate([[True], empty, [True]])
    return np.flatnonzero(~empty & padded[:-2] & padded[2:])
