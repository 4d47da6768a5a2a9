"""Every LSTM implementation that runs on the CPU against the standard one: outputs, loss and all gradients."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.fakes.tensorflow import precision_of
from tests.lstm_answers import CPU, Answers, answers, random_model, variant_of
from tests.present import present
from workloads.catalog import complete
from workloads.protocol import Value, Variant
from workloads.recurrent import weight_shapes
from workloads.recurrent_layers import LSTM_IMPLEMENTATIONS as TABLE
from workloads.recurrent_layers import RECURRENT_LAYERS, LstmConfig, config_of
from workloads.seeding import recurrent_weights

pytestmark = pytest.mark.usefixtures("unoptimized")
IMPLEMENTATIONS = [each.name for each in TABLE]
ON_CPU = [each.name for each in TABLE if "gpus" not in {limit.parameter for limit in each.limits}]
OTHERS = [name for name in ON_CPU if name != "standard"]
SIZES: dict[str, Value] = {"gpus": 0, "batch_size": 4, "timesteps": 5}
SMALL: dict[str, Value] = {"layers": 2, "units": 4, "features": 3, "timesteps": 3}


@dataclass(frozen=True)
class Case:
    """What is asked of implementations, and how near they must come to the standard one in float32 without XLA.

    Tracing takes five times as long as the operations: one layer shows it of each implementation.
    """

    given: Mapping[str, Value]
    names: Sequence[str]
    tolerance: float = 1e-5
    traced: bool = True

    def variant(self, **more: Value) -> Variant | None:
        return variant_of(CPU, **{**SIZES, **self.given, **more})


BOTH_WAYS: dict[str, Value] = {"layers": 2, "bidirectional": True}
CASES = {
    "one layer": Case({"units": 5, "features": 3}, OTHERS),
    "two directions": Case(
        {**BOTH_WAYS, "units": 4, "features": 4}, [name for name in OTHERS if name != "auto"], traced=False
    ),
    "padded at the start": Case(
        {"layers": 3, "units": 4, "features": 6, "sequence_lengths": "left_padded"},
        ["gemm2", "pretransposed", "wavefront"],
    ),
    "padded at the start, two directions": Case(
        {**BOTH_WAYS, **SMALL, "sequence_lengths": "left_padded"}, ["block_fused"]
    ),
    "padded at the end": Case(
        {**BOTH_WAYS, "units": 3, "features": 5, "sequence_lengths": "right_padded"},
        ["gemm2", "pretransposed", "block_fused", "block_cell"],
        traced=False,
    ),
    "padded at the end, one direction": Case(
        {"layers": 2, "units": 4, "features": 3, "sequence_lengths": "right_padded"}, ["wavefront"], traced=False
    ),
    "all outputs, padded at the start": Case(
        {"layers": 2, "units": 4, "features": 6, "sequence_lengths": "left_padded", "outputs": "all"},
        ["combined_input", "wavefront", "block_cell", "block_fused"],
        traced=False,
    ),
    "all outputs, padded at the end": Case(
        {**BOTH_WAYS, "units": 3, "features": 5, "sequence_lengths": "right_padded", "outputs": "all"},
        ["pretransposed", "block_fused"],
        traced=False,
    ),
    "several steps per iteration": Case(
        {"layers": 2, "units": 3, "features": 3, "timesteps": 7, "unroll": 3, "sequence_lengths": "left_padded"},
        ["gemm2", "combined_input", "wavefront"],
        traced=False,
    ),
    "several steps per input product": Case(
        {"layers": 2, "units": 3, "features": 4, "timesteps": 7, "input_steps": 3, "sequence_lengths": "left_padded"},
        ["combined_input"],
    ),
    "two directions, several steps per iteration": Case(
        {**BOTH_WAYS, **SMALL, "timesteps": 5, "unroll": 3}, ["pretransposed"]
    ),
    "XLA": Case({**SMALL, "layers": 1, "xla": True}, [name for name in ON_CPU if name != "auto"]),
    "XLA, two layers, all outputs": Case({**SMALL, "xla": True, "outputs": "all"}, ["wavefront"]),
    "XLA, two directions, several steps per iteration": Case(
        {**SMALL, **BOTH_WAYS, "layers": 1, "timesteps": 5, "unroll": 2, "xla": True}, ["combined_input"]
    ),
    "XLA, several waves per iteration": Case({**SMALL, "timesteps": 4, "unroll": 2, "xla": True}, ["wavefront"]),
    "float16": Case({**SMALL, "precision": "float16"}, ["block_fused", "block_cell", "wavefront"], 5e-3, traced=False),
    "bfloat16": Case({**SMALL, "precision": "bfloat16"}, ["standard", "combined_input"], 4e-2, traced=False),
}
RUNS = [(name, case) for case in CASES for name in CASES[case].names if CASES[case].variant(implementation=name)]


@functools.cache
def standard(case: str) -> Answers:
    """The standard implementation's answers, in float32 and without XLA whatever the case says."""
    variant = present(CASES[case].variant(xla=False, precision="float32", unroll=1, input_steps=0))
    found = answers(variant, traced=False)
    assert all(np.abs(gradient).max() > 5e-3 for gradient in found.gradients), "so that a comparison says something"
    return found


@pytest.mark.parametrize(("name", "case"), RUNS)
def test_outputs_loss_and_gradients_are_the_standard_ones(name: str, case: str) -> None:
    variant = present(CASES[case].variant(implementation=name))
    reference = standard(case)
    with precision_of(variant["precision"]):
        answers(variant, traced=CASES[case].traced).agree(reference, CASES[case].tolerance)


def test_every_implementation_that_runs_on_the_cpu_is_compared() -> None:
    """`auto` is the standard code here, so that one comparison of it says all."""
    assert {name for name, _ in RUNS} == {name for name in IMPLEMENTATIONS if Case({}, []).variant(implementation=name)}
    assert {name for name, case in RUNS if case == "two directions"} == set(OTHERS) - {"auto", "wavefront"}
    assert {name for name, case in RUNS if case == "XLA"} == set(ON_CPU) - {"auto", "block_fused", "block_cell"}


def test_every_implementation_has_a_stack() -> None:
    from workloads.tensorflow.recurrent.model import STACKS

    tables = {name: {each.name for each in layer.implementations} for name, layer in RECURRENT_LAYERS.items()}
    assert {name: set(stacks) for name, stacks in STACKS.items()} == tables


def test_a_block_cell_clips_no_state() -> None:
    """The operation limits a cell to 3 unless it is told not to."""
    import tensorflow as tf

    variant = present(Case({"units": 2, "features": 2, "timesteps": 8}, []).variant(implementation="block_cell"))
    lstm = random_model(variant)
    kernel, recurrent, bias = (tf.zeros_like(weight.value()) for weight in lstm.weights[:3])
    lstm.set_weights([kernel, recurrent, bias + 5.0, *lstm.weights[3:]])
    outputs = lstm.stack(tf.zeros([1, 8, 2]), None, training=False)
    assert outputs.numpy().min() > 0.994 * np.tanh(3), "sigmoid(5) times the clipped cell is less"


@pytest.mark.parametrize(
    ("workload", "name"),
    [(workload, each.name) for workload, layer in RECURRENT_LAYERS.items() for each in layer.implementations],
)
def test_one_seed_gives_every_implementation_the_same_weights(workload: str, name: str) -> None:
    from workloads.tensorflow.recurrent import model

    given: dict[str, Value] = {"units": 3, "features": 2, "layers": 2, "implementation": name}
    variant = complete(workload, {**given, "bidirectional": name != "wavefront"}, CPU).variant
    weights = model.recurrent_model(workload, variant).weights
    assert [tuple(weight.shape) for weight in weights] == list(weight_shapes(config_of(workload, variant)).values())
    for weight, value in zip(weights, recurrent_weights(config_of(workload, variant)), strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    other = model.recurrent_model(workload, {**variant, "seed": 2}).weights
    assert not np.array_equal(weights[0].numpy(), other[0].numpy())


def test_the_weights_begin_as_kerass_do() -> None:
    kernel, recurrent, bias, head, head_bias = recurrent_weights(LstmConfig(layers=1, units=8, features=4))
    limit = np.sqrt(6 / (4 + 32))
    assert 0.8 * limit < np.abs(kernel).max() <= limit
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(8), atol=1e-5)
    np.testing.assert_array_equal(bias, np.repeat([0, 1, 0, 0], 8))
    assert head.shape == (8, 1)
    assert head_bias == [0]
