"""JAX computes what TensorFlow does, on one device and on two."""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evidence_runs import spec_of
from tests.fakes import tensorflow as in_tensorflow
from tests.fakes.tensorflow import TensorflowProcess
from tests.unit.workloads.test_frameworks import (
    CASES,
    assert_loss_falls,
    computed,
    difference,
    difference_to_tensorflow,
    task_of,
)
from workloads import seeding
from workloads.catalog import Gpu, Machine, check
from workloads.errors import RefusedError
from workloads.jax import backend as jax_backend
from workloads.jax import steps
from workloads.jax.backend import JaxBackend
from workloads.job_protocol import ComputeGradients
from workloads.protocol import RunSpec, Value

Settings = Mapping[str, Value]
pytestmark = pytest.mark.usefixtures("restored_variables")


@pytest.fixture
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices, although there are no GPUs."""
    monkeypatch.setattr(steps, "replica_count", lambda variant: 2)


def in_jax(workload: str, **settings: Value) -> RunSpec:
    return spec_of(workload, framework="jax", **settings)


def test_targets_count_for_the_memory_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = in_jax("lstm", outputs="all", features=2, timesteps=10, batch_size=4)
    monkeypatch.setattr(seeding, "_MAX_BATCHES", 64)
    monkeypatch.setattr(seeding, "_MAX_BYTES", 4 * 4 * 10 * (2 + 1) * 3)
    counts: list[int] = []
    device_batches = steps.device_batches

    def counted(batches: Iterable[steps.Batch], mesh: Any, precision: str) -> list[steps.Batch]:
        on_device = device_batches(batches, mesh, precision)
        counts.append(len(on_device))
        return on_device

    monkeypatch.setattr(steps, "device_batches", counted)
    task_of(spec)
    assert counts == [3]


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        *CASES,
        ("lstm", {"outputs": "all", "unroll": 5}),
        ("lstm", {"implementation": "combined_input", "activation": "relu"}),
        ("lstm", {"implementation": "combined_input", "bidirectional": True, "sequence_lengths": "right_padded"}),
        ("gru", {"implementation": "combined_input", "bidirectional": True, "outputs": "all", "unroll": 3}),
        ("cnn10", {"layout": "NCHW"}),
    ],
)
def test_loss_gradients_and_outputs_of_a_seed_are_tensorflow_s(
    tensorflow: TensorflowProcess, workload: str, settings: Settings, tmp_path: Path
) -> None:
    plain = {name: value for name, value in settings.items() if name not in ("implementation", "unroll")}
    # JAX's gradients of images are within 0.3e-5 of those in float64, TensorFlow's on one thread beyond 1.5e-5.
    spec, reference = in_jax(workload, **settings), spec_of(workload, **plain)
    assert difference_to_tensorflow(spec, reference, tensorflow, tmp_path) < 5e-5


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {}),
        ("lstm", {"precision": "float16"}),
        ("cnn10", {"layout": "NHWC", "weight_decay": 1e-3, "schedule": "cosine", "steps": 8, "warmup_steps": 0}),
    ],
)
def test_later_steps_have_tensorflow_s_losses(tensorflow: TensorflowProcess, workload: str, settings: Settings) -> None:
    expected = tensorflow.call(in_tensorflow.first_losses, spec_of(workload, **settings), steps=2)
    task = task_of(in_jax(workload, **settings))
    assert [task.fetch(task.step()) for _ in range(2)] == pytest.approx(expected, rel=1e-4)


def test_the_loss_falls_with_one_product_of_inputs() -> None:
    assert_loss_falls(in_jax("lstm", implementation="combined_input", dropout=0.2, recurrent_dropout=0.2))


def test_running_statistics_are_keras_s(tensorflow: TensorflowProcess) -> None:
    import jax

    from workloads.jax.models import ImageModel

    spec = spec_of("cnn10", layout="NHWC")
    images, _, expected = tensorflow.call(in_tensorflow.outputs_after_a_batch, spec)
    net = ImageModel("cnn10", spec.variant)
    _, statistics = net.forward(net.weights, net.statistics, images, jax.random.key(0))
    outputs, _ = net.forward(net.weights, statistics, images, None)
    np.testing.assert_allclose(outputs, expected, atol=1e-4)


@pytest.mark.usefixtures("_two")
def test_batch_norm_is_of_each_device_as_of_tensorflow_s_replicas(tensorflow: TensorflowProcess) -> None:
    expected = tensorflow.call(in_tensorflow.first_losses, spec_of("cnn10", layout="NHWC"), steps=2, replicas=2)
    task = task_of(in_jax("cnn10", layout="NHWC"))
    assert [task.fetch(task.step()) for _ in range(2)] == pytest.approx(expected, rel=1e-4)


def test_two_devices_train_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = in_jax("lstm", bidirectional=True, sequence_lengths="right_padded")
    alone = task_of(spec)
    expected = [alone.fetch(alone.step()) for _ in range(6)]
    monkeypatch.setattr(steps, "replica_count", lambda variant: 2)
    task = task_of(spec)
    assert [task.fetch(task.step()) for _ in range(6)] == pytest.approx(expected, rel=1e-5)


def test_gradients_of_two_devices_are_those_of_two_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = in_jax("cnn10", precision="float16")
    of_parts = computed(spec, tmp_path / "parts.npz", parts=2)
    monkeypatch.setattr(steps, "replica_count", lambda variant: 2)
    of_devices = computed(spec, tmp_path / "devices.npz")
    assert of_devices.losses == pytest.approx(of_parts.losses, rel=1e-6)
    assert difference(tmp_path / "devices.npz", tmp_path / "parts.npz") < 1e-5


def test_a_step_without_finite_gradients_changes_no_weight_and_halves_the_scale() -> None:
    task = task_of(in_jax("lstm", precision="float16"))
    step = task.step
    assert isinstance(step, steps.Step)
    step.state["scale"] = step.state["scale"] * 2.0**60
    weights = [np.asarray(weight) for weight in step.state["weights"]]
    task.fetch(task.step())
    assert all(map(np.array_equal, weights, step.state["weights"]))
    assert float(step.state["scale"]) == 2.0**74
    step.state["scale"] = step.state["scale"] / 2.0**59
    task.fetch(task.step())
    assert not any(map(np.array_equal, weights, step.state["weights"]))


def _cudnn_reference(x, h, c, weights, lengths, *sizes):  # type: ignore[no-untyped-def]
    from jax.experimental import rnn

    unpacked = rnn.unpack_lstm_weights(weights, *sizes[:3], sizes[4])
    return rnn.lstm_ref(x, h, c, *unpacked, lengths, *sizes)


def test_cudnn_gets_sequences_and_gradients_batch_first_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its call names no layout: on an H200, XLA passed gradients with the steps first, and cuDNN read them wrongly."""
    import jax

    from workloads.jax.models import RecurrentModel

    monkeypatch.setattr("jax.experimental.rnn.lstm", _cudnn_reference)
    model = RecurrentModel("lstm", {**in_jax("lstm", layers=2).variant, "implementation": "cudnn"})
    inputs = np.zeros((2, 3, int(in_jax("lstm").variant["features"])), np.float32)
    gradient = jax.grad(lambda weights: model.forward(weights, [], inputs, None).outputs.sum())
    program = str(jax.make_jaxpr(gradient)(model.weights))
    of_two_layers = 2 * 2 + 3  # inputs and outputs, and their gradients but for those of the sequences themselves
    assert len(re.findall(r"layout_constraint\[\s*layout=Layout\(major_to_minor=\(0, 1, 2\)", program)) == of_two_layers


def test_weights_of_cudnn_are_in_its_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the CPU, JAX's own reference of what cuDNN computes takes the place of its call."""
    monkeypatch.setattr("jax.experimental.rnn.lstm", _cudnn_reference)
    for name in ("standard", "cudnn"):
        spec = in_jax("lstm", bidirectional=True)
        variant = {**spec.variant, "implementation": name}
        request = ComputeGradients(spec=RunSpec(workload="lstm", variant=variant), path=str(tmp_path / f"{name}.npz"))
        JaxBackend().compute_gradients(request)
    assert difference(tmp_path / "cudnn.npz", tmp_path / "standard.npz") < 1e-5


GPUS = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", compute_capability=(9, 0)) for n in range(2))


@pytest.mark.parametrize(
    ("workload", "settings", "parameter"),
    [
        ("lstm", {"compile": True}, "compile"),
        ("lstm", {"xla": True}, "xla"),
        ("lstm", {"cuda_graph": True}, "cuda_graph"),
        ("lstm", {"implementation": "gemm2"}, "implementation"),
        ("lstm", {"implementation": "cudnn_stack", "gpus": 1}, "implementation"),
        ("lstm", {"implementation": "cudnn"}, "gpus"),
        ("lstm", {"implementation": "cudnn", "gpus": 1, "unroll": 5}, "unroll"),
        ("lstm", {"implementation": "cudnn", "gpus": 1, "precision": "bfloat16"}, "precision"),
        ("lstm", {"implementation": "cudnn", "gpus": 1, "sequence_lengths": "right_padded"}, "sequence_lengths"),
        ("lstm", {"framework": "tensorflow", "unroll": 5}, "unroll"),
        ("lstm", {"implementation": "combined_input", "input_steps": 5}, "input_steps"),
        ("gru", {"implementation": "cudnn", "gpus": 1}, "implementation"),
        ("lstm", {"cpu_threads": 2}, "cpu_threads"),
        ("cnn10", {"implementation": "keras"}, "implementation"),
        ("cnn10", {"layout_optimizer": True}, "layout_optimizer"),
        ("cnn10", {"data": "stand_in"}, "data"),
        ("cnn10", {"gpus": 2, "all_reduce": "one_device"}, "all_reduce"),
        ("cnn10", {"gpus": 2, "all_reduce": "data_parallel"}, "all_reduce"),
    ],
)
def test_what_jax_lacks_is_refused_before_the_run(workload: str, settings: Settings, parameter: str) -> None:
    spec = spec_of(workload, **{"framework": "jax", **settings})
    refusals = check(spec, Machine(gpus=GPUS, cpu_count=8))
    assert [parameter in refusal.parameters for refusal in refusals] == [True], refusals


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"implementation": "standard", "unroll": 5, "gpus": 2}),
        ("gru", {"implementation": "combined_input", "unroll": 5}),
        ("lstm", {"implementation": "cudnn", "gpus": 1, "precision": "tf32"}),
        ("cnn10", {"layout": "NCHW", "precision": "bfloat16"}),
        ("cnn10", {"gpus": 1, "memory_limit": 2.0}),
    ],
)
def test_what_jax_has_runs(workload: str, settings: Settings) -> None:
    assert check(in_jax(workload, **settings), Machine(gpus=GPUS, cpu_count=8)) == ()


def test_a_jaxlib_that_does_not_fit_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jax.py").write_text("raise RuntimeError('jaxlib version 0.9 is newer than and incompatible with jax')")
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RefusedError, match=r"JAX cannot be imported \(jaxlib version 0\.9 is newer"):
        JaxBackend().import_framework(())


def test_a_memory_limit_is_a_share_of_the_gpu_as_jax_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no driver to tell a GPU's memory; what XLA's client would start with is jaxlib's own answer."""
    from jaxlib.xla_client import generate_pjrt_gpu_plugin_options

    monkeypatch.setattr(jax_backend, "_gpu_memory_bytes", lambda: 8 * 2**30)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")  # the user's own, by the older name
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "")
    for limit_gib, share in ((2.0, 0.25), (9.0, 1.0)):
        with pytest.raises(RefusedError):
            JaxBackend().import_framework(("GPU-0",), limit_gib)
        assert generate_pjrt_gpu_plugin_options()["memory_fraction"] == share
