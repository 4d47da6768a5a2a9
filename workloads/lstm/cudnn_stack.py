"""The whole stack in one cuDNN call: all layers and both directions in one `CudnnRNNV3`.

cuDNN wants its parameters in one buffer. They are kept gate by gate in the common layout and packed at every step, as
Keras does for one layer, so that a checkpoint does not depend on cuDNN.
"""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.config import LstmConfig
from workloads.lstm.stack import OwnStack
from workloads.lstm.weights import Weights


class CudnnStack(OwnStack):
    """Layers computed by cuDNN alone, on a GPU."""

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """The last outputs of the top layer; where there is padding it must be at the end."""
        config = self._config
        layers = self._layers(inputs.dtype)
        batch, steps, _ = inputs.shape
        start = tf.zeros([config.layers * config.directions, batch, config.units], inputs.dtype)
        made = tf.raw_ops.CudnnRNNV3(
            input=tf.transpose(inputs, [1, 0, 2]),
            input_h=start,
            input_c=start,
            params=_packed([weights for layer in layers for weights in layer]),
            sequence_lengths=tf.fill([batch], steps) if valid is None else _lengths(valid),
            rnn_mode="lstm",
            direction="bidirectional" if config.bidirectional else "unidirectional",
            is_training=training,
        )
        return tf.concat(tf.unstack(made.output_h[-config.directions :]), 1)


def _lengths(valid: tf.Tensor) -> tf.Tensor:
    """How many true steps each sequence has; counted in int64, since TensorFlow adds up int32 on the host alone."""
    return tf.cast(tf.reduce_sum(tf.cast(valid, tf.int64), 1), tf.int32)


def _packed(parts: Sequence[Weights]) -> tf.Tensor:
    """The buffer for cuDNN: the matrices of all parts, each gate transposed, then of each part two biases.

    cuDNN adds a bias to the input's and to the recurrent product; the first is zero here.
    """
    matrices = [tf.transpose(matrix) for part in parts for matrix in (part.kernel, part.recurrent)]
    biases = [bias for part in parts for bias in (tf.zeros_like(part.bias), part.bias)]
    return tf.concat([tf.reshape(piece, [-1]) for piece in (*matrices, *biases)], 0)


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> CudnnStack:
    """All layers in one call."""
    return CudnnStack(config, initial)
