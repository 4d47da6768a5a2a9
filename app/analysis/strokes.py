"""Reduces curves to pixel columns for painting."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from app.values.records import Floats

ColumnIndices = NDArray[np.intp]
Rows = tuple[Floats, Floats, Floats]
"""Times, smallest and largest values, each of shape (n,); NaN is a gap."""


@dataclass(frozen=True, slots=True, eq=False)
class Stroke:
    """The lowest and highest value of a line in every pixel column, NaN outside the line.

    `top` and `bottom` are the extremes over all columns, `dots` the isolated columns.
    """

    low: Floats
    high: Floats
    top: float
    bottom: float
    dots: ColumnIndices


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
    """Return, for every column, the lower and higher of the values where the line enters and leaves it."""
    x, lowest, highest = rows
    if len(x) < 2:
        return np.full(columns, np.nan), np.full(columns, np.nan)
    middle = lowest if lowest is highest else (lowest + highest) / 2
    borders = np.interp(_column_borders(start, end, columns), x, middle, left=np.nan, right=np.nan)
    return np.fmin(borders[:-1], borders[1:]), np.fmax(borders[:-1], borders[1:])


@lru_cache(maxsize=4)
def _column_borders(start: float, end: float, columns: int) -> Floats:
    """Return the times of the borders of pixel columns, edges included; all curves of a stack of plots share them."""
    return np.linspace(start, end, columns + 1)
