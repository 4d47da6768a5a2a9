"""What every implementation of the LSTM layers presents to the model."""

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from workloads.lstm.config import LstmConfig


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


MakeStack = Callable[[LstmConfig, Sequence[tf.Tensor]], Stack]
"""From a configuration and the stack's initial weights."""
