"""Where steady state begins: what is cut, and what is left alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.warmup import FEWEST_BLOCKS, LARGEST_CUT, blocks_to_cut

STEADY = np.array([100.2, 99.7, 100.1, 99.9, 100.4, 99.8, 100.0, 99.6, 100.3, 100.1])


@pytest.mark.parametrize(
    ("rates", "cut"),
    [
        (STEADY, 0),
        (np.concatenate(([90.0, 91.0], STEADY)), 2),
        (np.concatenate(([110.0], STEADY)), 1),
        (np.concatenate((STEADY, [90.0, 91.0])), 0),
        (np.concatenate((STEADY[:6] - 10, STEADY)), 0),
        (np.concatenate(([90.0, 91.0], STEADY))[: FEWEST_BLOCKS - 1], 0),
        (np.concatenate(([90.0, 91.0], STEADY))[:FEWEST_BLOCKS], 2),
        (np.full(20, 100.0), 0),
        (100.0 + np.arange(20) * 1e-12, 0),
        (np.zeros(0), 0),
    ],
    ids=[
        "steady",
        "slow start",
        "fast start",
        "slow end",
        "slow first third",
        "too few",
        "just enough",
        "all equal",
        "rounding",
        "nothing",
    ],
)
def test_only_a_start_unlike_the_rest_is_cut(rates: np.ndarray, cut: int) -> None:
    assert blocks_to_cut(rates) == cut


@given(st.lists(st.floats(50.0, 150.0), min_size=FEWEST_BLOCKS, max_size=40), st.integers(-20, 20))
def test_never_more_than_a_quarter_and_whatever_the_unit(rates: list[float], power: int) -> None:
    cut = blocks_to_cut(np.array(rates))
    assert 0 <= cut <= len(rates) // LARGEST_CUT
    assert blocks_to_cut(np.array(rates) * 2.0**power) == cut, "a power of two changes no digit"


def test_steady_noise_is_seldom_cut_and_a_warm_up_seldom_missed() -> None:
    random = np.random.default_rng(7)
    noise = 100 + random.normal(0, 2, (500, 20))
    warming = noise - 10 * np.exp(-np.arange(20) / 2)
    assert np.mean([blocks_to_cut(rates) > 0 for rates in noise]) < 0.1
    assert np.mean([blocks_to_cut(rates) > 0 for rates in warming]) > 0.9
    kept = [rates[blocks_to_cut(rates) :].mean() for rates in warming]
    assert abs(np.mean(kept) - 100) < 0.5 * abs(warming.mean() - 100)
