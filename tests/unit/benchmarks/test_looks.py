"""Repeated looks, few and unequal runs: what the program's intervals cover, and that simpler ones would not."""

import numpy as np
import pytest

from app.analysis.intervals import PLANNED_LEVEL, ratio
from benchmarks.harness import Result
from benchmarks.looks import NOISY_PAIRS, draw, measure, welch
from tests.present import present

CASES = 3000


def random() -> np.random.Generator:
    return np.random.default_rng(20_261_122)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {result.name: result for result in measure(random(), CASES)}


@pytest.mark.parametrize("sizes", [(3, 3), (3, 8), (4, 3), (7, 7)])
def test_simulated_intervals_are_the_program_s_own(sizes: tuple[int, int]) -> None:
    a, b = draw(random(), NOISY_PAIRS["normal 5 % against 1 %"], 20, sizes)
    interval = welch(a, b)
    half = interval.half_width(PLANNED_LEVEL)
    for case in range(20):
        estimate = present(ratio(np.exp(a[case]).tolist(), np.exp(b[case]).tolist()))
        assert np.log(estimate.value) == pytest.approx(interval.difference[case])
        assert estimate.half_width == pytest.approx(half[case])


@pytest.mark.parametrize("name", NOISY_PAIRS)
def test_every_noise_favours_no_variant_in_the_long_run(name: str) -> None:
    case = NOISY_PAIRS[name]
    difference = welch(*draw(random(), case, 20_000, (10, 10))).difference.mean()
    assert abs(difference) < 0.003 or not case.interleaved


def test_the_limits_are_kept_in_every_row_that_is_not_inherent(results: dict[str, Result]) -> None:
    # Five standard errors of so few cases are 2 %: the full simulation keeps the limits themselves.
    limited = [result for result in results.values() if result.limit is not None]
    assert len(limited) > 100
    for result in limited:
        slack = 1.0 if result.at_least else -1.0
        assert slack * (result.value - present(result.limit)) > -1.0, result.name


def test_welch_s_interval_alone_would_be_wrong_in_one_of_five_who_look_after_each_run(
    results: dict[str, Result],
) -> None:
    looks = "normal 2 %, looks after each run from 3 to 20"
    assert results[f"{looks}: plain Welch covers"].value < 82
    assert results[f"{looks}: covers"].value > 95


def test_two_states_of_unequal_numbers_are_covered_and_were_not(results: dict[str, Result]) -> None:
    states = "half of the runs 4 % slower, 0.5 % besides, 3 against 8"
    assert results[f"{states}: plain Welch covers"].value < 88
    assert results[f"{states}: covers"].value > 96


def test_who_follows_the_advice_is_seldom_wrong_and_gets_what_was_promised(results: dict[str, Result]) -> None:
    advice = "normal 2 %, advice followed three times"
    assert results[f"{advice}: covers"].value > 95
    assert 40 < results[f"{advice}: interval as narrow as promised"].value < 80


def test_inherent_rows_are_named_and_have_no_limit(results: dict[str, Result]) -> None:
    drifted = results["A first, then B, linear drift 5 %, 10 against 10 (the drift is in the difference): covers"]
    assert (drifted.limit, drifted.value < 5) == (None, True)
