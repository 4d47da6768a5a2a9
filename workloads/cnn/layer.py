"""What an implementation gives for each layer of a network."""

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from workloads.cnn import nets


class Layer(Protocol):
    """Variables, and what they make of images."""

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables, in the order of `nets.shapes`."""

    def __call__(self, images: tf.Tensor, training: bool, /) -> tf.Tensor:
        """Images in the layout of the layer, or features [batch, channels] once they are pooled over all pixels."""


MakeLayer = Callable[[nets.Layer, Sequence[tf.Tensor], str], Layer]
"""A layer from its description, its initial weights and the layout, NCHW or NHWC."""
