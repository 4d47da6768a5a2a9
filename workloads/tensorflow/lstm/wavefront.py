"""The ladder's last rung: as `combined_input`, and all layers at once, each one step behind the layer below.

At wave s layer k makes its step s - k from what the layer below gave at wave s - 1, so one batched product serves all
layers, and one kernel their gates: timesteps + layers - 1 waves instead of timesteps * layers steps.
"""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm import LstmConfig
from workloads.tensorflow.lstm.ladder import compile_pointwise, input_sums, state_from_sums
from workloads.tensorflow.lstm.loop import State, Step, run_loop, zero_padded
from workloads.tensorflow.lstm.stack import BaseStack, Weights


@compile_pointwise
def _gates(
    sums: tf.Tensor, products: tf.Tensor, biases: tf.Tensor, active: tf.Tensor, output: tf.Tensor, before: tf.Tensor
) -> State:
    """Return the state of all layers after a wave; layers that have no true step in it keep theirs.

    Args:
        sums: The input's part of the first layer's sums, [4 units, batch].
        products: [2 layers - 1, 4 units, batch]: those of the recurrences, then of the inputs of all but the first.
        biases: Of all layers but the first, [layers - 1, 4 units, 1].
        active: Which layers have a true step, [layers, 1, batch].
        output: The outputs before, [layers, units, batch].
        before: The cells before, likewise.
    """
    layers = output.shape[0]
    sums = tf.concat([sums[tf.newaxis], products[layers:] + biases], 0) + products[:layers]
    state = state_from_sums(sums, before, axis=1)
    return tf.where(active, state[0], output), tf.where(active, state[1], before)


class Wavefront(BaseStack):
    """Layers of one direction; state [layers, units, batch]."""

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """Return the last outputs of the top layer."""
        layers = [layer for (layer,) in self._layers(inputs.dtype)]
        batch, steps, _ = inputs.shape
        shape = [len(layers), self._config.units, batch]
        masks = self._dropout_masks(shape, inputs.dtype) if training else None
        if training and self._config.dropout:
            inputs = tf.nn.dropout(inputs, self._config.dropout, noise_shape=[batch, 1, inputs.shape[2]])
        waves = steps + len(layers) - 1
        sums = zero_padded(input_sums(layers[0], tf.transpose(inputs, [1, 2, 0])), 0, waves)
        active = _active_layers(tf.ones([1, steps], tf.bool) if valid is None else valid, len(layers))
        zeros = tf.zeros(shape, inputs.dtype)
        (output, _), _ = run_loop(_wave_step(layers, masks), (sums, active), (zeros, zeros), unroll=self._config.unroll)
        return tf.transpose(output[-1])

    def _dropout_masks(self, shape: list[int], dtype: tf.DType) -> tf.Tensor | None:
        """Return masks of the outputs that the products read, [2 layers - 1, units, batch]; None without dropout."""
        config = self._config
        if not config.dropout and not config.recurrent_dropout:
            return None
        recurrent, inputs = tf.ones(shape, dtype), tf.ones([shape[0] - 1, *shape[1:]], dtype)
        return tf.concat([tf.nn.dropout(recurrent, config.recurrent_dropout), tf.nn.dropout(inputs, config.dropout)], 0)


def _wave_step(layers: Sequence[Weights], masks: tf.Tensor | None) -> Step:
    """Return the step of one wave: a batched product of all layers, then their gates.

    The product is [2 layers - 1, 4 units, units] x [2 layers - 1, units, batch].
    """
    matrices = [layer.recurrent for layer in layers] + [layer.kernel for layer in layers[1:]]
    stacked = tf.stack([tf.transpose(matrix) for matrix in matrices])
    biases = tf.reshape(tf.stack([layer.bias for layer in layers])[1:], [len(layers) - 1, -1, 1])

    def step(inputs: tuple[tf.Tensor, tf.Tensor], state: State) -> State:
        read = tf.concat([state[0], state[0][:-1]], 0) if len(layers) > 1 else state[0]
        products = stacked @ (read if masks is None else read * masks)
        return _gates(inputs[0], products, biases, inputs[1], *state)

    return step


def _active_layers(valid: tf.Tensor, layers: int) -> tf.Tensor:
    """Return which layers have a true step at each wave, [waves, layers, 1, batch]; `valid` is [batch, timesteps]."""
    rows = tf.transpose(valid)
    none = tf.zeros_like(rows[:1])
    shifted = [tf.concat([none] * depth + [rows] + [none] * (layers - 1 - depth), 0) for depth in range(layers)]
    return tf.stack(shifted, 1)[:, :, tf.newaxis]


def wavefront_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> Wavefront:
    """Return the whole stack as one wavefront."""
    return Wavefront(config, initial)
