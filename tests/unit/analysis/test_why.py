"""Why steps differ: on real reference runs, on made-up ones whose truth is known, and that parts always add up."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from app.analysis.intervals import PLANNED_LEVEL
from app.analysis.why import MAX_KERNELS, Part, PartKind, StepDifference, find_cause, step_difference, what_if
from app.values.records import StoredRun
from tests.fakes.reference import load_reference, runs_with
from tests.fakes.traces import CONV, INDUCTOR_KERNEL, POOL, SLOW_GEMM, TRANSPOSE, XLA_KERNEL, traced_run, with_clock
from tests.present import present


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    return load_reference(tmp_path_factory.mktemp("reference"))


def explained(runs: Sequence[StoredRun], baseline: Sequence[StoredRun]) -> StepDifference:
    difference = step_difference(runs, baseline)
    assert isinstance(difference, StepDifference)
    return difference


def changes(found: StepDifference) -> dict[PartKind, float]:
    return {part.kind: part.change.difference.value for part in found.parts}


def part_of(found: StepDifference, kind: PartKind) -> Part:
    return next(part for part in found.parts if part.kind == kind)


def test_channels_first_gains_in_average_pooling_and_not_in_convolutions(reference: list[StoredRun]) -> None:
    """cnn10 at batch 1,024 on one H200, three runs each."""
    nhwc, nchw = (runs_with(reference, "cnn10", batch_size=1024, layout=layout) for layout in ("NHWC", "NCHW"))
    assert (len(nhwc), len(nchw)) == (3, 3)
    why = explained(nchw, nhwc)
    by_kind = changes(why)
    assert why.step.difference.value == pytest.approx(-1.70, abs=0.005)
    assert by_kind["pooling"] == pytest.approx(-1.31, abs=0.005)
    assert by_kind["pooling"] / why.step.difference.value == pytest.approx(0.77, abs=0.005)
    assert by_kind["convolution"] == pytest.approx(-0.13, abs=0.005)
    assert why.parts[0].kind == "pooling"
    assert part_of(why, "pooling").change.is_certain
    assert not part_of(why, "convolution").change.is_certain


def test_equal_speed_hides_faster_convolutions_and_a_product_without_tensor_cores(reference: list[StoredRun]) -> None:
    """wrn28-10 at batch 128 on one H200, three runs each."""
    nhwc, nchw = (runs_with(reference, "wrn28-10", batch_size=128, layout=layout) for layout in ("NHWC", "NCHW"))
    assert (len(nhwc), len(nchw)) == (3, 3)
    why = explained(nchw, nhwc)
    assert abs(why.step.difference.value) < 0.01 * why.step.baseline_ms
    assert not why.step.is_certain
    assert changes(why)["convolution"] == pytest.approx(-3.17, abs=0.005)
    kernel = part_of(why, "gemm").kernels[0]
    assert kernel.kernel.tensor_cores is False
    assert kernel.change.difference.value == pytest.approx(2.54, abs=0.005)


MS = st.floats(min_value=0.001, max_value=50.0)
KERNELS = st.dictionaries(
    st.sampled_from([POOL, CONV, SLOW_GEMM, TRANSPOSE, *(f"k{n}" for n in range(20))]), MS, min_size=1
)
RUNS = st.lists(
    st.tuples(KERNELS, st.floats(min_value=0.01, max_value=200.0), st.floats(0.0, 0.99)), min_size=1, max_size=3
)


@given(baseline=RUNS, other=RUNS)
def test_parts_and_kernels_add_up_whatever_was_traced(
    baseline: list[tuple[dict[str, float], float, float]], other: list[tuple[dict[str, float], float, float]]
) -> None:
    """Also where kernels overlap, and where they were busy for longer than the measured step."""
    sides = [
        [
            traced_run(n, step_ms, kernels, overlap_ms=overlap * sum(kernels.values()))
            for n, (kernels, step_ms, overlap) in enumerate(side)
        ]
        for side in (baseline, other)
    ]
    why = explained(sides[1], sides[0])
    for side in ("baseline_ms", "other_ms"):
        of_parts = sum(getattr(part.change, side) for part in why.parts)
        assert of_parts == pytest.approx(getattr(why.step, side), abs=1e-6)
    assert sum(changes(why).values()) == pytest.approx(why.step.difference.value, abs=1e-6)
    for part in why.parts:
        assert len(part.kernels) <= MAX_KERNELS
        if part.kernels or part.more:
            of_kernels = sum(each.change.difference.value for each in part.kernels) + part.more_ms
            assert of_kernels == pytest.approx(part.change.difference.value, abs=1e-6)
    assert all(part.change.baseline_ms >= 0 for part in why.parts if part.kind not in ("overlap", "unexplained"))


def test_idle_time_is_of_the_measured_step_and_overlap_and_excess_have_parts_of_their_own() -> None:
    baseline = traced_run(1, 10.0, {CONV: 6.0, POOL: 2.0})
    other = traced_run(2, 7.0, {CONV: 6.0, POOL: 2.0}, overlap_ms=1.5)
    assert changes(explained([other], [baseline])) == pytest.approx(
        {"idle": -1.5, "overlap": -1.5, "convolution": 0, "pooling": 0}
    )
    busy = traced_run(3, 7.0, {CONV: 6.0, POOL: 2.0})
    assert changes(explained([busy], [baseline])) == pytest.approx(
        {"idle": -2.0, "unexplained": -1.0, "convolution": 0, "pooling": 0}
    )


def test_the_interval_is_welchs_over_processes() -> None:
    baseline = [traced_run(n, 10.0, {CONV: time_ms}) for n, time_ms in enumerate((6.0, 6.2, 6.1))]
    other = [traced_run(n, 9.0, {CONV: time_ms}) for n, time_ms in enumerate((5.0, 5.4, 5.3), 3)]
    convolution = part_of(explained(other, baseline), "convolution").change
    expected = stats.ttest_ind((5.0, 5.4, 5.3), (6.0, 6.2, 6.1), equal_var=False).confidence_interval(PLANNED_LEVEL)
    assert convolution.difference.interval == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert part_of(explained(other[:1], baseline), "convolution").change.difference.interval is None


def test_times_of_several_gpus_are_the_mean_of_one() -> None:
    one = traced_run(1, 10.0, {CONV: 6.0})
    two = traced_run(2, 8.0, {CONV: 3.0, "ncclDevKernel_AllReduce": 1.0}, gpus=2, batch=200)
    assert changes(explained([two], [one])) == pytest.approx({"convolution": -3.0, "communication": 1.0, "idle": 0.0})


def test_of_one_batch_on_more_gpus_times_are_per_example_of_each() -> None:
    """Half the batch takes half the time in kernels, which is no gain; what is left is waiting."""
    one, two = traced_run(1, 10.0, {CONV: 9.0}), traced_run(2, 6.5, {CONV: 4.5}, gpus=2)
    why = explained([two], [one])
    assert why.examples == 1000
    assert changes(why) == pytest.approx({"convolution": 0.0, "idle": 30.0})


def test_single_runs_of_one_variant_hardly_ever_differ_by_more_than_their_noise(reference: list[StoredRun]) -> None:
    by_variant: dict[str, list[StoredRun]] = {}
    for run in reference:
        by_variant.setdefault(repr(run.row.spec), []).append(run)
    pairs = [pair for runs in by_variant.values() for pair in combinations(runs, 2)]
    compared = [found for a, b in pairs if isinstance(found := step_difference([b], [a]), StepDifference)]
    beyond = [
        [change.is_certain for change in (found.step, *(part.change for part in found.parts))] for found in compared
    ]
    assert len(beyond) > 100
    assert sum(map(any, beyond)) <= 0.03 * len(beyond)


def test_a_clock_that_explains_most_comes_before_kernels() -> None:
    fast, slow = (traced_run(n, 20.0 * f, {CONV: 11.0 * f, POOL: 8.0 * f}) for n, f in ((1, 1.0), (2, 1.15)))
    cause = present(find_cause(explained([with_clock(slow, 1721.0)], [with_clock(fast, 1980.0)])))
    assert (cause.kind, cause.baseline, cause.other) == ("clock", 1980.0, 1721.0)
    assert cause.ms == pytest.approx(19.0 * (1980 / 1721 - 1))
    assert what_if(explained([with_clock(slow, 1721.0)], [with_clock(fast, 1980.0)])) == ()
    assert find_cause(explained([with_clock(slow, 1980.0)], [with_clock(fast, 1980.0)])) is None
    assert find_cause(explained([slow], [fast])) is None, "without samples"
    assert find_cause(explained([with_clock(slow, 1980.0)], [with_clock(fast, 990.0)])) is None, (
        "slower at a higher one"
    )
    uneven = traced_run(3, 23.0, {CONV: 22.0, POOL: 0.0})
    assert find_cause(explained([with_clock(uneven, 1721.0)], [with_clock(fast, 1980.0)])) is None


def waiting(run: StoredRun, pct: float) -> StoredRun:
    return replace(run, row=replace(run.row, summary=replace(run.row.summary, waiting_pct=pct)))


def test_waiting_for_data_is_named_although_the_other_side_has_none() -> None:
    """Synthetic data live on the device: there is no wait that a run could tell."""
    ready, late = (traced_run(n, step_ms, {CONV: 10.0}) for n, step_ms in ((1, 11.0), (2, 17.0)))
    named = [find_cause(explained([waiting(late, pct)], [ready])) for pct in (40.0, 5.0)]
    assert named[0] is not None
    assert named[0].kind == "data"
    assert (named[0].baseline, named[0].other) == pytest.approx((0.0, 6.8))
    assert named[1] is None
    gained = present(find_cause(explained([ready], [waiting(late, 40.0)])))
    assert gained.kind == "data"
    assert gained.ms == pytest.approx(-6.8)


def test_waiting_for_data_comes_before_idle_time() -> None:
    ready, late = traced_run(1, 20.0, {CONV: 19.0}), traced_run(2, 26.0, {CONV: 19.0})
    cause = present(find_cause(explained([waiting(late, 24.0)], [waiting(ready, 1.0)])))
    assert cause.kind == "data"
    assert (cause.baseline, cause.other) == pytest.approx((0.2, 6.24))
    assert find_cause(explained([waiting(late, 5.0)], [waiting(ready, 1.0)])) is None
    half, more = (find_cause(explained([waiting(late, pct)], [waiting(ready, 0.0)])) for pct in (11.5, 11.6))
    assert half is None, "2.99 of 6 ms"
    assert more is not None, "3.02 of 6 ms"
    as_long = traced_run(3, 20.001, {CONV: 19.0})
    assert find_cause(explained([waiting(as_long, 24.0)], [waiting(ready, 1.0)])) is None, "the step hardly differs"


def test_the_number_of_kernels_comes_before_idle_time() -> None:
    few = traced_run(1, 20.0, {CONV: 19.0})
    many = traced_run(2, 32.0, {CONV: 19.0, **{f"Add_{n}": 0.03 for n in range(100)}})
    cause = present(find_cause(explained([many], [few])))
    assert cause.kind == "launches"
    assert (cause.baseline, cause.other, cause.ms) == pytest.approx((1.0, 101.0, 9.0))
    assert find_cause(explained([traced_run(3, 32.0, {CONV: 19.0})], [few])) is None, "as many"
    two = traced_run(4, 32.0, {CONV: 19.0, **{f"Add_{n}": 0.03 for n in range(100)}}, gpus=2, batch=200)
    assert find_cause(explained([two], [few])) is None, "GPUs wait for one another, too"


@pytest.mark.parametrize(("more", "is_cause"), [(9, False), (10, True)])
def test_a_tenth_more_kernels_is_a_cause(more: int, is_cause: bool) -> None:
    few, many = (
        traced_run(n, step, {CONV: 16.0, **{f"Add_{number}": 0.03 for number in range(count)}})
        for n, step, count in ((1, 20.0, 99), (2, 32.0, 99 + more))
    )
    assert (find_cause(explained([many], [few])) is not None) is is_cause


def test_on_the_cpu_operations_are_listed_but_do_not_add_up() -> None:
    baseline, other = (traced_run(n, step, {"MatMul": step, "Mul": 3.0}, gpus=0) for n, step in ((1, 9.0), (2, 5.0)))
    why = explained([other], [baseline])
    assert not why.on_gpu
    assert set(changes(why)) == {"gemm", "pointwise"}
    assert what_if(why) == ()
    assert find_cause(explained([waiting(other, 0.0)], [waiting(baseline, 50.0)])) is None


def test_what_cannot_be_compared_is_named() -> None:
    run = traced_run(1, 10.0, {CONV: 6.0})
    blind = replace(run, evidence=None)
    failed = replace(run, row=replace(run.row, summary=replace(run.row.summary, throughput=None)))
    elsewhere = replace(
        run, row=replace(run.row, spec=type(run.row.spec)(workload="lstm", variant=run.row.spec.variant))
    )
    assert step_difference([blind], [run]) == "no trace"
    assert step_difference([run], [failed]) == "nothing measured"
    assert step_difference([elsewhere], [run]) == "other workload"
    assert step_difference([traced_run(2, 10.0, {"MatMul": 6.0}, gpus=0)], [run]) == "processor and GPU"
    assert explained([blind, run], [run]).other == (run,), "the traced runs count"


def test_what_if_gives_each_side_the_classes_in_which_the_other_is_faster() -> None:
    slower = traced_run(1, 20.0, {POOL: 4.0, CONV: 10.0, TRANSPOSE: 1.0})
    faster = traced_run(2, 18.0, {POOL: 1.0, CONV: 9.0, TRANSPOSE: 3.0})
    gains = what_if(explained([faster], [slower]))
    assert [(gain.of_baseline, gain.kinds) for gain in gains] == [
        (True, ("pooling",)),
        (True, ("convolution",)),
        (True, ("pooling", "convolution")),
        (False, ("transpose",)),
    ]
    assert [gain.speedup.value for gain in gains] == pytest.approx([20 / 17, 20 / 19, 20 / 16, 18 / 16])
    assert gains[2].step_ms == pytest.approx(16.0)


def test_what_if_takes_no_class_that_the_other_side_lacks() -> None:
    rnn = "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2>(int)"
    standard, cudnn = traced_run(1, 20.0, {CONV: 9.0, POOL: 3.0}), traced_run(2, 9.0, {rnn: 3.0, CONV: 4.0, POOL: 3.0})
    assert [gain.kinds for gain in what_if(explained([cudnn], [standard]))] == [("convolution",)]


def test_what_if_takes_only_what_surely_differs() -> None:
    baseline = [traced_run(n, 20.0, {POOL: 4.0, CONV: time_ms}) for n, time_ms in enumerate((8.0, 12.0, 10.0))]
    other = [traced_run(n, 18.0, {POOL: time_ms, CONV: 9.0}) for n, time_ms in enumerate((1.0, 1.1, 1.2), 3)]
    (gain,) = what_if(explained(other, baseline))
    assert gain.kinds == ("pooling",)
    low, high = gain.speedup.interval or (0, 0)
    assert low < 20 / (20 - 2.9) < high
    assert math.isclose(gain.step_ms, 17.1)


@pytest.mark.parametrize(
    ("setting", "kernel"), [({"gpus": 2}, CONV), ({"batch": 200}, CONV), ({}, XLA_KERNEL), ({}, INDUCTOR_KERNEL)]
)
def test_there_is_no_what_if_where_classes_do_not_correspond(setting: dict[str, Any], kernel: str) -> None:
    other = traced_run(2, 18.0, {POOL: 1.0, CONV: 7.0, kernel: 2.0}, **setting)
    assert what_if(explained([other], [traced_run(1, 20.0, {POOL: 4.0, CONV: 10.0})])) == ()
