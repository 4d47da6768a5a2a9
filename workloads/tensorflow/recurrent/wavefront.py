"""The ladder's last rung for any cell: all layers together, each one step behind the one below.

At wave s layer k computes its step s - k from the output of the layer below at wave s - 1, so one batched product
serves all layers, and one kernel their gates: timesteps + layers - 1 waves instead of timesteps * layers steps.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from workloads.recurrent import RecurrentConfig
from workloads.tensorflow.recurrent.loop import BaseStack, State, Step, Weights, run_loop, zero_padded

WaveGates = Callable[..., State]
"""A compiled function that returns the state of all layers after a wave; a layer without a true step keeps its state.

Its arguments, with g gates:

    sums: The input's part of the first layer's sums, [g units, batch], without bias.
    products: [2 layers - 1, g units, batch]: those of the recurrences, then of the inputs of all layers but the first.
    biases: [layers, g units, 1]; where a gate has two, [2, layers, g units, 1].
    active: Which layers have a true step, [layers, 1, batch].
    state: Each part before the wave, [layers, units, batch].
"""


class Wavefront(BaseStack):
    """Layers of one direction; each part of the state is [layers, units, batch]."""

    def __init__(self, config: RecurrentConfig, initial: Sequence[tf.Tensor], gates: WaveGates) -> None:
        super().__init__(config, initial)
        self._gates = gates

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        layers = [layer for (layer,) in self._layers(inputs.dtype)]
        batch, steps, width = inputs.shape
        shape = [len(layers), self._config.units, batch]
        masks = self._dropout_masks(shape, inputs.dtype) if training else None
        if training and self._config.dropout:
            inputs = tf.nn.dropout(inputs, self._config.dropout, noise_shape=[batch, 1, width])
        products = tf.reshape(tf.reshape(inputs, [batch * steps, width]) @ layers[0].kernel, [batch, steps, -1])
        sums = zero_padded(tf.transpose(products, [1, 2, 0]), 0, steps + len(layers) - 1)
        active = _active_layers(tf.ones([1, steps], tf.bool) if valid is None else valid, len(layers))
        (output, *_), outputs = run_loop(
            _wave_step(layers, masks, self._gates),
            (sums, active),
            (tf.zeros(shape, inputs.dtype),) * self._config.state_parts,
            unroll=self._config.unroll,
            sequence=self._config.all_outputs,
            output=lambda state: state[0][-1],
        )
        return tf.transpose(output[-1]) if outputs is None else tf.transpose(outputs[len(layers) - 1 :], [2, 0, 1])

    def _dropout_masks(self, shape: list[int], dtype: tf.DType) -> tf.Tensor | None:
        """Return masks of the outputs that the products read, [2 layers - 1, units, batch]; None without dropout."""
        config = self._config
        if not config.dropout and not config.recurrent_dropout:
            return None
        recurrent, inputs = tf.ones(shape, dtype), tf.ones([shape[0] - 1, *shape[1:]], dtype)
        return tf.concat([tf.nn.dropout(recurrent, config.recurrent_dropout), tf.nn.dropout(inputs, config.dropout)], 0)


def _wave_step(layers: Sequence[Weights], masks: tf.Tensor | None, gates: WaveGates) -> Step:
    """Return the step of one wave: a batched product of all layers, then their gates.

    The product is [2 layers - 1, g units, units] x [2 layers - 1, units, batch].
    """
    matrices = [layer.recurrent for layer in layers] + [layer.kernel for layer in layers[1:]]
    stacked = tf.stack([tf.transpose(matrix) for matrix in matrices])
    biases = tf.stack([layer.bias for layer in layers], -2)[..., tf.newaxis]

    def step(inputs: tuple[tf.Tensor, tf.Tensor], state: State) -> State:
        read = tf.concat([state[0], state[0][:-1]], 0) if len(layers) > 1 else state[0]
        products = stacked @ (read if masks is None else read * masks)
        return gates(inputs[0], products, biases, inputs[1], *state)

    return step


def _active_layers(valid: tf.Tensor, layers: int) -> tf.Tensor:
    """Return which layers have a true step at each wave, [waves, layers, 1, batch]; `valid` is [batch, timesteps]."""
    rows = tf.transpose(valid)
    none = tf.zeros_like(rows[:1])
    shifted = [tf.concat([none] * depth + [rows] + [none] * (layers - 1 - depth), 0) for depth in range(layers)]
    return tf.stack(shifted, 1)[:, :, tf.newaxis]
