"""A curve as what each pixel column of a plot shows of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.records import Floats

Indices = NDArray[np.intp]


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


def stroke(rows: tuple[Floats, Floats, Floats], start: float, end: float, columns: int) -> Stroke:
    """The line through rows of (time, smallest, largest value) from `start` to `end`; a row of NaN breaks it."""
    x, lowest, highest = rows
    low, high = _between_columns(rows, start, end, columns)
    first, last = np.searchsorted(x, (start, end))
    if last > first:
        at = ((x[first:last] - start) * (columns / (end - start))).astype(np.intp)
        begins = np.flatnonzero(at[1:] != at[:-1])
        begins += 1
        begins = np.concatenate([[0], begins])
        at = np.minimum(at[begins], columns - 1)
        low[at] = np.fmin(low[at], np.fmin.reduceat(lowest[first:last], begins))
        high[at] = np.fmax(high[at], np.fmax.reduceat(highest[first:last], begins))
    empty = np.isnan(low)
    if empty.all():
        return Stroke(low, high, np.nan, np.nan, np.empty(0, dtype=np.intp))
    return Stroke(low, high, float(np.fmax.reduce(high)), float(np.fmin.reduce(low)), _alone(empty))


def _between_columns(
    rows: tuple[Floats, Floats, Floats], start: float, end: float, columns: int
) -> tuple[Floats, Floats]:
    """For every column the values where the line enters and leaves it, the lower one and the higher one."""
    x, lowest, highest = rows
    if len(x) < 2:
        return np.full(columns, np.nan), np.full(columns, np.nan)
    middle = lowest if lowest is highest else (lowest + highest) / 2
    borders = np.interp(np.linspace(start, end, columns + 1), x, middle, left=np.nan, right=np.nan)
    return np.fmin(borders[:-1], borders[1:]), np.fmax(borders[:-1], borders[1:])


def _alone(empty: NDArray[np.bool_]) -> Indices:
    """Columns with something between columns with nothing."""
    if not empty.any():
        return np.empty(0, dtype=np.intp)
    around = np.concatenate([[True], empty, [True]])
    return np.flatnonzero(~empty & around[:-2] & around[2:])
