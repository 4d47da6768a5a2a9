"""The ladder's first rung: eight matrix products a step, one for each gate and for input and recurrence.

Every addition and activation is an op of its own.
"""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.cell import next_state
from workloads.lstm.config import LstmConfig
from workloads.lstm.layout import GATES
from workloads.lstm.loop import Cell, State
from workloads.lstm.loop_stack import LoopStack
from workloads.lstm.weights import Weights


def cell(weights: Weights) -> Cell:
    """Each gate with its own products."""
    kernels, recurrents = tf.split(weights.kernel, GATES, 1), tf.split(weights.recurrent, GATES, 1)
    biases = tf.split(weights.bias, GATES)

    def step(inputs: tf.Tensor, state: State) -> State:
        i, f, g, o = (
            inputs @ kernel + state[0] @ recurrent + bias
            for kernel, recurrent, bias in zip(kernels, recurrents, biases, strict=True)
        )
        return next_state(i, f, g, o, state[1])

    return Cell(step)


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Layers of this cell."""
    return LoopStack(config, initial, cell)
