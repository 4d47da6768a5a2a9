"""The ladder's second rung, combined products: one product for the input of all four gates, one for the recurrence."""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.cell import split_state
from workloads.lstm.config import LstmConfig
from workloads.lstm.loop import Cell, State
from workloads.lstm.loop_stack import LoopStack
from workloads.lstm.weights import Weights


def cell(weights: Weights) -> Cell:
    """Two products a step."""

    def step(inputs: tf.Tensor, state: State) -> State:
        sums = inputs @ weights.kernel + state[0] @ weights.recurrent + weights.bias
        return split_state(sums, state[1], axis=1)

    return Cell(step)


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Layers of this cell."""
    return LoopStack(config, initial, cell)
