"""The learning rate from the first step to the last: as its formula says, on every replica, skipped steps included."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from workloads.catalog import Machine, complete
from workloads.image_training import Schedule
from workloads.protocol import Value
from workloads.tensorflow.runtime import Replicas
from workloads.training import planned_steps

STEPS, PEAK, DECAY = 10, 0.2, 0.1
RATES: dict[str, Callable[[float], float]] = {
    "cosine": lambda share: PEAK * (1 + math.cos(math.pi * share)) / 2,
    "one_cycle": lambda share: PEAK * (share / 0.3 if share < 0.3 else (1 - share) / 0.7),
}


def expected(kind: str, start: float, gradients: list[float], decay: float) -> list[float]:
    """The weight after each step, in float64; a gradient of NaN is a step that float16 skips."""
    weight, total, found = start, 0.0, []
    for number, gradient in enumerate(gradients):
        rate = RATES[kind]((number + 0.5) / STEPS) if number < STEPS else 0.0
        if not math.isnan(gradient):
            total = 0.9 * total + gradient + decay * weight
            weight -= rate * total
        found.append(weight)
    return found


@pytest.mark.parametrize("kind", ["cosine", "one_cycle"])
@pytest.mark.parametrize(("xla", "count"), [(False, 2), (True, 1)])
def test_every_step_has_its_rate_and_kernels_decay(
    kind: Any, xla: bool, count: int, replica: Replicas, pair: Replicas
) -> None:
    import tensorflow as tf

    from workloads.tensorflow.optimizers import LossScale, Momentum
    from workloads.tensorflow.recipe import compile_function

    replicas = pair if count == 2 else replica
    with replicas.strategy.scope():
        weights = [tf.Variable([[1.5]]), tf.Variable([1.5])]
        schedule = Schedule(kind=kind, peak=PEAK, steps=STEPS)
        optimizer = LossScale(Momentum(weights, schedule, DECAY), initial=8.0)

    def step(gradient: Any) -> None:
        scaled = [8.0 * gradient * tf.ones(weight.shape) for weight in weights]
        replicas.strategy.run(optimizer.apply, (scaled, tf.constant(1.0)))

    run = compile_function(step, xla=xla)
    gradients = [1.0, -0.5, 2.0, 0.25, -1.0, 1.0, 1.0, -2.0, 0.5, 1.0, 3.0, 1.0]
    found = []
    for gradient in gradients:
        run(tf.constant(gradient))
        found.append([float(tf.reshape(weight.read_value(), [])) for weight in weights])
    wanted = [expected(kind, 1.5, gradients, decay) for decay in (DECAY, 0.0)]
    np.testing.assert_allclose(np.transpose(found), wanted, rtol=1e-5, atol=1e-6)
    assert found[-1] == found[STEPS - 1], "after the last step nothing changes"


def test_a_skipped_step_counts(replica: Replicas) -> None:
    import tensorflow as tf

    from workloads.tensorflow.optimizers import LossScale, Momentum

    weight = tf.Variable([[1.5]])
    optimizer = LossScale(Momentum([weight], Schedule(kind="cosine", peak=PEAK, steps=STEPS), DECAY), initial=1.0)
    gradients = [1.0, math.nan, 2.0, 1.0]
    found = []
    for gradient in gradients:
        optimizer.apply([tf.constant([[gradient]])], tf.constant(1.0))
        found.append(float(weight[0, 0]))
    np.testing.assert_allclose(found, expected("cosine", 1.5, gradients, DECAY), rtol=1e-5)


def spec_of(**given: Value) -> Any:
    settings: dict[str, Value] = {"gpus": 0, "channels": 4, "batch_size": 50, "images": 1_000, "data": "stand_in"}
    return complete("cnn10", {**settings, **given}, Machine(cpu_count=2))


def test_the_planned_steps_end_with_the_last_measured_one() -> None:
    assert planned_steps(spec_of(epochs=4).variant, 1_000) == 1 + 4 * 20
    assert planned_steps(spec_of(steps=7, warmup_steps=3).variant, 1_000) == 1 + 3 + 7
    assert planned_steps(spec_of().variant, 1_000) == 0
