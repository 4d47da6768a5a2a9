"""The rungs of the optimisation ladder for a GRU, from six products per step to one.

They are those of the LSTM (`workloads.tensorflow.lstm.ladder`) with cuDNN's variant of the cell of Cho et al. 2014
(arXiv 1406.1078): the reset gate multiplies the candidate's finished recurrent product, so that one product serves all
three gates.

1. `gemm6`: six matrix products per step, one per gate for the input and one for the recurrence, single ops. 2. `gemm2`:
one product for the input of all three gates, one for the recurrence. 3. `gemm_batched`: both as one batched product;
the narrower one is filled up with zeros. 4. `fused`: and all arithmetic of the gates compiled to one kernel. 5.
`combined_input`: and the input's product of all time steps, or of `input_steps` at a time, made before the loop. 6.
`wavefront`: all layers at once, in `workloads.tensorflow.recurrent.wavefront`.

A direction's bias is [2, 3 units]: of the input's and of the recurrent product.
"""

from collections.abc import Sequence
from functools import partial

import tensorflow as tf

from workloads.recurrent_layers import GRU_GATES, GruConfig
from workloads.tensorflow.recurrent.loop import (
    Cell,
    LoopStack,
    State,
    Weights,
    batched_cell,
    compile_pointwise,
    in_groups,
)
from workloads.tensorflow.recurrent.wavefront import Wavefront


def next_state(inputs: Sequence[tf.Tensor], recurrent: Sequence[tf.Tensor], output: tf.Tensor) -> State:
    """Return the state after a step: h' = u h + (1 - u) tanh(x + s(r) y), where u = s(z); s is the sigmoid.

    z and r are the sums of the update and the reset gate, x and y those of the candidate. `inputs` and `recurrent` are
    the input's and the recurrence's part of the sums of update gate, reset gate and candidate; all of one shape.
    `output` is the one before the step.
    """
    update = tf.sigmoid(inputs[0] + recurrent[0])
    candidate = tf.tanh(inputs[2] + tf.sigmoid(inputs[1] + recurrent[1]) * recurrent[2])
    return (update * output + (1 - update) * candidate,)


def state_from_sums(inputs: tf.Tensor, recurrent: tf.Tensor, output: tf.Tensor) -> State:
    """Return the state after a step.

    `inputs` and `recurrent` are the input's and the recurrence's part of the sums of all gates, side by side on the
    axis 1: [batch, 3 units]. `output` is the one before the step, [batch, units].
    """
    return next_state(tf.split(inputs, GRU_GATES, 1), tf.split(recurrent, GRU_GATES, 1), output)


def gemm6_cell(weights: Weights) -> Cell:
    """Return rung 1: six products per step, each gate with its own two."""
    kernels, recurrents = tf.split(weights.kernel, GRU_GATES, 1), tf.split(weights.recurrent, GRU_GATES, 1)
    input_biases, recurrent_biases = (tf.split(bias, GRU_GATES) for bias in tf.unstack(weights.bias))

    def step(inputs: tf.Tensor, state: State) -> State:
        return next_state(
            [inputs @ kernel + bias for kernel, bias in zip(kernels, input_biases, strict=True)],
            [state[0] @ recurrent + bias for recurrent, bias in zip(recurrents, recurrent_biases, strict=True)],
            state[-1],
        )

    return Cell(step)


def gemm2_cell(weights: Weights) -> Cell:
    """Return rung 2: two products per step."""

    def step(inputs: tf.Tensor, state: State) -> State:
        sums = inputs @ weights.kernel + weights.bias[0]
        return state_from_sums(sums, state[0] @ weights.recurrent + weights.bias[1], state[-1])

    return Cell(step)


def _batched_gates(products: tf.Tensor, biases: tf.Tensor, output: tf.Tensor) -> State:
    """Return the state after a step; `products` are [2, batch, 3 units], `biases` [2, 1, 3 units]."""
    inputs, recurrent = tf.unstack(products + biases)
    return state_from_sums(inputs, recurrent, output)


_fused_batched_gates = compile_pointwise(_batched_gates)


def gemm_batched_cell(weights: Weights) -> Cell:
    """Return rung 3: one batched product per step."""
    return batched_cell(weights, weights.bias[:, tf.newaxis], _batched_gates)


def fused_cell(weights: Weights) -> Cell:
    """Return rung 4: one batched product and one kernel per step."""
    return batched_cell(weights, weights.bias[:, tf.newaxis], _fused_batched_gates)


@compile_pointwise
def _combined_input_gates(inputs: tf.Tensor, product: tf.Tensor, bias: tf.Tensor, output: tf.Tensor) -> State:
    return state_from_sums(inputs, product + bias, output)


def combined_input_cell(weights: Weights, input_steps: int) -> Cell:
    """Return rung 5: the recurrent product and one kernel per step."""

    def product(inputs: tf.Tensor) -> tf.Tensor:
        steps, batch, width = inputs.shape
        sums = tf.reshape(inputs, [steps * batch, width]) @ weights.kernel + weights.bias[0]
        return tf.reshape(sums, [steps, batch, -1])

    def step(sums: tf.Tensor, state: State) -> State:
        return _combined_input_gates(sums, state[0] @ weights.recurrent, weights.bias[1], state[-1])

    return Cell(step, prepare=lambda inputs: in_groups(product, inputs, input_steps))


def combined_input_stack(config: GruConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    return LoopStack(config, initial, partial(combined_input_cell, input_steps=config.input_steps))


@compile_pointwise
def _wave_gates(sums: tf.Tensor, products: tf.Tensor, biases: tf.Tensor, active: tf.Tensor, output: tf.Tensor) -> State:
    """Return the state of all layers after a wave; `WaveGates` describes the arguments."""
    layers = output.shape[0]
    inputs = tf.concat([sums[tf.newaxis], products[layers:]], 0) + biases[0]
    (updated,) = state_from_sums(inputs, products[:layers] + biases[1], output)
    return (tf.where(active, updated, output),)


def wavefront_stack(config: GruConfig, initial: Sequence[tf.Tensor]) -> Wavefront:
    return Wavefront(config, initial, _wave_gates)
