"""Runs that share GPUs: real workers, real leases, and a real sampler on a fake driver with two H200s."""

import signal
from pathlib import Path

import numpy as np
import psutil
import pytest

from app.report.documents import run_document
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.events import Outcome, RunStarted
from app.values.fields import Sample
from app.values.records import StoredRun
from app.values.samples import HOST, DeviceLost, Waiting
from tests.fakes.nvml import TWO_H200, Card
from tests.fakes.sessions import dummy, feed_of, going, is_measured, run_through, services
from tests.present import present
from workloads.protocol import Block, RunSpec

GPU_A, GPU_B = (card.uuid for card in TWO_H200)


def gpus_of(started: RunStarted) -> list[str]:
    return [device.device for device in started.devices if device.kind == "gpu"]


def endless(feed: TelemetryFeed, gpus: int) -> RunSpec:
    return dummy(feed.wait_inventory(), gpus=gpus, steps=0, seconds=600.0)


def test_a_run_on_one_gpu_records_that_gpu_and_its_energy(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec = dummy(feed.wait_inventory(), gpus=1, steps=0, seconds=1.0)
    outcome, recorder, stored = run_through(spec, services(tmp_path, feed))
    assert outcome.name == "completed"
    assert [columns.device.device for columns in stored.samples] == [GPU_A, HOST]
    assert {sample.device for sample in recorder.of(Sample)} == {GPU_A, HOST}
    assert set(stored.samples[0].fields["power_mw"]) == {688_123.0}
    summary = stored.row.summary
    assert summary.mean_power_mw is not None
    assert summary.mean_power_mw == pytest.approx(688_123, rel=present(summary.energy_error_pct) / 100 + 0.01)
    first_ns = stored.blocks.start_ns[stored.blocks.measured][summary.blocks_cut or 0]
    window_s = (stored.blocks.end_ns[-1] - first_ns) / 1e9
    used_mj = summary.mean_power_mw * window_s
    assert summary.energy_mj_per_example == pytest.approx(used_mj / summary.measured_examples, rel=0.01)
    assert (summary.energy_source, summary.device_peak_bytes) == ("energy counter", 4_000_000_000)
    assert stored.row.gpu_names == ("NVIDIA H200",)
    assert stored.environment["gpus_used"] == f"NVIDIA H200 ({GPU_A})"
    assert stored.environment["driver"] == "580.65.06"


@pytest.mark.parametrize("word", ["1", GPU_B])
def test_the_gpu_named_is_the_gpu_used(tmp_path: Path, feed: TelemetryFeed, word: str) -> None:
    spec = dummy(feed.wait_inventory(), gpus=1, devices=word)
    _, recorder, _ = run_through(spec, services(tmp_path, feed))
    assert gpus_of(recorder.of(RunStarted)[0]) == [GPU_B]


def test_two_runs_take_different_gpus_and_a_third_waits(tmp_path: Path, feed: TelemetryFeed) -> None:
    all_of_them = services(tmp_path, feed)
    short, one = dummy(feed.wait_inventory(), gpus=1), endless(feed, 1)
    with going(one, all_of_them) as first, going(one, all_of_them) as second:
        used = [gpus_of(run.recorder.wait(RunStarted))[0] for run in (first, second)]
        assert sorted(used) == [GPU_A, GPU_B]
        with going(short, all_of_them) as third:
            waiting = third.recorder.wait(Waiting)
            assert waiting.reason.startswith("Waiting for another run")
            assert third.recorder.of(RunStarted) == []
            second.session.stop()
            assert third.result().name == "completed"
            assert len(third.recorder.of(Waiting)) == 1, "said once"
            assert gpus_of(third.recorder.of(RunStarted)[0]) == [used[1]]
        assert not first.outcomes, "the first was not disturbed"


def test_a_run_on_both_waits_for_both_and_holds_none_meanwhile(tmp_path: Path, feed: TelemetryFeed) -> None:
    all_of_them = services(tmp_path, feed)
    with going(endless(feed, 1), all_of_them) as first:
        first.recorder.wait(RunStarted)
        with going(endless(feed, 2), all_of_them) as second:
            second.recorder.wait(Waiting)
            outcome, recorder, _ = run_through(dummy(feed.wait_inventory(), gpus=1), all_of_them)
            assert (outcome.name, gpus_of(recorder.of(RunStarted)[0])) == ("completed", [GPU_B])
            first.session.stop()
            assert gpus_of(second.recorder.wait(RunStarted)) == [GPU_A, GPU_B]


def test_runs_on_the_cpu_do_not_wait_for_gpus(tmp_path: Path, feed: TelemetryFeed) -> None:
    all_of_them = services(tmp_path, feed)
    with going(endless(feed, 2), all_of_them) as first:
        first.recorder.wait(RunStarted)
        outcome, recorder, _ = run_through(dummy(feed.wait_inventory()), all_of_them)
    assert outcome.name == "completed"
    assert recorder.of(Waiting) == []


class Loss:
    """A machine whose first GPU can be made to vanish."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "gone"
        self.cards = (Card(uuid=GPU_A, lost_when=str(self._file)), TWO_H200[1])

    def happens(self) -> None:
        self._file.touch()


def lost_in(path: Path) -> tuple[StoredRun, list[tuple[str, str]]]:
    """The only run, and the devices marked as lost with their reasons."""
    with Store.open(path) as store:
        marked = store._db.execute("SELECT device, lost_reason FROM devices WHERE lost_t_ns IS NOT NULL").fetchall()
        return store.load(1), marked


def test_a_gpu_that_vanishes_is_stored_as_lost_and_the_run_goes_on(tmp_path: Path) -> None:
    loss = Loss(tmp_path)
    with feed_of(*loss.cards) as feed:
        all_of_them = services(tmp_path, feed)
        with going(endless(feed, 2), all_of_them) as run:
            run.recorder.wait(Block, is_measured)
            run.recorder.wait(Sample, lambda sample: sample.device == GPU_A)
            loss.happens()
            lost = run.recorder.wait(DeviceLost)
            assert lost.reason == "NVIDIA H200 stopped answering (GPU is lost)."
            run.recorder.wait(Sample, lambda sample: sample.device == GPU_B and sample.t_ns > lost.t_ns)
            run.session.stop()
            outcome = run.result()
    assert (outcome.name, outcome.reason) == ("stopped", "Stopped before its end, as asked.")
    stored, marked = lost_in(all_of_them.database)
    assert marked == [(GPU_A, "NVIDIA H200 stopped answering (GPU is lost).")]
    there, other, _ = stored.samples
    assert there.t_ns[-1] < lost.t_ns < other.t_ns[-1]
    assert np.isfinite(there.fields["power_mw"]).all(), "nothing made up after the loss"
    loss_document = run_document(stored)["devices"][0]["lost"]
    assert loss_document["t_s"] == pytest.approx((lost.t_ns - stored.anchor_t_ns) / 1e9)
    assert (loss_document["reason"], loss_document["answered_s"]) == (lost.reason, None)


def test_a_run_that_dies_of_its_lost_gpu_says_so(tmp_path: Path) -> None:
    loss = Loss(tmp_path)
    with feed_of(*loss.cards) as feed:
        all_of_them = services(tmp_path, feed)
        with going(endless(feed, 1), all_of_them) as run:
            run.recorder.wait(Block, is_measured)
            loss.happens()
            run.recorder.wait(DeviceLost)
            (worker,) = [child for child in psutil.Process().children() if "workloads.worker" in child.cmdline()]
            worker.send_signal(signal.SIGABRT)
            outcome = run.result()
    assert outcome == Outcome(
        name="crashed",
        reason="NVIDIA H200 stopped answering (GPU is lost). The worker died of SIGABRT; see the end of its log.",
        exit_code=-signal.SIGABRT,
        ended_by="itself",
    )
    stored, _ = lost_in(all_of_them.database)
    assert stored.row.outcome == outcome
