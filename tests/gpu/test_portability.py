"""Article B on real GPUs: train with cuDNN, infer without it on the CPU, and the other way round.

Each test is one training and a trial or two; about 15 s each.
"""

import math
from pathlib import Path

import numpy as np
import pytest

from app.runs.host import Host
from app.runs.session import RunServices, RunSession
from app.runs.weight_transfer import TrialResult, export_model, transfer_targets, try_weights, weights_file
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.records import StoredRun
from workloads import catalog
from workloads.protocol import Value

pytestmark = pytest.mark.gpu

SIZES: dict[str, Value] = {"units": 64, "features": 32, "timesteps": 20, "layers": 2, "batch_size": 64, "steps": 600}
"""Enough to learn to add: answers that all were near the mean would hide a weight in the wrong place."""
SPREAD = {"bfloat16": 0.02}
"""Standard deviation of answers, where it is not 0.1: in bfloat16 cuDNN hardly learns (docs/workloads.md)."""


@pytest.fixture
def services(feed: TelemetryFeed, tmp_path: Path) -> RunServices:
    return RunServices(database=tmp_path / "gpu.db", host=Host(telemetry=feed))


def trained(services: RunServices, workload: str = "lstm", /, **given: Value) -> StoredRun:
    machine = services.host.machine
    session = RunSession(catalog.complete(workload, {**SIZES, "save_weights": True, **given}, machine), services)
    assert session.run().name == "completed"
    assert session.number is not None
    with Store.open(services.database) as store:
        run = store.load(session.number)
    with np.load(weights_file(run.row, services.database, None)) as saved:
        assert saved["reference/outputs"].std() > SPREAD.get(str(given.get("precision")), 0.1)
    return run


def trials(services: RunServices, run: StoredRun, into: list[str], gpus: int) -> dict[str, TrialResult]:
    machine = services.host.machine
    weights = weights_file(run.row, services.database, None)
    targets = transfer_targets(run.row.spec, into, gpus, machine).possible
    results = [try_weights(run.row, weights, spec, services.host, print) for spec in targets]
    return {trial.result.implementation: trial for trial in results}


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("implementation", ["cudnn", "cudnn_stack"])
def test_trained_with_cudnn_infers_on_the_cpu(services: RunServices, implementation: str, bidirectional: bool) -> None:
    run = trained(services, implementation=implementation, bidirectional=bidirectional)
    found = trials(services, run, ["standard", "block_fused"], gpus=0)
    assert [trial.result.device for trial in found.values()] == ["cpu", "cpu"]
    assert {name: trial.result.max_difference <= 1e-5 for name, trial in found.items()} == {
        "standard": True,
        "block_fused": True,
    }, found


@pytest.mark.parametrize("implementation", ["cudnn", "cudnn_stack"])
def test_a_gru_trained_with_cudnn_infers_on_the_cpu(services: RunServices, implementation: str) -> None:
    run = trained(services, "gru", implementation=implementation, bidirectional=True)
    found = trials(services, run, ["standard", "gemm6"], gpus=0)
    assert {name: trial.result.max_difference <= 1e-5 for name, trial in found.items()} == {
        "standard": True,
        "gemm6": True,
    }, found


@pytest.mark.parametrize(("implementation", "cuda_graph"), [("cudnn_stack", True), ("cudnn", False)])
def test_what_pytorch_trained_with_cudnn_infers_on_the_cpu_and_in_keras(
    services: RunServices, implementation: str, cuda_graph: bool, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    given: dict[str, Value] = {"implementation": implementation, "cuda_graph": cuda_graph, "bidirectional": True}
    run = trained(services, framework="pytorch", **given)
    found = trials(services, run, ["standard"], gpus=0)
    assert found["standard"].result.max_difference <= 1e-5
    weights = weights_file(run.row, services.database, None)
    exported = export_model(run.row, weights, [tmp_path / "sums.keras"], services.host.leases, print)
    assert exported.max_difference <= exported.tolerance


@pytest.mark.parametrize("bidirectional", [False, True])
def test_trained_on_the_cpu_infers_with_cudnn(services: RunServices, bidirectional: bool) -> None:
    run = trained(services, gpus=0, implementation="standard", bidirectional=bidirectional)
    found = trials(services, run, ["cudnn", "cudnn_stack"], gpus=1)
    assert all(trial.result.device.startswith("GPU-") for trial in found.values())
    assert max(trial.result.max_difference for trial in found.values()) <= 1e-5, found


@pytest.mark.parametrize("precision", ["tf32", "bfloat16", "float16"])
def test_a_coarser_precision_differs_by_its_rounding(services: RunServices, precision: str) -> None:
    run = trained(services, implementation="cudnn", precision=precision)
    (trial,) = trials(services, run, ["standard"], gpus=0).values()
    assert 1e-7 < trial.result.max_difference <= trial.tolerance, trial


def test_what_cudnn_trained_becomes_a_plain_model(services: RunServices, tmp_path: Path) -> None:
    run = trained(services, implementation="cudnn_stack", bidirectional=True)
    weights, paths = weights_file(run.row, services.database, None), [tmp_path / "model.keras", tmp_path / "served"]
    difference = export_model(run.row, weights, paths, services.host.leases, print)
    assert difference.max_difference <= 1e-5
    assert all(path.exists() for path in paths)


def test_a_card_is_calibrated_once_and_bounds_what_a_run_reaches(services: RunServices) -> None:
    run, again = (trained(services, precision="bfloat16") for _ in range(2))
    summary = run.row.summary
    assert summary.flops_per_step is not None
    assert summary.peak_flops_per_s is not None
    assert summary.step_ms_p50 is not None
    utilisation = summary.flops_per_step / (summary.step_ms_p50 / 1e3) / summary.peak_flops_per_s
    assert math.isfinite(utilisation)
    assert 0 < utilisation < 1
    assert again.row.summary.peak_flops_per_s == summary.peak_flops_per_s
    with Store.open(services.database) as store:
        calibration = store.calibration(run.environment["gpus_used"].rpartition("(")[2].rstrip(")"), "bfloat16")
    assert calibration is not None
    assert calibration.size == 8192
