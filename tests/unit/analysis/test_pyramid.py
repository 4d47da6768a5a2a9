"""Curves in bounded memory, and what each pixel column of a plot shows of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.analysis.pyramid import FACTOR, FOLD_BATCH, KEEP_ROWS, LEVELS, Pyramid, Stroke, stroke_columns
from app.values.records import Floats

PERIOD_S = 0.05
FEW = 256
"""Rows a level keeps in tests of overflow."""

Curve = tuple[Floats, Floats]


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Samples at uneven times, some seconds of silence among them, some values NaN; up to twice what a level keeps."""
    count = draw(st.integers(1, 3000))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    period = draw(st.sampled_from([0.02, 0.05, 0.3, 2.0]))
    steps = random.uniform(0.5, 1.5, count) * period
    steps[random.random(count) < draw(st.sampled_from([0.0, 0.01]))] *= 300
    y = random.normal(0, 100, count)
    y[random.random(count) < draw(st.sampled_from([0.0, 0.05, 1.0]))] = np.nan
    return 1000 + np.cumsum(steps), y


def times(count: int, first: float = 0.0) -> Floats:
    return first + PERIOD_S * np.arange(count, dtype=np.float64)


def filled(curve: Curve, *, whole: bool, keep: int = KEEP_ROWS) -> Pyramid:
    made = Pyramid(keep=keep)
    if whole:
        made.extend(*curve)
    else:
        for x, y in zip(*curve, strict=True):
            made.append(x, y)
    return made


@settings(max_examples=150, deadline=None)
@given(curves(), st.booleans(), st.integers(8, 400), st.floats(0, 1), st.floats(0.01, 1))
def test_a_window_keeps_what_a_plain_minimum_and_maximum_find(
    curve: Curve, whole: bool, columns: int, begin: float, length: float
) -> None:
    x, _ = curve
    span = max(float(x[-1] - x[0]), 1e-3)
    start = float(x[0]) + begin * span
    agrees(filled(curve, whole=whole), curve, start, start + length * span, columns)


@settings(max_examples=100, deadline=None)
@given(curves(), st.booleans(), st.integers(8, FEW // 4), st.floats(0.01, 1))
def test_so_does_any_window_up_to_now_when_levels_overflow(
    curve: Curve, whole: bool, columns: int, length: float
) -> None:
    x, _ = curve
    end = float(x[-1])
    start = end - length * max(end - float(x[0]), 1e-3)
    agrees(filled(curve, whole=whole, keep=FEW), curve, start, end, columns)


def agrees(made: Pyramid, curve: Curve, start: float, end: float, columns: int) -> None:
    """Every value shown is one of the curve's; no pixel column lacks its extremes; a few rows a pixel are enough.

    The stroke made of them has one smallest and one largest value a column. A row stands at its first sample's time,
    so extremes of the first column may stand just left of the view.
    """
    x, y = curve
    pixel = (end - start) / columns
    rows = made.window(start, end, columns)
    times, low, high = rows
    assert (np.diff(times) >= 0).all()
    assert set(low[~np.isnan(low)]) | set(high[~np.isnan(high)]) <= set(y)
    inside = (times >= start) & (times <= end)
    if low is not high:
        assert inside.sum() <= FACTOR * (columns + 2) + LEVELS * FOLD_BATCH + 2 * int(np.isnan(y).sum())
    shown = stroke_columns(rows, start, end, columns)
    assert len(shown.low) == len(shown.high) == columns
    for left in np.arange(start, end, pixel)[1 :: max(1, columns // 20)]:
        plain = y[(x >= left) & (x < min(left + pixel, end))]
        if not np.isnan(plain).all():
            column = round((left - start) / pixel)
            near = slice(max(0, column - 2), column + 2)
            assert np.nanmin(shown.low[near]) <= np.nanmin(plain)
            assert np.nanmax(shown.high[near]) >= np.nanmax(plain)


@settings(max_examples=100, deadline=None)
@given(curves(), st.integers(8, 400))
def test_a_gap_wider_than_two_pixels_is_never_bridged(curve: Curve, columns: int) -> None:
    x, y = curve
    span = float(x[-1] - x[0])
    later = x + 2 * span + 10.0
    made = Pyramid()
    made.extend(np.concatenate([x, [x[-1] + 1e-6], later]), np.concatenate([y, [np.nan], y]))
    shown_x, shown_y, _ = made.window(float(x[0]), float(later[-1]), columns)
    first_after = int(np.searchsorted(shown_x, later[0]))
    assert np.isnan(shown_y[first_after - 1])
    drawn = stroke_columns(made.window(float(x[0]), float(later[-1]), columns), float(x[0]), float(later[-1]), columns)
    middle = round(columns * (1.5 * span + 5.0) / float(later[-1] - x[0]))
    assert np.isnan(drawn.low[middle])


@settings(max_examples=50, deadline=None)
@given(arrays.arrays(np.float64, st.integers(1, 500), elements=st.floats(0, 100)))
def test_late_samples_are_dropped_one_by_one_and_in_bulk(x: Floats) -> None:
    y = np.arange(len(x), dtype=np.float64)
    one, all_ = filled((x, y), whole=False), filled((x, y), whole=True)
    newest = np.maximum.accumulate(np.append(-np.inf, x))[:-1]
    np.testing.assert_array_equal(one.x, x[x > newest])
    np.testing.assert_array_equal(one.y, y[x > newest])
    np.testing.assert_array_equal(all_.x, one.x)


def test_overflow_drops_fine_rows_only_and_keeps_every_peak() -> None:
    count = 40_000
    x = times(count)
    y = np.sin(x)
    y[777] = 50.0
    made = Pyramid(keep=FEW)
    for start in range(0, count, 100):
        made.extend(x[start : start + 100], y[start : start + 100])
        assert len(made) <= 2 * FEW
    _, _, shown = made.window(0.0, float(x[-1]), 100)
    assert shown.max() == 50.0
    assert made.x[0] > x[777]
    newest_x, newest_y, _ = made.window(float(x[-50]), float(x[-1]), 200)
    np.testing.assert_array_equal(newest_x[-50:], x[-50:])
    np.testing.assert_array_equal(newest_y[-50:], y[-50:])


def test_overflow_keeps_a_long_gap() -> None:
    made = Pyramid(keep=FEW)
    x = times(20_000)
    made.extend(np.concatenate([x[:1000], [x[1000]], x[6000:]]), np.append(np.ones(1000), [np.nan, *np.ones(14_000)]))
    shown_x, shown_y, _ = made.window(0.0, 1000.0, 100)
    silent = np.flatnonzero(np.isnan(shown_y))
    assert len(silent)
    assert 45 <= shown_x[silent[0]] <= 55
    assert shown_x[silent[-1] + 1] >= 295


def test_memory_is_bounded() -> None:
    made = Pyramid()
    sizes = []
    for hour in range(60):
        x = times(72_000, 3600.0 * hour)
        made.extend(x, np.ones(len(x)))
        sizes.append(made.memory_bytes)
    assert sizes[7] <= 2.1e6
    assert sizes[-1] <= 2.8e6


def test_a_value_is_found_by_its_time() -> None:
    made = Pyramid()
    made.extend(np.array([0.0, 0.05, 0.1, 5.0]), np.array([1.0, 2.0, np.nan, 4.0]))
    assert made.nearest(0.06, 0.1) == (2.0, 2.0)
    assert made.nearest(0.1, 0.1) is None
    assert made.nearest(2.0, 0.1) is None
    assert made.nearest(5.04, 0.1) == (4.0, 4.0)
    assert Pyramid().nearest(0.0, 1.0) is None


def test_a_value_long_ago_is_told_as_its_range() -> None:
    made = Pyramid()
    x = times(3 * KEEP_ROWS)
    made.extend(x, np.tile([1.0, 9.0], 3 * KEEP_ROWS // 2))
    assert made.nearest(1.0, 0.1) == (1.0, 9.0)


def test_an_empty_curve_shows_nothing() -> None:
    rows = Pyramid().window(0.0, 1.0, 100)
    assert [len(column) for column in rows] == [0, 0, 0]
    assert np.isnan(stroke_columns(rows, 0.0, 1.0, 100).low).all()


NAN = float("nan")


def line(x: list[float], y: list[float], columns: int = 10) -> Stroke:
    """A line on an axis from 0 to 10."""
    values = np.array(y)
    return stroke_columns((np.array(x), values, values), 0.0, 10.0, columns)


def test_a_slope_meets_itself_between_columns() -> None:
    drawn = line([0.0, 10.0], [0.0, 20.0])
    np.testing.assert_allclose(drawn.low, 2.0 * np.arange(10))
    np.testing.assert_allclose(drawn.high, 2.0 * np.arange(1, 11))


def test_a_peak_within_a_column_is_kept() -> None:
    drawn = line([0.0, 4.4, 4.5, 4.6, 10.0], [1.0, 1.0, 99.0, 1.0, 1.0])
    assert drawn.high[4] == drawn.top == 99.0
    assert (drawn.high[[3, 5]] == 1.0).all()


def test_a_gap_is_not_crossed() -> None:
    drawn = line([0.0, 2.0, 2.5, 8.0, 10.0], [1.0, 1.0, NAN, 1.0, 1.0])
    assert np.isnan(drawn.low[3:7]).all()
    assert not np.isnan(drawn.low[[0, 1, 8, 9]]).any()


@pytest.mark.parametrize(("x", "y"), [([5.5], [3.0]), ([1.0, 5.5, 9.0], [NAN, 3.0, NAN])])
def test_a_single_point_is_a_dot(x: list[float], y: list[float]) -> None:
    drawn = line(x, y)
    assert drawn.dots.tolist() == [5]
    assert drawn.low[5] == drawn.high[5] == 3.0
    assert np.isfinite(drawn.low).sum() == 1


def test_lines_from_outside_reach_the_border() -> None:
    drawn = line([-5.0, 15.0], [0.0, 20.0])
    assert drawn.low[0] == pytest.approx(5.0)
    assert drawn.high[-1] == pytest.approx(15.0)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 9.99), st.one_of(st.just(NAN), st.floats(-1e3, 1e3))), min_size=1, max_size=300),
    st.integers(1, 50),
)
def test_every_column_holds_its_points(points: list[tuple[float, float]], columns: int) -> None:
    points.sort(key=lambda point: point[0])
    x, y = np.array(points).T
    drawn = stroke_columns((x, y, y), 0.0, 10.0, columns)
    column = np.minimum((x * (columns / 10.0)).astype(int), columns - 1)
    for at in set(column[~np.isnan(y)]):
        assert drawn.low[at] <= np.nanmin(y[column == at])
        assert drawn.high[at] >= np.nanmax(y[column == at])
    if not np.isnan(y).all():
        assert (drawn.bottom, drawn.top) == (np.nanmin(y), np.nanmax(y))
