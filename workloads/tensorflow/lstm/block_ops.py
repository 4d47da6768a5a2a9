"""TensorFlow's block LSTM: an operation for all steps of a direction, and one for a single step.

`block_fused` is `BlockLSTMV2`, which loops over time inside. TensorFlow registers for it the gradient of `BlockLSTM`,
whose gates are in another order: the forward pass is right, but every gradient is wrong. So this module calls its true
gradient, `BlockLSTMGradV2`.

`block_cell` is `LSTMBlockCell`, the cell of TensorFlow 1's LSTMBlockCell and CudnnCompatibleLSTMCell, in a loop over
time. TensorFlow 2 registers no gradient for it; here it is `LSTMBlockCellGrad` for the gates, and their products with
weights and inputs. Its gates are in the order input, cell, forget, output.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from workloads.recurrent_layers import LSTM_GATES
from workloads.tensorflow.recurrent.loop import BaseStack, Cell, State, Weights


class BlockFused(BaseStack):
    """Layers of block-fused directions; the second direction reads reversed time.

    The operation does not support padding, so padding moves to the end, where steps change nothing that is read. The
    second direction then reverses each sequence by its own length.
    """

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        lengths = None if valid is None else tf.reduce_sum(tf.cast(valid, tf.int64), 1)
        sequence = tf.transpose(inputs, [1, 0, 2])
        if self._config.left_padded:
            sequence = _reversed(tf.reverse(sequence, [0]), lengths)
        for layer in self._layers(inputs.dtype):
            parts = [self._direction(weights, sequence, training=training) for weights in layer[:1]]
            parts += [
                _reversed(self._direction(weights, _reversed(sequence, lengths), training=training), lengths)
                for weights in layer[1:]
            ]
            sequence = tf.concat(parts, 2)
        if not self._config.all_outputs:
            units = self._config.units
            forward = sequence[-1] if lengths is None else _reversed(sequence, lengths)[0]
            return tf.concat([forward[:, :units], sequence[0, :, units:]], 1)
        if self._config.left_padded:
            sequence = tf.reverse(_reversed(sequence, lengths), [0])
        return tf.transpose(sequence, [1, 0, 2])

    def _direction(self, weights: Weights, inputs: tf.Tensor, *, training: bool) -> tf.Tensor:
        if training and self._config.dropout:
            inputs = tf.nn.dropout(inputs, self._config.dropout, noise_shape=[1, *inputs.shape[1:]])
        outputs: tf.Tensor = tf.custom_gradient(_block_lstm)(
            inputs, tf.concat([weights.kernel, weights.recurrent], 0), weights.bias
        )
        return outputs


def _reversed(sequence: tf.Tensor, lengths: tf.Tensor | None) -> tf.Tensor:
    """Return the sequences [timesteps, batch, …] with their true steps, which come first, in reverse."""
    if lengths is None:
        return tf.reverse(sequence, [0])
    return tf.reverse_sequence(sequence, lengths, seq_axis=0, batch_axis=1)


def _block_lstm(
    inputs: tf.Tensor, matrix: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
    """Return all outputs [timesteps, batch, units] of one direction, and the function that computes the gradients.

    Args:
        inputs: [timesteps, batch, features].
        matrix: Kernel above recurrent kernel, [features + units, 4 units].
        bias: [4 units].
    """
    steps, batch, _ = inputs.shape
    units = bias.shape[0] // LSTM_GATES
    start, peephole = tf.zeros([batch, units], inputs.dtype), tf.zeros([units], inputs.dtype)
    inputs_by_name = {
        "seq_len_max": tf.constant(steps, tf.int64), "x": inputs, "cs_prev": start, "h_prev": start,
        "w": matrix, "wci": peephole, "wcf": peephole, "wco": peephole, "b": bias,
    }  # fmt: skip
    outputs = tf.raw_ops.BlockLSTMV2(**inputs_by_name)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        gradients = tf.raw_ops.BlockLSTMGradV2(
            **inputs_by_name,
            **outputs._asdict(),
            cs_grad=tf.zeros_like(outputs.cs),
            h_grad=upstream,
            use_peephole=False,
        )
        return gradients.x_grad, gradients.w_grad, gradients.b_grad

    return outputs.h, gradient


def block_cell(weights: Weights) -> Cell:
    """Return a cell whose step is one operation: product, gates and state."""
    matrix = _in_block_order(tf.concat([weights.kernel, weights.recurrent], 0))
    bias = _in_block_order(weights.bias)
    cell = tf.custom_gradient(_lstm_block_cell)

    def step(inputs: tf.Tensor, state: State) -> State:
        next_state: State = cell(inputs, *state, matrix, bias)
        return next_state

    return Cell(step)


def _in_block_order(tensor: tf.Tensor) -> tf.Tensor:
    i, f, g, o = tf.split(tensor, LSTM_GATES, -1)
    return tf.concat([i, g, f, o], -1)


def _lstm_block_cell(
    inputs: tf.Tensor, output: tf.Tensor, cell: tf.Tensor, matrix: tf.Tensor, bias: tf.Tensor
) -> tuple[State, Callable[..., Any]]:
    """Return the state after a step, and the function that computes the gradients.

    Args:
        inputs: [batch, features].
        output: The output before, [batch, units].
        cell: The cell before, likewise.
        matrix: Kernel above recurrent kernel, [features + units, 4 units], in the operation's order of gates.
        bias: [4 units], likewise.
    """
    peephole = tf.zeros([bias.shape[0] // LSTM_GATES], inputs.dtype)
    inputs_by_name = {
        "x": inputs, "cs_prev": cell, "h_prev": output,
        "w": matrix, "wci": peephole, "wcf": peephole, "wco": peephole, "b": bias,
    }  # fmt: skip
    outputs = tf.raw_ops.LSTMBlockCell(**inputs_by_name, forget_bias=0.0, cell_clip=-1.0)

    def gradient(output_gradient: tf.Tensor, cell_gradient: tf.Tensor) -> tuple[tf.Tensor, ...]:
        gates = tf.raw_ops.LSTMBlockCellGrad(
            **inputs_by_name,
            **{name: tensor for name, tensor in outputs._asdict().items() if name != "h"},
            cs_grad=cell_gradient,
            h_grad=output_gradient,
            use_peephole=False,
        )
        read = tf.concat([inputs, output], 1)
        to_read = tf.matmul(gates.dicfo, matrix, transpose_b=True)
        to_inputs, to_output = tf.split(to_read, [inputs.shape[1], output.shape[1]], 1)
        to_matrix = tf.matmul(read, gates.dicfo, transpose_a=True)
        return to_inputs, to_output, gates.cs_prev_grad, to_matrix, tf.reduce_sum(gates.dicfo, 0)

    return (outputs.h, outputs.cs), gradient
