"""What a custom workload's task tells outside of its steps: checksums of weights, different examples and outputs."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from workloads.tensorflow.recipe import Batches, Model
from workloads.tensorflow.runtime import Replicas
from workloads.training import Inspection

_MOST_NUMBERS = 4096
"""So many numbers of an example's output are compared, from all over it: of a language model it is gigabytes."""
_ROUNDING = 1e-5
"""Equal rows of a product may differ by so much in float32, as they are summed up in different order."""


def inspection_of(
    model: Model,
    answers: Callable[[Any, bool], Sequence[tf.Tensor]],
    batches: Batches,
    replicas: Replicas,
    *,
    trains: bool,
    eager_steps: Callable[[], int],
    loss: Callable[[], float],
    without_gradient: Callable[[], Sequence[str]],
) -> Inspection:
    """Return what a task can be asked, of what its steps recorded and of its model.

    Args:
        model: The model.
        answers: Returns its outputs for inputs, in training or not.
        batches: What the steps take.
        replicas: Where they run.
        trains: Whether the steps train it.
        eager_steps: As in `Inspection`, like those that follow.
        loss: The last step's.
        without_gradient: Names of weights.
    """
    return Inspection(
        eager_steps=eager_steps,
        loss=loss,
        checksums=lambda: _checksums(model),
        without_gradient=without_gradient,
        count_distinct=lambda: _count_distinct(answers, batches.take(), replicas, {False, trains}),
    )


def _checksums(model: Model) -> list[tuple[str, int]]:
    return [
        (name, zlib.crc32(np.asarray(weight.numpy()).tobytes()))
        for name, weight in zip(model.weight_names, model.weights, strict=True)
    ]


def _count_distinct(
    answers: Callable[[Any, bool], Sequence[tf.Tensor]], taken: Any, replicas: Replicas, modes: set[bool]
) -> tuple[int, int, int]:
    """Count in the first batch of the first replica, of which every step takes all there are; the fewest of modes."""
    with tf.device(replicas.devices[0]):
        inputs, _ = tf.nest.map_structure(lambda one: replicas.strategy.experimental_local_results(one)[0][0], taken)
        examples = [np.asarray(one) for one in tf.nest.flatten(inputs)]
        count = len(examples[0])
        outputs = [_count_outputs(answers(inputs, training), count) for training in modes]
    distinct = len({b"".join(row.tobytes() for row in rows) for rows in zip(*examples, strict=True)})
    return count, distinct, min(outputs)


def _count_outputs(outputs: Sequence[tf.Tensor], count: int) -> int:
    """Return how many different rows the output has that has most; of outputs with other rows than examples, all."""
    rows = [_describe_rows(one) for one in outputs if one.shape.rank and one.shape[0] == count]
    return max((1 + int(np.sum(np.diff(np.sort(one)) > _ROUNDING)) for one in rows), default=count)


def _describe_rows(output: tf.Tensor) -> NDArray[np.float64]:
    """Return a number for each row, at most 1: of rows that are alike but for rounding it is the same but for that."""
    rows = tf.reshape(output, [output.shape[0], -1])
    rows = tf.cast(rows[:, :: max(1, rows.shape[1] // _MOST_NUMBERS)], tf.float64)
    # Not their sums: those of probabilities are 1.
    numbers = np.asarray(rows) @ np.linspace(1.0, 2.0, rows.shape[1])
    return numbers / max(np.abs(numbers).max(), np.finfo(np.float64).tiny)  # type: ignore[no-any-return]
