"""Saved weights loaded elsewhere in this process: other implementations, plain Keras models, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.tensorflow import build
from tests.present import present
from workloads import weights
from workloads.catalog import Machine, complete
from workloads.cifar10 import stored_data
from workloads.errors import RefusedError, TrainingError
from workloads.job_protocol import ExportModel, JobFailed
from workloads.jobs import perform
from workloads.protocol import PROTOCOL_VERSION, RunSpec, Start, Value, Variant
from workloads.seeding import adding_problem
from workloads.tensorflow.backend import recipe_of
from workloads.tensorflow.runtime import Replicas
from workloads.weights import SavedWeights, compare_outputs
from workloads.worker import Worker

pytestmark = pytest.mark.usefixtures("unoptimized")
SIZES: dict[str, Value] = {"gpus": 0, "units": 5, "features": 3, "timesteps": 6, "layers": 2, "batch_size": 16}


def variant_of(**given: Value) -> Variant:
    return complete("lstm", {**SIZES, **given}, Machine(cpu_count=2)).variant


def saved_by(variant: Variant, replicas: Replicas, path: Path, workload: str = "lstm") -> SavedWeights:
    """A run's file, and what is in it."""
    from workloads.tensorflow.saving import make_keeper

    with replicas.strategy.scope():
        model = recipe_of(workload)(variant).model()
    spec = RunSpec(workload=workload, variant=variant)
    make_keeper(model, replicas, None).save(spec, path)
    return weights.read(path, spec)


def loaded_difference(saved: SavedWeights, replicas: Replicas, **given: Value) -> float:
    """How far the answers of another variant with the same weights are from the trained model's."""
    from workloads.tensorflow.saving import load_weights, model_outputs

    variant = {**saved.spec.variant, "precision": "float32", **given}
    model = recipe_of(saved.spec.workload)(variant).model()
    load_weights(model, saved.weights.values())
    return compare_outputs(saved, model_outputs(model, saved.reference, variant, replicas)).max_difference


def test_what_is_kept_is_the_model_and_its_answers(replica: Replicas, tmp_path: Path) -> None:
    saved = saved_by(variant_of(), replica, tmp_path / "run.npz")
    assert saved.reference.inputs.shape == (8, 6, 3)
    assert saved.outputs.shape == (8, 1)
    seen = adding_problem(1, 0, 16, 6, 3)[0]
    assert not np.isin(saved.reference.inputs[..., 0], seen[..., 0]).any(), "sequences that it was not trained on"
    assert loaded_difference(saved, replica) == 0.0, "the same implementation on the same device"


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("implementation", ["block_fused", "combined_input"])
def test_the_same_weights_answer_the_same_elsewhere(
    replica: Replicas, tmp_path: Path, implementation: str, bidirectional: bool
) -> None:
    saved = saved_by(variant_of(bidirectional=bidirectional), replica, tmp_path / "run.npz")
    assert np.abs(saved.outputs).max() > 0.01
    assert loaded_difference(saved, replica, implementation=implementation) < 1e-6


def test_answers_at_padding_count_for_nothing(replica: Replicas, tmp_path: Path) -> None:
    saved = saved_by(variant_of(outputs="all", sequence_lengths="left_padded"), replica, tmp_path / "run.npz")
    assert saved.outputs.shape == (8, 6, 1)
    at_padding = np.arange(6) < 6 - present(saved.reference.lengths)[:, None]
    assert at_padding.any()
    assert (saved.outputs[at_padding] == 0).all()
    for answer, difference in ((at_padding, 0.0), (~at_padding, 1.0)):
        found = compare_outputs(saved, saved.outputs + answer[..., None].astype(np.float32))
        assert found.max_difference == pytest.approx(difference, abs=1e-6)


def test_weights_given_to_the_wrong_direction_are_noticed(replica: Replicas, tmp_path: Path) -> None:
    saved = saved_by(variant_of(bidirectional=True), replica, tmp_path / "run.npz")
    names = list(saved.weights)
    turned = [name.replace("forward", "x").replace("backward", "forward").replace("x", "backward") for name in names]
    swapped = replace(saved, weights={name: saved.weights[other] for name, other in zip(names, turned, strict=True)})
    assert loaded_difference(swapped, replica) > 1e-3


def test_replicas_save_what_one_device_would(replica: Replicas, pair: Replicas, tmp_path: Path) -> None:
    single = saved_by(variant_of(), replica, tmp_path / "one.npz")
    double = saved_by(variant_of(), pair, tmp_path / "two.npz")
    np.testing.assert_allclose(double.outputs, single.outputs, atol=1e-6)


def test_long_sequences_are_few(replica: Replicas, tmp_path: Path) -> None:
    variant = variant_of(timesteps=2000, features=700, units=2, layers=1, batch_size=4)
    assert saved_by(variant, replica, tmp_path / "run.npz").reference.inputs.shape == (2, 2000, 700), "16 MiB at most"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"implementation": "block_fused"}, id="one direction"),
        pytest.param({"bidirectional": True}, id="both directions"),
        pytest.param({"sequence_lengths": "left_padded"}, id="padded at the start"),
        pytest.param(
            {"outputs": "all", "sequence_lengths": "right_padded", "bidirectional": True}, id="all outputs, padded"
        ),
        pytest.param({"activation": "relu"}, id="relu"),
        pytest.param({"precision": "bfloat16"}, id="bfloat16"),
    ],
)
def test_the_plain_keras_model_answers_as_the_trained_one(
    replica: Replicas, tmp_path: Path, given: dict[str, Value]
) -> None:
    from workloads.tensorflow.saving import export_model

    saved = saved_by(variant_of(**given), replica, tmp_path / "run.npz")
    difference = export_model(saved, [])
    assert difference.max_difference < (0.02 if "precision" in given else 1e-5)
    assert difference.max_output == np.abs(saved.outputs).max()


@pytest.mark.parametrize(
    ("padding", "use_cudnn"), [("fixed", "auto"), ("right_padded", "auto"), ("left_padded", False)]
)
def test_no_model_needs_cudnn(padding: str, use_cudnn: str | bool) -> None:
    """Forced, it would not load on a CPU; with padding at the start it fails on a GPU."""
    import keras

    from workloads.tensorflow.saving import plain_model

    model = plain_model(RunSpec(workload="lstm", variant=variant_of(sequence_lengths=padding, bidirectional=True)), 6)
    both = [layer for layer in model.layers if isinstance(layer, keras.layers.Bidirectional)]
    assert len(both) == 2
    assert {part.use_cudnn for layer in both for part in (layer.forward_layer, layer.backward_layer)} == {use_cudnn}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (2.0, r"more than rounding explains \(1e-05\); nothing was written"),
        (np.nan, "Not all answers are finite numbers"),
    ],
)
def test_a_model_that_answers_otherwise_is_not_written(
    replica: Replicas, tmp_path: Path, value: float, sentence: str
) -> None:
    from workloads.tensorflow.saving import export_model

    saved = saved_by(variant_of(), replica, tmp_path / "run.npz")
    changed = replace(saved, weights={**saved.weights, "head/bias": np.array([value], np.float32)})
    with pytest.raises(RefusedError, match=sentence):
        export_model(changed, [tmp_path / "model.keras"])
    assert not (tmp_path / "model.keras").exists()


def test_weights_that_cannot_be_written_fail_the_run_in_words(replica: Replicas, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    spec = RunSpec(workload="lstm", variant=variant_of(save_weights=True))
    order = Start(protocol=PROTOCOL_VERSION, spec=spec, weights_path=str(tmp_path / "taken" / "run.npz"))
    worker = Worker(order, lambda _: None, lambda: False, lambda _: None, order_ns=0, environment={})
    worker._task = build(spec, replica)
    with pytest.raises(TrainingError, match=r"could not be saved at .*run.npz .*; what was measured is kept"):
        worker._save_weights()


def test_a_place_that_cannot_be_written_is_named(
    replica: Replicas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, "before")
    saved = saved_by(variant_of(), replica, tmp_path / "run.npz")
    taken = tmp_path / "run.npz" / "model.keras"
    job = ExportModel(weights_path=str(tmp_path / "run.npz"), trained=saved.spec, model_paths=(str(taken),))
    answer = perform(job)
    assert isinstance(answer, JobFailed)
    assert str(tmp_path / "run.npz") in answer.reason
    assert "cannot be written" in answer.reason


def image_spec(**given: Value) -> RunSpec:
    sizes: dict[str, Value] = {"gpus": 0, "channels": 2, "batch_size": 8, "save_weights": True}
    return complete("cnn10", {**sizes, **given}, Machine(cpu_count=2))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's own, as it saves
def test_an_image_network_answers_the_same_everywhere_with_its_running_statistics(
    pair: Replicas, replica: Replicas, tmp_path: Path
) -> None:
    """Trained on two replicas, whose running statistics differ: the mean of both is saved."""
    from workloads.tensorflow.saving import export_model

    spec = image_spec(layout="NCHW", pooling="max", bias=True, data="stand_in", images=40, scaling="unit")
    task = build(spec, pair, stored_data(spec.variant))
    for _ in range(3):
        task.fetch(task.step())
    task.keep_weights()
    task.save_weights(spec, tmp_path / "run.npz")
    task.fetch(task.step())
    task.save_weights(spec, tmp_path / "again.npz")
    saved, again = (weights.read(tmp_path / name, spec) for name in ("run.npz", "again.npz"))
    for name, value in saved.weights.items():
        np.testing.assert_array_equal(again.weights[name], value, "what was kept, not what followed")
    assert saved.outputs.shape == (8, 10)
    assert saved.reference.inputs.max() > 1, "bytes, before scaling"
    means = [saved.weights[f"block1/norm{number}/mean"] for number in (1, 2, 3)]
    assert all(np.abs(mean).max() > 1e-3 for mean in means)
    other: dict[str, Value] = {"implementation": "keras", "layout": "NHWC"}
    assert loaded_difference(saved, replica, **other) < 1e-5
    exported = export_model(saved, [tmp_path / "net.keras", tmp_path / "served"])
    assert exported.max_difference < 1e-5
    forgotten = {name: value * 0 if name.endswith("/mean") else value for name, value in saved.weights.items()}
    with pytest.raises(RefusedError, match="nothing was written"):
        export_model(replace(saved, weights=forgotten), [])
    with pytest.raises(weights.WeightsError, match="holds weights of channels=2, and the run has channels=3"):
        weights.read(tmp_path / "run.npz", image_spec(channels=3, pooling="max", bias=True))

    import keras
    import tensorflow as tf

    served = tf.saved_model.load(str(tmp_path / "served"))
    for answers in (
        keras.saving.load_model(tmp_path / "net.keras").predict_on_batch(saved.reference.inputs),
        served.serve(saved.reference.inputs).numpy(),
    ):
        np.testing.assert_allclose(answers, saved.outputs, atol=1e-5)


def test_a_wide_network_becomes_a_plain_model_too(replica: Replicas, tmp_path: Path) -> None:
    from workloads.tensorflow.saving import export_model

    sizes: dict[str, Value] = {"gpus": 0, "depth": 10, "widen": 1, "batch_size": 8}
    saved = saved_by(complete("wrn28-10", sizes, Machine()).variant, replica, tmp_path / "run.npz", "wrn28-10")
    exported = export_model(saved, [])
    # Its outputs are above 10, and processors round differently.
    assert exported.max_difference < 2e-6 * exported.max_output
