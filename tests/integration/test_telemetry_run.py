"""Whole runs on fake cards: what their telemetry stores, and what energy is made of it."""

from pathlib import Path

import numpy as np
import pytest

from app.runs.leases import Lease
from app.runs.session import RunSession
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.environment_keys import OTHERS_ON_GPU_KEY
from app.values.events import RunStarted
from app.values.fields import Sample, SlowSample
from app.values.records import Floats, SampleColumns, StoredRun
from app.values.samples import HOST, DeviceLost, TelemetryGap
from app.viewmodels.compare.warnings import comparison_warnings
from app.viewmodels.format.derived import implausible_note
from tests.fakes.nvml_cards import MIG, TWO_H200, Card, Course
from tests.fakes.sessions import dummy, feed_of, going, is_measured, kill_sampler, run_through, services, wait_listed
from tests.present import present
from workloads.protocol import Block

GPU_A, GPU_B = (card.uuid for card in TWO_H200)
BOTH_MW = sum(card.power_instant_mw for card in TWO_H200)
LATE_NS = 1_500_000_000
"""How far from a phase's beginning its energy reading may lie on a busy machine; a few milliseconds else."""


def run_on(feed: TelemetryFeed, folder: Path, *, gpus: int = 1, seconds: float = 1.0) -> StoredRun:
    spec = dummy(feed.wait_inventory(), gpus=gpus, steps=0, seconds=seconds)
    outcome, _, stored = run_through(spec, services(folder, feed))
    assert outcome.name == "completed", outcome
    return stored


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A run of two seconds on both H200s."""
    with feed_of(*TWO_H200, hz=20.0) as feed:
        return run_on(feed, tmp_path_factory.mktemp("two"), gpus=2, seconds=2.0)


def energy_readings(columns: SampleColumns) -> tuple[Floats, Floats]:
    counter = columns.slow["energy_mj"]
    there = ~np.isnan(counter)
    return columns.slow_t_ns[there].astype(np.float64), counter[there]


def test_energy_is_read_at_both_edges_of_every_phase(on_two: StoredRun) -> None:
    edges = [phase.start_ns for phase in on_two.phases] + [on_two.phases[-1].end_ns]
    assert len(edges) > 3
    for columns in on_two.samples[:2]:
        t_ns, counter = energy_readings(columns)
        assert len(t_ns) >= len(edges), "at every one of them, however close they are"
        assert np.all(np.diff(counter) >= 0)
        for edge_ns in edges:
            assert edge_ns is not None
            assert np.abs(t_ns - edge_ns).min() < LATE_NS


def test_every_phase_has_its_energy_and_how_wrong_that_can_be(on_two: StoredRun) -> None:
    """The cards' power is constant, so the energy is known."""
    count = 0
    for phase in on_two.phases:
        seconds = (present(phase.end_ns) - phase.start_ns) / 1e9
        if seconds <= 0.09:
            assert phase.energy_mj is None, "shorter than the counter's period: no energy, not 0"
        elif seconds > 0.12:
            count += 1
            assert phase.energy_error_mj is not None
            assert abs(present(phase.energy_mj) - BOTH_MW * seconds) <= phase.energy_error_mj
            assert phase.energy_error_mj < BOTH_MW * (0.12 + 2 * LATE_NS / 1e9)
    assert count >= 1


def test_a_run_whose_worker_was_killed_has_the_energy_of_its_last_phase(tmp_path: Path) -> None:
    """No phase follows, so the counter is read once more at the end."""
    with feed_of(TWO_H200[0], hz=20.0) as feed:
        spec = dummy(feed.wait_inventory(), "kill_self", gpus=1, step_ms=300.0, warmup_steps=0)
        outcome, _, stored = run_through(spec, services(tmp_path, feed))
    last = stored.phases[-1]
    assert (outcome.name, last.name) == ("crashed", "measure")
    t_ns, _ = energy_readings(stored.samples[0])
    assert t_ns[-1] > last.start_ns + 550_000_000, "two steps"
    power_mj = TWO_H200[0].power_instant_mw * (present(last.end_ns) - last.start_ns) / 1e9
    assert abs(present(last.energy_mj) - power_mj) <= present(last.energy_error_mj)


def test_slow_samples_and_the_facts_of_fields_are_stored(on_two: StoredRun) -> None:
    first, second, host = on_two.samples
    assert [columns.device.device for columns in on_two.samples] == [GPU_A, GPU_B, HOST]
    for columns in (first, second):
        assert set(columns.slow["sm_active_pct"][~np.isnan(columns.slow["sm_active_pct"])]) == {96.0}
        assert set(columns.fields["power_average_mw"]) == {600_000.0}
        facts = columns.device.fields["energy_mj"]
        assert (facts.unit, columns.device.absent["fan_pct"]) == ("mJ", "not supported")
        assert present(facts.cost_us) >= 3_000
        assert facts.period_ms == pytest.approx(100, abs=40)
    assert np.isnan(host.slow["energy_mj"]).all()


def test_the_telemetry_audits_itself(on_two: StoredRun) -> None:
    summary = on_two.row.summary
    assert 5 < present(summary.sample_hz) < 30, "20, but for what a busy machine misses or delays"
    assert 0 <= present(summary.sample_jitter_ms_p50) <= present(summary.sample_jitter_ms_p99)
    assert summary.samples_missed is not None
    assert 0 < present(summary.sampler_cpu_pct) < 100


def test_a_card_that_says_nonsense_gives_a_run_without_energy_and_says_why(tmp_path: Path) -> None:
    """All bits set, above the total, and a counter that goes back at every reading: once it was 25.8 MJ."""
    garbage = Card(
        uuid="GPU-garbage",
        power_instant_mw=2**32 - 1,
        load_pct=37_100,
        memory_used_bytes=279 * 2**30,
        temperature_c=255,
        courses={"energy_mj": Course(((0, 9_000_000), (60, 1_000_000)), linear=True)},
    )
    with feed_of(garbage, TWO_H200[0], hz=20.0) as feed:
        stored = run_on(feed, tmp_path, gpus=2)
    wrong, right, host = stored.samples
    assert {"power_mw", "load_pct", "memory_bytes", "temperature_c", "energy_mj"} == set(wrong.device.implausible)
    assert wrong.device.implausible["power_mw"] == wrong.t_ns.size, "every one"
    assert np.isnan(wrong.fields["power_mw"]).all()
    assert set(wrong.fields["memory_load_pct"]) == {31.0}
    assert (right.device.implausible, host.device.implausible) == ({}, {})
    summary = stored.row.summary
    assert (summary.mean_power_mw, summary.energy_mj_per_example, summary.energy_source) == (None, None, None)
    assert summary.device_peak_bytes == TWO_H200[0].memory_used_bytes
    assert all(phase.energy_mj is None for phase in stored.phases)
    assert implausible_note(stored).endswith(" of GPU 0. Too few are left to know its energy.")
    assert "implausible" in [warning.key for warning in comparison_warnings([stored])]


def test_a_run_on_a_mig_instance_records_what_that_tells(tmp_path: Path) -> None:
    with feed_of(MIG, hz=20.0) as feed:
        stored = run_on(feed, tmp_path, seconds=0.5)
    assert [columns.device.device for columns in stored.samples] == ["MIG-one", HOST]
    assert stored.samples[0].device.memory_total_bytes == 70 * 2**30
    assert (stored.row.summary.device_peak_bytes, stored.row.summary.energy_source) == (1_000_000_000, None)


def test_a_gpu_that_was_lost_is_not_leased_again(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with feed_of(Card(uuid=GPU_A, lost_when=str(gone)), TWO_H200[1], hz=20.0) as feed:
        before = dummy(feed.wait_inventory(), gpus=2, steps=0, seconds=600.0)
        with going(before, services(tmp_path, feed)) as run:
            run.recorder.wait(Block, is_measured)
            gone.touch()
            run.recorder.wait(DeviceLost)
        _, recorder, _ = run_through(dummy(feed.wait_inventory(), gpus=1), services(tmp_path, feed))
        (started,) = recorder.of(RunStarted)
        outcome, *_ = run_through(before, services(tmp_path, feed))
        leased = RunSession(dummy(feed.wait_inventory(), gpus=1), services(tmp_path, feed), lease=Lease((GPU_A,)))
        ended = leased.run()
    assert (ended.name, ended.reason) == ("failed", "NVIDIA H200 stopped answering (GPU is lost).")
    assert [device.device for device in started.devices] == [GPU_B, HOST]
    assert outcome.name == "refused"
    assert outcome.reason == "2 GPUs asked for, but this machine has 1."


def test_a_run_goes_on_with_another_sampler_and_its_energy_is_right(tmp_path: Path) -> None:
    with feed_of(*TWO_H200, hz=20.0) as feed:
        spec = dummy(feed.wait_inventory(), gpus=1, steps=0, seconds=600.0)
        used = services(tmp_path, feed)
        with going(spec, used) as run:
            run.recorder.wait(SlowSample, lambda sample: sample.energy_mj is not None)
            run.recorder.wait(Block, is_measured)
            kill_sampler(feed)
            gap = run.recorder.wait(TelemetryGap)
            run.recorder.wait(Sample, lambda sample: sample.device == GPU_A and sample.t_ns > gap.t_ns)
            run.recorder.wait(Sample, lambda sample: sample.worker_memory_bytes is not None and sample.t_ns > gap.t_ns)
            last = run.recorder.wait(SlowSample, lambda sample: sample.energy_mj is not None and sample.t_ns > gap.t_ns)
            run.recorder.wait(Block, lambda block: is_measured(block) and block.end_ns > last.t_ns)
        with Store.open(used.database) as store:
            stored = store.load(1)
    summary = stored.row.summary
    assert present(stored.row.outcome).name == "stopped"
    assert gap.reason in [line.text for line in stored.log]
    assert summary.samples_missed, "a sampler takes longer than two periods to start"
    assert summary.energy_source == "energy counter"
    assert (
        abs(present(summary.mean_power_mw) / TWO_H200[0].power_instant_mw - 1) * 100
        <= present(summary.energy_error_pct) * 1.01
    )


def test_who_else_used_the_gpu_is_kept_with_the_run(tmp_path: Path) -> None:
    """These cards list processes by numbers of their own, as in a container; one that was there is not the worker."""
    with feed_of(Card(uuid="GPU-shared", processes=((4_194_305, 1_000),)), hz=20.0) as feed:
        wait_listed(feed, "GPU-shared")
        stored = run_on(feed, tmp_path, seconds=3.0)
    assert stored.environment[OTHERS_ON_GPU_KEY] == "process (4194305)"
    keys = {warning.key for warning in comparison_warnings([stored])}
    assert OTHERS_ON_GPU_KEY in keys
    assert keys <= {OTHERS_ON_GPU_KEY, "others_on_host"}, "this machine may be busy"
