"""Layers from TensorFlow's own operations, each in the layout asked for.

Products are computed in the type of the images, statistics and the dense head in float32.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from workloads.cnn import nets
from workloads.cnn.layer import Layer
from workloads.replicated import per_replica

_EPSILON = 1e-3
_MOMENTUM = 0.99


def layer(spec: nets.Layer, initial: Sequence[tf.Tensor], layout: str) -> Layer:
    """The layer of a description with its initial weights."""
    match spec:
        case nets.Conv():
            return _Conv(spec, initial, layout)
        case nets.Norm():
            return BatchNorm(initial, layout)
        case nets.Dense():
            return _Dense(initial)
        case nets.Pool():
            return Function(lambda images: tf.nn.avg_pool2d(images, 2, 2, "SAME", data_format=layout))
        case nets.GlobalPool():
            return Function(lambda images: tf.reduce_mean(images, axis=[2, 3] if layout == "NCHW" else [1, 2]))
        case nets.Relu():
            return Function(tf.nn.relu)


class Function:
    """A layer without weights."""

    weights: Sequence[tf.Variable] = ()

    def __init__(self, function: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self._function = function

    def __call__(self, images: tf.Tensor, _training: bool, /) -> tf.Tensor:
        """What the function makes of the images, the same in training and out of it."""
        return self._function(images)


class _Conv:
    def __init__(self, spec: nets.Conv, initial: Sequence[tf.Tensor], layout: str) -> None:
        self.weights = [tf.Variable(value) for value in initial]
        self._stride = spec.stride
        self._layout = layout

    def __call__(self, images: tf.Tensor, _training: bool, /) -> tf.Tensor:
        kernel = tf.cast(self.weights[0], images.dtype)
        return tf.nn.conv2d(images, kernel, self._stride, "SAME", data_format=self._layout)


class _Dense:
    def __init__(self, initial: Sequence[tf.Tensor]) -> None:
        self.weights = [tf.Variable(value) for value in initial]

    def __call__(self, images: tf.Tensor, _training: bool, /) -> tf.Tensor:
        kernel, bias = self.weights
        return tf.matmul(tf.cast(images, tf.float32), kernel) + bias


class BatchNorm:
    """Batch norm with running statistics as Keras keeps them: of the biased variance, with momentum 0.99.

    One operation normalises and moves the statistics. It takes the variance times N / (N - 1), for N values a channel,
    so the running variance goes in with that factor and comes out without it.
    """

    def __init__(self, initial: Sequence[tf.Tensor], layout: str) -> None:
        self.weights = [tf.Variable(value) for value in initial]
        self.mean = per_replica(tf.zeros_like(initial[0]))
        self.variance = per_replica(tf.ones_like(initial[0]))
        self._layout = layout

    def __call__(self, images: tf.Tensor, training: bool, /) -> tf.Tensor:
        """Normalised by the batch's own statistics in training, by the running ones otherwise."""
        if not training:
            return self._fused(images, self.variance.read_value(), training=False).y
        count = images.shape.num_elements() // int(self.weights[0].shape[0])
        result = self._fused(images, self.variance.read_value() * (count / (count - 1)), training=True)
        self.mean.assign(result.batch_mean, read_value=False)
        self.variance.assign(result.batch_variance * ((count - 1) / count), read_value=False)
        return result.y

    def _fused(self, images: tf.Tensor, variance: tf.Tensor, *, training: bool) -> Any:
        scale, offset = self.weights
        return tf.raw_ops.FusedBatchNormV3(
            x=images, scale=scale, offset=offset, mean=self.mean.read_value(), variance=variance, epsilon=_EPSILON,
            exponential_avg_factor=1.0 - _MOMENTUM, data_format=self._layout, is_training=training,
        )  # fmt: skip
