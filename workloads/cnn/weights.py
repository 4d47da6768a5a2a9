"""The initial weights of a network: the same for a seed in every layout and implementation.

Convolution kernels are [height, width, in, out] in both layouts.
"""

import math
from collections.abc import Iterator

import tensorflow as tf

from workloads.cnn.nets import Conv, Dense, Layer, Net, Norm, leaves, shapes


def initial_weights(net: Net, seed: int) -> Iterator[tuple[Layer, list[tf.Tensor]]]:
    """Each layer with the values of its weights, in the order of `nets.shapes`.

    Kernels are those of He et al. 2015: normal with variance 2 / fan_in; scales are 1, offsets and biases 0.
    """
    kernels = 0
    for layer in leaves(net):
        values = [tf.zeros(shape) for shape in shapes(layer)]
        if isinstance(layer, Conv | Dense):
            values[0] = _normal(seed, kernels, values[0].shape)
            kernels += 1
        if isinstance(layer, Norm):
            values[0] = tf.ones_like(values[0])
        yield layer, values


def _normal(seed: int, number: int, shape: tf.TensorShape) -> tf.Tensor:
    """`number` tells the kernels of one seed apart."""
    return tf.random.stateless_normal(shape, [seed, number]) * math.sqrt(2.0 / math.prod(shape[:-1]))
