"""The layers of the image networks in two implementations: TensorFlow's own operations, and Keras layers.

Products are computed in the type of the images, statistics and the dense head in float32.

With XLA the native layers average by a plain mean, which XLA fuses with its neighbours: a mean's gradient is a
broadcast, while that of `avg_pool2d` is a windowed sum over padded images in a separate kernel
(docs/internals/measurements/2026-11-21-cnn.md). A plain maximum cannot replace `max_pool2d`: it divides its gradient
among equal values, which are common in 16 bits, while `max_pool2d` passes it to the first.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from workloads import cnn
from workloads.cnn import NORM_EPSILON, NORM_MOMENTUM
from workloads.tensorflow.recipe import per_replica_variable


class Layer(Protocol):
    """A layer: its variables, and the function they are part of."""

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables, in the order of `cnn.weight_shapes`."""

    @property
    def statistics(self) -> Sequence[tf.Variable]:
        """Return what inference reads besides the weights: for batch norm the running mean and variance."""

    def __call__(self, images: tf.Tensor, training: bool, /) -> tf.Tensor:
        """Return images in the layer's layout, or features [batch, channels] once they are pooled over all pixels."""


MakeLayer = Callable[[cnn.Layer, Sequence[tf.Tensor], str], Layer]
"""Creates a layer from its description, its initial weights and the layout, NCHW or NHWC."""


_DATA_FORMATS = {"NCHW": "channels_first", "NHWC": "channels_last"}


def keras_layer(spec: cnn.Layer, initial: Sequence[tf.Tensor], layout: str) -> Layer:
    """Return the Keras layer of a description.

    The initial weights are in the order of `cnn.weight_shapes`; the layout is NCHW or NHWC.
    """
    layer = create_keras_layer(spec, layout)
    if isinstance(spec, cnn.Conv | cnn.Norm | cnn.Dense):
        layer.build(_input_shape(spec, layout))
    for variable, value in zip(layer.trainable_variables, initial, strict=True):
        variable.assign(value)
    return _KerasLayer(layer)


def create_keras_layer(spec: cnn.Layer, layout: str) -> keras.Layer:
    """Return the Keras layer without weights; the head is in float32, as Keras's mixed-precision guide recommends."""
    data_format = _DATA_FORMATS[layout]
    match spec:
        case cnn.Conv():
            return keras.layers.Conv2D(
                spec.channels, spec.kernel, spec.stride, "same", data_format=data_format, use_bias=spec.bias
            )
        case cnn.Norm():
            return keras.layers.BatchNormalization(axis=_channels_axis(layout))
        case cnn.Relu():
            return keras.layers.ReLU()
        case cnn.Pool(method="max"):
            return keras.layers.MaxPooling2D(2, data_format=data_format)
        case cnn.Pool():
            return keras.layers.AveragePooling2D(2, data_format=data_format)
        case cnn.GlobalPool():
            return keras.layers.GlobalAveragePooling2D(data_format=data_format)
        case cnn.Dense():
            return keras.layers.Dense(spec.channels, dtype="float32")


def _channels_axis(layout: str) -> int:
    return 1 if layout == "NCHW" else -1


def _input_shape(spec: cnn.Conv | cnn.Norm | cnn.Dense, layout: str) -> list[int | None]:
    if isinstance(spec, cnn.Dense):
        return [None, spec.channels_in]
    shape: list[int | None] = [None] * 4
    shape[_channels_axis(layout)] = spec.channels_in if isinstance(spec, cnn.Conv) else spec.channels
    return shape


class _KerasLayer:
    def __init__(self, layer: keras.Layer) -> None:
        self._layer = layer

    @property
    def weights(self) -> Sequence[tf.Variable]:
        return [variable.value for variable in self._layer.trainable_variables]

    @property
    def statistics(self) -> Sequence[tf.Variable]:
        return [variable.value for variable in self._layer.non_trainable_variables]

    def __call__(self, images: tf.Tensor, training: bool, /) -> tf.Tensor:
        return self._layer(images, training=training)


def native_layer(spec: cnn.Layer, initial: Sequence[tf.Tensor], layout: str) -> Layer:
    """Return the layer built from TensorFlow's own operations, as `keras_layer` does."""
    match spec:
        case cnn.Conv():
            return _Conv(spec, initial, layout)
        case cnn.Norm():
            return BatchNorm(initial, layout)
        case cnn.Dense():
            return _Dense(initial)
        case cnn.Pool(method="max"):
            return Function(lambda images: tf.nn.max_pool2d(images, 2, 2, "SAME", data_format=layout))
        case cnn.Pool():
            return Function(lambda images: tf.nn.avg_pool2d(images, 2, 2, "SAME", data_format=layout))
        case cnn.GlobalPool():
            return Function(lambda images: tf.reduce_mean(images, axis=[2, 3] if layout == "NCHW" else [1, 2]))
        case cnn.Relu():
            return Function(tf.nn.relu)


class Function:
    """A layer without weights."""

    weights: Sequence[tf.Variable] = ()
    statistics: Sequence[tf.Variable] = ()

    def __init__(self, function: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self._function = function

    def __call__(self, images: tf.Tensor, _training: bool, /) -> tf.Tensor:
        return self._function(images)


class _Conv:
    statistics: Sequence[tf.Variable] = ()

    def __init__(self, spec: cnn.Conv, initial: Sequence[tf.Tensor], layout: str) -> None:
        self.weights = [tf.Variable(value) for value in initial]
        self._stride = spec.stride
        self._layout = layout

    def __call__(self, images: tf.Tensor, _training: bool, /) -> tf.Tensor:
        kernel, *bias = (tf.cast(weight, images.dtype) for weight in self.weights)
        products = tf.nn.conv2d(images, kernel, self._stride, "SAME", data_format=self._layout)
        return tf.nn.bias_add(products, bias[0], data_format=self._layout) if bias else products


class _Dense:
    statistics: Sequence[tf.Variable] = ()

    def __init__(self, initial: Sequence[tf.Tensor]) -> None:
        self.weights = [tf.Variable(value) for value in initial]

    def __call__(self, images: tf.Tensor, _training: bool, /) -> tf.Tensor:
        kernel, bias = self.weights
        return tf.matmul(tf.cast(images, tf.float32), kernel) + bias


class BatchNorm:
    """Batch norm with Keras's running statistics: the biased variance, with momentum 0.99.

    One operation normalises and updates the statistics. It uses the variance times N / (N - 1), for N values per
    channel, so the running variance is multiplied by this factor before and divided after.
    """

    def __init__(self, initial: Sequence[tf.Tensor], layout: str) -> None:
        self.weights = [tf.Variable(value) for value in initial]
        self.mean = per_replica_variable(tf.zeros_like(initial[0]))
        self.variance = per_replica_variable(tf.ones_like(initial[0]))
        self.statistics = [self.mean, self.variance]
        self._layout = layout

    def __call__(self, images: tf.Tensor, training: bool, /) -> tf.Tensor:
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
            x=images, scale=scale, offset=offset, mean=self.mean.read_value(), variance=variance, epsilon=NORM_EPSILON,
            exponential_avg_factor=1.0 - NORM_MOMENTUM, data_format=self._layout, is_training=training,
        )  # fmt: skip


def native_xla_layer(spec: cnn.Layer, initial: Sequence[tf.Tensor], layout: str) -> Layer:
    """Return the layer of `native_layer` with an average pooling that XLA fuses."""
    if isinstance(spec, cnn.Pool) and spec.method == "average":
        return Function(lambda images: _mean_pool(images, layout))
    return native_layer(spec, initial, layout)


def _mean_pool(images: tf.Tensor, layout: str) -> tf.Tensor:
    """Return the means of 2x2 pixels of images with an even height and width."""
    if layout == "NCHW":
        n, c, h, w = images.shape
        return tf.reduce_mean(tf.reshape(images, [n, c, h // 2, 2, w // 2, 2]), axis=[3, 5])
    n, h, w, c = images.shape
    return tf.reduce_mean(tf.reshape(images, [n, h // 2, 2, w // 2, 2, c]), axis=[2, 4])
