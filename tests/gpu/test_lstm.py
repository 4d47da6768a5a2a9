"""Every LSTM implementation on a real GPU against the standard one there: `pytest -m gpu tests/gpu/test_lstm.py`."""

import functools
from typing import Any

import numpy as np
import pytest

from tests.lstm_answers import A_GPU, Answers, answers, variant_of
from workloads.protocol import Value
from workloads.recurrent_layers import LSTM_IMPLEMENTATIONS
from workloads.tensorflow.runtime import replicas_on

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("float32_on_the_gpu")]

IMPLEMENTATIONS = [implementation.name for implementation in LSTM_IMPLEMENTATIONS]
SIZES: dict[str, Value] = {"gpus": 1, "batch_size": 16, "timesteps": 20, "units": 64}
CASES: dict[str, dict[str, Value]] = {
    "one layer": {"features": 48},
    "two layers": {"features": 64, "layers": 2},
    "two directions": {"features": 80, "layers": 2, "bidirectional": True},
    "padded at the end": {"features": 48, "layers": 2, "sequence_lengths": "right_padded"},
    "padded at the end, two directions": {
        "features": 48, "layers": 2, "bidirectional": True, "sequence_lengths": "right_padded",
    },
    "padded at the start": {"features": 48, "layers": 2, "sequence_lengths": "left_padded"},
    "all outputs": {
        "features": 48, "layers": 2, "bidirectional": True, "sequence_lengths": "right_padded", "outputs": "all",
    },
    "XLA": {"features": 48, "layers": 2, "xla": True},
}  # fmt: skip
STEPS = 100
BAND = 0.01
"""Of the standard loss: how far another implementation's may be from it, in float32 with the same seed and data."""


@functools.cache
def standard(case: str) -> Answers:
    """The standard implementation's answers on the GPU, without XLA."""
    variant = variant_of(A_GPU, **{**SIZES, **CASES[case], "implementation": "standard", "xla": False})
    assert variant is not None
    return answers(variant)


RUNS = [
    (name, case)
    for case, given in CASES.items()
    for name in IMPLEMENTATIONS
    if (name != "standard" or case == "XLA") and variant_of(A_GPU, **{**SIZES, **given, "implementation": name})
]


@pytest.mark.parametrize(("name", "case"), RUNS)
def test_outputs_loss_and_gradients_are_the_standard_ones(name: str, case: str) -> None:
    variant = variant_of(A_GPU, **{**SIZES, **CASES[case], "implementation": name})
    assert variant is not None
    answers(variant).agree(standard(case), 1e-4)


@functools.cache
def curve(name: str, xla: bool) -> list[float]:
    from workloads.tensorflow.recurrent import model
    from workloads.tensorflow.steps import build_task

    sizes: dict[str, Value] = {"gpus": 1, "units": 64, "timesteps": 20, "features": 16, "layers": 2}
    variant = variant_of(A_GPU, **sizes, implementation=name, xla=xla)
    assert variant is not None
    task = build_task(model.recipe_of("lstm")(variant), variant, replicas_on(["GPU:0"]))
    return [task.fetch(task.step()) for _ in range(STEPS)]


@pytest.mark.parametrize(
    ("name", "xla"),
    [
        (name, xla)
        for xla in (False, True)
        for name in IMPLEMENTATIONS
        if (name != "standard" or xla) and variant_of(A_GPU, gpus=1, layers=2, implementation=name, xla=xla)
    ],
)
def test_the_loss_falls_as_the_standard_one(name: str, xla: bool) -> None:
    reference = curve("standard", False)
    assert reference[-1] < 0.5 * reference[0]
    assert curve(name, xla) == pytest.approx(reference, rel=BAND)


UNITS, DROPPED = 64, 0.25


def second_layer_outputs(seed: int) -> list[np.ndarray[Any, Any]]:
    """What cuDNN's whole stack hands from its first to its second layer in three steps; nearly 0 is dropped.

    Both layers have open gates and no memory, and the identity for a kernel: outputs are tanh(tanh(inputs)).
    """
    import tensorflow as tf

    from workloads.tensorflow.recurrent import model

    given: dict[str, Value] = {**SIZES, "features": UNITS, "layers": 2, "outputs": "all", "dropout": DROPPED}
    variant = variant_of(A_GPU, **given, implementation="cudnn_stack", seed=seed)
    assert variant is not None
    net = model.recurrent_model("lstm", variant)
    identity = np.eye(UNITS, dtype=np.float32)
    kernel = np.concatenate([0 * identity, 0 * identity, identity, 0 * identity], 1)
    bias = np.repeat([20.0, -20.0, 0.0, 20.0], UNITS)
    net.set_weights([*[kernel, 0 * kernel, bias] * 2, *net.weights[-2:]])
    step = tf.function(lambda: net.stack(tf.ones([16, 20, UNITS]), None, training=True), autograph=False)
    outputs = [step().numpy() for _ in range(3)]
    without = net.stack(tf.ones([16, 20, UNITS]), None, training=False).numpy()
    np.testing.assert_allclose(without, np.tanh(np.tanh(np.tanh(np.tanh(1.0)))), atol=1e-5)
    return outputs


def test_cudnns_whole_stack_drops_between_layers_only_by_the_seed() -> None:
    first, second, third = second_layer_outputs(1)
    expected = np.tanh(np.tanh(np.tanh(np.tanh(1.0)) / (1 - DROPPED)))
    dropped = first < 1e-6  # a closed gate lets a billionth of the step before through
    np.testing.assert_allclose(first[~dropped], expected, atol=1e-5)
    assert dropped.mean() == pytest.approx(DROPPED, abs=0.02), "the first layer's inputs would add to it"
    assert (dropped != dropped[:, :1]).any(axis=1).mean() > 0.9, "another mask at each step"
    assert not np.array_equal(first, second)
    for mine, again in zip((first, second, third), second_layer_outputs(1), strict=True):
        np.testing.assert_array_equal(mine, again)
    assert not np.array_equal(first, second_layer_outputs(2)[0])
