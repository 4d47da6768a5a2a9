"""Dropout: one mask a sequence for all its steps, the mean kept, none in inference, and dropped in the right places."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.lstm_answers import A_GPU, CPU, Answers, batch_of, random_model, variant_of
from tests.numerics import GOAL, Row, cases, error_of, reference, rows, worst_error
from tests.present import present
from workloads.protocol import Value
from workloads.recurrent_layers import RECURRENT_LAYERS, LstmConfig
from workloads.seeding import recurrent_weights
from workloads.tensorflow.runtime import Replicas

pytestmark = pytest.mark.usefixtures("unoptimized")
SIZES: dict[str, Value] = {"gpus": 0, "batch_size": 4, "timesteps": 5, "layers": 2, "units": 4, "features": 3}
RATES = ["dropout", "recurrent_dropout"]
STEPS, BATCH, WIDTH = 6, 300, 16


def cell_inputs(**rates: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a cell reads of inputs and earlier outputs of ones in training, each [timesteps, batch, width]."""
    import tensorflow as tf

    from workloads.tensorflow.recurrent.loop import Cell, LoopStack, State, Weights

    inputs: list[np.ndarray[Any, Any]] = []
    outputs: list[np.ndarray[Any, Any]] = []

    def step(given: tf.Tensor, state: State) -> State:
        inputs.append(given.numpy())
        outputs.append(state[0].numpy())
        return tf.ones_like(state[0]), state[1]

    def cell(weights: Weights) -> Cell:
        return Cell(step)

    config = LstmConfig(layers=1, units=WIDTH, features=WIDTH, **rates)  # type: ignore[arg-type]
    stack = LoopStack(config, recurrent_weights(config)[:-2], cell)
    stack(tf.ones([BATCH, STEPS, WIDTH]), None, training=True)
    return np.stack(inputs), np.stack(outputs[1:])


@pytest.mark.parametrize("name", RATES)
def test_a_mask_is_one_sequences_at_all_its_steps(name: str) -> None:
    inputs, outputs = cell_inputs(**{name: 0.25})
    masked, untouched = (inputs, outputs) if name == "dropout" else (outputs, inputs)
    assert (untouched == 1).all()
    assert set(np.unique(masked)) == {0.0, np.float32(1 / 0.75)}
    assert (masked == masked[0]).all(), "the same at every step"
    assert len(np.unique(masked[0], axis=0)) > 200, "another for each sequence"
    assert masked.mean() == pytest.approx(1.0, abs=0.05)


@functools.cache
def losses(name: str, **given: Value) -> tuple[list[float], Any]:
    """Three training losses of one batch and its outputs in inference."""
    import tensorflow as tf

    variant = present(variant_of(CPU, **SIZES, implementation=name, **given))
    lstm, (inputs, targets) = random_model(variant), batch_of(variant)
    loss = tf.function(lstm.loss, autograph=False)
    return [float(loss(inputs, targets)) for _ in range(3)], lstm.outputs(inputs).numpy()


@pytest.mark.parametrize(
    ("name", "rate"),
    [("standard", "dropout"), ("standard", "recurrent_dropout"), ("gemm2", "dropout"), ("wavefront", "dropout"),
     ("gemm2", "recurrent_dropout"), ("wavefront", "recurrent_dropout"), ("block_fused", "dropout")],
)  # fmt: skip
def test_every_training_step_draws_anew_and_inference_does_not(name: str, rate: str) -> None:
    without, outputs = losses(name)
    assert len(set(without)) == 1
    drawn, same = losses(name, **{rate: 0.5})
    assert len({*drawn, *without}) == 4
    np.testing.assert_allclose(outputs, same, atol=1e-6)


def test_cudnn_is_asked_to_drop_in_training_alone_by_the_seed_and_by_another_on_each_replica(pair: Replicas) -> None:
    """TensorFlow makes the graph of cuDNN's operation and of its gradient without a GPU, with what they are asked."""
    import tensorflow as tf

    from workloads.tensorflow.recurrent import model

    given = present(variant_of(A_GPU, **{**SIZES, "gpus": 1}, implementation="cudnn_stack", dropout=0.25, seed=7))
    with pair.strategy.scope():
        lstm = model.recurrent_model("lstm", given)
    inputs, targets = batch_of(given)

    def replica() -> Any:
        with tf.GradientTape() as tape:
            loss = lstm.loss(inputs, targets)
        return tape.gradient(loss, list(lstm.stack.weights)[:1]), lstm.outputs(inputs)

    graph = tf.function(lambda: pair.strategy.run(replica), autograph=False).get_concrete_function().graph
    calls = [op for op in graph.get_operations() if op.type.startswith("CudnnRNN")]
    kinds = {"train": "CudnnRNNBackpropV3", "inference": "CudnnRNNV3"}
    asked = {
        kind: {
            (round(op.get_attr("dropout"), 2), op.get_attr("seed"), op.get_attr("seed2"))
            for op in calls
            if op.type == name and (kind == "train" or not op.get_attr("is_training"))
        }
        for kind, name in kinds.items()
    }
    assert asked == {"train": {(0.25, 7, 0), (0.25, 7, 1)}, "inference": {(0.0, 7, 0), (0.0, 7, 1)}}


ON_CPU = [
    row
    for name in RECURRENT_LAYERS
    for row in rows([name])
    if row.workload == name and not row.xla and row.implementation != "auto"
]
CASES: dict[str, Mapping[str, Value]] = {title: given for title, given in cases("lstm").items() if "dropout" in title}


@functools.cache
def expected(workload: str, case: str) -> Answers:
    """What an implementation in numpy answers, and that dropping is no small part of it."""
    given = present(Row(workload, "standard", xla=False).variant(CASES[case], gpu=False))
    found = reference(workload, given)
    undropped = reference(workload, {**given, "dropout": 0.0, "recurrent_dropout": 0.0})
    assert worst_error(undropped, found) > 1000 * GOAL
    np.testing.assert_array_equal(undropped.outputs, found.outputs, "inference drops nothing")
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("row", ON_CPU, ids=lambda row: f"{row.workload} {row.implementation}")
def test_what_is_dropped_is_dropped_where_an_independent_one_drops_it(row: Row, case: str) -> None:
    """In place of random masks stands a pattern of sequence and feature."""
    if given := row.variant(CASES[case], gpu=False):
        assert error_of(given, row.workload, expected(row.workload, case), traced=False) < GOAL


def test_every_implementation_that_can_drop_here_is_compared() -> None:
    compared = {(row.workload, row.implementation) for row in ON_CPU if row.variant(CASES["dropout"], gpu=False)}
    tables = {(name, each.name) for name, layer in RECURRENT_LAYERS.items() for each in layer.implementations}
    not_here = ("auto", "cudnn", "cudnn_stack")
    assert tables - compared == {(name, other) for name in RECURRENT_LAYERS for other in not_here}
