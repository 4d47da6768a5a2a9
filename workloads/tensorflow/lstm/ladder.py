"""The rungs of the optimisation ladder, from eight products per step to a wavefront over all layers.

The ladder is that of Appleyard, Kocisky and Blunsom 2016, "Optimizing Performance of Recurrent Neural Networks on GPUs"
(arXiv 1604.01946); the cell's equations are those of Hochreiter and Schmidhuber 1997 with the forget gate of Gers,
Schmidhuber and Cummins 2000. From the first rung to the last:

1. `gemm8`: eight matrix products per step, one per gate for the input and one for the recurrence; every addition and
    activation is its own op.
2. `gemm2`: one product for the input of all four gates, one for the recurrence.
3. `gemm_batched`: both as one batched product. The paper runs independent products on several CUDA streams; TensorFlow
    computes on one stream per device, so here they run side by side as a batch. The narrower one is filled up with
    zeros if features and units differ.
4. `fused`: and all arithmetic of the gates compiled to one kernel.
5. `transposed`: state and sums transposed, [units, batch] and [4 units, batch], so that each gate is one contiguous
    piece, while the weights are as they are stored: every product reads them transposed.
6. `pretransposed`: and the weights transposed once before the loop.
7. `combined_input`: and the input's product of all time steps, or of `input_steps` at a time, made before the loop. A
    step keeps only the recurrent product and one kernel. The paper computes the products of some steps during the
    recurrence, on another stream; on TensorFlow's one stream their order changes nothing.
8. `wavefront`: all layers at once, in `workloads.tensorflow.recurrent.wavefront`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

from workloads.recurrent_layers import LSTM_GATES, LstmConfig
from workloads.tensorflow.recurrent.loop import (
    Cell,
    LoopStack,
    State,
    Weights,
    batched_cell,
    compile_pointwise,
    in_groups,
    zero_padded,
)
from workloads.tensorflow.recurrent.wavefront import Wavefront


def next_state(i: tf.Tensor, f: tf.Tensor, g: tf.Tensor, o: tf.Tensor, cell: tf.Tensor) -> State:
    """Return the state after a step: c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'); s is the sigmoid.

    i, f, g and o are the sums of input gate, forget gate, cell candidate and output gate, before their activation; all
    of one shape, like the cell before the step.
    """
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(cell), cell


def state_from_sums(sums: tf.Tensor, cell: tf.Tensor, axis: int) -> State:
    """Return the state after a step.

    `sums` are those of all four gates side by side on the axis, in the order i, f, g, o; `cell` is the one before the
    step.
    """
    i, f, g, o = tf.split(sums, LSTM_GATES, axis)
    return next_state(i, f, g, o, cell)


def gemm8_cell(weights: Weights) -> Cell:
    """Return rung 1: eight products per step, each gate with its own two."""
    kernels, recurrents = tf.split(weights.kernel, LSTM_GATES, 1), tf.split(weights.recurrent, LSTM_GATES, 1)
    biases = tf.split(weights.bias, LSTM_GATES)

    def step(inputs: tf.Tensor, state: State) -> State:
        i, f, g, o = (
            inputs @ kernel + state[0] @ recurrent + bias
            for kernel, recurrent, bias in zip(kernels, recurrents, biases, strict=True)
        )
        return next_state(i, f, g, o, state[1])

    return Cell(step)


def gemm2_cell(weights: Weights) -> Cell:
    """Return rung 2: two products per step."""

    def step(inputs: tf.Tensor, state: State) -> State:
        sums = inputs @ weights.kernel + state[0] @ weights.recurrent + weights.bias
        return state_from_sums(sums, state[1], axis=1)

    return Cell(step)


def _batched_gates(products: tf.Tensor, bias: tf.Tensor, memory: tf.Tensor) -> State:
    """Return the state after a step; `products` are [2, batch, 4 units]."""
    return state_from_sums(products[0] + products[1] + bias, memory, axis=1)


_fused_batched_gates = compile_pointwise(_batched_gates)


def gemm_batched_cell(weights: Weights) -> Cell:
    """Return rung 3: one batched product per step."""
    return batched_cell(weights, weights.bias, _batched_gates)


def fused_cell(weights: Weights) -> Cell:
    """Return rung 4: one batched product and one kernel per step."""
    return batched_cell(weights, weights.bias, _fused_batched_gates)


@compile_pointwise
def _transposed_gates(products: tf.Tensor, bias: tf.Tensor, memory: tf.Tensor) -> State:
    return state_from_sums(products[0] + products[1] + bias, memory, axis=0)


def transposed_cell(weights: Weights) -> Cell:
    """Return rung 5: state and sums transposed, so that each product has to read the weights transposed."""
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    matrices = tf.stack([zero_padded(weights.kernel, 0, width), zero_padded(weights.recurrent, 0, width)])
    return _transposed_cell(weights, width, lambda read: tf.matmul(matrices, read, transpose_a=True))


def pretransposed_cell(weights: Weights) -> Cell:
    """Return rung 6: one batched product, [2, 4 units, width] x [2, width, batch], and one kernel per step."""
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    matrices = tf.stack([zero_padded(tf.transpose(matrix), 1, width) for matrix in (weights.kernel, weights.recurrent)])
    return _transposed_cell(weights, width, lambda read: matrices @ read)


def _transposed_cell(weights: Weights, width: int, product: Callable[[tf.Tensor], tf.Tensor]) -> Cell:
    bias = weights.bias[:, tf.newaxis]

    def step(inputs: tf.Tensor, state: State) -> State:
        return _transposed_gates(product(tf.stack([inputs, zero_padded(state[0], 0, width)])), bias, state[1])

    return Cell(step, prepare=lambda inputs: zero_padded(inputs, 1, width))


@compile_pointwise
def _combined_input_gates(sums: tf.Tensor, product: tf.Tensor, memory: tf.Tensor) -> State:
    return state_from_sums(sums + product, memory, axis=0)


def combined_input_cell(weights: Weights, input_steps: int) -> Cell:
    """Return rung 7: the recurrent product and one kernel per step."""
    # Transposed together: TensorFlow's graph optimizer folds the transposition of one matrix into the product that
    # reads it (FoldTransposeIntoMatMul).
    widths = [weights.kernel.shape[0], weights.recurrent.shape[0]]
    kernel, recurrent = tf.split(tf.transpose(tf.concat([weights.kernel, weights.recurrent], 0)), widths, 1)

    def input_sums(inputs: tf.Tensor) -> tf.Tensor:
        """Return the input's part of the sums, [timesteps, 4 units, batch], of inputs [timesteps, features, batch]."""
        steps, width, batch = inputs.shape
        columns = tf.reshape(tf.transpose(inputs, [1, 0, 2]), [width, steps * batch])
        sums = kernel @ columns + weights.bias[:, tf.newaxis]
        return tf.transpose(tf.reshape(sums, [-1, steps, batch]), [1, 0, 2])

    def step(sums: tf.Tensor, state: State) -> State:
        return _combined_input_gates(sums, recurrent @ state[0], state[1])

    return Cell(step, prepare=lambda inputs: in_groups(input_sums, inputs, input_steps))


def combined_input_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    make_cell = partial(combined_input_cell, input_steps=config.input_steps)
    return LoopStack(config, initial, make_cell, transposed=True)


@compile_pointwise
def _wave_gates(
    sums: tf.Tensor, products: tf.Tensor, biases: tf.Tensor, active: tf.Tensor, output: tf.Tensor, memory: tf.Tensor
) -> State:
    """Return the state of all layers after a wave; `WaveGates` describes the arguments."""
    layers = output.shape[0]
    sums = tf.concat([sums[tf.newaxis], products[layers:]], 0) + products[:layers] + biases
    state = state_from_sums(sums, memory, axis=1)
    return tf.where(active, state[0], output), tf.where(active, state[1], memory)


def wavefront_stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> Wavefront:
    return Wavefront(config, initial, _wave_gates)
