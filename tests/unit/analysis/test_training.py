"""Accuracy over seeds: the test of equal accuracy, and what a comparison says of it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from app.analysis.summary import seconds_to_accuracy
from app.analysis.training import AccuracyDecision, accuracies_pct, compare_accuracy
from app.runs.experiment.presets import load_preset
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import compare, prepare_comparison
from tests.fakes.experiments import result
from tests.fakes.runs import S
from tests.present import present
from workloads.catalog import Machine
from workloads.protocol import Epoch, RunSpec

PLAN = load_preset("article-c-cifar10").plan(Machine())


def epochs(accuracies: list[float], seconds: float) -> tuple[Epoch, ...]:
    return tuple(
        Epoch(
            epoch=number,
            steps=4,
            examples=100,
            start_ns=number * 100 * S,
            end_ns=number * 100 * S + round(seconds * S),
            tested_ns=number * 100 * S + round(seconds * S) + S,
            loss=1.0,
            accuracy=accuracy,
        )
        for number, accuracy in enumerate(accuracies, 1)
    )


def variant(layout: str, seed: int) -> RunSpec:
    wanted = {"layout": layout, "seed": seed, "scaling": "unit"}
    return next(spec for spec in PLAN.variants if wanted.items() <= spec.variant.items())


def trained(number: int, spec: RunSpec, last: float, seconds: float) -> StoredRun:
    return replace(result(number, spec), epochs=epochs([0.5, 0.91, last], seconds))


def runs() -> Iterator[StoredRun]:
    for seed, luck in ((1, -0.001), (2, 0.0), (3, 0.001)):
        yield trained(2 * seed, variant("NHWC", seed), 0.93 + luck, 10 + luck)
        yield trained(2 * seed + 1, variant("NCHW", seed), (0.93 if seed < 3 else 0.9405) + luck, 8 + luck)


def test_a_comparison_says_how_the_accuracies_over_seeds_lie() -> None:
    comparison = compare(prepare_comparison(list(runs())), baseline=2)
    (note,) = (note for note in comparison.notes if note.key == "accuracy")
    sentence = note.sentence
    assert "NCHW against NHWC: 93.35 ±\xa0" in sentence
    assert "against 93.00 ±\xa00.10 (3)\xa0%; +0.35 (" in sentence
    assert "cannot tell (points; equal is within ±\xa00.5)" in sentence
    assert note.facts["base_accuracies_pct"] == pytest.approx((92.9, 93.0, 93.1))
    assert "accuracy" not in {note.key for note in compare(prepare_comparison(list(runs())[:2]), baseline=2).notes}


def test_the_first_epoch_that_reaches_an_accuracy_ends_the_time_to_it() -> None:
    passes = epochs([0.5, 0.91, 0.89, 0.95], 2.0)
    assert [seconds_to_accuracy(passes, goal) for goal in (0.5, 0.9, 0.94, 0.96)] == [2.0, 4.0, 8.0, None]


def decided(one: list[float], other: list[float]) -> AccuracyDecision:
    mine, theirs = (
        accuracies_pct([replace(result(n, variant("NHWC", 1)), epochs=epochs([one / 100], 1.0)) for n, one in side])
        for side in (enumerate(one, 1), enumerate(other, 50))
    )
    comparison = present(compare_accuracy(mine, theirs))
    return comparison.decision


def test_equal_is_shown_by_the_test_and_never_taken_from_a_missing_difference() -> None:
    assert decided([93.0, 93.1, 92.9], [93.0, 93.05, 93.1]) == "equal"
    assert decided([93.0, 94.5, 91.5], [93.0, 92.0, 94.0]) == "cannot tell"
    assert decided([91.0, 91.1, 90.9], [93.0, 93.05, 93.1]) == "lower"
    assert decided([93.0, 93.05, 93.1], [91.0, 91.1, 90.9]) == "higher"
    assert decided([93.0], [93.0, 93.1]) == "cannot tell"


def test_trainings_that_differ_by_the_margin_are_called_equal_in_at_most_one_of_twenty() -> None:
    rng = np.random.default_rng(1)
    equal = 0
    for _ in range(600):
        mine, theirs = (rng.normal(centre, 0.2, 5).tolist() for centre in (93.5, 93.0))
        comparison = compare_accuracy(mine, theirs)
        equal += comparison is not None and comparison.decision == "equal"
    assert equal <= 0.05 * 600
