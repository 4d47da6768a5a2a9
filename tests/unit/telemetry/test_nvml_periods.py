"""Renewal periods found by watching, against devices whose period is known."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.telemetry.nvml_gpu import FieldPeriods, PeriodEstimator

MS = 1_000_000


def watched(reads_ms: Iterator[float], period_ms: float, *, repeats: float = 0.0, seed: int = 0) -> float | None:
    """The period found by reading at these times a value that is renewed every `period_ms`.

    `repeats` is how often a renewal gives the same value again.
    """
    watch = PeriodEstimator()
    changes = np.random.default_rng(seed).random(100_000) >= repeats
    values = np.cumsum(changes)
    for at_ms in reads_ms:
        watch.add_reading(int(at_ms * MS), float(values[int(at_ms // period_ms)]))
    return watch.period_ms


def every(reading_ms: float, start_ms: float = 3.0, seconds: float = 20.0) -> Iterator[float]:
    return itertools.takewhile(lambda at: at < seconds * 1e3, itertools.count(start_ms, reading_ms))


@pytest.mark.parametrize("reading_ms", [2.0, 20.0, 50.0, 73.0])
def test_a_value_renewed_every_100_ms_is_found_at_any_rhythm(reading_ms: float) -> None:
    assert watched(every(reading_ms), 100.0) == pytest.approx(100.0, abs=2.0)


def test_a_value_that_often_stays_the_same_is_still_renewed_as_often() -> None:
    assert watched(every(5.0, seconds=60.0), 100.0, repeats=0.4) == pytest.approx(100.0, abs=2.0)


def test_reading_on_the_very_edge_of_a_renewal_does_not_halve_the_period() -> None:
    rhythm = np.random.default_rng(4)
    reads = (at + rhythm.uniform(-1, 1) for at in every(50.0, start_ms=50.0))
    assert watched(reads, 100.0) == pytest.approx(100.0, abs=6.0)


@pytest.mark.parametrize("reading_ms", [100.0, 150.0, 1_000.0])
def test_who_reads_no_faster_than_the_driver_renews_learns_nothing(reading_ms: float) -> None:
    assert watched(every(reading_ms), 100.0) is None


def test_a_value_that_never_changes_has_no_period() -> None:
    watch = PeriodEstimator()
    for at_ms in range(0, 10_000, 50):
        watch.add_reading(at_ms * MS, 700_000.0)
    assert watch.period_ms is None


def test_a_few_changes_are_not_enough() -> None:
    watch = PeriodEstimator()
    for at_ms in range(0, 520, 20):
        watch.add_reading(at_ms * MS, float(at_ms // 100))
    assert watch.period_ms is None, "five changes are four times between"
    for at_ms in range(520, 620, 20):
        watch.add_reading(at_ms * MS, float(at_ms // 100))
    assert watch.period_ms == 100.0


@given(period_ms=st.floats(10.0, 2_000.0), part=st.floats(0.02, 0.85), start=st.floats(0.0, 1.0))
def test_any_period_is_found_by_any_reader_that_is_faster(period_ms: float, part: float, start: float) -> None:
    reading_ms = part * period_ms
    found = watched(every(reading_ms, start * period_ms, seconds=0.07 * period_ms), period_ms)
    assert found == pytest.approx(period_ms, abs=2 * reading_ms / 60 + 0.06)


@given(
    period_ms=st.floats(10.0, 1_000.0),
    part=st.floats(0.02, 0.3),
    repeats=st.floats(0.0, 0.4),
    seed=st.integers(0, 1_000),
)
def test_missed_changes_do_not_lengthen_it(period_ms: float, part: float, repeats: float, seed: int) -> None:
    assume(period_ms * part > 0.5)
    reads = every(part * period_ms, seconds=0.15 * period_ms)
    found = watched(reads, period_ms, repeats=repeats, seed=seed)
    assert found == pytest.approx(period_ms, abs=part * period_ms)


@pytest.mark.parametrize(("more_readings", "period_ms"), [(1, 51.0), (2, 50.0)])
def test_a_change_that_is_seen_a_reading_late_counts_and_a_missed_one_does_not(
    more_readings: int, period_ms: float
) -> None:
    estimator = PeriodEstimator()
    changes = {5 * number for number in range(11)} | {50 + 5 + more_readings}
    value = 0
    for reading in range(70):
        value += reading in changes
        estimator.add_reading(reading * 10_000_000, value)
    assert estimator.period_ms == pytest.approx(period_ms, abs=0.05)


@pytest.mark.parametrize(
    ("seconds", "is_watched"), [(0, True), (9.999, True), (10, False), (59.999, False), (60, True), (70, False)]
)
def test_fields_are_watched_ten_seconds_of_each_minute(seconds: float, is_watched: bool) -> None:
    periods = FieldPeriods()
    assert periods.is_time(periods._opened_ns + round(seconds * 1e9)) == is_watched
