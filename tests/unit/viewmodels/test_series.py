import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.viewmodels.series import Series, envelope


def filled(count: int, limit: int = 1024) -> Series:
    series = Series(limit=limit)
    for n in range(count):
        series.append(float(n), float(n % 97))
    return series


def test_a_series_stays_within_its_limit_and_in_order() -> None:
    series = filled(50_000)
    assert len(series) <= 1024
    assert (np.diff(series.x) >= 0).all()
    assert series.x[-1] == 49_999


def test_a_thinned_series_keeps_its_peak() -> None:
    series = Series(limit=1024)
    for n in range(20_000):
        series.append(float(n), 500.0 if n == 333 else 1.0)
    assert series.y.max() == 500.0


def test_an_absent_value_is_a_gap_and_not_the_last_value() -> None:
    series = Series()
    series.append(0.0, 1.0)
    series.append(1.0, None)
    assert np.isnan(series.y[1])
    assert series.last is None


def test_old_points_go_where_only_the_last_minutes_are_kept() -> None:
    series = Series()
    for n in range(10_000):
        series.append(float(n), 1.0)
        series.drop_before(n - 100.0)
    assert series.x[0] >= 10_000 - 100 - 256
    assert series.x[-1] == 9_999


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(1, 200))
def test_an_envelope_keeps_extremes_within_about_two_points_a_column(values: list[float], columns: int) -> None:
    y = np.array(values)
    x = np.arange(len(y), dtype=np.float64)
    shown_x, shown_y = envelope(x, y, 0.0, float(len(y)), columns)
    assert len(shown_y) <= max(2 * columns + 4, 2)
    assert shown_y.min() == y.min()
    assert shown_y.max() == y.max()
    assert (np.diff(shown_x) >= 0).all()


def test_an_envelope_keeps_gaps() -> None:
    x = np.arange(10_000, dtype=np.float64)
    y = np.ones(10_000)
    y[3000:6000] = np.nan
    _, shown = envelope(x, y, 0.0, 10_000.0, 100)
    assert 50 <= np.isnan(shown).sum() <= 70
