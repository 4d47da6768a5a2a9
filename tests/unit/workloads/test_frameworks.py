"""PyTorch and JAX compute what TensorFlow does; `pytorch/` and `jax/` test what each does in its own way."""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from app.analysis.equality import largest_difference
from app.runs.weight_transfer import transfer_targets
from tests.evidence_runs import spec_of
from tests.fakes import tensorflow as in_tensorflow
from tests.fakes.tensorflow import TensorflowProcess
from tests.present import present
from tests.unit.workloads.tensorflow.test_gradients import arrays
from workloads.backend import load_backend
from workloads.catalog import FRAMEWORKS, Machine
from workloads.errors import RefusedError
from workloads.job_protocol import ComputedGradients, ComputeGradients, ExportModel, OutputDifference, TryWeights
from workloads.jobs import perform
from workloads.protocol import Evidence, RunSpec, Source, Value
from workloads.training import Task

Settings = Mapping[str, Value]
pytestmark = pytest.mark.usefixtures("restored_variables")


@pytest.fixture(params=["pytorch", "jax"])
def framework(request: pytest.FixtureRequest) -> str:
    import torch

    torch.set_num_threads(1)
    return str(request.param)


def computed(spec: RunSpec, path: Path, parts: int = 1, start: Path | None = None) -> ComputedGradients:
    """Compute the gradients of a spec as a job does, from the weights of `start` or those of its seed."""
    start_path = None if start is None else str(start)
    answer = perform(ComputeGradients(spec=spec, parts=parts, path=str(path), start_path=start_path))
    assert isinstance(answer, ComputedGradients), answer
    return answer


def difference(path: Path, reference_path: Path) -> float:
    """Return the largest difference between the gradients in two files."""
    gradients, reference = arrays(path), arrays(reference_path)
    assert list(gradients) == list(reference)
    return largest_difference(list(gradients), gradients.values(), list(reference.values()))[0]


def difference_to_tensorflow(spec: RunSpec, reference: RunSpec, tensorflow: TensorflowProcess, folder: Path) -> float:
    """Return the largest difference to the gradients of TensorFlow, of the same batch with the same loss."""
    expected = tensorflow.call(in_tensorflow.compute_gradients, reference, folder / "tensorflow.npz")
    answer = computed(spec, folder / "gradients.npz")
    assert answer.losses == pytest.approx(expected.losses, rel=1e-6)
    assert answer.batch == pytest.approx(expected.batch)
    return difference(folder / "gradients.npz", folder / "tensorflow.npz")


def task_of(spec: RunSpec, source: Source | None = None) -> Task:
    backend = load_backend(str(spec.variant["framework"]))
    backend.import_framework(())
    return backend.build_task(spec, source)


def collected(spec: RunSpec, task: Task | None = None, *, traced: bool = True) -> Evidence:
    """Collect the evidence of a task as a worker does; without one, of the spec's own."""
    task = task or task_of(spec)
    collector = load_backend(str(spec.variant["framework"])).make_collector(spec, task)
    collector.start()
    assert collector.evidence() is None, "nothing is known before the first step"
    task.fetch(task.step())
    collector.first_step_done()
    if traced:
        collector.trace()
    collector.inspect()
    return present(collector.evidence())


def assert_traced(evidence: Evidence, product: str) -> None:
    """Check that a trace of one device has kernels, and one that is such a product."""
    assert evidence.timeline is not None
    (times,) = evidence.devices
    assert 0 < times.busy_ns <= times.span_ns
    assert {kernel.kind for kernel in evidence.kernels} >= {"pointwise", product}


CASES: list[tuple[str, Settings]] = [
    ("lstm", {"bidirectional": True}),
    ("lstm", {"bidirectional": True, "sequence_lengths": "left_padded"}),
    ("gru", {"bidirectional": True, "outputs": "all", "sequence_lengths": "right_padded"}),
    ("gru", {"outputs": "all", "sequence_lengths": "left_padded", "mode": "inference"}),
    ("gru", {"activation": "relu"}),
    ("cnn10", {"layout": "NHWC"}),
    ("cnn10", {"layout": "NHWC", "pooling": "strided", "bias": True}),
    ("cnn10", {"layout": "NHWC", "pooling": "max"}),
    ("wrn28-10", {"layout": "NHWC"}),
    ("cnn10", {"layout": "NHWC", "mode": "inference"}),
    ("gru", {"mode": "inference"}),
]
"""Variants that both frameworks compute as TensorFlow does."""


def assert_answers_as_trained(spec: RunSpec, path: Path, tensorflow: TensorflowProcess) -> None:
    """Check that saved weights answer as trained, in a plain Keras model and in another variant of the framework."""
    export = ExportModel(weights_path=str(path), trained=spec, model_paths=())
    exported = tensorflow.call(in_tensorflow.perform, export)
    assert isinstance(exported, OutputDifference), exported
    assert exported.max_output > 0.001
    (target, *_) = transfer_targets(spec, (), 0, Machine(cpu_count=2)).possible
    tried = perform(TryWeights(weights_path=str(path), trained=spec, spec=target))
    assert isinstance(tried, OutputDifference), tried
    assert tried.max_difference <= tried.tolerance


def assert_loss_falls(spec: RunSpec) -> None:
    task = task_of(spec)
    losses = [task.fetch(task.step()) for _ in range(40)]
    assert np.mean(losses[-8:]) < 0.8 * np.mean(losses[:4])
    assert task.allocator_bytes() is None, "on the CPU"


@pytest.mark.parametrize("workload", ["gru", "cnn10"])
def test_it_goes_on_from_weights_of_another_variant(framework: str, workload: str, tmp_path: Path) -> None:
    start = tmp_path / "start.npz"
    first_seed = computed(spec_of(workload, framework=framework, seed=1), start)
    computed(spec_of(workload, framework=framework, seed=2), tmp_path / "from.npz", start=start)
    second_seed = computed(spec_of(workload, framework=framework, seed=2), tmp_path / "second.npz")
    assert difference(tmp_path / "from.npz", tmp_path / "second.npz") > 1e-3
    assert second_seed.losses != first_seed.losses
    wider = spec_of(workload, framework=framework, **({"units": 9} if workload == "gru" else {"channels": 5}))
    answer = perform(ComputeGradients(spec=wider, path=str(tmp_path / "wider.npz"), start_path=str(start)))
    assert "other shapes" in str(answer)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_sixteen_bits_are_as_near_to_float32_as_tensorflow_s(
    framework: str, tensorflow: TensorflowProcess, precision: str, tmp_path: Path
) -> None:
    for dtype in (precision, "float32"):
        spec = spec_of("cnn10", layout="NHWC", precision=dtype)
        tensorflow.call(in_tensorflow.compute_gradients, spec, tmp_path / f"tensorflow-{dtype}.npz")
        for workload, settings in (("cnn10", {"layout": "NHWC"}), ("lstm", {})):
            spec = spec_of(workload, framework=framework, precision=dtype, **settings)
            computed(spec, tmp_path / f"{workload}-{dtype}.npz")
    images, images_of_tensorflow, lstm = (
        difference(tmp_path / f"{name}-{precision}.npz", tmp_path / f"{name}-float32.npz")
        for name in ("cnn10", "tensorflow", "lstm")
    )
    assert 1e-5 < images < 2 * images_of_tensorflow
    assert 1e-5 < lstm < 0.02


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("lstm", {"dropout": 0.2, "recurrent_dropout": 0.2}),
        ("gru", {"recurrent_dropout": 0.2}),
        ("lstm", {"activation": "relu", "precision": "float16"}),
        ("cnn10", {"layout": "NHWC", "weight_decay": 1e-4, "batch_size": 16}),
    ],
)
def test_the_loss_falls(framework: str, workload: str, settings: Settings) -> None:
    assert_loss_falls(spec_of(workload, framework=framework, **settings))


def test_without_the_framework_the_run_is_refused_with_what_to_install(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (module,) = FRAMEWORKS[framework].modules
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RefusedError, match=f"{FRAMEWORKS[framework].name} cannot be imported.*'{module}>="):
        load_backend(framework).import_framework(())
    monkeypatch.setenv("VARIANTSCOPE_FOLDER", "/tmp")  # as in an environment of packages
    with pytest.raises(RefusedError, match=rf": add {FRAMEWORKS[framework].distributions[0]} to packages\.$"):
        load_backend(framework).import_framework(())


def test_gpus_that_the_framework_does_not_see_are_reported(framework: str) -> None:
    with pytest.raises(RefusedError, match=f"given 1 of the machine's GPUs, and {FRAMEWORKS[framework].name} sees 0"):
        load_backend(framework).import_framework(("GPU-0",))


def test_the_environment_names_the_version_and_no_library_twice(framework: str) -> None:
    environment = load_backend(framework).import_framework(())
    assert environment[FRAMEWORKS[framework].version_key][0].isdigit()
    assert environment[FRAMEWORKS[framework].devices_key] == "CPU"
    assert environment["numpy"] == np.__version__, "of which weights and data are made"
    assert FRAMEWORKS["tensorflow"].version_key not in environment
    assert present(load_backend(framework).calibrate("float32", ())).flops_per_s > 1e8
