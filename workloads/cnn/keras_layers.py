"""Keras's own layers, with the data format on every one of them and the channels' axis on the batch norm."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from workloads.cnn import nets
from workloads.cnn.layer import Layer

_FORMATS = {"NCHW": "channels_first", "NHWC": "channels_last"}


def layer(spec: nets.Layer, initial: Sequence[tf.Tensor], layout: str) -> Layer:
    """The layer of a description with its initial weights."""
    made = _made(spec, layout)
    if isinstance(spec, nets.Conv | nets.Norm | nets.Dense):
        made.build(_input_shape(spec, layout))
    for variable, value in zip(made.trainable_variables, initial, strict=True):
        variable.assign(value)
    return _KerasLayer(made)


def _made(spec: nets.Layer, layout: str) -> keras.Layer:
    """The head in float32, as Keras's guide to mixed precision has it."""
    data_format = _FORMATS[layout]
    match spec:
        case nets.Conv():
            return keras.layers.Conv2D(
                spec.channels, spec.kernel, spec.stride, "same", data_format=data_format, use_bias=False
            )
        case nets.Norm():
            return keras.layers.BatchNormalization(axis=_channels_axis(layout))
        case nets.Relu():
            return keras.layers.ReLU()
        case nets.Pool():
            return keras.layers.AveragePooling2D(2, data_format=data_format)
        case nets.GlobalPool():
            return keras.layers.GlobalAveragePooling2D(data_format=data_format)
        case nets.Dense():
            return keras.layers.Dense(spec.channels, dtype="float32")


def _channels_axis(layout: str) -> int:
    return 1 if layout == "NCHW" else -1


def _input_shape(spec: nets.Conv | nets.Norm | nets.Dense, layout: str) -> list[int | None]:
    if isinstance(spec, nets.Dense):
        return [None, spec.channels_in]
    shape: list[int | None] = [None] * 4
    shape[_channels_axis(layout)] = spec.channels_in if isinstance(spec, nets.Conv) else spec.channels
    return shape


class _KerasLayer:
    def __init__(self, made: keras.Layer) -> None:
        self._made = made

    @property
    def weights(self) -> Sequence[tf.Variable]:
        return [variable.value for variable in self._made.trainable_variables]

    def __call__(self, images: tf.Tensor, training: bool, /) -> tf.Tensor:
        return self._made(images, training=training)
