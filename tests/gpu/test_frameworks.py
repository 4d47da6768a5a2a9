"""PyTorch and JAX on real GPUs: requested settings run, all compute the same, two GPUs exchange gradients."""

from pathlib import Path

import pytest

from app.analysis.equality import largest_difference
from app.runs.jobs import run_job
from app.telemetry.feed import TelemetryFeed
from tests.gpu.conftest import run
from tests.unit.workloads.tensorflow.test_gradients import arrays
from workloads import catalog
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import Value

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("framework", "workload", "settings"),
    [
        ("jax", "lstm", {"implementation": "standard", "unroll": 25, "precision": "tf32"}),
        ("jax", "lstm", {"implementation": "standard", "unroll": 25, "precision": "bfloat16"}),
        ("jax", "lstm", {"implementation": "combined_input", "unroll": 25, "precision": "tf32"}),
        ("jax", "lstm", {"implementation": "cudnn", "precision": "float32", "layers": 2, "bidirectional": True}),
        ("jax", "lstm", {"implementation": "cudnn", "precision": "tf32"}),
        ("jax", "gru", {"implementation": "standard", "precision": "float32"}),
        ("jax", "gru", {"implementation": "combined_input", "precision": "float32", "bidirectional": True}),
        ("jax", "cnn10", {"layout": "NHWC", "precision": "tf32"}),
        ("jax", "cnn10", {"layout": "NHWC", "precision": "bfloat16"}),
        ("jax", "cnn10", {"layout": "NHWC", "precision": "float16"}),
        ("jax", "wrn28-10", {"layout": "NHWC", "precision": "bfloat16", "mode": "inference"}),
        ("pytorch", "lstm", {"implementation": "cudnn", "precision": "bfloat16"}),
        ("pytorch", "cnn10", {"layout": "NHWC", "precision": "float32"}),
        ("pytorch", "cnn10", {"layout": "NCHW", "precision": "tf32"}),
        ("pytorch", "gru", {"implementation": "cudnn_stack", "layers": 2, "precision": "bfloat16", "cuda_graph": True}),
        ("pytorch", "cnn10", {"layout": "NHWC", "precision": "float16", "cuda_graph": True}),
        ("pytorch", "wrn28-10", {"layout": "NHWC", "precision": "bfloat16", "compile": True}),
    ],
)
def test_what_is_asked_for_runs(
    feed: TelemetryFeed, tmp_path: Path, framework: str, workload: str, settings: dict[str, Value]
) -> None:
    stored = run(feed, tmp_path, workload, framework=framework, gpus=1, **settings)
    assert stored.evidence is not None
    assert stored.evidence.match, stored.evidence.reason or stored.evidence.unverified
    (times,) = stored.evidence.devices
    assert times.host_wait_ns is not None, "launches are in the profile"
    assert stored.row.summary.allocator_peak_bytes


def test_frameworks_and_implementations_compute_the_same(feed: TelemetryFeed, tmp_path: Path) -> None:
    machine = feed.wait_inventory().machine
    sizes: dict[str, Value] = {"units": 64, "features": 32, "timesteps": 20, "layers": 2, "bidirectional": True}
    gradients = []
    for framework, implementation in (
        ("jax", "cudnn"),
        ("jax", "standard"),
        ("jax", "combined_input"),
        ("pytorch", "cudnn"),
        ("pytorch", "standard"),
        ("tensorflow", "cudnn"),
    ):
        pytest.importorskip({"pytorch": "torch"}.get(framework, framework))
        given = {"framework": framework, "precision": "float32", "implementation": implementation, **sizes}
        spec, path = catalog.complete("lstm", given, machine), tmp_path / f"{framework}-{implementation}.npz"
        run_job(ComputeGradients(spec=spec, gpu_uuids=(machine.gpus[0].uuid,), path=str(path)), ComputedGradients)
        gradients.append(arrays(path))
    for other in gradients[1:]:
        assert largest_difference(list(other), other.values(), list(gradients[0].values()))[0] < 1e-4


@pytest.mark.usefixtures("two_gpus")
def test_two_gpus_exchange_gradients_of_jax(feed: TelemetryFeed, tmp_path: Path) -> None:
    stored = run(feed, tmp_path, "cnn10", framework="jax", gpus=2, layout="NHWC", batch_size=512)
    assert stored.evidence is not None
    assert stored.evidence.match, stored.evidence.reason
    assert (stored.evidence.actual["all_reduce"], stored.evidence.actual["replicas"]) == ("nccl", "2")
    assert [device.device for device in stored.evidence.devices] == ["GPU:0", "GPU:1"]
    assert all(device.communication_ns > 0 for device in stored.evidence.devices)
    assert stored.row.summary.loss_first is not None
    assert stored.row.summary.loss_last is not None
    assert stored.row.summary.loss_last < stored.row.summary.loss_first
