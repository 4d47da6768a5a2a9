"""The native layers as XLA compiles them best: pooling as a plain mean, which it fuses with its neighbours.

A mean's gradient is a broadcast, computed where it is used; that of `avg_pool2d` is a windowed sum over padded images,
a kernel of its own (measured: docs/measurements/2026-11-21-cnn.md).
"""

from collections.abc import Sequence

import tensorflow as tf

from workloads.cnn import native, nets
from workloads.cnn.layer import Layer


def layer(spec: nets.Layer, initial: Sequence[tf.Tensor], layout: str) -> Layer:
    """The layer of a description with its initial weights."""
    if isinstance(spec, nets.Pool):
        return native.Function(lambda images: _pooled(images, layout))
    return native.layer(spec, initial, layout)


def _pooled(images: tf.Tensor, layout: str) -> tf.Tensor:
    """Means of 2x2 pixels, of images with an even height and width."""
    if layout == "NCHW":
        n, c, h, w = images.shape
        return tf.reduce_mean(tf.reshape(images, [n, c, h // 2, 2, w // 2, 2]), axis=[3, 5])
    n, h, w, c = images.shape
    return tf.reduce_mean(tf.reshape(images, [n, h // 2, 2, w // 2, 2, c]), axis=[2, 4])
