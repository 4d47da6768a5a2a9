"""The ladder's sixth rung: as `pretransposed`, and the input's product of all time steps made at once before the loop.

What is left in a step is the recurrent product and one kernel.
"""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.cell import one_kernel, split_state
from workloads.lstm.config import LstmConfig
from workloads.lstm.loop import Cell, State
from workloads.lstm.loop_stack import LoopStack
from workloads.lstm.weights import Weights


@one_kernel
def _gates(sums: tf.Tensor, product: tf.Tensor, before: tf.Tensor) -> State:
    return split_state(sums + product, before, axis=0)


def input_sums(weights: Weights, inputs: tf.Tensor) -> tf.Tensor:
    """The input's part of the gates' sums at all steps, [timesteps, 4 units, batch], by one product."""
    steps, width, batch = inputs.shape
    columns = tf.reshape(tf.transpose(inputs, [1, 0, 2]), [width, steps * batch])
    products = tf.matmul(weights.kernel, columns, transpose_a=True) + weights.bias[:, tf.newaxis]
    return tf.transpose(tf.reshape(products, [-1, steps, batch]), [1, 0, 2])


def cell(weights: Weights) -> Cell:
    """The recurrent product and one kernel a step."""
    recurrent = tf.transpose(weights.recurrent)

    def step(sums: tf.Tensor, state: State) -> State:
        return _gates(sums, recurrent @ state[0], state[1])

    return Cell(step, prepare=lambda inputs: input_sums(weights, inputs))


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Layers of this cell."""
    return LoopStack(config, initial, cell, transposed=True)
