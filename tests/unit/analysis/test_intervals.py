"""Confidence intervals of means and ratios, and how many repeats are enough."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import t

from app.analysis.intervals import (
    MIN_REPEATS,
    PLANNED_LEVEL,
    Estimate,
    Gpus,
    additional_repeats,
    difference,
    half_width_of_sum,
    level_at,
    mean,
    mean_ratio,
    pooled_ratio,
    precision_reached,
    ratio,
    ratio_within_gpus,
    required_repeats,
    sidak_level,
)
from tests.present import present

RATES = st.lists(st.floats(1.0, 1e6), min_size=2, max_size=8)
THREE_OR_MORE = st.lists(st.floats(1.0, 1e6), min_size=3, max_size=8)
LEVELS = st.sampled_from([0.8, 0.9, 0.95, 0.99])


def spread(values: list[float]) -> bool:
    return float(np.std(np.log(values))) > 1e-6


def ends(estimate: Estimate | None) -> tuple[float, float]:
    assert estimate is not None
    return present(estimate.interval)


@given(THREE_OR_MORE, THREE_OR_MORE, LEVELS)
def test_a_ratio_s_interval_is_welch_s_on_the_logarithms(a: list[float], b: list[float], level: float) -> None:
    from scipy.stats import ttest_ind

    assume(spread(a) and spread(b))
    b = [*b, *a][: len(a)]
    assume(spread(b))
    interval = ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(level)
    assert ends(ratio(a, b, level)) == pytest.approx((math.exp(interval.low), math.exp(interval.high)), rel=1e-6)


@given(THREE_OR_MORE, THREE_OR_MORE)
def test_of_unequal_numbers_it_is_not_narrower_than_with_the_noise_of_both_together(
    a: list[float], b: list[float]
) -> None:
    assume(spread(a) and spread(b))
    found, logs = present(ratio(a, b, 0.95)), (np.log(a), np.log(b))
    errors = [float(side.var(ddof=1)) / len(side) for side in logs]
    freedom = sum(errors) ** 2 / sum(error**2 / (len(side) - 1) for error, side in zip(errors, logs, strict=True))
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in logs)
    pooled = squares / (len(a) + len(b) - 2) * (1 / len(a) + 1 / len(b))
    assert found.half_width == pytest.approx(t.ppf(0.975, freedom) * math.sqrt(max(sum(errors), pooled)), rel=1e-6)


@given(THREE_OR_MORE, LEVELS)
def test_a_mean_s_interval_is_student_s_on_the_logarithms(values: list[float], level: float) -> None:
    from scipy.stats import ttest_1samp

    assume(spread(values))
    interval = ttest_1samp(np.log(values), 0.0).confidence_interval(level)
    assert ends(mean(values, level)) == pytest.approx((math.exp(interval.low), math.exp(interval.high)), rel=1e-6)


def test_values_by_hand() -> None:
    found = present(ratio([200.0, 800.0], [100.0]))
    assert found.value == pytest.approx(4.0), "geometric means 400 and 100"
    assert found.n == 1
    middle = present(mean([100.0, 400.0]))
    assert middle.value == pytest.approx(200.0)
    assert middle.n == 2


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_an_interval_takes_three_processes_of_each_side(runs: int) -> None:
    few, many = [5.0, 5.5, 5.2][:runs], [2.0, 2.5, 2.1, 2.2]
    found = [mean(few), ratio(few, many), ratio(many, few), mean_ratio([(few, many)])]
    assert [estimate.n for estimate in found if estimate] == [runs] * 4
    assert {estimate is not None and estimate.interval is not None for estimate in found} == {runs == 3}
    assert (difference(few, many).interval is not None) == (runs == 3)


def test_nothing_has_no_estimate() -> None:
    assert mean([]) is None
    assert ratio([], [1.0]) is None
    assert ratio([1.0], []) is None


def test_equal_values_have_an_interval_of_no_width_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ratio([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert ends(found) == pytest.approx((2.0, 2.0))


@given(RATES, st.lists(st.floats(1.0, 1e6), min_size=1, max_size=8), LEVELS)
def test_a_pooled_ratio_s_interval_is_student_s_on_the_logarithms(a: list[float], b: list[float], level: float) -> None:
    from scipy.stats import t

    assume(spread(a))
    assume(max(a) / min(a) < 1e3)
    freedom = len(a) + len(b) - 2
    squares = sum(float(np.sum((np.log(side) - np.log(side).mean()) ** 2)) for side in (a, b))
    half = t.ppf(0.5 + level / 2, freedom) * math.sqrt(squares / freedom * (1 / len(a) + 1 / len(b)))
    centre = float(np.log(a).mean() - np.log(b).mean())
    assert ends(pooled_ratio(a, b, level)) == pytest.approx(
        (math.exp(centre - half), math.exp(centre + half)), rel=1e-6
    )


def test_one_process_against_one_has_no_pooled_ratio() -> None:
    assert pooled_ratio([1.0], [2.0]) is None
    assert pooled_ratio([], [1.0, 2.0]) is None
    assert pooled_ratio([1.0, 2.0], []) is None


@given(LEVELS, st.integers(1, 40))
def test_intervals_that_hold_together_do_so_with_the_level_asked_for(level: float, comparisons: int) -> None:
    each = sidak_level(level, comparisons)
    assert each**comparisons == pytest.approx(level)
    assert level <= each <= 1 - (1 - level) / comparisons + 1e-12, "a little narrower than Bonferroni's"


def test_without_a_comparison_nothing_is_corrected() -> None:
    assert sidak_level(0.95, 0) == sidak_level(0.95, 1) == 0.95


def test_wild_values_have_an_interval_that_floats_can_hold() -> None:
    wild = [1e-300, 1e300, 1.0]
    for found in (ratio(wild, [1.0, 2.0, 3.0]), pooled_ratio(wild, [1.0]), mean(wild)):
        assert found is not None
        assert found.half_width is not None
        assert all(0 < end < math.inf for end in ends(found))


def test_half_a_width_is_that_of_the_logarithm() -> None:
    assert Estimate(2.0, 1.0, 4.0, 3).half_width == pytest.approx(math.log(2))
    assert Estimate(2.0, None, None, 1).half_width is None


CLOSE_RATES = st.lists(st.floats(90.0, 110.0), min_size=3, max_size=6).filter(lambda values: np.std(values) > 0.1)
NARROW, WIDE = [100.0, 100.1, 99.9], [100.0, 104.0, 96.0]


def test_a_target_precision_is_reached_from_three_processes_on() -> None:
    assert MIN_REPEATS == 3
    assert not precision_reached([100.0, 100.0], [100.0, 100.0], 1.0), "as narrow as can be, but of two"
    assert precision_reached(NARROW, NARROW, 1.0)
    assert not precision_reached(NARROW, WIDE, 1.0)
    assert not precision_reached([], [], 1.0)


def test_an_interval_that_is_looked_at_again_is_wider_and_shares_its_level_with_others() -> None:
    assert level_at(1) == PLANNED_LEVEL == pytest.approx(0.97)
    levels = [level_at(look) for look in range(1, 30)]
    assert levels == sorted(levels)
    assert level_at(3, 4) ** 4 == pytest.approx(level_at(3))


ONE: Gpus = ("GPU-1",)
OTHER: Gpus = ("GPU-2",)


def test_within_gpus_their_levels_are_no_difference_of_variants() -> None:
    values, baseline = {ONE: [40.0, 40.4], OTHER: [38.0]}, {ONE: [50.0], OTHER: [47.5, 47.1]}
    within, whole = ratio_within_gpus(values, baseline), present(ratio([40.0, 40.4, 38.0], [50.0, 47.5, 47.1]))
    assert within.value == pytest.approx(0.8037, abs=5e-5)
    assert whole.value == pytest.approx(0.8188, abs=5e-5), "of three runs each one is on the other's GPU"
    assert ends(within)[1] < whole.value
    assert ratio_within_gpus({ONE: [40.0], OTHER: [38.0]}, {ONE: [50.0], OTHER: [47.5]}).interval is None


def test_an_interval_within_gpus_covers_whatever_these_differ_by() -> None:
    random, covered = np.random.default_rng(8), 0
    for _ in range(1500):
        one, other = random.normal(0, 0.03, 2)
        values, baseline = (
            {
                ONE: np.exp(one + random.normal(0, sd, runs)).tolist(),
                OTHER: np.exp(other + random.normal(0, sd, 3 - runs)).tolist(),
            }
            for runs, sd in ((2, 0.02), (1, 0.005))
        )
        low, high = ends(ratio_within_gpus(values, baseline))
        covered += low <= 1 <= high
    assert 0.95 <= covered / 1500 <= 0.985


@given(CLOSE_RATES, CLOSE_RATES, st.floats(0.001, 0.05))
def test_as_many_repeats_as_foreseen_narrow_the_interval_and_one_less_does_not(
    a: list[float], b: list[float], within: float
) -> None:
    def foreseen(more: int) -> float:
        """Half of the width with that many more and the same standard deviations."""
        variances = [(len(side) + more, float(np.log(side).var(ddof=1))) for side in (a, b)]
        return half_width_of_sum([(variance / n, n) for n, variance in variances], 0.97)

    more = additional_repeats(a, b, within)
    assert foreseen(more) <= math.log1p(within) * (1 + 1e-9)
    assert more == 0 or foreseen(more - 1) > math.log1p(within) * (1 - 1e-9)


@pytest.mark.parametrize(("spread", "within"), [(0.001, 0.002), (0.01, 0.02), (0.02, 0.02), (0.04, 0.05)])
def test_the_next_rounder_figure_is_foreseen_at_the_level_of_the_next_look(spread: float, within: float) -> None:
    values = [100 * (1 - spread), 100.0, 100 * (1 + spread)]
    repeats = present(required_repeats(values, values))
    assert repeats.half_width == pytest.approx(within)
    assert repeats.repeats == additional_repeats(values, values, within, level_at(2)) > 0
    assert repeats.fewest < repeats.repeats < repeats.most


def test_the_repeats_that_it_takes_are_within_the_range_foreseen_in_most_cases() -> None:
    random, within = np.random.default_rng(5), 0
    true_more = {n: half_width_of_sum([(1e-4 / n, n)] * 2, level_at(2)) for n in range(5, 400)}
    for _ in range(400):
        a, b = np.exp(random.normal(0, 0.01, (2, 5))).tolist()
        repeats = present(required_repeats(a, b))
        needed = next(n for n, half in true_more.items() if half <= math.log1p(repeats.half_width)) - 5
        within += repeats.fewest <= needed <= repeats.most
    assert 0.7 <= within / 400 <= 0.9


def test_of_many_comparisons_an_interval_as_wide_as_numbers_go_has_repeats_to_narrow_it() -> None:
    repeats = present(required_repeats([100.0, 101.0, 100.0], [100.0, 1e6, 100.0], comparisons=240))
    assert repeats.repeats > 0
    assert repeats.half_width == 0.5, "what is not known at all is first to be known at all"


def test_nothing_is_foreseen_of_two_processes_or_where_it_is_known_well_enough() -> None:
    assert required_repeats([100.0, 101.0], [100.0, 101.0, 102.0]) is None
    assert required_repeats([100.0] * 3, [100.0] * 3) is None
    assert required_repeats([100.0, 100.01, 99.99], [100.0, 100.01, 99.99]) is None


def test_an_estimate_is_scaled_with_its_ends_in_order() -> None:
    found = Estimate(2.0, 1.0, 4.0, 3)
    assert found.scaled(10) == Estimate(20.0, 10.0, 40.0, 3)
    assert found.scaled(-1) == Estimate(-2.0, -4.0, -1.0, 3)
    assert Estimate(2.0, None, None, 1).scaled(-1) == Estimate(-2.0, None, None, 1)
