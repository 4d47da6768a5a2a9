"""Which variants are compared, how far apart their gradients are, and what follows from several checks."""

from dataclasses import replace

import numpy as np
import pytest

from app.analysis.equality import (
    Equality,
    blocker,
    common_parts,
    describe_differences,
    describe_excess,
    find_equality,
    judge_check,
    known_checks,
    largest_difference,
    relative_difference,
    spec_to_check,
    tolerances,
)
from app.values.records import EqualityCheck, StoredRun
from tests.fakes.experiments import result
from tests.present import present
from workloads.catalog import Machine, complete
from workloads.protocol import RunSpec, Value


def spec(workload: str = "cnn10", **given: Value) -> RunSpec:
    return complete(workload, {"gpus": 1, **given}, Machine())


BASE = spec()
NO_DROPOUT: tuple[dict[str, Value], ...] = ({}, {"dropout": 0.1, "mode": "inference"})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"layout": "NHWC", "precision": "bfloat16", "xla": True, "implementation": "keras"}, None),
        ({"gpus": 2, "seed": 5, "seconds": 3.0, "devices": "0,1", "all_reduce": "one_device"}, None),
        ({"batch_size": 64}, "they differ in batch size"),
        ({"channels": 8, "mode": "inference"}, "they differ in channels, mode"),
        ({"gpus": 3}, "a batch of 1024 has no 3 equal parts"),
    ],
)
def test_variants_that_differ_in_how_they_compute_are_compared(given: dict[str, Value], reason: str | None) -> None:
    assert blocker(complete("cnn10", {"gpus": 1, **given}, Machine()), BASE) == reason


def test_dropout_of_cudnns_whole_stack_is_another_one() -> None:
    stack, loop = (spec("lstm", implementation=name, layers=2, dropout=0.1) for name in ("cudnn_stack", "fused"))
    reason = "cuDNN's whole stack drops between layers only, others before each layer"
    assert blocker(stack, loop) == blocker(loop, stack) == reason
    assert blocker(stack, stack) is None
    for given in NO_DROPOUT:
        names = ("cudnn_stack", "fused")
        assert blocker(*(spec("lstm", implementation=name, layers=2, **given) for name in names)) is None


def test_another_workload_is_not_compared() -> None:
    assert blocker(spec("lstm"), BASE) == "they are of different workloads"


def test_what_a_variant_was_asked_beyond_its_step_is_the_baseline_s() -> None:
    baseline = spec("lstm", seed=3, dropout=0.2, save_weights=True)
    checked = spec_to_check(spec("lstm", seed=4, dropout=0.2, implementation="fused", devices="1"), baseline)
    of_interest = ("seed", "dropout", "save_weights", "implementation", "devices")
    assert [checked.variant[name] for name in of_interest] == [3, 0.0, True, "fused", "1"]


@pytest.mark.parametrize(("gpus", "parts"), [((0, 1), 1), ((1, 4), 4), ((4, 6), 12)])
def test_each_gpu_gets_whole_parts(gpus: tuple[int, int], parts: int) -> None:
    assert common_parts(*(spec(gpus=count) for count in gpus)) == parts


@pytest.mark.parametrize(
    ("value", "reference", "difference"), [(0.0, 0.0, 0.0), (3.0, 4.0, 0.25), (-3.0, -4.0, 0.25), (4.0, -4.0, 2.0)]
)
def test_a_loss_is_off_by_a_share_of_the_other(value: float, reference: float, difference: float) -> None:
    assert relative_difference(value, reference) == difference


def test_the_largest_difference_is_that_of_the_worst_tensor_but_not_of_one_that_is_nothing() -> None:
    reference = [np.array([[3.0, 0.0], [0.0, 4.0]], np.float32), np.array([1e-9], np.float32), np.ones(1, np.float32)]
    found = [reference[0] + np.float32(0.05), np.array([-1e-9], np.float32), np.array([1.01], np.float32)]
    difference, name = largest_difference(["kernel", "noise", "bias"], found, reference)
    assert name == "kernel"
    assert difference == pytest.approx(0.02, rel=1e-5)


def test_a_coarser_precision_and_relu_explain_more() -> None:
    smooth, coarse = spec("lstm"), spec("lstm", precision="bfloat16")
    assert tolerances(smooth, smooth) < tolerances(smooth, coarse) == tolerances(coarse, smooth)
    assert tolerances(spec("lstm", activation="relu", implementation="standard"), smooth) == tolerances(BASE, BASE)
    assert tolerances(spec(mode="inference"), spec(mode="inference")) == tolerances(smooth, smooth)
    assert tolerances(smooth, smooth)[1] < tolerances(BASE, BASE)[1]


def check(baseline: RunSpec, loss: float | None = 1e-7, difference: float | None = 1e-3, at: int = 1) -> EqualityCheck:
    return EqualityCheck(
        utc_ns=at, baseline=baseline.variant, loss_difference=loss, difference=difference, tensor="dense/kernel"
    )


def judged(loss: float | None, difference: float | None) -> Equality:
    return judge_check(check(BASE, loss, difference), spec(layout="NHWC"))


def test_either_difference_may_be_too_large() -> None:
    assert [judged(*pair).state for pair in ((1e-7, 1e-3), (1e-3, 1e-3), (1e-7, 0.3))] == ["same", "differs", "differs"]
    assert judged(None, 0.0).state == "same"
    assert judged(None, None).state == "not comparable"


def test_differences_in_words() -> None:
    assert describe_differences(judged(0.0, 2.14e-6)) == "loss equal, gradients within 2.1e-06 (dense/kernel)"
    rounded = describe_differences(judged(1e-6, 0.03)).replace("\xa0", " ")
    assert rounded == "loss within 1.0e-06, gradients within 3.0 % (dense/kernel). Rounding explains 1.0e-05 and 5.0 %"
    excess = describe_excess(judged(0.0123, 0.25)).replace("\xa0", " ")
    assert excess == "loss off by 1.2 % and gradients off by 25 % (dense/kernel). Rounding explains 1.0e-05 and 5.0 %"
    outputs = judge_check(replace(check(BASE, None, 0.5), tensor="outputs"), spec(mode="inference"))
    assert describe_excess(outputs).replace("\xa0", " ") == "outputs off by 50 %. Rounding explains 1.0e-04"


KERAS, NHWC, OLDER = spec(implementation="keras"), spec(layout="NHWC"), spec(xla=True)


def stored(number: int, of: RunSpec, *checks: EqualityCheck) -> StoredRun:
    return replace(result(number, of), equality=checks)


def test_the_newest_check_counts_in_both_directions() -> None:
    runs = [stored(1, NHWC, check(BASE, difference=0.5, at=2)), stored(2, NHWC, check(BASE, difference=1e-3, at=3))]
    known = known_checks([*runs, stored(3, KERAS)])
    for pair in ((NHWC, BASE), (BASE, NHWC)):
        equality = present(find_equality(*pair, known))
        assert (equality.state, equality.difference) == ("same", 1e-3)
    assert find_equality(KERAS, BASE, known) is None


def test_two_checks_against_a_third_show_that_two_are_the_same_but_not_that_they_differ() -> None:
    runs = [
        stored(1, NHWC, check(BASE, 1e-7, 1e-3)),
        stored(2, KERAS, replace(check(BASE, 2e-7, 2e-3, at=2), tensor="conv1/kernel")),
        stored(3, OLDER, check(BASE, 1e-7, 0.049)),
    ]
    known = known_checks(runs)
    equality = present(find_equality(NHWC, KERAS, known))
    assert (equality.state, equality.tensor) == ("same", "conv1/kernel")
    assert (equality.loss_difference, equality.difference) == pytest.approx((3e-7, 3e-3))
    assert find_equality(OLDER, KERAS, known) is None
