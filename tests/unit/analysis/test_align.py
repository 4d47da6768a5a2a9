import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.analysis.align import (
    TimeSeries,
    combine,
    decimate,
    interpolate_done,
    mean_and_range,
    running_mean,
    seconds_since,
    with_gaps,
)
from app.values.records import BlockColumns, Floats, Ints
from tests.present import present

MS = 1_000_000


def series(times_ms: list[float], values: list[float]) -> TimeSeries:
    return TimeSeries(np.array([int(t * MS) for t in times_ms], dtype=np.int64), np.array(values, dtype=np.float64))


@st.composite
def curves(draw: st.DrawFn) -> tuple[Floats, Floats]:
    n = draw(st.integers(2, 400))
    steps = draw(hnp.arrays(np.float64, n, elements=st.floats(0.001, 10.0)))
    y = draw(hnp.arrays(np.float64, n, elements=st.one_of(st.floats(-1e6, 1e6), st.just(np.nan))))
    return np.cumsum(steps), y


@given(curves(), st.integers(1, 50))
def test_decimate_keeps_real_points_in_order_the_extremes_and_the_ends(
    curve: tuple[Floats, Floats], buckets: int
) -> None:
    x, y = curve
    few_x, few_y = decimate(x, y, buckets)
    assert len(few_x) == len(few_y) <= max(3 * buckets + 2, 2 * buckets)
    assert np.all(np.diff(few_x) > 0)
    at = np.searchsorted(x, few_x)
    np.testing.assert_array_equal(x[at], few_x)
    np.testing.assert_array_equal(y[at], few_y)
    assert (few_x[0], few_x[-1]) == (x[0], x[-1])
    if not np.isnan(y).all():
        assert np.nanmin(few_y) == np.nanmin(y)
        assert np.nanmax(few_y) == np.nanmax(y)


@given(curves(), st.integers(1, 50))
def test_decimate_shows_a_gap_in_every_bucket_that_has_one(curve: tuple[Floats, Floats], buckets: int) -> None:
    x, y = curve
    few_x, few_y = decimate(x, y, buckets)
    width = (x[-1] - x[0]) / buckets
    shown = few_x[np.isnan(few_y)]
    for gap in x[np.isnan(y)]:
        assert np.min(np.abs(shown - gap)) <= width * 1.000001


def test_decimate_leaves_a_short_curve_alone() -> None:
    x, y = np.arange(10.0), np.arange(10.0)
    assert decimate(x, y, 5)[0] is x
    assert len(decimate(np.empty(0), np.empty(0), 5)[0]) == 0


@given(st.integers(-(2**60), 2**60), st.lists(st.integers(0, 10**12), min_size=1, max_size=50))
def test_seconds_do_not_depend_on_where_the_clock_started(zero: int, offsets: list[int]) -> None:
    t_ns = np.array(sorted(offsets), dtype=np.int64)
    np.testing.assert_array_equal(seconds_since(t_ns + zero, zero), seconds_since(t_ns, 0))


def test_a_silence_becomes_one_gap() -> None:
    t_ns, y = with_gaps(series([0, 100, 200, 1000, 1100], [1, 2, 3, 4, 5]))
    np.testing.assert_array_equal(y, [1, 2, 3, np.nan, 4, 5])
    assert t_ns[3] == 500 * MS


@given(hnp.arrays(np.int64, st.integers(0, 60), elements=st.integers(1, 10**10)))
def test_gaps_are_added_between_samples_and_nothing_is_lost(steps: Ints) -> None:
    t_ns = np.cumsum(steps)
    y = np.arange(len(t_ns), dtype=np.float64)
    out = with_gaps(TimeSeries(t_ns, y))
    assert np.all(np.diff(out.t_ns) > 0)
    known = ~np.isnan(out.y)
    np.testing.assert_array_equal(out.t_ns[known], t_ns)
    np.testing.assert_array_equal(out.y[known], y)


def test_two_gpus_sampled_a_moment_apart_add_up() -> None:
    first = series([0, 100, 200, 300], [10, 20, 30, 40])
    second = series([0, 100.05, 200.05, 300.05], [1, 2, 3, 4])
    np.testing.assert_array_equal(combine([first, second], "sum").y, [11, 22, 33, 44])
    np.testing.assert_array_equal(combine([first, second], "mean").y, [5.5, 11, 16.5, 22])


def test_a_device_that_falls_silent_ends_the_sum() -> None:
    first = series([0, 100, 200, 300, 400, 500, 600], [1] * 7)
    lost = series([0, 100, 200], [1, 1, 1])
    np.testing.assert_array_equal(combine([lost, first], "sum").y, [2, 2, 2, 2, 2, np.nan, np.nan])
    np.testing.assert_array_equal(combine([first, lost], "sum").y, [2, 2, 2])


def test_an_absent_value_is_bridged_briefly_and_a_device_without_the_field_never_counts_as_zero() -> None:
    first = series([0, 100, 200], [1, np.nan, 3])
    np.testing.assert_array_equal(combine([first], "sum").y, [1, 1, 3])
    np.testing.assert_array_equal(combine([first, series([0, 100, 200], [np.nan] * 3)], "sum").y, [np.nan] * 3)


@given(hnp.arrays(np.float64, st.integers(2, 40), elements=st.floats(-1e3, 1e3)), st.integers(1, 8))
def test_the_mean_of_equal_devices_is_one_of_them(y: Floats, devices: int) -> None:
    one = TimeSeries(np.arange(len(y), dtype=np.int64) * 100 * MS, y)
    np.testing.assert_allclose(combine([one] * devices, "mean").y, y, atol=1e-9)
    np.testing.assert_allclose(combine([one] * devices, "sum").y, y * devices, atol=1e-6)


@given(curves(), st.floats(0.01, 100.0))
def test_a_running_mean_is_that_of_the_points_around_and_keeps_gaps(curve: tuple[Floats, Floats], width: float) -> None:
    x, y = curve
    mean = running_mean(x, y, width)
    assert np.array_equal(np.isnan(mean), np.isnan(y))
    for n in np.flatnonzero(~np.isnan(y))[:5]:
        near = y[(x >= x[n] - width / 2) & (x <= x[n] + width / 2)]
        assert mean[n] == pytest.approx(np.nanmean(near), rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_no_devices_is_no_curve(how: str) -> None:
    assert len(combine([], "sum" if how == "sum" else "mean").t_ns) == 0


def test_the_highest_of_several_devices_is_one_of_them() -> None:
    first, second = series([0, 100, 200], [1, 5, 3]), series([0, 100, 200], [2, 4, 6])
    np.testing.assert_array_equal(combine([first, second], "max").y, [2, 5, 6])


def blocks(*rows: tuple[int, int, int, bool]) -> BlockColumns:
    """Blocks of (start in ms, end in ms, steps, measured), four examples a step."""
    start_ms, end_ms, steps, measured = (np.array(column) for column in zip(*rows, strict=True))
    return BlockColumns(
        first_step=np.cumsum(steps) - steps,
        steps=steps,
        examples=4 * steps,
        start_ns=start_ms * MS,
        end_ns=end_ms * MS,
        loss=np.full(len(steps), np.nan),
        measured=measured,
    )


def test_steps_count_from_the_start_of_measure_and_stand_still_between_blocks() -> None:
    made = blocks((100, 200, 10, False), (300, 400, 20, True), (400, 600, 10, True))
    times = np.array([50, 100, 150, 250, 300, 350, 400, 500, 600, 601], dtype=np.int64) * MS
    expected = [np.nan, -10, -5, 0, 0, 10, 20, 25, 30, np.nan]
    np.testing.assert_allclose(interpolate_done(times, made, made.steps), expected)
    np.testing.assert_allclose(interpolate_done(times, made, made.examples), 4 * np.array(expected))


def test_without_a_measured_block_steps_count_from_the_first_and_without_blocks_not_at_all() -> None:
    made = blocks((100, 200, 10, False), (200, 300, 10, False))
    np.testing.assert_allclose(interpolate_done(np.array([100, 300]) * MS, made, made.steps), [0, 20])
    nothing = np.empty(0, dtype=np.int64)
    assert np.isnan(interpolate_done(np.array([100]), made, nothing)).all()


@given(st.integers(-(2**60), 2**60), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_steps_never_go_back_and_do_not_depend_on_where_the_clock_started(origin: int, steps: list[int]) -> None:
    ends = np.cumsum(np.array(steps, dtype=np.int64) * 7)
    rows = [(int(end - 7 * n), int(end), n, True) for end, n in zip(ends, steps, strict=True)]
    made = blocks(*rows)
    times = np.arange(0, ends[-1] + 1, dtype=np.int64) * MS
    done = interpolate_done(times, made, made.steps)
    assert np.all(np.diff(done) >= 0)
    assert (done[0], done[-1]) == pytest.approx((0, sum(steps)))
    offset = BlockColumns(
        **{
            **{name: getattr(made, name) for name in BlockColumns.__slots__},
            "start_ns": made.start_ns + origin,
            "end_ns": made.end_ns + origin,
        }
    )
    np.testing.assert_allclose(interpolate_done(times + origin, offset, made.steps), done)


def test_a_mean_is_where_all_curves_are_between_the_lowest_and_the_highest() -> None:
    short = np.array([0.0, 1.0, 2.0]), np.array([10.0, 10.0, 10.0])
    long = np.array([-1.0, 0.5, 3.0]), np.array([20.0, 20.0, 20.0])
    envelope = present(mean_and_range([short, long], 100))
    x, mean, low, high = envelope
    assert x.tolist() == [0.0, 0.5, 1.0, 2.0]
    assert (set(mean), set(low), set(high)) == ({15.0}, {10.0}, {20.0})
    gap = np.array([0.0, 1.0, 2.0]), np.array([10.0, np.nan, 10.0])
    assert np.isnan(present(mean_and_range([short, gap], 100))[1]).tolist() == [False, True, False]
    assert mean_and_range([short, (np.array([5.0, 6.0]), np.ones(2))], 100) is None, "they have no time in common"
    assert len(present(mean_and_range([(np.linspace(0, 1, 999), np.zeros(999))] * 2, 50))[0]) == 50
