"""Weights that PyTorch trained, saved in the layouts of all frameworks: loaded elsewhere they answer as trained."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.fakes.tensorflow import TensorflowProcess
from tests.unit.workloads.pytorch.test_ranks import connected, in_pytorch
from tests.unit.workloads.test_frameworks import assert_answers_as_trained, task_of
from workloads import seeding, weights
from workloads.protocol import RunSpec, Value
from workloads.pytorch import ranks
from workloads.training import Task
from workloads.weights import SavedWeights

pytestmark = pytest.mark.usefixtures("restored_variables")


@pytest.fixture(autouse=True)
def _all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has as many as the one of the other rank."""
    torch.set_num_threads(1)
    monkeypatch.setattr(seeding, "_MAX_BATCHES", 64)


def saved_by(task: Task, spec: RunSpec, path: Path) -> SavedWeights:
    """The file of a task, and what is in it."""
    task.save_weights(spec, path)
    return weights.read(path, spec)


def trained(spec: RunSpec, steps: int) -> Task:
    task = task_of(spec)
    for _ in range(steps):
        task.fetch(task.step())
    return task


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"bidirectional": True, "layers": 2, "implementation": "cudnn_stack"}),
        ("gru", {"outputs": "all", "sequence_lengths": "left_padded"}),
        ("cnn10", {"layout": "NCHW", "bias": True, "precision": "bfloat16"}),
        ("cnn10", {"layout": "NHWC", "data": "stand_in", "images": 64, "scaling": "unit"}),
        ("wrn28-10", {"layout": "NHWC"}),
    ],
)
def test_a_plain_keras_model_answers_as_pytorch_s_trained_one(
    tensorflow: TensorflowProcess, workload: str, settings: dict[str, Value], tmp_path: Path
) -> None:
    spec, path = in_pytorch(workload, save_weights=True, **settings), tmp_path / "run.npz"
    saved = saved_by(trained(spec, 3), spec, path)
    untrained = saved_by(task_of(spec), spec, tmp_path / "untrained.npz")
    assert all((saved.weights[name] != untrained.weights[name]).any() for name in saved.weights)
    assert_answers_as_trained(spec, path, tensorflow)


def test_weights_are_those_that_were_kept(tmp_path: Path) -> None:
    spec = in_pytorch("cnn10", layout="NHWC", save_weights=True, weights_from="best")
    task = trained(spec, 2)
    task.keep_weights()
    expected = saved_by(trained(spec, 2), spec, tmp_path / "two.npz")
    task.step()
    found = saved_by(task, spec, tmp_path / "kept.npz")
    for name, value in expected.weights.items():
        np.testing.assert_array_equal(found.weights[name], value)
    np.testing.assert_array_equal(found.outputs, expected.outputs)


def test_running_statistics_are_the_mean_over_the_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the first batch norm those of one device, since its mean is that of both halves' means."""
    spec = in_pytorch("cnn10", layout="NHWC", save_weights=True)
    alone = saved_by(trained(spec, 1), spec, tmp_path / "alone.npz")
    monkeypatch.setattr(ranks, "replica_count", lambda variant: 2)
    with connected(spec) as task:
        task.fetch(task.step())
        found = saved_by(task, spec, tmp_path / "ranks.npz")
        assert isinstance(task.step, ranks.RankedStep)
        own = [statistic.clone().numpy() for statistic in task.step.local.statistics()]
    name = next(name for name in alone.weights if name.endswith("/mean"))
    np.testing.assert_allclose(found.weights[name], alone.weights[name], rtol=1e-4, atol=1e-7)
    assert np.abs(own[0] - alone.weights[name]).max() > 1e-5
