"""Keras LSTM layers in three implementations that differ in `use_cudnn` alone.

`standard` is a loop over time steps, never cuDNN; `cudnn` uses NVIDIA's fused kernels and raises if it cannot; `auto`
takes cuDNN if Keras can use it and falls back to the loop without a word.
"""

from collections.abc import Sequence
from typing import Literal

import keras
import tensorflow as tf

from workloads.lstm import LstmConfig

UseCudnn = bool | Literal["auto"]


class KerasStack:
    """Keras layers, each direction a layer of its own: `Bidirectional` copies a layer without its `use_cudnn`.

    With recurrent dropout Keras draws one mask per gate, the other implementations one for all four.
    """

    def __init__(self, config: LstmConfig, initial: Sequence[tf.Tensor], use_cudnn: UseCudnn) -> None:
        self.layers = [
            [_keras_layer(config, use_cudnn, depth, backwards) for backwards in (False, True)[: config.directions]]
            for depth in range(config.layers)
        ]
        variables = [variable for layer in self._all_layers() for variable in layer.trainable_variables]
        for variable, value in zip(variables, initial, strict=True):
            variable.assign(value)

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables, layer by layer."""
        return [variable.value for layer in self._all_layers() for variable in layer.trainable_variables]

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """Return the last outputs of the top layer."""
        for directions in self.layers:
            parts = [_restore_time_order(layer, layer(inputs, mask=valid, training=training)) for layer in directions]
            inputs = tf.concat(parts, axis=-1) if len(parts) > 1 else parts[0]
        return inputs

    def _all_layers(self) -> list[keras.layers.LSTM]:
        return [layer for directions in self.layers for layer in directions]


def _keras_layer(config: LstmConfig, use_cudnn: UseCudnn, depth: int, backwards: bool) -> keras.layers.LSTM:
    """Return one direction of one layer; its weights are zero until they are assigned."""
    layer = keras.layers.LSTM(
        config.units,
        activation=config.activation,
        return_sequences=depth < config.layers - 1,
        go_backwards=backwards,
        dropout=config.dropout,
        recurrent_dropout=config.recurrent_dropout,
        seed=config.seed + 2 * depth + backwards,
        use_cudnn=use_cudnn,
        kernel_initializer="zeros",
        recurrent_initializer="zeros",
    )
    layer.build((None, None, config.width(depth)))
    return layer


def _restore_time_order(layer: keras.layers.LSTM, outputs: tf.Tensor) -> tf.Tensor:
    """Reverse the sequence of a layer that goes backwards and gives it from the end."""
    return tf.reverse(outputs, [1]) if layer.go_backwards and layer.return_sequences else outputs


def keras_standard_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> KerasStack:
    """Return Keras layers with `use_cudnn=False`."""
    return KerasStack(config, initial, False)


def keras_cudnn_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> KerasStack:
    """Return Keras layers with `use_cudnn=True`."""
    return KerasStack(config, initial, True)


def keras_auto_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> KerasStack:
    """Return Keras layers with `use_cudnn="auto"`."""
    return KerasStack(config, initial, "auto")
