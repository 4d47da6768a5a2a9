"""The recurrent workloads: a stack of layers, a dense head on its last output, the adding problem, Adam."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from workloads.protocol import Variant
from workloads.recurrent import RecurrentConfig, weight_shapes
from workloads.recurrent_layers import config_of
from workloads.tensorflow.gru import ladder as gru_ladder
from workloads.tensorflow.lstm import block_ops, ladder
from workloads.tensorflow.optimizers import Adam
from workloads.tensorflow.recipe import Recipe
from workloads.tensorflow.recurrent.library_stacks import CudnnStack, KerasStack
from workloads.tensorflow.recurrent.loop import LoopStack, MakeStack, Stack, initial_weights, valid_steps
from workloads.tensorflow.synthetic import adding_problem

_LIBRARY_STACKS: dict[str, MakeStack[Any]] = {
    "standard": partial(KerasStack, use_cudnn=False),
    "cudnn": partial(KerasStack, use_cudnn=True),
    "auto": partial(KerasStack, use_cudnn="auto"),
    "cudnn_stack": CudnnStack,
}
_LSTM_STACKS: dict[str, MakeStack[Any]] = {
    **_LIBRARY_STACKS,
    "block_fused": block_ops.BlockFused,
    "block_cell": partial(LoopStack, make_cell=block_ops.block_cell),
    "gemm8": partial(LoopStack, make_cell=ladder.gemm8_cell),
    "gemm2": partial(LoopStack, make_cell=ladder.gemm2_cell),
    "gemm_batched": partial(LoopStack, make_cell=ladder.gemm_batched_cell),
    "fused": partial(LoopStack, make_cell=ladder.fused_cell),
    "transposed": partial(LoopStack, make_cell=ladder.transposed_cell, transposed=True),
    "pretransposed": partial(LoopStack, make_cell=ladder.pretransposed_cell, transposed=True),
    "combined_input": ladder.combined_input_stack,
    "wavefront": ladder.wavefront_stack,
}
_GRU_STACKS: dict[str, MakeStack[Any]] = {
    **_LIBRARY_STACKS,
    "gemm6": partial(LoopStack, make_cell=gru_ladder.gemm6_cell),
    "gemm2": partial(LoopStack, make_cell=gru_ladder.gemm2_cell),
    "gemm_batched": partial(LoopStack, make_cell=gru_ladder.gemm_batched_cell),
    "fused": partial(LoopStack, make_cell=gru_ladder.fused_cell),
    "combined_input": gru_ladder.combined_input_stack,
    "wavefront": gru_ladder.wavefront_stack,
}
STACKS = {"lstm": _LSTM_STACKS, "gru": _GRU_STACKS}
"""Who makes the stack of each implementation, by workload as in `workloads.recurrent_layers`."""


class RecurrentModel:
    """A stack and a dense head in float32, on the last output or, if the configuration says so, on all.

    Inputs are sequences [batch, timesteps, features], or (sequences, lengths [batch]) where their lengths differ.
    """

    def __init__(self, config: RecurrentConfig, stack: Stack, head: Sequence[tf.Tensor]) -> None:
        self.weight_names: Sequence[str] = list(weight_shapes(config))
        self.stack = stack
        self._kernel, self._bias = (tf.Variable(value) for value in head)
        self._config = config

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables in the layout of `recurrent.loop`, whatever the implementation."""
        return [*self.stack.weights, self._kernel, self._bias]

    def set_weights(self, values: Sequence[Any]) -> None:
        """Assign another model's weights, arrays or tensors in the same order and shapes."""
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(value)

    def loss(self, inputs: Any, targets: tf.Tensor) -> tf.Tensor:
        """Return the mean squared error; of all outputs, the mean over the sequences of that at their true steps."""
        answers, valid = self._answers(inputs, training=True)
        errors = tf.square(answers - targets)
        if valid is not None and self._config.all_outputs:
            counted = tf.cast(valid, tf.float32)[..., tf.newaxis]
            errors = tf.reduce_sum(errors * counted, 1) / tf.reduce_sum(counted, 1)
        return tf.reduce_mean(errors)

    def outputs(self, inputs: Any) -> tf.Tensor:
        """Return the sums that it reads from the sequences, [batch, 1] or [batch, timesteps, 1]; 0 at padding."""
        answers, valid = self._answers(inputs, training=False)
        if valid is None or not self._config.all_outputs:
            return answers
        return tf.where(valid[..., tf.newaxis], answers, 0.0)

    def _answers(self, inputs: Any, *, training: bool) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the answers, and which steps are no padding."""
        sequences, lengths = inputs if isinstance(inputs, tuple) else (inputs, None)
        valid = None
        if lengths is not None:
            valid = valid_steps(lengths, sequences.shape[1], left=self._config.left_padded)
        outputs = self.stack(sequences, valid, training=training)
        return tf.tensordot(tf.cast(outputs, tf.float32), self._kernel, 1) + self._bias, valid


def recurrent_model(workload: str, variant: Variant) -> RecurrentModel:
    """Return the model of a variant with its initial weights."""
    config = config_of(workload, variant)
    *layers, kernel, bias = initial_weights(config)
    stack = STACKS[workload][str(variant["implementation"])](config, layers)
    return RecurrentModel(config, stack, (kernel, bias))


def recipe_of(workload: str) -> Callable[[Variant], Recipe]:
    """Return the function that gives the recipe of a variant of a recurrent workload on the adding problem."""

    def recipe(variant: Variant) -> Recipe:
        sizes = (int(variant["batch_size"]), int(variant["timesteps"]), int(variant["features"]))
        seed, config = int(variant["seed"]), config_of(workload, variant)
        return Recipe(
            model=lambda: recurrent_model(workload, variant),
            optimizer=lambda weights: Adam(weights, 0.003),
            elementwise=True,
            batch=lambda index: adding_problem(
                seed, index, *sizes, padding=config.sequence_lengths, running=config.all_outputs
            ),
        )

    return recipe
