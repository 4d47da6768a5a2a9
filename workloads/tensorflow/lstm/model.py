"""The recurrent workloads: a stack of layers, a dense head on its last output, the adding problem, Adam."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from workloads.protocol import Variant
from workloads.recurrent import RecurrentConfig, weight_shapes
from workloads.recurrent_layers import config_of
from workloads.tensorflow.gru import ladder as gru_ladder
from workloads.tensorflow.lstm import block_ops, fused_ops, ladder
from workloads.tensorflow.optimizers import Adam
from workloads.tensorflow.recipe import Recipe
from workloads.tensorflow.recurrent.loop import MakeStack, Stack, initial_weights, valid_steps
from workloads.tensorflow.synthetic import adding_problem

_LSTM_STACKS: dict[str, MakeStack[Any]] = {
    "standard": fused_ops.keras_standard_stack,
    "cudnn": fused_ops.keras_cudnn_stack,
    "auto": fused_ops.keras_auto_stack,
    "block_fused": block_ops.block_fused_stack,
    "block_cell": block_ops.block_cell_stack,
    "cudnn_stack": fused_ops.single_call_stack,
    "gemm8": ladder.gemm8_stack,
    "gemm2": ladder.gemm2_stack,
    "gemm_batched": ladder.gemm_batched_stack,
    "fused": ladder.fused_stack,
    "pretransposed": ladder.pretransposed_stack,
    "combined_input": ladder.combined_input_stack,
    "wavefront": ladder.wavefront_stack,
}
_GRU_STACKS: dict[str, MakeStack[Any]] = {
    "standard": fused_ops.keras_standard_stack,
    "cudnn": fused_ops.keras_cudnn_stack,
    "auto": fused_ops.keras_auto_stack,
    "cudnn_stack": fused_ops.single_call_stack,
    "gemm6": gru_ladder.gemm6_stack,
    "gemm2": gru_ladder.gemm2_stack,
    "gemm_batched": gru_ladder.gemm_batched_stack,
    "fused": gru_ladder.fused_stack,
    "combined_input": gru_ladder.combined_input_stack,
}
STACKS = {"lstm": _LSTM_STACKS, "gru": _GRU_STACKS}
"""Who makes the stack of each implementation, by workload as in `workloads.recurrent_layers`."""


class RecurrentModel:
    """A stack and a dense head in float32.

    Inputs are sequences [batch, timesteps, features], or (sequences, lengths [batch]) where their lengths differ.
    """

    def __init__(
        self, config: RecurrentConfig, stack: Stack, head: Sequence[tf.Tensor], *, left_padded: bool = False
    ) -> None:
        self.weight_names: Sequence[str] = list(weight_shapes(config))
        self.stack = stack
        self._kernel, self._bias = (tf.Variable(value) for value in head)
        self._left_padded = left_padded

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables in the layout of `recurrent.loop`, whatever the implementation."""
        return [*self.stack.weights, self._kernel, self._bias]

    def set_weights(self, values: Sequence[Any]) -> None:
        """Assign another model's weights, arrays or tensors in the same order and shapes."""
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(value)

    def loss(self, inputs: Any, targets: tf.Tensor) -> tf.Tensor:
        """Return the mean squared error."""
        return tf.reduce_mean(tf.square(self._answers(inputs, training=True) - targets))

    def outputs(self, inputs: Any) -> tf.Tensor:
        """Return the sums that it reads from the sequences, [batch, 1]."""
        return self._answers(inputs, training=False)

    def _answers(self, inputs: Any, *, training: bool) -> tf.Tensor:
        sequences, lengths = inputs if isinstance(inputs, tuple) else (inputs, None)
        valid = None
        if lengths is not None:
            valid = valid_steps(lengths, sequences.shape[1], left=self._left_padded)
        last = self.stack(sequences, valid, training=training)
        return tf.cast(last, tf.float32) @ self._kernel + self._bias


def recurrent_model(workload: str, variant: Variant) -> RecurrentModel:
    """Return the model of a variant with its initial weights."""
    config = config_of(workload, variant)
    *layers, kernel, bias = initial_weights(config)
    stack = STACKS[workload][str(variant["implementation"])](config, layers)
    return RecurrentModel(config, stack, (kernel, bias), left_padded=variant["sequence_lengths"] == "left_padded")


def recipe_of(workload: str) -> Callable[[Variant], Recipe]:
    """Return the function that gives the recipe of a variant of a recurrent workload on the adding problem."""

    def recipe(variant: Variant) -> Recipe:
        sizes = (int(variant["batch_size"]), int(variant["timesteps"]), int(variant["features"]))
        seed, padding = int(variant["seed"]), str(variant["sequence_lengths"])
        return Recipe(
            model=lambda: recurrent_model(workload, variant),
            optimizer=lambda weights: Adam(weights, 0.003),
            batch=lambda index: adding_problem(seed, index, *sizes, padding=padding),
        )

    return recipe
