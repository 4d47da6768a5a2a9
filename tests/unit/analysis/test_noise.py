"""The spread between processes and what it can show, against simulations with the program's own intervals."""

import math

import numpy as np
import pytest

from app.analysis.intervals import level_at, pooled_noise, ratio, resolution
from tests.present import present

SD = 0.02


@pytest.mark.parametrize(("repeats", "comparisons"), [(3, 1), (5, 1), (20, 1), (5, 4)])
def test_a_difference_that_can_be_shown_is_shown_four_times_in_five(repeats: int, comparisons: int) -> None:
    found = present(resolution(SD, repeats, comparisons))
    random = np.random.default_rng(7)
    level, cases = level_at(1, comparisons), 1500
    shown, widths = 0, []
    for a, b in np.exp(random.normal(0, SD, (cases, 2, repeats))):
        estimate = present(ratio((a * (1 + found.smallest)).tolist(), b.tolist(), level))
        shown += present(estimate.low) > 1
        widths.append(present(estimate.half_width))
    # Satterthwaite's degrees of freedom are fewer than those of equal spreads: three repeats show it twice in 3.
    assert shown / cases == pytest.approx(0.8, abs=0.15 if repeats == 3 else 0.05)
    assert np.median(widths) == pytest.approx(found.half_width, rel=0.15)


def test_the_spread_is_within_variants_however_they_differ() -> None:
    random = np.random.default_rng(8)
    variants = [(rate * np.exp(random.normal(0, SD, 50))).tolist() for rate in (10.0, 1000.0)]
    found = present(pooled_noise([*variants, [5.0]]))
    assert found.sd == pytest.approx(SD, rel=0.15)
    assert found.runs == 100
    assert pooled_noise([[1.0, 2.0], [3.0]]) is None, "one degree of freedom says next to nothing"


def test_equal_runs_show_any_difference_and_a_single_repeat_none() -> None:
    exact = present(resolution(0.0, 3))
    assert (exact.half_width, exact.smallest) == (0.0, 0.0)
    assert resolution(SD, 1) is None
    many = present(resolution(SD, 100_000))
    assert many.smallest == pytest.approx((2.17009 + 0.84162) * SD * math.sqrt(2 / 100_000), rel=1e-3)
