"""When repeating may stop, and how many more repeats are foreseen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from app.analysis.intervals import ratio
from app.analysis.repeats import FIRST_LOOK, more_repeats, outlook, settled

RATES = st.lists(st.floats(90.0, 110.0), min_size=2, max_size=6).filter(lambda values: np.std(values) > 0.1)
NARROW, WIDE = [100.0, 100.1, 99.9, 100.0], [100.0, 104.0, 96.0, 100.0]


def test_two_looks_in_a_row_from_three_processes_on_have_to_agree() -> None:
    assert FIRST_LOOK == 3
    assert not settled(NARROW[:3], NARROW[:3], 1.0), "the first look alone ends nothing"
    assert settled(NARROW, NARROW, 1.0)
    assert not settled(NARROW, WIDE, 1.0)
    assert not settled([], [], 1.0)
    late = [100.0, 104.0, 100.0, 100.0]
    assert not settled(late, late, 1.0), "narrow enough at no look"


def test_a_look_that_was_wide_is_not_made_good_by_the_next() -> None:
    values = [100.0, 100.5, 99.5, 100.0, 100.0, 100.0]
    widths = [found.half_width for n in (4, 5, 6) if (found := ratio(values[:n], values[:n]))]
    assert widths[0] is not None
    assert widths[1] is not None
    between_pct = 100 * math.expm1((widths[0] + widths[1]) / 2)
    assert not settled(values[:4], values[:4], between_pct)
    assert not settled(values[:5], values[:5], between_pct), "narrow now, but not at the look before"
    assert settled(values, values, between_pct)


@given(RATES, RATES, st.floats(0.001, 0.05))
def test_as_many_repeats_as_foreseen_narrow_the_interval_and_one_less_does_not(
    a: list[float], b: list[float], within: float
) -> None:
    def foreseen(more: int) -> float:
        """Half of Welch's width with that many more and the same standard deviations."""
        counts = [len(side) + more for side in (a, b)]
        errors = [float(np.log(side).var(ddof=1)) / n for side, n in zip((a, b), counts, strict=True)]
        freedom = sum(errors) ** 2 / sum(error**2 / (n - 1) for error, n in zip(errors, counts, strict=True))
        return float(t.ppf(0.975, freedom)) * math.sqrt(sum(errors))

    more = more_repeats(a, b, within)
    assert foreseen(more) <= math.log1p(within) * (1 + 1e-9)
    assert more == 0 or foreseen(more - 1) > math.log1p(within) * (1 - 1e-9)


@pytest.mark.parametrize(("spread", "within"), [(0.001, 0.001), (0.01, 0.01), (0.02, 0.02), (0.04, 0.05)])
def test_the_next_rounder_figure_is_foreseen(spread: float, within: float) -> None:
    values = [100 * (1 - spread), 100.0, 100 * (1 + spread)]
    found = outlook(values, values)
    assert found is not None
    assert found.within == pytest.approx(within)
    assert found.repeats == more_repeats(values, values, within) > 0


def test_nothing_is_foreseen_of_one_process_or_where_it_is_known_well_enough() -> None:
    assert outlook([100.0], [100.0, 101.0]) is None
    assert outlook([100.0, 100.0], [100.0, 100.0]) is None
    assert outlook([100.0, 100.01, 99.99], [100.0, 100.01, 99.99]) is None
