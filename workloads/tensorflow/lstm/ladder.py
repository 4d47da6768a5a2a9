"""The rungs of the optimisation ladder, from eight products per step to a wavefront over all layers.

The ladder is that of Appleyard, Kocisky and Blunsom 2016, "Optimizing Performance of Recurrent Neural Networks on GPUs"
(arXiv 1604.01946); the cell's equations are those of Hochreiter and Schmidhuber 1997 with the forget gate of Gers,
Schmidhuber and Cummins 2000. From the first rung to the last:

1. `gemm8`: eight matrix products per step, one per gate for the input and one for the recurrence; every addition and
   activation is an op of its own.
2. `gemm2`: one product for the input of all four gates, one for the recurrence.
3. `gemm_batched`: both as one batched product. The paper runs independent products on several CUDA streams; TensorFlow
   computes on one stream per device, so here they run side by side as a batch. The narrower one is filled up with zeros
   if features and units differ.
4. `fused`: and all arithmetic of the gates compiled to one kernel.
5. `pretransposed`: and the weights transposed once before the loop. State and sums stay transposed too, [units, batch]
   and [4 units, batch], so that each gate is one contiguous piece. The paper saves a transposed operand per product;
   the rungs before have none here.
6. `combined_input`: and the input's product of all time steps made at once before the loop. What is left of a step is
   the recurrent product and one kernel.
7. `wavefront`: all layers at once, in `workloads.tensorflow.lstm.ladder`.

At wave s layer k makes its step s - k from what the layer below gave at wave s - 1, so one batched product serves all
layers, and one kernel their gates: timesteps + layers - 1 waves instead of timesteps * layers steps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from workloads.lstm import GATES, LstmConfig
from workloads.tensorflow.recipe import compile_function
from workloads.tensorflow.recurrent.loop import BaseStack, Cell, LoopStack, State, Step, Weights, run_loop, zero_padded


def next_state(i: tf.Tensor, f: tf.Tensor, g: tf.Tensor, o: tf.Tensor, cell: tf.Tensor) -> State:
    """Return the state after a step: c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'); s is the sigmoid.

    Args:
        i: The input gate's sum, before its activation; all of one shape.
        f: The forget gate's.
        g: The cell candidate's.
        o: The output gate's.
        cell: The cell before the step.
    """
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(cell), cell


def state_from_sums(sums: tf.Tensor, cell: tf.Tensor, axis: int) -> State:
    """Return the state after a step.

    Args:
        sums: The sums of all four gates side by side, in the order i, f, g, o.
        cell: The cell before the step.
        axis: The axis on which the gates lie side by side.
    """
    i, f, g, o = tf.split(sums, GATES, axis)
    return next_state(i, f, g, o, cell)


def compile_pointwise(function: Callable[..., State]) -> Callable[..., State]:
    """Compile a point-wise function to one kernel, and its gradient to another.

    The gradient computes the forward values again: it keeps nothing but the function's inputs, where TensorFlow would
    store each intermediate of each time step.
    """

    def gradient(inputs: tuple[tf.Tensor, ...], gradients: tuple[tf.Tensor, ...]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([one for one in inputs if one.dtype.is_floating])
            outputs = function(*inputs)
        return tape.gradient(outputs, inputs, gradients)

    forward, backward = compile_function(function), compile_function(gradient)

    def with_gradient(*inputs: tf.Tensor) -> tuple[State, Callable[..., Any]]:
        return forward(*inputs), lambda *gradients: backward(inputs, gradients)

    compiled_function: Callable[..., State] = tf.custom_gradient(with_gradient)
    return compiled_function


def gemm8_cell(weights: Weights) -> Cell:
    """Return rung 1: eight products per step, each gate with its own two."""
    kernels, recurrents = tf.split(weights.kernel, GATES, 1), tf.split(weights.recurrent, GATES, 1)
    biases = tf.split(weights.bias, GATES)

    def step(inputs: tf.Tensor, state: State) -> State:
        i, f, g, o = (
            inputs @ kernel + state[0] @ recurrent + bias
            for kernel, recurrent, bias in zip(kernels, recurrents, biases, strict=True)
        )
        return next_state(i, f, g, o, state[1])

    return Cell(step)


def gemm8_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Return layers of `gemm8` cells."""
    return LoopStack(config, initial, gemm8_cell)


def gemm2_cell(weights: Weights) -> Cell:
    """Return rung 2: two products per step."""

    def step(inputs: tf.Tensor, state: State) -> State:
        sums = inputs @ weights.kernel + state[0] @ weights.recurrent + weights.bias
        return state_from_sums(sums, state[1], axis=1)

    return Cell(step)


def gemm2_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Return layers of `gemm2` cells."""
    return LoopStack(config, initial, gemm2_cell)


def gemm_batched_cell(weights: Weights) -> Cell:
    """Return rung 3: one batched product per step, [2, batch, width] x [2, width, 4 units]."""
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    both = tf.stack([zero_padded(weights.kernel, 0, width), zero_padded(weights.recurrent, 0, width)])

    def step(inputs: tf.Tensor, state: State) -> State:
        products = tf.stack([inputs, zero_padded(state[0], 1, width)]) @ both
        return state_from_sums(products[0] + products[1] + weights.bias, state[1], axis=1)

    return Cell(step, prepare=lambda inputs: zero_padded(inputs, 2, width))


def gemm_batched_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Return layers of `gemm_batched` cells."""
    return LoopStack(config, initial, gemm_batched_cell)


@compile_pointwise
def _fused_gates(products: tf.Tensor, bias: tf.Tensor, before: tf.Tensor) -> State:
    return state_from_sums(products[0] + products[1] + bias, before, axis=1)


def fused_cell(weights: Weights) -> Cell:
    """Return rung 4: one batched product and one kernel per step."""
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    both = tf.stack([zero_padded(weights.kernel, 0, width), zero_padded(weights.recurrent, 0, width)])

    def step(inputs: tf.Tensor, state: State) -> State:
        products = tf.stack([inputs, zero_padded(state[0], 1, width)]) @ both
        return _fused_gates(products, weights.bias, state[1])

    return Cell(step, prepare=lambda inputs: zero_padded(inputs, 2, width))


def fused_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Return layers of `fused` cells."""
    return LoopStack(config, initial, fused_cell)


@compile_pointwise
def _pretransposed_gates(products: tf.Tensor, bias: tf.Tensor, before: tf.Tensor) -> State:
    return state_from_sums(products[0] + products[1] + bias, before, axis=0)


def pretransposed_cell(weights: Weights) -> Cell:
    """Return rung 5: one batched product, [2, 4 units, width] x [2, width, batch], and one kernel per step."""
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    parts = [zero_padded(tf.transpose(part), 1, width) for part in (weights.kernel, weights.recurrent)]
    both, bias = tf.stack(parts), weights.bias[:, tf.newaxis]

    def step(inputs: tf.Tensor, state: State) -> State:
        products = both @ tf.stack([inputs, zero_padded(state[0], 0, width)])
        return _pretransposed_gates(products, bias, state[1])

    return Cell(step, prepare=lambda inputs: zero_padded(inputs, 1, width))


def pretransposed_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Return layers of `pretransposed` cells."""
    return LoopStack(config, initial, pretransposed_cell, transposed=True)


@compile_pointwise
def _combined_input_gates(sums: tf.Tensor, product: tf.Tensor, before: tf.Tensor) -> State:
    return state_from_sums(sums + product, before, axis=0)


def input_sums(weights: Weights, inputs: tf.Tensor) -> tf.Tensor:
    """Return the input's part of the sums at all steps, [timesteps, 4 units, batch], by one product.

    `inputs` are [timesteps, features, batch].
    """
    steps, width, batch = inputs.shape
    columns = tf.reshape(tf.transpose(inputs, [1, 0, 2]), [width, steps * batch])
    products = tf.matmul(weights.kernel, columns, transpose_a=True) + weights.bias[:, tf.newaxis]
    return tf.transpose(tf.reshape(products, [-1, steps, batch]), [1, 0, 2])


def combined_input_cell(weights: Weights) -> Cell:
    """Return rung 6: the recurrent product and one kernel per step."""
    recurrent = tf.transpose(weights.recurrent)

    def step(sums: tf.Tensor, state: State) -> State:
        return _combined_input_gates(sums, recurrent @ state[0], state[1])

    return Cell(step, prepare=lambda inputs: input_sums(weights, inputs))


def combined_input_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Return layers of `combined_input` cells."""
    return LoopStack(config, initial, combined_input_cell, transposed=True)


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
        """Return the outputs of the top layer."""
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
        (output, _), outputs = run_loop(
            _wave_step(layers, masks),
            (sums, active),
            (zeros, zeros),
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
