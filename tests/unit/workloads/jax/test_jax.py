"""JAX computes what TensorFlow does, on one device and on two."""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from app.analysis.equality import largest_difference
from tests.evidence_runs import spec_of
from tests.unit.workloads.tensorflow.test_gradients import arrays
from workloads.catalog import FRAMEWORKS, Gpu, Machine, check
from workloads.custom.source import describe_file
from workloads.errors import CustomWorkloadError, RefusedError
from workloads.jax import backend as jax_backend
from workloads.jax import steps
from workloads.jax.backend import JaxBackend
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.jobs import perform
from workloads.protocol import RunSpec, Source, Value
from workloads.tensorflow.backend import recipe_of
from workloads.tensorflow.gradients import compute_gradients
from workloads.tensorflow.runtime import Replicas
from workloads.tensorflow.steps import build_task
from workloads.training import Task

Settings = Mapping[str, Value]
pytestmark = pytest.mark.usefixtures("unoptimized")


@pytest.fixture(autouse=True)
def _few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_MAX_BATCHES", 2)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, "-1")  # a job sets them in its process


@pytest.fixture
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices, although there are no GPUs."""
    monkeypatch.setattr(steps, "replica_count", lambda variant: 2)


def in_jax(workload: str, **settings: Value) -> RunSpec:
    return spec_of(workload, framework="jax", **settings)


def computed(spec: RunSpec, path: Path, parts: int = 1) -> ComputedGradients:
    found = perform(ComputeGradients(spec=spec, parts=parts, path=str(path)))
    assert isinstance(found, ComputedGradients), found
    return found


def difference(one: Path, other: Path) -> float:
    ours, reference = arrays(one), arrays(other)
    assert list(ours) == list(reference)
    return largest_difference(list(ours), ours.values(), list(reference.values()))[0]


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"bidirectional": True}),
        ("lstm", {"outputs": "all", "unroll": 5}),
        ("lstm", {"activation": "relu"}),
        ("lstm", {"implementation": "combined_input", "bidirectional": True, "sequence_lengths": "right_padded"}),
        ("gru", {"implementation": "combined_input", "bidirectional": True, "outputs": "all", "unroll": 3}),
        ("lstm", {"bidirectional": True, "sequence_lengths": "left_padded"}),
        ("gru", {"bidirectional": True, "outputs": "all", "sequence_lengths": "right_padded"}),
        ("gru", {"outputs": "all", "sequence_lengths": "left_padded", "mode": "inference"}),
        ("gru", {"activation": "relu"}),
        ("cnn10", {"layout": "NHWC"}),
        ("cnn10", {"layout": "NCHW"}),
        ("cnn10", {"layout": "NHWC", "pooling": "strided", "bias": True}),
        ("cnn10", {"layout": "NHWC", "pooling": "max"}),
        ("wrn28-10", {"layout": "NHWC"}),
        ("cnn10", {"layout": "NHWC", "mode": "inference"}),
        ("gru", {"mode": "inference"}),
    ],
)
def test_loss_gradients_and_outputs_of_a_seed_are_tensorflow_s(
    one: Replicas, workload: str, settings: Settings, tmp_path: Path
) -> None:
    plain = {**settings, "unroll": 1} if "unroll" in settings else settings  # of Keras's loop there is no other
    theirs = ComputeGradients(spec=spec_of(workload, **plain), path=str(tmp_path / "tensorflow.npz"))
    expected = compute_gradients(recipe_of(workload)(theirs.spec.variant), one, theirs)
    found = computed(in_jax(workload, **settings), tmp_path / "jax.npz")
    assert found.losses == pytest.approx(expected.losses, rel=1e-6)
    assert found.batch == pytest.approx(expected.batch)
    # JAX's gradients of images are within 0.3e-5 of those in float64, TensorFlow's on one thread beyond 1.5e-5.
    assert difference(tmp_path / "jax.npz", tmp_path / "tensorflow.npz") < 5e-5


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {}),
        ("lstm", {"precision": "float16"}),
        ("cnn10", {"layout": "NHWC", "weight_decay": 1e-3, "schedule": "cosine", "steps": 8, "warmup_steps": 0}),
    ],
)
def test_later_steps_have_tensorflow_s_losses(one: Replicas, workload: str, settings: Settings) -> None:
    """The updates are the same, the number of batches is not: after two they begin again in both."""
    theirs = spec_of(workload, **settings)
    recipe = recipe_of(workload)(theirs.variant)
    reference = build_task(recipe, theirs.variant, one)
    task = task_of(in_jax(workload, **settings))
    expected = [reference.fetch(reference.step()) for _ in range(2)]
    assert [task.fetch(task.step()) for _ in range(2)] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("workload", ["gru", "cnn10"])
def test_it_goes_on_from_weights_of_another_variant_part_by_part(workload: str, tmp_path: Path) -> None:
    whole = computed(in_jax(workload, seed=1), tmp_path / "whole.npz")
    request = ComputeGradients(
        spec=in_jax(workload, seed=2), path=str(tmp_path / "from.npz"), start_path=str(tmp_path / "whole.npz")
    )
    perform(request)
    other = computed(in_jax(workload, seed=2), tmp_path / "other.npz")
    assert difference(tmp_path / "from.npz", tmp_path / "other.npz") > 1e-3
    assert other.losses != whole.losses
    wrong = {"units": 9} if workload == "gru" else {"channels": 5}
    answer = perform(
        ComputeGradients(
            spec=in_jax(workload, **wrong), path=str(tmp_path / "x.npz"), start_path=str(tmp_path / "whole.npz")
        )
    )
    assert "other shapes" in str(answer)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bits_are_as_near_to_float32_as_tensorflow_s(one: Replicas, precision: str, tmp_path: Path) -> None:
    for kind in (precision, "float32"):
        computed(in_jax("cnn10", layout="NHWC", precision=kind), tmp_path / f"jax-{kind}.npz")
        spec = spec_of("cnn10", layout="NHWC", precision=kind)
        request = ComputeGradients(spec=spec, path=str(tmp_path / f"tensorflow-{kind}.npz"))
        compute_gradients(recipe_of("cnn10")(spec.variant), one, request)
        computed(in_jax("lstm", precision=kind), tmp_path / f"lstm-{kind}.npz")
    ours, theirs, lstm = (
        difference(tmp_path / f"{name}-{precision}.npz", tmp_path / f"{name}-float32.npz")
        for name in ("jax", "tensorflow", "lstm")
    )
    assert 1e-5 < ours < 2 * theirs
    assert 1e-5 < lstm < 0.02


def task_of(spec: RunSpec) -> Task:
    backend = JaxBackend()
    backend.import_framework(())
    return backend.build_task(spec, None)


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"dropout": 0.2, "recurrent_dropout": 0.2}),
        ("gru", {"recurrent_dropout": 0.2}),
        ("lstm", {"implementation": "combined_input", "dropout": 0.2, "recurrent_dropout": 0.2}),
        ("lstm", {"activation": "relu", "precision": "float16"}),
        ("cnn10", {"layout": "NHWC", "weight_decay": 1e-4, "batch_size": 16}),
    ],
)
def test_the_loss_falls(workload: str, settings: Settings) -> None:
    task = task_of(in_jax(workload, **settings))
    losses = [task.fetch(task.step()) for _ in range(40)]
    assert np.mean(losses[-8:]) < 0.8 * np.mean(losses[:4])
    assert task.allocator_bytes() is None, "on the CPU"


def test_running_statistics_are_keras_s(one: Replicas) -> None:
    from workloads.jax.models import ImageModel
    from workloads.tensorflow.cnn.model import build_cnn

    spec = spec_of("cnn10", layout="NHWC")
    theirs, ours = build_cnn("cnn10", spec.variant), ImageModel("cnn10", spec.variant)
    batch = recipe_of("cnn10")(spec.variant).batch(0)
    theirs.loss(*batch)
    images = np.asarray(batch[0])
    import jax

    _, statistics = ours.forward(ours.weights, ours.statistics, images, jax.random.key(0))
    outputs, _ = ours.forward(ours.weights, statistics, images, None)
    np.testing.assert_allclose(outputs, theirs.outputs(batch[0]).numpy(), atol=1e-4)


@pytest.mark.usefixtures("_two")
def test_batch_norm_is_of_each_device_as_of_tensorflow_s_replicas(pair: Replicas) -> None:
    theirs = spec_of("cnn10", layout="NHWC")
    reference = build_task(recipe_of("cnn10")(theirs.variant), theirs.variant, pair)
    expected = [reference.fetch(reference.step()) for _ in range(2)]
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
    expected = computed(spec, tmp_path / "parts.npz", parts=2)
    monkeypatch.setattr(steps, "replica_count", lambda variant: 2)
    found = computed(spec, tmp_path / "devices.npz")
    assert found.losses == pytest.approx(expected.losses, rel=1e-6)
    assert difference(tmp_path / "devices.npz", tmp_path / "parts.npz") < 1e-5


def test_a_step_without_finite_gradients_changes_no_weight_and_halves_the_scale() -> None:
    task = task_of(in_jax("lstm", precision="float16"))
    step = task.step
    assert isinstance(step, steps.Step)
    step.state["scale"] = step.state["scale"] * 2.0**60
    before = [np.asarray(weight) for weight in step.state["weights"]]
    task.fetch(task.step())
    assert all(map(np.array_equal, before, step.state["weights"]))
    assert float(step.state["scale"]) == 2.0**74
    step.state["scale"] = step.state["scale"] / 2.0**59
    task.fetch(task.step())
    assert not any(map(np.array_equal, before, step.state["weights"]))


def test_weights_of_cudnn_are_in_its_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the CPU, JAX's own reference of what cuDNN computes takes the place of its call."""
    from jax.experimental import rnn

    def reference(x, h, c, weights, lengths, *sizes):  # type: ignore[no-untyped-def]
        parts = rnn.unpack_lstm_weights(weights, *sizes[:3], sizes[4])
        return rnn.lstm_ref(x, h, c, *parts, lengths, *sizes)

    monkeypatch.setattr(rnn, "lstm", reference)
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


def test_without_jax_the_run_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(RefusedError, match="JAX cannot be imported"):
        JaxBackend().import_framework(())


def test_a_jaxlib_that_does_not_fit_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jax.py").write_text("raise RuntimeError('jaxlib version 0.9 is newer than and incompatible with jax')")
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RefusedError, match=r"JAX cannot be imported \(jaxlib version 0\.9 is newer"):
        JaxBackend().import_framework(())


def test_gpus_that_jax_does_not_see_are_told() -> None:
    with pytest.raises(RefusedError, match="given 1 of the machine's GPUs, and JAX sees 0"):
        JaxBackend().import_framework(("GPU-0",))


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


def test_the_environment_names_the_version_and_the_device() -> None:
    found = JaxBackend().import_framework(())
    assert found["jax"][0].isdigit()
    assert found["jax_devices"] == "CPU"
    assert FRAMEWORKS["tensorflow"].version_key not in found
    calibration = JaxBackend().calibrate("float32", ())
    assert calibration is not None
    assert calibration.flops_per_s > 1e8


def test_a_users_file_in_jax_is_refused_with_its_line() -> None:
    text = "import numpy\nimport jax\n\ndef mlp(batch_size: int = 8):\n    return None\n"
    with pytest.raises(CustomWorkloadError, match=r"mlp\.py:2: custom workloads cannot be in JAX so far"):
        describe_file(Source(path="/mlp.py", text=text))
