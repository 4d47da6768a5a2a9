"""Stacks of library layers: Keras's, and cuDNN's call for a whole stack.

`cudnn_stack`: all layers and both directions in one cuDNN call. cuDNN wants its parameters in one buffer. They are
stored gate by gate in the common layout and packed at every step, as Keras does for one layer, so that a checkpoint
does not depend on cuDNN. Its dropout is cuDNN's: between layers only, with a new mask at each step.

`standard` is a loop over time steps, never cuDNN; `cudnn` uses NVIDIA's fused kernels and raises if it cannot; `auto`
takes cuDNN if Keras can use it and falls back to the loop without a word.
"""

from collections.abc import Sequence
from typing import Literal

import keras
import tensorflow as tf

from workloads.recurrent import RecurrentConfig
from workloads.tensorflow.recurrent.loop import BaseStack, Weights


class CudnnStack(BaseStack):
    """Layers computed by cuDNN alone, on a GPU."""

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """Return the outputs of the top layer; padding must be at the end."""
        config = self._config
        layers = self._layers(inputs.dtype)
        batch, steps, _ = inputs.shape
        start = tf.zeros([config.layers * config.directions, batch, config.units], inputs.dtype)
        made = tf.raw_ops.CudnnRNNV3(
            input=tf.transpose(inputs, [1, 0, 2]),
            input_h=start,
            input_c=start if config.state_parts == 2 else tf.zeros([], inputs.dtype),
            params=_packed_parameters([weights for layer in layers for weights in layer], config.cudnn_gates),
            sequence_lengths=tf.fill([batch], steps) if valid is None else _sequence_lengths(valid),
            rnn_mode=config.keras_name.lower(),
            direction="bidirectional" if config.bidirectional else "unidirectional",
            dropout=config.dropout if training else 0.0,
            seed=config.seed,
            seed2=_replica(),
            is_training=training,
        )
        if config.all_outputs:
            return tf.transpose(made.output, [1, 0, 2])
        return tf.concat(tf.unstack(made.output_h[-config.directions :]), 1)


def _replica() -> int:
    """Return the number of the replica that this code is of: each draws other masks."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group) or 0) if context else 0


def _sequence_lengths(valid: tf.Tensor) -> tf.Tensor:
    """Return how many true steps each sequence has; counted in int64, as TensorFlow sums int32 on the host only."""
    return tf.cast(tf.reduce_sum(tf.cast(valid, tf.int64), 1), tf.int32)


def _packed_parameters(parts: Sequence[Weights], order: Sequence[int]) -> tf.Tensor:
    """Return the buffer for cuDNN: the matrices of all parts, each gate transposed, then two biases per part.

    cuDNN adds a bias to the input's and to the recurrent product; of a cell with one bias the first is zero.

    Args:
        parts: The weights of all directions, layer by layer.
        order: The places of cuDNN's gates among the cell's (cudnnGetRNNWeightParams: an LSTM's are input, forget,
            cell, output; a GRU's reset, update, candidate).
    """

    def ordered(tensor: tf.Tensor) -> tf.Tensor:
        gates = tf.split(tensor, len(order), -1)
        return tf.concat([gates[place] for place in order], -1)

    matrices = [tf.transpose(ordered(matrix)) for part in parts for matrix in (part.kernel, part.recurrent)]
    biases = [
        ordered(part.bias) if part.bias.shape.rank == 2 else tf.stack([tf.zeros_like(part.bias), ordered(part.bias)])
        for part in parts
    ]
    return tf.concat([tf.reshape(piece, [-1]) for piece in (*matrices, *biases)], 0)


UseCudnn = bool | Literal["auto"]


class KerasStack:
    """Keras layers, each direction a layer of its own: `Bidirectional` copies a layer without its `use_cudnn`.

    With recurrent dropout Keras draws one mask per gate, the other implementations one for all.
    """

    def __init__(self, config: RecurrentConfig, initial: Sequence[tf.Tensor], use_cudnn: UseCudnn) -> None:
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
        """Return the outputs of the top layer."""
        for directions in self.layers:
            parts = [_restore_time_order(layer, layer(inputs, mask=valid, training=training)) for layer in directions]
            inputs = tf.concat(parts, axis=-1) if len(parts) > 1 else parts[0]
        return inputs

    def _all_layers(self) -> list[keras.layers.RNN]:
        return [layer for directions in self.layers for layer in directions]


def _keras_layer(config: RecurrentConfig, use_cudnn: UseCudnn, depth: int, backwards: bool) -> keras.layers.RNN:
    """Return one direction of one layer; its weights are zero until they are assigned."""
    layer = getattr(keras.layers, config.keras_name)(
        config.units,
        activation=config.activation,
        return_sequences=config.all_outputs or depth < config.layers - 1,
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


def _restore_time_order(layer: keras.layers.RNN, outputs: tf.Tensor) -> tf.Tensor:
    """Reverse the sequence of a layer that goes backwards and gives it from the end."""
    return tf.reverse(outputs, [1]) if layer.go_backwards and layer.return_sequences else outputs
