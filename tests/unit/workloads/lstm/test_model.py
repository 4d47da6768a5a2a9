"""The LSTM workload: the adding problem, both directions, and that every implementation learns."""

import numpy as np
import pytest

from tests.lstm_answers import CPU, variant_of
from tests.present import present
from workloads.catalog import Machine, complete
from workloads.protocol import Value
from workloads.seeding import adding_problem
from workloads.tensorflow.runtime import Replicas


def test_adding_problem() -> None:
    inputs, targets = adding_problem(1, 0, 4000, 9, 5)
    assert inputs.shape == (4000, 9, 5)
    marks = inputs[..., 1]
    assert (marks[:, :4].sum(axis=1) == 1).all()
    assert (marks[:, 4:].sum(axis=1) == 1).all()
    np.testing.assert_allclose(targets[:, 0], (inputs[..., 0] * marks).sum(axis=1), rtol=1e-6)
    assert targets.var() == pytest.approx(1 / 6, rel=0.06)
    assert np.abs(inputs[..., 2:]).max() < 0.1
    assert not np.array_equal(inputs, adding_problem(1, 1, 4000, 9, 5)[0])
    np.testing.assert_array_equal(inputs, adding_problem(1, 0, 4000, 9, 5)[0])


@pytest.mark.parametrize("padding", ["left_padded", "right_padded"])
def test_sequences_of_different_lengths(padding: str) -> None:
    (sequences, lengths), targets = adding_problem(1, 0, 2000, 9, 5, padding)
    assert set(lengths) == set(range(4, 10)), "from half of the time steps to all of them"
    positions = np.arange(9) - (9 - lengths if padding == "left_padded" else 0 * lengths)[:, np.newaxis]
    valid = (positions >= 0) & (positions < lengths[:, np.newaxis])
    assert (sequences[~valid] == 0).all()
    assert (sequences[valid][:, 2:] != 0).all()
    marks = sequences[..., 1]
    first_half = positions < lengths[:, np.newaxis] // 2
    assert ((marks * first_half).sum(axis=1) == 1).all()
    assert ((marks * ~first_half).sum(axis=1) == 1).all()
    np.testing.assert_allclose(targets[:, 0], (sequences[..., 0] * marks).sum(axis=1), rtol=1e-6)


def test_the_sum_so_far_is_asked_for_at_every_step() -> None:
    (sequences, _), sums = adding_problem(1, 0, 50, 9, 5, "left_padded")
    _, running = adding_problem(1, 0, 50, 9, 5, "left_padded", running=True)
    assert running.shape == (50, 9, 1)
    np.testing.assert_allclose(running[..., 0], (sequences[..., 0] * sequences[..., 1]).cumsum(1), rtol=1e-6)
    np.testing.assert_allclose(running[:, -1], sums, rtol=1e-6)


def test_two_features_are_enough() -> None:
    assert adding_problem(1, 0, 2, 2, 2)[0].shape == (2, 2, 2)


@pytest.mark.parametrize(("implementation", "use_cudnn"), [("standard", False), ("cudnn", True), ("auto", "auto")])
def test_every_direction_is_the_implementation_asked_for(implementation: str, use_cudnn: bool | str) -> None:
    from workloads.tensorflow.recurrent import model
    from workloads.tensorflow.recurrent.model import KerasStack

    given = {"gpus": 0, "units": 3, "timesteps": 4, "features": 2, "layers": 2, "bidirectional": True}
    variant = complete("lstm", {**given, "implementation": implementation}, Machine()).variant
    lstm = model.recipe_of("lstm")(variant).model()
    assert isinstance(lstm, model.RecurrentModel)
    assert isinstance(lstm.stack, KerasStack)
    layers = [layer for directions in lstm.stack.layers for layer in directions]
    assert len(layers) == 4
    assert all(layer.use_cudnn == use_cudnn for layer in layers)


SIZES: dict[str, Value] = {"gpus": 0, "units": 16, "timesteps": 6, "features": 3, "batch_size": 32, "layers": 1}


@pytest.mark.parametrize(("name", "outputs"), [("standard", "last"), ("block_fused", "all")])
def test_the_adding_problem_is_learnt(replica: Replicas, name: str, outputs: str) -> None:
    """One with TensorFlow's gradient and one with its own; the others compute the same, as other tests show."""
    import tensorflow as tf

    from workloads.tensorflow.recipe import Recipe
    from workloads.tensorflow.recurrent import model
    from workloads.tensorflow.steps import build_task

    variant = present(variant_of(CPU, **SIZES, implementation=name, outputs=outputs))
    recipe, lstm = model.recipe_of("lstm")(variant), model.recurrent_model("lstm", variant)
    task = build_task(Recipe(model=lambda: lstm, optimizer=recipe.optimizer, batch=recipe.batch), variant, replica)
    for _ in range(650):
        task.step()
    inputs, targets = recipe.batch(1000)
    guess = float(tf.math.reduce_variance(targets))
    assert float(tf.function(lstm.loss)(inputs, targets)) < 0.01 < 0.1 < guess
