"""The ladder's fourth rung: as `gemm_batched`, and all arithmetic of the gates compiled to one kernel."""

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
    return split_state(products[0] + products[1] + bias, before, axis=1)


def cell(weights: Weights) -> Cell:
    """One batched product and one kernel a step."""
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    both = tf.stack([filled(weights.kernel, 0, width), filled(weights.recurrent, 0, width)])

    def step(inputs: tf.Tensor, state: State) -> State:
        products = tf.stack([inputs, filled(state[0], 1, width)]) @ both
        return _gates(products, weights.bias, state[1])

    return Cell(step, prepare=lambda inputs: filled(inputs, 2, width))


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Layers of this cell."""
    return LoopStack(config, initial, cell)
