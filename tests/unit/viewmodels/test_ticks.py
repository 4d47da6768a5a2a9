"""Numbers at axes: round, few, within their range, and no two alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.viewmodels import ticks


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.7, 2.7, ["0.8", "1", "1.2", "1.5", "2", "2.5"]),
        (0.95, 1.1, ["0.95", "1.00", "1.05", "1.10"]),
        (0.03, 14.0, ["0.03", "0.1", "0.3", "1", "3", "10"]),
        (900.0, 15_000.0, ["1,000", "2,000", "5,000", "10,000"]),
    ],
)
def test_equal_factors_have_round_numbers(low: float, high: float, words: list[str]) -> None:
    found = [word for _, word in ticks.logarithmic(low, high)]
    assert found == words


@given(st.floats(1e-3, 1e9), st.floats(1.05, 1e6))
def test_numbers_lie_on_the_axis_and_differ(low: float, factor: float) -> None:
    for found in (ticks.logarithmic(low, low * factor), ticks.linear(0.0, low)):
        values, words = zip(*found, strict=True) if found else ((), ())
        assert len(set(words)) == len(words) <= 9
        assert list(values) == sorted(values)
        for value, word in found:
            assert float(word.replace(",", "")) == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert all(
        low * (1 - 1e-9) <= value <= low * factor * (1 + 1e-9) for value, _ in ticks.logarithmic(low, low * factor)
    )


def test_batches_keep_their_own_numbers() -> None:
    assert ticks.doubling([128, 256, 2048]) == [(128.0, "128"), (256.0, "256"), (2048.0, "2,048")]
    assert len(ticks.doubling(list(range(1, 40)))) <= 10


def test_times_are_a_clock_or_seconds() -> None:
    assert ticks.time_labels([-30.0, 0.0, 90.0], 30.0) == ["−0:30", "0:00", "1:30"]
    assert ticks.time_labels([0.0, 0.5], 0.5) == ["0.0 s", "0.5 s"]
