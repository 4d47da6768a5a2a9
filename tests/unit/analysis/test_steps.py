"""A step divided by its trace: the parts add up to the measured step, whatever the profiler did to the traced one."""

import re
import statistics
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.scaling import scalings
from app.analysis.steps import (
    TOLERANCE,
    TracedStep,
    busy_share,
    gpu_step_ms,
    imbalance,
    measured_step_ms,
    run_slow_products,
    run_traced_step,
    step_parts,
    straggler_ms,
    traced_step,
    without_waits,
)
from app.storage.reference import reference_runs
from app.storage.store import Store
from app.values.records import StoredRun
from app.viewmodels.compare.scaling import describe_cause
from tests.fakes.evidence import AS_REQUESTED, ON_CPU
from tests.fakes.scaling import LIMPING, ONE, STEPS, TALKING, exchanging, run_of
from tests.fakes.traces import CONV, SLOW_GEMM, traced_run
from tests.present import present
from tests.unit.viewmodels.stored import run_row, stored_run

NBSP = "\N{NO-BREAK SPACE}"
MS = st.floats(0, 1000)
LUCK = st.floats(0.3, 3)


def traced(busy_ms: float, compute_ms: float, kernels: float = 100.0) -> TracedStep:
    return TracedStep(busy_ms, compute_ms, kernels)


def test_kernels_count_by_the_trace_and_idle_is_the_rest_of_the_measured_step() -> None:
    parts = present(step_parts(traced(5.0, 4.0), 8.0))
    assert (parts.compute_ms, parts.communication_ms, parts.idle_ms) == (4.0, 1.0, 3.0)


def test_a_stretched_trace_changes_nothing() -> None:
    """The same run, its traced gaps 3.3 times as long."""
    run = TALKING[0]
    assert run.evidence is not None
    devices = tuple(
        msgspec.structs.replace(device, span_ns=int(3.3 * device.span_ns)) for device in run.evidence.devices
    )
    slow = replace(run, evidence=msgspec.structs.replace(run.evidence, devices=devices))
    assert busy_share(slow) == busy_share(run) == pytest.approx(25 / 26.5, rel=1e-2)


def test_kernels_a_little_longer_than_the_step_are_shortened_to_it_and_much_longer_ones_do_not_fit() -> None:
    parts = present(step_parts(traced(5.05, 4.04), 5.0))
    assert (parts.compute_ms, parts.communication_ms, parts.idle_ms) == pytest.approx((4.0, 1.0, 0.0))
    assert step_parts(traced(5.2, 4.0), 5.0) is None
    assert (step_parts(None, 5.0), step_parts(traced(1.0, 1.0), None)) == (None, None)


def test_an_exchange_takes_as_long_as_on_the_gpu_that_waits_least() -> None:
    """A profiler slows one rank, for which the other's kernel waits 9 ms."""
    evidence = without_waits(exchanging((24, 14, 11), (15, 13, 3)))
    assert [(time.busy_ns / 1e6, time.communication_ns / 1e6) for time in evidence.devices] == [(15, 2), (15, 3)]
    assert [time.span_ns / 1e6 for time in evidence.devices] == [21, 30], "gaps between kernels stay"
    assert (evidence.busy_ns / 1e6, [kernel.time_ns / 1e6 for kernel in evidence.kernels]) == (30, [27, 5])
    assert traced_step(evidence, 2) == TracedStep(15 / STEPS, 13.5 / STEPS, 100 / STEPS)
    assert without_waits(evidence) == evidence


def test_copies_between_gpus_wait_for_nobody() -> None:
    evidence = exchanging((24, 14, 11), (15, 13, 3))
    copies = tuple(
        msgspec.structs.replace(kernel, name=kernel.name.replace("nccl", "Memcpy PtoP")) for kernel in evidence.kernels
    )
    evidence = msgspec.structs.replace(evidence, kernels=copies)
    assert without_waits(evidence) == evidence


@pytest.mark.parametrize("devices", [((20, 20, 0),), ((20, 14, 6), (20, 19, 1)), ((20, 20, 4), (19, 18, 4))], ids=str)
def test_a_gpu_that_waits_for_a_slower_one_is_busy(devices: tuple[tuple[int, int, int], ...]) -> None:
    evidence = exchanging(*devices)
    assert without_waits(evidence) == evidence


@given(MS, st.floats(0, 1), st.floats(1e-3, 1000))
def test_the_parts_of_any_step_are_not_below_zero_and_add_up_to_it(busy: float, computes: float, step: float) -> None:
    parts = step_parts(traced(busy, busy * computes), step)
    if parts is None:
        assert busy > (1 + TOLERANCE) * step
        return
    assert min(parts.compute_ms, parts.communication_ms, parts.idle_ms) >= 0
    assert parts.step_ms == pytest.approx(step)


Parts = tuple[float, float, float, float]


def run_with(run: int, gpus: int, batch: int, parts: Parts) -> StoredRun:
    compute_ms, communication_ms, idle_ms, luck = parts
    return run_of(
        run,
        gpus=gpus,
        batch=batch,
        compute_ms=(compute_ms + 0.01,) * gpus,
        communication_ms=communication_ms if gpus > 1 else 0.0,
        idle_ms=idle_ms,
        luck=luck,
    )


@given(st.tuples(MS, MS, MS, LUCK), st.tuples(MS, MS, MS, LUCK), st.sampled_from([1024, 2048]))
def test_no_sentence_says_that_a_part_is_more_than_the_whole(few: Parts, many: Parts, batch: int) -> None:
    (pair,) = scalings([run_with(1, 1, 1024, few), run_with(2, 2, batch, many)])
    said = describe_cause(pair).replace(NBSP, " ").replace(",", "")
    for part, whole in re.findall(r"([\d.]+) ms of the ([\d.]+) ms", said):
        assert float(part) <= float(whole), said
    if pair.cause == "trace does not fit":
        assert pair.lost is None
        assert "longer than the measured step" in said
    if pair.lost is not None:
        ideal = 0.5 if batch == 1024 else 1.0
        assert pair.lost.step_ms == pytest.approx(pair.many.step_ms - ideal * pair.few.step_ms, abs=1e-6)


def test_what_other_parts_save_is_said_beside_the_loss() -> None:
    few = run_of(1, gpus=1, batch=1024, compute_ms=(20.0,), idle_ms=1.0)
    many = run_of(2, gpus=2, batch=2048, compute_ms=(19.0, 19.0), idle_ms=5.0)
    (pair,) = scalings([few, many])
    said = describe_cause(pair).replace(NBSP, " ")
    assert said.startswith("Most likely launching: a step takes 3.00 ms too long, all of that ")
    assert said.endswith(" Other parts save 1.00 ms.")


def test_a_trace_that_does_not_fit_names_no_cause() -> None:
    odd = run_of(9, gpus=2, batch=2048, compute_ms=(40.0, 40.0), luck=0.7)
    (pair,) = scalings([*ONE, odd])
    assert (pair.cause, pair.lost, pair.many.parts) == ("trace does not fit", None, None)
    assert describe_cause(pair).replace(NBSP, " ") == (
        "Why is not known: by the trace on 2 GPUs kernels run for 40.0 ms a step, longer than the measured step of "
        "28.0 ms. Run that side again."
    )


def test_gpu_time_is_of_one_step_and_one_gpu() -> None:
    assert gpu_step_ms(TALKING[0]) == pytest.approx(25.0)
    on_gpu = stored_run(run_row(1, gpus=1), evidence=AS_REQUESTED)
    assert gpu_step_ms(on_gpu) == pytest.approx(19.7 / 5), "older than the times of each device"
    assert gpu_step_ms(stored_run(run_row(1, gpus=2), evidence=AS_REQUESTED)) is None
    assert gpu_step_ms(stored_run(run_row(1, gpus=0), evidence=ON_CPU)) is None, "operations overlap on the CPU"
    assert gpu_step_ms(stored_run(run_row(1, gpus=1))) is None


@pytest.fixture(scope="module")
def reference(reference_database: Path) -> list[StoredRun]:
    with Store.open(reference_database) as store:
        return [store.load(run, ()) for run in reference_runs(store)]


def test_kernels_of_every_reference_run_fit_its_step_and_the_parts_add_up(reference: list[StoredRun]) -> None:
    too_long = []
    for run in reference:
        step_ms = measured_step_ms(run.row.spec, run.row.summary)
        parts = step_parts(run_traced_step(run), step_ms)
        if parts is None:
            too_long.append((run.row.spec.variant["gpus"], run.row.spec.variant["cuda_graph"]))
            continue
        assert min(parts.compute_ms, parts.communication_ms, parts.idle_ms) >= 0, run.row.run
        assert parts.step_ms == pytest.approx(step_ms)
        assert run.row.summary.gpu_step_ms == pytest.approx(gpu_step_ms(run)), "the migration computes it in SQL"
    # 2,230 kernels of a graph take longer traced.
    assert too_long == [(1, True)] * 3


def test_the_ladder_by_the_time_of_its_kernels(reference: list[StoredRun]) -> None:
    """docs/reference.md, article A: each rung over the first one, for the same work."""

    def gpu_ms(implementation: str, layers: int) -> float:
        asked = {
            "implementation": implementation,
            "layers": layers,
            "mode": "inference",
            "xla": False,
            "input_steps": 0,
        }
        found = [run for run in reference if asked.items() <= run.row.spec.variant.items()]
        return statistics.mean(gpu_step_ms(run) or 0.0 for run in found) / layers

    names = ("gemm8", "gemm2", "gemm_batched", "fused", "transposed", "pretransposed", "combined_input")
    rungs = [gpu_ms(name, 1) for name in names]
    ratios = [rungs[0] / rung for rung in (*rungs, gpu_ms("wavefront", 4))]
    assert ratios == pytest.approx([1, 1.75, 1.98, 4.26, 4.22, 4.20, 4.32, 11.08], abs=0.005)


def test_one_device_is_not_out_of_balance() -> None:
    evidence, limping = present(ONE[0].evidence), present(LIMPING[0].evidence)
    assert imbalance(evidence.devices) is None
    assert straggler_ms(evidence.devices, evidence.steps) == 0.0
    assert straggler_ms(limping.devices, limping.steps) == pytest.approx(6.0)


def test_products_without_tensor_cores_count_where_the_precision_is_for_them() -> None:
    def slow(time_ms: float, precision: str) -> float | None:
        found = run_slow_products(traced_run(1, 100.0, {SLOW_GEMM: time_ms, CONV: 50.0}, precision=precision))
        return None if found is None else found.share

    assert slow(8.0, "tf32") == slow(8.0, "bfloat16") == pytest.approx(0.08)
    assert slow(4.9, "tf32") is None
    assert slow(60.0, "float32") is None
