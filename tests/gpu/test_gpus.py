"""Runs on real NVIDIA GPUs: `python3 start.py test -m gpu`, or pytest -m gpu on a GPU machine."""

from pathlib import Path

import numpy as np
import pytest

from app.analysis.steps import gpu_step_ms, measured_step_ms
from app.runs.host import Host
from app.runs.session import RunServices, RunSession
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.records import StoredRun
from workloads import catalog
from workloads.protocol import Value

pytestmark = pytest.mark.gpu


def _run(feed: TelemetryFeed, folder: Path, workload: str, **given: Value) -> StoredRun:
    services = RunServices(database=folder / "gpu.db", host=Host(telemetry=feed))
    spec = catalog.complete(workload, {"seconds": 3.0, **given}, feed.wait_inventory().machine)
    session = RunSession(spec, services)
    session.run()
    assert session.number is not None
    with Store.open(services.database) as store:
        return store.load(session.number)


def _gpus(run: StoredRun) -> list[dict[str, np.ndarray]]:
    return [dict(columns.fields) for columns in run.samples if columns.device.kind == "gpu"]


def test_the_cudnn_lstm_trains_and_its_gpu_is_seen_at_work(feed: TelemetryFeed, tmp_path: Path) -> None:
    run = _run(feed, tmp_path, "lstm", implementation="cudnn")
    assert run.row.outcome is not None
    assert run.row.outcome.name == "completed", run.row.outcome
    summary = run.row.summary
    assert summary.loss_first is not None
    assert summary.loss_last is not None
    assert summary.loss_last < summary.loss_first / 2
    (gpu,) = _gpus(run)
    assert np.nanmax(gpu["load_pct"]) > 50
    assert np.nanmax(gpu["power_mw"]) > 1.2 * np.nanmin(gpu["power_mw"])
    assert summary.energy_mj_per_example is not None
    assert summary.allocator_peak_bytes is not None
    assert run.environment["gpus_used"]


def test_two_replicas_keep_two_gpus_busy(feed: TelemetryFeed, tmp_path: Path) -> None:
    if len(feed.wait_inventory().machine.gpus) < 2:
        pytest.xfail("this machine has one GPU")
    run = _run(feed, tmp_path, "cnn10", gpus=2)
    assert run.row.outcome is not None
    assert run.row.outcome.name == "completed", run.row.outcome
    busy = [float(np.nanmax(gpu["load_pct"])) for gpu in _gpus(run)]
    assert len(busy) == 2
    assert min(busy) > 50


def test_traced_kernels_fill_a_step_that_never_leaves_the_gpu_idle(feed: TelemetryFeed, tmp_path: Path) -> None:
    """A profiler leaves kernels alone, so that idle time is the measured step less theirs."""
    run = _run(feed, tmp_path, "cnn10", batch_size=2048)
    gpu_ms, step_ms = gpu_step_ms(run), measured_step_ms(run.row.spec, run.row.summary)
    assert gpu_ms is not None
    assert step_ms is not None
    assert 0.97 * step_ms < gpu_ms < 1.01 * step_ms
    assert run.evidence is not None
    step, summary = run.evidence.timeline, run.row.summary
    assert step is not None
    assert {stream.device for stream in step.streams} == {"GPU:0"}
    assert all(stream.name.startswith("Stream #") for stream in step.streams)
    assert sum(kernel.duration_ns for kernel in step.kernels) / 1e6 == pytest.approx(gpu_ms, rel=0.02), (
        "one step of several"
    )
    assert step.duration_ns / 1e6 == pytest.approx(gpu_ms, rel=0.05), "it ends where the next one begins"
    (phase,) = (phase for phase in run.phases if phase.name == "evidence")
    assert phase.start_ns <= step.start_ns <= (phase.end_ns or 0)
    assert summary.occupancy_pct is not None
    assert 1 < summary.occupancy_pct <= 100
    (device,) = run.evidence.devices
    assert device.host_wait_ns is not None, "launches are in the trace"
    assert device.kernel_wait_ns, "a queue that is full has short gaps"
    convolutions = [kernel for kernel in run.evidence.kernels if kernel.kind == "convolution"]
    assert all(kernel.occupancy_pct is not None for kernel in convolutions)


def test_the_same_seed_begins_with_the_same_loss_in_both_layouts(feed: TelemetryFeed, tmp_path: Path) -> None:
    losses = [
        _run(feed, tmp_path, "cnn10", layout=layout, batch_size=128, steps=5).row.summary.loss_first
        for layout in ("NCHW", "NHWC")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch", "jax"])
def test_a_memory_limit_plays_a_smaller_gpu(feed: TelemetryFeed, tmp_path: Path, framework: str) -> None:
    pytest.importorskip({"pytorch": "torch"}.get(framework, framework))
    settings: dict[str, Value] = {"framework": framework, "memory_limit": 2, "layout": "NHWC", "steps": 5}
    fits = _run(feed, tmp_path, "cnn10", batch_size=64, **settings)
    assert fits.row.outcome is not None
    assert fits.row.outcome.name == "completed", fits.row.outcome
    assert fits.evidence is not None
    assert fits.evidence.actual["memory_limit"] == "2 GiB"
    full = _run(feed, tmp_path, "cnn10", batch_size=4096, **settings).row.outcome
    assert full is not None
    assert full.name == "out_of_memory", full
    assert "under a memory limit of 2 GiB" in (full.reason or "")


def test_a_batch_too_large_is_out_of_memory(feed: TelemetryFeed, tmp_path: Path) -> None:
    """A gigabyte of gates a time step, all kept for the backward pass: over 200 GB, no tensor too large by itself."""
    sizes = {"batch_size": 32_768, "units": 2048, "timesteps": 200, "features": 64}
    run = _run(feed, tmp_path, "lstm", implementation="standard", **sizes)
    assert run.row.outcome is not None
    assert run.row.outcome.name == "out_of_memory", run.row.outcome
    assert "32768" in (run.row.outcome.reason or "").replace(",", "")
