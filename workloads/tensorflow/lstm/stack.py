"""The interface of all LSTM implementations, and their weights in one common layout.

For each layer and direction, from the first layer up, forward before backward: kernel [inputs, 4 units], recurrent
kernel [units, 4 units], bias [4 units], the gates in the order input, forget, cell, output. Then the head's kernel and
bias.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from workloads.lstm import GATES, LstmConfig, weight_shapes


class Weights(NamedTuple):
    """The weights of one direction of one layer, as variables or as tensors."""

    kernel: tf.Tensor
    recurrent: tf.Tensor
    bias: tf.Tensor


def initial_weights(config: LstmConfig) -> list[tf.Tensor]:
    """Return all weights of a model at its start, as Keras does: Glorot uniform, orthogonal, zero but 1 to forget.

    They depend on the seed and the sizes alone: made on the CPU, they are the same for every implementation and device.
    """
    named = weight_shapes(config)
    seeds = np.random.SeedSequence(config.seed).generate_state(len(named))
    with tf.device("CPU:0"):
        return [
            _initial_weight(name, shape, int(seed)) for (name, shape), seed in zip(named.items(), seeds, strict=True)
        ]


def _initial_weight(name: str, shape: tuple[int, ...], seed: int) -> tf.Tensor:
    if name == "head/bias":
        return tf.zeros(shape)
    if name.endswith("bias"):
        return tf.repeat([0.0, 1.0, 0.0, 0.0], shape[0] // GATES)
    recurrent = name.endswith("recurrent_kernel")
    make = keras.initializers.Orthogonal if recurrent else keras.initializers.GlorotUniform
    return make(seed=seed)(shape, dtype="float32")


def group_by_layer(flat: Sequence[tf.Tensor], config: LstmConfig) -> list[list[Weights]]:
    """Return a stack's weights, layer by layer, direction by direction."""
    per_direction = len(Weights._fields)
    parts = [Weights(*flat[start : start + per_direction]) for start in range(0, len(flat), per_direction)]
    return [parts[at : at + config.directions] for at in range(0, len(parts), config.directions)]


class Stack(Protocol):
    """Layers of one or two directions, computed in the type of the inputs."""

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables in the layout of `workloads.tensorflow.lstm.stack`, float32."""

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """Return the last outputs of the top layer, [batch, directions * units].

        The backward direction's last output is that of the first step in time.

        Args:
            inputs: [batch, timesteps, features].
            valid: Which steps are no padding, [batch, timesteps]; padding changes no state. None if all are true steps.
            training: Whether dropout applies.
        """


class BaseStack:
    """The base of all stacks but Keras's: their own variables in the common layout."""

    def __init__(self, config: LstmConfig, initial: Sequence[tf.Tensor]) -> None:
        self._config = config
        self._weights = [tf.Variable(value) for value in initial]

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables, layer by layer."""
        return self._weights

    def _layers(self, dtype: tf.DType) -> list[list[Weights]]:
        """Return the weights cast once to the type to compute in, layer by layer, direction by direction."""
        return group_by_layer([tf.cast(weight, dtype) for weight in self._weights], self._config)


MakeStack = Callable[[LstmConfig, Sequence[tf.Tensor]], Stack]
"""From a configuration and the stack's initial weights."""
