"""Runs on real NVIDIA GPUs: `python3 start.py test -m gpu`, or pytest -m gpu on a GPU machine."""

from pathlib import Path

import numpy as np
import pytest

from app.analysis.steps import gpu_step_ms, measured_step_ms
from app.telemetry.feed import TelemetryFeed
from app.values.records import StoredRun
from tests.gpu.conftest import ended, run
from workloads.protocol import Value

pytestmark = pytest.mark.gpu


def _gpus(run: StoredRun) -> list[dict[str, np.ndarray]]:
    return [dict(columns.fields) for columns in run.samples if columns.device.kind == "gpu"]


def test_the_cudnn_lstm_trains_and_its_gpu_is_seen_at_work(feed: TelemetryFeed, tmp_path: Path) -> None:
    stored = run(feed, tmp_path, "lstm", implementation="cudnn")
    summary = stored.row.summary
    assert summary.loss_first is not None
    assert summary.loss_last is not None
    assert summary.loss_last < summary.loss_first / 2
    (gpu,) = _gpus(stored)
    assert np.nanmax(gpu["load_pct"]) > 50
    assert np.nanmax(gpu["power_mw"]) > 1.2 * np.nanmin(gpu["power_mw"])
    assert summary.energy_mj_per_example is not None
    assert summary.allocator_peak_bytes is not None
    assert stored.environment["gpus_used"]


@pytest.mark.usefixtures("two_gpus")
def test_two_replicas_keep_two_gpus_busy(feed: TelemetryFeed, tmp_path: Path) -> None:
    stored = run(feed, tmp_path, "cnn10", gpus=2)
    busy = [float(np.nanmax(gpu["load_pct"])) for gpu in _gpus(stored)]
    assert len(busy) == 2
    assert min(busy) > 50


def test_traced_kernels_fill_a_step_that_never_leaves_the_gpu_idle(feed: TelemetryFeed, tmp_path: Path) -> None:
    """A profiler leaves kernels alone, so that idle time is the measured step less theirs."""
    stored = run(feed, tmp_path, "cnn10", batch_size=2048)
    gpu_ms, step_ms = gpu_step_ms(stored), measured_step_ms(stored.row.spec, stored.row.summary)
    assert gpu_ms is not None
    assert step_ms is not None
    assert 0.97 * step_ms < gpu_ms < 1.01 * step_ms
    assert stored.evidence is not None
    step, summary = stored.evidence.timeline, stored.row.summary
    assert step is not None
    assert {stream.device for stream in step.streams} == {"GPU:0"}
    assert all(stream.name.startswith("Stream #") for stream in step.streams)
    assert sum(kernel.duration_ns for kernel in step.kernels) / 1e6 == pytest.approx(gpu_ms, rel=0.02), (
        "one step of several"
    )
    assert step.duration_ns / 1e6 == pytest.approx(gpu_ms, rel=0.05), "it ends where the next one begins"
    (phase,) = (phase for phase in stored.phases if phase.name == "evidence")
    assert phase.start_ns <= step.start_ns <= (phase.end_ns or 0)
    assert summary.occupancy_pct is not None
    assert 1 < summary.occupancy_pct <= 100
    (device,) = stored.evidence.devices
    assert device.host_wait_ns is not None, "launches are in the trace"
    assert device.kernel_wait_ns, "a queue that is full has short gaps"
    convolutions = [kernel for kernel in stored.evidence.kernels if kernel.kind == "convolution"]
    assert all(kernel.occupancy_pct is not None for kernel in convolutions)


@pytest.mark.parametrize("framework", ["tensorflow", "pytorch", "jax"])
def test_a_memory_limit_plays_a_smaller_gpu(feed: TelemetryFeed, tmp_path: Path, framework: str) -> None:
    settings: dict[str, Value] = {"framework": framework, "memory_limit": 2, "layout": "NHWC", "steps": 5}
    fits = run(feed, tmp_path, "cnn10", batch_size=64, **settings)
    assert fits.evidence is not None
    assert fits.evidence.actual["memory_limit"] == "2 GiB"
    full = ended(feed, tmp_path, "cnn10", batch_size=4096, **settings).row.outcome
    assert full is not None
    assert full.name == "out_of_memory", full
    assert "under a memory limit of 2 GiB" in (full.reason or "")


def test_a_batch_too_large_is_out_of_memory(feed: TelemetryFeed, tmp_path: Path) -> None:
    """A gigabyte of gates a time step, all kept for the backward pass: over 200 GB, no tensor too large by itself."""
    sizes = {"batch_size": 32_768, "units": 2048, "timesteps": 200, "features": 64}
    full = ended(feed, tmp_path, "lstm", implementation="standard", **sizes).row.outcome
    assert full is not None
    assert full.name == "out_of_memory", full
    assert "32768" in (full.reason or "").replace(",", "")
