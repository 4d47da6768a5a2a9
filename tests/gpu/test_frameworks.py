"""JAX on real GPUs: what is asked for runs, cuDNN computes what the loop does, and two GPUs exchange gradients."""

from pathlib import Path

import pytest

from app.analysis.equality import largest_difference
from app.records import StoredRun
from app.runs.host import Host
from app.runs.jobs import run_job
from app.runs.session import RunServices
from app.telemetry.feed import TelemetryFeed
from tests.fakes.sessions import run_through
from tests.unit.workloads.tensorflow.test_gradients import arrays
from workloads import catalog
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import Value

pytestmark = pytest.mark.gpu


def run(feed: TelemetryFeed, folder: Path, workload: str, **given: Value) -> StoredRun:
    pytest.importorskip("jax")
    settings: dict[str, Value] = {"framework": "jax", "seconds": 2.0, **given}
    spec = catalog.complete(workload, settings, feed.wait_inventory().machine)
    _, _, stored = run_through(spec, RunServices(database=folder / "gpu.db", host=Host(telemetry=feed)))
    assert stored.row.outcome is not None
    assert stored.row.outcome.name == "completed", stored.row.outcome
    assert stored.evidence is not None
    return stored


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"implementation": "standard", "unroll": 25, "precision": "tf32"}),
        ("lstm", {"implementation": "standard", "unroll": 25, "precision": "bfloat16"}),
        ("lstm", {"implementation": "cudnn", "precision": "float32", "layers": 2, "bidirectional": True}),
        ("lstm", {"implementation": "cudnn", "precision": "tf32"}),
        ("gru", {"implementation": "standard", "precision": "float32"}),
        ("cnn10", {"layout": "NHWC", "precision": "tf32"}),
        ("cnn10", {"layout": "NHWC", "precision": "bfloat16"}),
        ("cnn10", {"layout": "NHWC", "precision": "float16"}),
        ("wrn28-10", {"layout": "NHWC", "precision": "bfloat16", "mode": "inference"}),
    ],
)
def test_what_is_asked_for_runs(feed: TelemetryFeed, tmp_path: Path, workload: str, settings: dict[str, Value]) -> None:
    stored = run(feed, tmp_path, workload, gpus=1, **settings)
    assert stored.evidence is not None
    assert stored.evidence.match, stored.evidence.reason or stored.evidence.unverified
    (times,) = stored.evidence.devices
    assert times.host_wait_ns is not None, "launches are in the profile"
    assert stored.row.summary.allocator_peak_bytes


def test_cudnn_computes_what_the_loop_does(feed: TelemetryFeed, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    machine = feed.wait_inventory().machine
    sizes: dict[str, Value] = {"units": 64, "features": 32, "timesteps": 20, "layers": 2, "bidirectional": True}
    for name in ("standard", "cudnn"):
        spec = catalog.complete("lstm", {"framework": "jax", "gpus": 1, "implementation": name, **sizes}, machine)
        request = ComputeGradients(spec=spec, gpu_uuids=(machine.gpus[0].uuid,), path=str(tmp_path / f"{name}.npz"))
        run_job(request, ComputedGradients)
    cudnn, loop = arrays(tmp_path / "cudnn.npz"), arrays(tmp_path / "standard.npz")
    assert largest_difference(list(cudnn), cudnn.values(), list(loop.values()))[0] < 1e-4


def test_two_gpus_exchange_gradients(feed: TelemetryFeed, tmp_path: Path) -> None:
    if len(feed.wait_inventory().machine.gpus) < 2:
        pytest.skip("this machine has fewer than two GPUs")
    stored = run(feed, tmp_path, "cnn10", gpus=2, layout="NHWC", batch_size=512)
    assert stored.evidence is not None
    assert stored.evidence.match, stored.evidence.reason
    assert (stored.evidence.actual["all_reduce"], stored.evidence.actual["replicas"]) == ("nccl", "2")
    assert [device.device for device in stored.evidence.devices] == ["GPU:0", "GPU:1"]
    assert all(device.communication_ns > 0 for device in stored.evidence.devices)
    assert stored.row.summary.loss_first is not None
    assert stored.row.summary.loss_last is not None
    assert stored.row.summary.loss_last < stored.row.summary.loss_first
