"""The ladder's fifth rung: as `fused`, and the weights transposed once before the loop.

State and sums stay transposed too, [units, batch] and [4 units, batch], so each gate is one contiguous piece.
"""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.cell import one_kernel, split_state
from workloads.lstm.config import LstmConfig
from workloads.lstm.loop import Cell, State
from workloads.lstm.loop_stack import LoopStack
from workloads.lstm.padding import filled
from workloads.lstm.weights import Weights


@one_kernel
def _gates(products: tf.Tensor, bias: tf.Tensor, before: tf.Tensor) -> State:
    return split_state(products[0] + products[1] + bias, before, axis=0)


def cell(weights: Weights) -> Cell:
    """One batched product, [2, 4 units, width] x [2, width, batch], and one kernel a step."""
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    parts = [filled(tf.transpose(part), 1, width) for part in (weights.kernel, weights.recurrent)]
    both, bias = tf.stack(parts), weights.bias[:, tf.newaxis]

    def step(inputs: tf.Tensor, state: State) -> State:
        products = both @ tf.stack([inputs, filled(state[0], 0, width)])
        return _gates(products, bias, state[1])

    return Cell(step, prepare=lambda inputs: filled(inputs, 1, width))


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Layers of this cell."""
    return LoopStack(config, initial, cell, transposed=True)
