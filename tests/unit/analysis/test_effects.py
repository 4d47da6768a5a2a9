"""The effect of one setting by itself: which pairs match, the mean of their ratios, its interval, and interactions."""

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pytest
from scipy.stats import t as student_t

from app.analysis.effects import Effect, compute_effects, step_differences
from app.analysis.intervals import LEVEL, level_at, mean_ratio, ratio
from app.analysis.verdict import group_by_variant, judge, throughputs
from app.values.records import RunRow
from tests.present import present
from tests.unit.viewmodels.stored import run_row, with_settings
from workloads.protocol import Value

Given = tuple[Mapping[str, Value], Sequence[float]]
"""The settings of a variant and the throughput of each run."""


def variants(*given: Given) -> list[tuple[RunRow, ...]]:
    """Variants with these settings, and a run for each throughput."""
    return group_by_variant(
        [
            with_settings(run_row(100 * number + place, workload="cnn10", throughput=rate), settings)
            for number, (settings, rates) in enumerate(given, 1)
            for place, rate in enumerate(rates)
        ]
    )


def effects_of(*given: Given) -> dict[tuple[str, Value], Effect]:
    found = variants(*given)
    return {(each.parameter, each.after): each for each in compute_effects(found, found[0])}


FACTORIAL: tuple[Given, ...] = tuple(
    ({"layout": layout, "xla": xla}, [1000.0 * gain * speed * noise for noise in (0.99, 1.0, 1.02)])
    for (layout, gain), (xla, speed) in product((("NHWC", 1.0), ("NCHW", 1.1)), ((False, 1.0), (True, 3.0)))
)


def test_every_pair_that_differs_in_one_setting_alone_counts_and_no_other() -> None:
    effects = effects_of(*FACTORIAL, ({"layout": "NCHW", "xla": True, "precision": "tf32"}, [9e9, 9e9]))
    layout, xla, precision = effects["layout", "NCHW"], effects["xla", True], effects["precision", "tf32"]
    assert [effect.ratio.value for effect in (layout, xla)] == pytest.approx([1.1, 3.0])
    assert [len(effect.pairs) for effect in (layout, xla, precision)] == [2, 2, 1]
    assert (layout.before, layout.differs, layout.depends_on) == ("NHWC", False, None)
    assert (precision.before, precision.differs) == ("float32", None)
    assert [[pair.before[0].run, pair.after[0].run] for pair in xla.pairs] == [[100, 200], [300, 400]]


def test_the_interval_is_that_of_a_sum_of_means_with_satterthwaite_s_degrees_and_the_level_of_the_variants() -> None:
    effect = effects_of(*FACTORIAL)["xla", True]
    sides = [np.log(throughputs(side)) for pair in effect.pairs for side in (pair.before, pair.after)]
    terms = [side.var(ddof=1) / len(side) / 4 for side in sides]
    degrees = sum(terms) ** 2 / sum(term**2 / (len(side) - 1) for term, side in zip(terms, sides, strict=True))
    half = student_t.ppf(0.5 + level_at(1, 3) / 2, degrees) * math.sqrt(sum(terms))
    assert effect.ratio.interval == pytest.approx((3 * math.exp(-half), 3 * math.exp(half)))
    assert effect.ratio.n == 3


def test_of_one_pair_it_is_the_ratio_of_two_variants() -> None:
    values, base = [1.0, 1.1, 1.05], [2.0, 2.2, 2.1, 2.3]
    assert mean_ratio([(values, base)]) == ratio(values, base)


def test_what_a_single_pair_shows_has_the_interval_of_the_variants_ratio() -> None:
    found = variants(*FACTORIAL[:3])
    results = {result.runs[0].run: result for result in judge([row for group in found for row in group], 100)}
    effects = compute_effects(found, found[0])
    assert [effect.ratio for effect in effects] == [results[effect.pairs[0].after[0].run].speedup for effect in effects]
    assert [pair.ratio for effect in effects for pair in effect.pairs] == [effect.ratio for effect in effects]
    assert len(effects) == 2


@pytest.mark.parametrize(("pairs", "runs"), [(1, 3), (2, 3), (3, 3), (6, 4)])
def test_intervals_cover_the_true_mean_as_often_as_they_say(pairs: int, runs: int) -> None:
    random = np.random.default_rng(15)
    truth = np.log(np.linspace(0.9, 4.0, pairs))
    noise = np.linspace(0.005, 0.05, 2 * pairs)
    covered = 0
    for _ in range(1000):
        logs = random.normal(0.0, noise[:, None], (2 * pairs, runs))
        logs[::2] += truth[:, None]
        estimate = mean_ratio([(np.exp(logs[n]), np.exp(logs[n + 1])) for n in range(0, 2 * pairs, 2)], LEVEL)
        covered += math.log(present(estimate.low)) <= truth.mean() <= math.log(present(estimate.high))
    assert covered >= 930


def test_where_pairs_differ_by_more_than_noise_it_is_said_and_on_what_it_depends() -> None:
    gains = {("native", 64): 1.9, ("native", 128): 2.1, ("keras", 64): 23.0, ("keras", 128): 25.0}
    given: list[Given] = [
        (
            {"implementation": name, "batch_size": batch, "xla": xla},
            [rate * (gain if xla else 1) for rate in (99, 100, 99.5)],
        )
        for (name, batch), gain in gains.items()
        for xla in (False, True)
    ]
    effect = effects_of(*given)["xla", True]
    assert (effect.differs, effect.depends_on) == (True, "implementation")
    assert effect.spread == pytest.approx((1.9, 25.0))
    faster: list[Given] = [
        (settings, [90.0 * rate if settings["xla"] and settings["batch_size"] == 128 else rate for rate in rates])
        for settings, rates in given
    ]
    assert effects_of(*faster)["xla", True].depends_on == "batch_size"


def test_pairs_with_too_few_runs_are_left_out_where_others_have_repeats() -> None:
    single: list[Given] = [(settings, rates[:2] if settings["xla"] else rates) for settings, rates in FACTORIAL]
    effects = effects_of(*single)
    layout, xla = effects["layout", "NCHW"], effects["xla", True]
    assert (len(layout.pairs), layout.single_run_pairs) == (1, 1)
    assert layout.ratio.interval is not None
    assert (len(xla.pairs), xla.single_run_pairs, xla.ratio.interval, xla.differs) == (2, 0, None, None)
    assert layout.ratio == mean_ratio([(FACTORIAL[2][1], FACTORIAL[0][1])], level_at(1)), "one needs no correction"


def test_a_change_is_from_the_baseline_s_value_or_from_the_one_with_most_pairs() -> None:
    batches: list[Given] = [
        ({"batch_size": batch, "layout": layout}, [batch, batch + 1.0])
        for layout, batch in product(("NHWC", "NCHW"), (8, 16, 32))
    ]
    changes = {(each.before, each.after) for each in effects_of(*batches[1:], batches[0]).values()}
    assert changes == {(16, 32), (16, 8), ("NHWC", "NCHW")}
    other: Given = ({"batch_size": 64, "layout": "NCHW", "xla": True}, [1.0, 2.0])
    assert {each.before for each in effects_of(other, *batches).values()} == {8, "NCHW"}


def test_what_did_not_measure_is_in_no_pair_and_other_work_is_marked() -> None:
    nothing = run_row(1, workload="cnn10", throughput=None, outcome="failed", layout="NCHW")
    found = variants(*FACTORIAL)
    elsewhere = [(run_row(n, throughput=float(n), xla=xla),) for n, xla in ((2, False), (3, True))]
    assert compute_effects([(nothing,), *elsewhere, *found], found[0]) == compute_effects(found, found[0])
    deep = [
        (run_row(n, throughput=100.0 / layers, gflops=float(layers), layers=layers, xla=xla),)
        for n, (layers, xla) in enumerate(product((1, 4), (False, True)), 1)
    ]
    assert [(each.parameter, each.changes_work) for each in compute_effects(deep, deep[0])] == [
        ("layers", True),
        ("xla", False),
    ]


def test_differences_are_those_of_a_step() -> None:
    changed: dict[str, Value] = {"xla": True, "layout": "NHWC", "seconds": 9.0, "evidence": "off", "devices": "GPU-1"}
    row = run_row(1, workload="cnn10")
    assert step_differences(row.spec, with_settings(row, changed).spec) == ["layout", "xla"]
