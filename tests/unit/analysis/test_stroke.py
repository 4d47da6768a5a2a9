import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.analysis.stroke import Stroke, stroke

NAN = float("nan")


def line(x: list[float], y: list[float], columns: int = 10) -> Stroke:
    """A line on an axis from 0 to 10."""
    values = np.array(y)
    return stroke((np.array(x), values, values), 0.0, 10.0, columns)


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
    drawn = stroke((x, y, y), 0.0, 10.0, columns)
    column = np.minimum((x * (columns / 10.0)).astype(int), columns - 1)
    for at in set(column[~np.isnan(y)]):
        assert drawn.low[at] <= np.nanmin(y[column == at])
        assert drawn.high[at] >= np.nanmax(y[column == at])
    if not np.isnan(y).all():
        assert (drawn.bottom, drawn.top) == (np.nanmin(y), np.nanmax(y))
