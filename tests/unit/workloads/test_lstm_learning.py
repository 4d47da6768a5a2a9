"""Learning is real: every LSTM implementation that runs on the CPU learns to add."""

import pytest

from tests.lstm_answers import CPU, variant_of
from workloads.catalog import workload
from workloads.protocol import Value
from workloads.runtime import Replicas

SIZES: dict[str, Value] = {"gpus": 0, "units": 16, "timesteps": 6, "features": 3, "batch_size": 32, "layers": 1}
ON_CPU = [
    choice.value
    for choice in workload("lstm").parameter("implementation").choices
    if variant_of(CPU, **SIZES, implementation=choice.value)
]


@pytest.mark.parametrize("name", ON_CPU)
def test_the_adding_problem_is_learnt(one: Replicas, name: str) -> None:
    import tensorflow as tf

    from workloads.lstm import model
    from workloads.recipe import Recipe
    from workloads.steps import build_task

    variant = variant_of(CPU, **SIZES, implementation=name)
    assert variant is not None
    recipe, lstm = model.recipe(variant), model.lstm_model(variant)
    task = build_task(Recipe(model=lambda: lstm, optimizer=recipe.optimizer, batch=recipe.batch), variant, one)
    for _ in range(650):
        task.step()
    inputs, targets = recipe.batch(1000)
    guess = float(tf.math.reduce_variance(targets))
    assert float(tf.function(lstm.loss)(inputs, targets)) < 0.01 < 0.1 < guess
