"""Weights that JAX trained, saved in the layouts of all frameworks: loaded elsewhere they answer as trained."""

from pathlib import Path

import numpy as np
import pytest

from tests.fakes.tensorflow import TensorflowProcess
from tests.unit.workloads.jax.test_jax import in_jax
from tests.unit.workloads.test_frameworks import assert_answers_as_trained, task_of
from workloads import weights
from workloads.jax import steps
from workloads.protocol import RunSpec, Value
from workloads.weights import SavedWeights

pytestmark = pytest.mark.usefixtures("restored_variables")


def saved_after(count: int, spec: RunSpec, path: Path) -> SavedWeights:
    """The file with the weights after so many steps, although two more are made before it is written."""
    task = task_of(spec)
    for _ in range(count):
        task.fetch(task.step())
    task.keep_weights()
    for _ in range(2):
        task.fetch(task.step())
    task.save_weights(spec, path)
    return weights.read(path, spec)


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"bidirectional": True, "layers": 2}),
        ("gru", {"outputs": "all", "sequence_lengths": "left_padded"}),
        ("cnn10", {"layout": "NCHW", "bias": True, "precision": "bfloat16"}),
        ("wrn28-10", {"layout": "NHWC"}),
    ],
)
def test_a_plain_keras_model_answers_as_jax_s_trained_one(
    tensorflow: TensorflowProcess, workload: str, settings: dict[str, Value], tmp_path: Path
) -> None:
    spec, path = in_jax(workload, save_weights=True, **settings), tmp_path / "run.npz"
    saved, untrained = saved_after(3, spec, path), saved_after(0, spec, tmp_path / "untrained.npz")
    assert all((saved.weights[name] != untrained.weights[name]).any() for name in saved.weights)
    assert_answers_as_trained(spec, path, tensorflow)


def test_running_statistics_are_the_mean_over_the_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the first batch norm those of one device, since its mean is that of both halves' means."""
    spec = in_jax("cnn10", layout="NHWC", save_weights=True)
    alone = saved_after(1, spec, tmp_path / "alone.npz")
    monkeypatch.setattr(steps, "replica_count", lambda variant: 2)
    pair = saved_after(1, spec, tmp_path / "pair.npz")
    name = next(name for name in alone.weights if name.endswith("/mean"))
    np.testing.assert_allclose(pair.weights[name], alone.weights[name], rtol=1e-4, atol=1e-7)
    assert pair.outputs.shape == alone.outputs.shape
