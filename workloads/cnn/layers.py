"""Convolutional layers from native TensorFlow operations, in the layout asked for; Keras would transpose.

Kernels are [height, width, in, out] in both layouts, so one seed gives one set of weights.
"""

import math

import tensorflow as tf

_EPSILON = 1e-3
_MOMENTUM = 0.99


def normal(seed: int, number: int, shape: list[int], fan_in: int) -> tf.Variable:
    """A weight of He et al. 2015: normal with variance 2 / fan_in; `number` tells the weights of one seed apart."""
    return tf.Variable(tf.random.stateless_normal(shape, [seed, number]) * math.sqrt(2.0 / fan_in))


class ConvUnit:
    """3x3 convolution, batch norm, ReLU. Products in the inputs' type, statistics in float32."""

    def __init__(self, seed: int, number: int, channels_in: int, channels: int, layout: str) -> None:
        self._layout = layout
        self._kernel = normal(seed, number, [3, 3, channels_in, channels], 9 * channels_in)
        self._scale = tf.Variable(tf.ones([channels]))
        self._offset = tf.Variable(tf.zeros([channels]))
        self.mean = _statistic(tf.zeros([channels]))
        self.variance = _statistic(tf.ones([channels]))

    @property
    def weights(self) -> list[tf.Variable]:
        """The trained variables."""
        return [self._kernel, self._scale, self._offset]

    def __call__(self, images: tf.Tensor, *, training: bool) -> tf.Tensor:
        """Images of the same size with this unit's channels."""
        kernel = tf.cast(self._kernel, images.dtype)
        images = tf.nn.conv2d(images, kernel, 1, "SAME", data_format=self._layout)
        return tf.nn.relu(self._normalised(images, training=training))

    def _normalised(self, images: tf.Tensor, *, training: bool) -> tf.Tensor:
        mean = tf.zeros([0]) if training else self.mean.read_value()
        variance = tf.zeros([0]) if training else self.variance.read_value()
        result = tf.raw_ops.FusedBatchNormV3(
            x=images, scale=self._scale, offset=self._offset, mean=mean, variance=variance,
            epsilon=_EPSILON, data_format=self._layout, is_training=training,
        )  # fmt: skip
        if training:
            channels = int(self._scale.shape[0])
            self._keep(result.batch_mean, result.batch_variance, images.shape.num_elements() // channels)
        return result.y

    def _keep(self, mean: tf.Tensor, variance: tf.Tensor, count: int) -> None:
        """Move the running statistics as Keras does: with the biased variance; the operation gives N/(N-1) of it."""
        biased = variance * ((count - 1) / count)
        self.mean.assign_add((mean - self.mean.read_value()) * (1.0 - _MOMENTUM))
        self.variance.assign_add((biased - self.variance.read_value()) * (1.0 - _MOMENTUM))


def _statistic(initial: tf.Tensor) -> tf.Variable:
    """A running statistic: each replica keeps its own, a reader outside gets their mean."""
    return tf.Variable(
        initial,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.MEAN,
    )


def halved(images: tf.Tensor, layout: str) -> tf.Tensor:
    """Average pooling 2x2 with stride 2."""
    return tf.nn.avg_pool2d(images, 2, 2, "SAME", data_format=layout)


def global_mean(images: tf.Tensor, layout: str) -> tf.Tensor:
    """The mean over height and width, [batch, channels]."""
    return tf.reduce_mean(images, axis=[2, 3] if layout == "NCHW" else [1, 2])
