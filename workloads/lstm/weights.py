"""The one layout of weights that all implementations share: Keras's.

For each layer and direction, from the first layer up, forward before backward: kernel [inputs, 4 units], recurrent
kernel [units, 4 units], bias [4 units], the gates in the order input, forget, cell, output. Then the head's kernel and
bias.
"""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from workloads.lstm.config import LstmConfig
from workloads.lstm.layout import GATES, shapes


class Weights(NamedTuple):
    """Those of one direction of one layer, as variables or as tensors."""

    kernel: tf.Tensor
    recurrent: tf.Tensor
    bias: tf.Tensor


def initial_weights(config: LstmConfig) -> list[tf.Tensor]:
    """All weights of a model at its start, as Keras begins: Glorot uniform, orthogonal, zero but 1 to forget.

    They depend on the seed and the sizes alone: made on the CPU, they are the same for every implementation and device.
    """
    named = shapes(config)
    seeds = np.random.SeedSequence(config.seed).generate_state(len(named))
    with tf.device("CPU:0"):
        return [_initial(name, shape, int(seed)) for (name, shape), seed in zip(named.items(), seeds, strict=True)]


def _initial(name: str, shape: tuple[int, ...], seed: int) -> tf.Tensor:
    if name == "head/bias":
        return tf.zeros(shape)
    if name.endswith("bias"):
        return tf.repeat([0.0, 1.0, 0.0, 0.0], shape[0] // GATES)
    recurrent = name.endswith("recurrent_kernel")
    make = keras.initializers.Orthogonal if recurrent else keras.initializers.GlorotUniform
    return make(seed=seed)(shape, dtype="float32")


def by_layer(flat: Sequence[tf.Tensor], config: LstmConfig) -> list[list[Weights]]:
    """A stack's weights, layer by layer, direction by direction."""
    a_direction = len(Weights._fields)
    parts = [Weights(*flat[at : at + a_direction]) for at in range(0, len(flat), a_direction)]
    return [parts[at : at + config.directions] for at in range(0, len(parts), config.directions)]
