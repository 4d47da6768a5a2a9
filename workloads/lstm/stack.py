"""What every implementation of the LSTM layers presents to the model."""

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from workloads.lstm.config import LstmConfig
from workloads.lstm.weights import Weights, by_layer


class Stack(Protocol):
    """Layers of one or two directions, computed in the type of the inputs."""

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables in the layout of `workloads.lstm.weights`, float32."""

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """The last outputs of the top layer, [batch, directions * units], of inputs [batch, timesteps, features].

        `valid` [batch, timesteps] tells true steps from padding, which changes no state. The backward direction's last
        output is that of the first step in time.
        """


class OwnStack:
    """What the stacks that are not Keras's share: variables of their own in the one layout of weights."""

    def __init__(self, config: LstmConfig, initial: Sequence[tf.Tensor]) -> None:
        self._config = config
        self._weights = [tf.Variable(value) for value in initial]

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables, layer by layer."""
        return self._weights

    def _layers(self, dtype: tf.DType) -> list[list[Weights]]:
        """The weights cast once to the type to compute in, layer by layer, direction by direction."""
        return by_layer([tf.cast(weight, dtype) for weight in self._weights], self._config)


MakeStack = Callable[[LstmConfig, Sequence[tf.Tensor]], Stack]
"""From a configuration and the stack's initial weights."""
