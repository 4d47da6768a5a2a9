"""The LSTM workload: a stack of layers, a dense head on its last output, the adding problem, Adam."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from workloads.data import adding_problem
from workloads.lstm import (
    auto,
    block_fused,
    combined_input,
    cudnn,
    cudnn_stack,
    fused,
    gemm2,
    gemm8,
    gemm_batched,
    pretransposed,
    standard,
    wavefront,
)
from workloads.lstm.config import config_of
from workloads.lstm.padding import valid_steps
from workloads.lstm.stack import MakeStack, Stack
from workloads.lstm.weights import initial_weights
from workloads.optimizers import Adam
from workloads.protocol import Variant
from workloads.recipe import Recipe

_STACKS: dict[str, MakeStack] = {
    "standard": standard.stack,
    "cudnn": cudnn.stack,
    "auto": auto.stack,
    "block_fused": block_fused.stack,
    "cudnn_stack": cudnn_stack.stack,
    "gemm8": gemm8.stack,
    "gemm2": gemm2.stack,
    "gemm_batched": gemm_batched.stack,
    "fused": fused.stack,
    "pretransposed": pretransposed.stack,
    "combined_input": combined_input.stack,
    "wavefront": wavefront.stack,
}


class LstmModel:
    """A stack and a dense head in float32.

    Inputs are sequences [batch, timesteps, features], or (sequences, lengths [batch]) where their lengths differ.
    """

    def __init__(self, stack: Stack, head: Sequence[tf.Tensor], *, left_padded: bool = False) -> None:
        self.stack = stack
        self._kernel, self._bias = (tf.Variable(value) for value in head)
        self._left_padded = left_padded

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables in the layout of `workloads.lstm.weights`, whatever the implementation."""
        return [*self.stack.weights, self._kernel, self._bias]

    def set_weights(self, values: Sequence[Any]) -> None:
        """Take over another model's weights, arrays or tensors in the same order and shapes."""
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(value)

    def loss(self, inputs: Any, targets: tf.Tensor) -> tf.Tensor:
        """Mean squared error."""
        return tf.reduce_mean(tf.square(self._answers(inputs, training=True) - targets))

    def outputs(self, inputs: Any) -> tf.Tensor:
        """The sums it reads from the sequences, [batch, 1]."""
        return self._answers(inputs, training=False)

    def _answers(self, inputs: Any, *, training: bool) -> tf.Tensor:
        sequences, lengths = inputs if isinstance(inputs, tuple) else (inputs, None)
        valid = None
        if lengths is not None:
            valid = valid_steps(lengths, sequences.shape[1], left=self._left_padded)
        last = self.stack(sequences, valid, training=training)
        return tf.cast(last, tf.float32) @ self._kernel + self._bias


def lstm_model(variant: Variant) -> LstmModel:
    """The model of a variant with its initial weights."""
    config = config_of(variant)
    *layers, kernel, bias = initial_weights(config)
    stack = _STACKS[str(variant["implementation"])](config, layers)
    return LstmModel(stack, (kernel, bias), left_padded=variant["sequence_lengths"] == "left_padded")


def recipe(variant: Variant) -> Recipe:
    """The LSTM of a variant on the adding problem."""
    sizes = (int(variant["batch_size"]), int(variant["timesteps"]), int(variant["features"]))
    seed, padding = int(variant["seed"]), str(variant["sequence_lengths"])
    return Recipe(
        model=lambda: lstm_model(variant),
        optimizer=lambda weights: Adam(weights, 0.003),
        batch=lambda index: adding_problem(seed, index, *sizes, padding=padding),
    )
