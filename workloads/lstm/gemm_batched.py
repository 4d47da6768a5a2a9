"""The ladder's third rung, in place of streamed products: the input's and the recurrence's product as one batched one.

The article runs independent products at the same time on several CUDA streams. TensorFlow computes on one stream a GPU,
so two products can only run side by side as one batched product; the narrower of the two is filled up with zeros where
features and units differ.
"""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.cell import split_state
from workloads.lstm.config import LstmConfig
from workloads.lstm.loop import Cell, State
from workloads.lstm.loop_stack import LoopStack
from workloads.lstm.padding import filled
from workloads.lstm.weights import Weights


def cell(weights: Weights) -> Cell:
    """One batched product a step, [2, batch, width] x [2, width, 4 units]."""
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    both = tf.stack([filled(weights.kernel, 0, width), filled(weights.recurrent, 0, width)])

    def step(inputs: tf.Tensor, state: State) -> State:
        products = tf.stack([inputs, filled(state[0], 1, width)]) @ both
        return split_state(products[0] + products[1] + weights.bias, state[1], axis=1)

    return Cell(step, prepare=lambda inputs: filled(inputs, 2, width))


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> LoopStack:
    """Layers of this cell."""
    return LoopStack(config, initial, cell)
