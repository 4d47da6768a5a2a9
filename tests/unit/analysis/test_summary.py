"""The figures of a run: summary, warm-up cut and the telemetry's audit."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.summary import MAX_CUT_FRACTION, MIN_BLOCKS, energy_mj_per_step, step_ms, summarise, warmup_blocks
from app.values.events import Outcome, Summary
from app.values.fields import FAST_FIELDS
from app.values.records import BlockColumns, Floats, Phase, RunRow, SampleColumns, StoredRun
from app.values.samples import HOST, Device
from tests.present import present
from workloads.protocol import RunSpec

S = 1_000_000_000
BIG = 10**15
"""A clock that has run for eleven days: seconds since then need all of a double's digits."""


def blocks(*rows: tuple[bool, int, int, float, float, float]) -> BlockColumns:
    """Blocks from (measured, steps, examples, start in s, end in s, loss)."""
    measured, steps, examples, start_s, end_s, loss = zip(*rows, strict=True) if rows else ((),) * 6
    return BlockColumns(
        first_step=np.cumsum([0, *steps[:-1]], dtype=np.int64)[: len(steps)],
        steps=np.array(steps, dtype=np.int64),
        examples=np.array(examples, dtype=np.int64),
        start_ns=BIG + (np.array(start_s, dtype=np.float64) * S).astype(np.int64),
        end_ns=BIG + (np.array(end_s, dtype=np.float64) * S).astype(np.int64),
        loss=np.array(loss, dtype=np.float64),
        measured=np.array(measured, dtype=np.bool_),
    )


def samples(
    at_s: Sequence[float] | Floats,
    power_mw: Sequence[float] | Floats = (),
    *,
    device: str = "GPU-a",
    **fields: Sequence[float],
) -> SampleColumns:
    given = {"power_mw": power_mw if len(power_mw) else [np.nan] * len(at_s), **fields}
    absent = np.full(len(at_s), np.nan)
    return SampleColumns(
        device=Device(device=device, kind="host" if device == HOST else "gpu", index=0, name=device),
        t_ns=BIG + (np.array(at_s, dtype=np.float64) * S).astype(np.int64),
        fields={name: np.array(given.get(name, absent), dtype=np.float64) for name in FAST_FIELDS},
    )


def run(columns: BlockColumns, *devices: SampleColumns, phases: tuple[Phase, ...] = ()) -> StoredRun:
    row = RunRow(
        run=1,
        uid="uid",
        started_utc_ns=0,
        ended_utc_ns=None,
        spec=RunSpec(workload="lstm", variant={}),
        outcome=Outcome(name="completed"),
        summary=Summary(),
    )
    return StoredRun(row=row, anchor_t_ns=BIG, anchor_utc_ns=0, phases=phases, blocks=columns, samples=devices)


THREE = blocks((False, 1, 8, 0.0, 2.0, 4.0), (True, 2, 16, 2.0, 3.0, np.nan), (True, 8, 64, 3.5, 5.5, 1.0))


def test_throughput_is_of_the_measured_blocks_without_the_gaps_between() -> None:
    summary = summarise(run(THREE))
    assert summary.throughput == pytest.approx(80 / 3)
    assert (summary.blocks, summary.measured_steps, summary.measured_examples) == (2, 10, 80)
    assert summary.measured_s == pytest.approx(3.0)


def test_step_times_weigh_each_block_by_its_steps() -> None:
    np.testing.assert_allclose(step_ms(THREE), [2000.0, 500.0, 250.0])
    summary = summarise(run(THREE))
    # Ten steps: 250 ms eight times, 500 ms twice; numpy's linear percentile lies between ranks.
    assert summary.step_ms_p50 == pytest.approx(250.0)
    assert summary.step_ms_p95 == pytest.approx(500.0)
    assert summary.step_ms_p99 == pytest.approx(500.0)


def test_loss_is_the_first_and_last_that_there_is() -> None:
    summary = summarise(run(THREE))
    assert (summary.loss_first, summary.loss_last) == (4.0, 1.0)


def test_a_run_that_measured_nothing_has_no_figures() -> None:
    only_compiled = blocks((False, 1, 8, 0.0, 2.0, np.nan))
    for columns in (blocks(), only_compiled):
        assert summarise(run(columns)) == Summary()


def test_compile_time_is_the_phase_s() -> None:
    phases = (
        Phase("import", BIG, BIG + S),
        Phase("compile", BIG + S, BIG + 4 * S),
        Phase("measure", BIG + 4 * S, None),
    )
    assert summarise(run(THREE, phases=phases)).compile_s == 3.0
    unfinished = (Phase("compile", BIG + S, None),)
    assert summarise(run(THREE, phases=unfinished)).compile_s is None


def test_constant_power_times_time_is_the_energy() -> None:
    at_s = np.arange(0.0, 8.0, 0.1)
    summary = summarise(run(THREE, samples(at_s, np.full(len(at_s), 500_000.0))))
    assert summary.energy_mj_per_example == pytest.approx(500_000 * 3.5 / 80), "the window from 2.0 s to 5.5 s"
    assert summary.mean_power_mw == pytest.approx(500_000)
    assert summary.energy_source == "integral of power"


def test_the_energy_of_a_step_is_that_of_its_examples() -> None:
    steps = Summary(energy_mj_per_example=2.0, measured_steps=5, measured_examples=80)
    assert energy_mj_per_step(steps) == 32.0
    assert energy_mj_per_step(replace(steps, measured_steps=0)) is None
    assert energy_mj_per_step(replace(steps, energy_mj_per_example=None)) is None


def test_the_energy_of_a_ramp_is_exact() -> None:
    """The trapezoid rule integrates a straight line exactly, also where the window's edges lie between samples."""
    at_s = np.arange(0.0, 8.0, 0.3)
    summary = summarise(run(THREE, samples(at_s, 100_000.0 * at_s)))
    assert summary.energy_mj_per_example == pytest.approx(100_000 * (5.5**2 - 2.0**2) / 2 / 80)
    assert summary.mean_power_mw == pytest.approx(100_000 * (5.5 + 2.0) / 2)


def test_power_of_all_gpus_is_added() -> None:
    at_s = np.arange(0.0, 8.0, 0.1)
    both = (samples(at_s, np.full(len(at_s), watts), device=name) for name, watts in (("GPU-a", 3e5), ("GPU-b", 4e5)))
    assert summarise(run(THREE, *both)).mean_power_mw == pytest.approx(7e5)


@pytest.mark.parametrize(
    ("at_s", "power_mw"),
    [
        pytest.param([3.0, 3.5, 4.0, 5.4], [1.0] * 4, id="begins too late"),
        pytest.param([2.0, 2.5, 3.0, 4.0], [1.0] * 4, id="ends too early"),
        pytest.param([1.0, 6.0], [1.0] * 2, id="nothing inside"),
        pytest.param([1.0, 3.0, 6.0], [1.0] * 3, id="one sample inside"),
        pytest.param([2.0, 3.0, 4.0, 5.5], [np.nan] * 4, id="no power at all"),
        pytest.param([], [], id="no samples"),
    ],
)
def test_a_window_that_is_not_covered_has_no_energy(at_s: list[float], power_mw: list[float]) -> None:
    summary = summarise(run(THREE, samples(at_s, power_mw)))
    assert (summary.energy_mj_per_example, summary.mean_power_mw, summary.energy_source) == (None, None, None)


def test_memory_is_the_gpus_peak_or_the_worker_s_on_the_cpu() -> None:
    gpu = samples([0, 1], memory_bytes=[5.0, 7.0])
    other = samples([0, 1], device="GPU-b", memory_bytes=[np.nan, 9.0])
    host = samples([0, 1], device=HOST, memory_bytes=[100.0, 100.0], worker_memory_bytes=[np.nan, 3.0])
    assert summarise(run(THREE, gpu, other, host)).device_peak_bytes == 9
    assert summarise(run(THREE, host)).device_peak_bytes == 3
    assert summarise(run(THREE, samples([0, 1]))).device_peak_bytes is None
    assert summarise(run(THREE), allocator_peak_bytes=77).allocator_peak_bytes == 77


def test_memory_used_after_the_measured_part_is_not_the_run_s() -> None:
    gpu = samples([0, 3, 7], memory_bytes=[5.0, 7.0, 99.0])
    phases = (Phase("measure", BIG, BIG + 6 * S), Phase("evidence", BIG + 6 * S, None))
    assert summarise(run(THREE, gpu, phases=phases)).device_peak_bytes == 7
    assert summarise(run(THREE, gpu, phases=phases[:1])).device_peak_bytes == 99, "a run that died while it measured"


def test_what_steps_took_beyond_those_with_their_data_ready_was_waiting() -> None:
    summary = summarise(run(THREE))
    assert (summary.ready_step_ms, summary.waiting_pct) == (None, None)
    step_ms = 1e3 * present(summary.measured_s) / summary.measured_steps
    assert summarise(run(THREE), ready_step_ms=step_ms / 4).waiting_pct == pytest.approx(75.0)
    assert summarise(run(THREE), ready_step_ms=step_ms * 1.1).waiting_pct == 0.0, "none is the least"
    assert summarise(run(blocks()), ready_step_ms=5.0).waiting_pct is None


def test_what_is_left_of_a_warm_up_is_cut_and_counted() -> None:
    slow = [(True, 1, 50, float(at), float(at + 1), np.nan) for at in range(2)]
    steady = [(True, 1, 100, float(at), float(at + 1), np.nan) for at in range(2, 12)]
    power = samples(np.arange(0.0, 12.5, 0.5), [100_000.0] * 4 + [300_000.0] * 21)
    summary = summarise(run(blocks(*slow, *steady), power))
    assert (summary.throughput, summary.blocks, summary.blocks_cut) == (100.0, 10, 2)
    assert (summary.measured_steps, summary.measured_examples, summary.measured_s) == (10, 1000, 10.0)
    assert summary.mean_power_mw == pytest.approx(300_000.0)
    assert summary.step_ms_p99 == pytest.approx(1000.0)
    alone = summarise(run(blocks(*steady), power))
    assert (alone.throughput, alone.blocks, alone.blocks_cut) == (100.0, 10, 0)


STEADY = np.array([100.2, 99.7, 100.1, 99.9, 100.4, 99.8, 100.0, 99.6, 100.3, 100.1])


CUTS = {
    "steady": (STEADY, 0),
    "slow start": (np.concatenate(([90.0, 91.0], STEADY)), 2),
    "fast start": (np.concatenate(([110.0], STEADY)), 1),
    "slow end": (np.concatenate((STEADY, [90.0, 91.0])), 0),
    "slow first third": (np.concatenate((STEADY[:6] - 10, STEADY)), 0),
    "too few": (np.concatenate(([90.0, 91.0], STEADY))[: MIN_BLOCKS - 1], 0),
    "just enough": (np.concatenate(([90.0, 91.0], STEADY))[:MIN_BLOCKS], 2),
    "all equal": (np.full(20, 100.0), 0),
    "rounding": (100.0 + np.arange(20) * 1e-12, 0),
    "nothing": (np.zeros(0), 0),
}
"""Throughputs of blocks, and how many of the first are cut."""


@pytest.mark.parametrize(("rates", "cut"), CUTS.values(), ids=CUTS)
def test_only_a_start_unlike_the_rest_is_cut(rates: np.ndarray, cut: int) -> None:
    assert warmup_blocks(rates) == cut


@given(st.lists(st.floats(50.0, 150.0), min_size=MIN_BLOCKS, max_size=40), st.integers(-20, 20))
def test_never_more_than_a_quarter_and_whatever_the_unit(rates: list[float], power: int) -> None:
    cut = warmup_blocks(np.array(rates))
    assert 0 <= cut <= len(rates) // MAX_CUT_FRACTION
    assert warmup_blocks(np.array(rates) * 2.0**power) == cut, "a power of two changes no digit"


def test_steady_noise_is_seldom_cut_and_a_warm_up_seldom_missed() -> None:
    random = np.random.default_rng(7)
    noise = 100 + random.normal(0, 2, (500, 20))
    warming = noise - 10 * np.exp(-np.arange(20) / 2)
    assert np.mean([warmup_blocks(rates) > 0 for rates in noise]) < 0.1
    assert np.mean([warmup_blocks(rates) > 0 for rates in warming]) > 0.9
    means = [rates[warmup_blocks(rates) :].mean() for rates in warming]
    assert abs(np.mean(means) - 100) < 0.5 * abs(warming.mean() - 100)
