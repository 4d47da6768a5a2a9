"""The recurrent workloads: a stack of layers, a dense head on its last output, the adding problem, Adam."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import keras
import tensorflow as tf

from workloads.protocol import Variant
from workloads.recurrent import ADAM_RATE, RecurrentConfig, weight_shapes
from workloads.recurrent_layers import config_of
from workloads.seeding import map_in_threads, recurrent_weights, synthetic_batch
from workloads.tensorflow.gru import ladder as gru_ladder
from workloads.tensorflow.lstm import block_ops, ladder
from workloads.tensorflow.optimizers import Adam
from workloads.tensorflow.recipe import Recipe
from workloads.tensorflow.recurrent.loop import BaseStack, LoopStack, MakeStack, Stack, Weights, valid_steps


class CudnnStack(BaseStack):
    """Layers computed by cuDNN alone, on a GPU."""

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """Return the outputs of the top layer; padding must be at the end."""
        config = self._config
        layers = self._layers(inputs.dtype)
        batch, steps, _ = inputs.shape
        start = tf.zeros([config.layers * config.directions, batch, config.units], inputs.dtype)
        result = tf.raw_ops.CudnnRNNV3(
            input=tf.transpose(inputs, [1, 0, 2]),
            input_h=start,
            input_c=start if config.state_parts == 2 else tf.zeros([], inputs.dtype),
            params=_packed_parameters([weights for layer in layers for weights in layer], config.cudnn_gates),
            sequence_lengths=tf.fill([batch], steps)
            if valid is None
            else tf.cast(tf.reduce_sum(tf.cast(valid, tf.int64), 1), tf.int32),
            rnn_mode=config.keras_name.lower(),
            direction="bidirectional" if config.bidirectional else "unidirectional",
            dropout=config.dropout if training else 0.0,
            seed=config.seed,
            seed2=_replica(),
            is_training=training,
        )
        if config.all_outputs:
            return tf.transpose(result.output, [1, 0, 2])
        return tf.concat(tf.unstack(result.output_h[-config.directions :]), 1)


def _replica() -> int:
    """Return the number of the replica that runs this code: masks differ between replicas."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group) or 0) if context else 0


def _packed_parameters(directions: Sequence[Weights], order: Sequence[int]) -> tf.Tensor:
    """Return the buffer for cuDNN: the matrices of all directions, each gate transposed, then two biases per direction.

    cuDNN adds a bias to the input's and to the recurrent product; for a cell with one bias the first is zero.

    Directions are in the order of layers. `order` lists the positions of cuDNN's gates among the cell's
    (cudnnGetRNNWeightParams: an LSTM's are input, forget, cell, output; a GRU's reset, update, candidate).
    """

    def ordered(tensor: tf.Tensor) -> tf.Tensor:
        gates = tf.split(tensor, len(order), -1)
        return tf.concat([gates[gate] for gate in order], -1)

    matrices = [tf.transpose(ordered(matrix)) for weights in directions for matrix in weights[:2]]
    biases = [
        ordered(bias) if bias.shape.rank == 2 else tf.stack([tf.zeros_like(bias), ordered(bias)])
        for *_, bias in directions
    ]
    return tf.concat([tf.reshape(piece, [-1]) for piece in (*matrices, *biases)], 0)


UseCudnn = bool | Literal["auto"]


class KerasStack:
    """Keras layers, each direction its own layer: `Bidirectional` copies a layer without its `use_cudnn`.

    With recurrent dropout Keras draws one mask per gate, the other implementations one for all.
    """

    def __init__(self, config: RecurrentConfig, initial: Sequence[tf.Tensor], use_cudnn: UseCudnn) -> None:
        self.layers = [
            [_keras_layer(config, use_cudnn, depth, backwards) for backwards in (False, True)[: config.directions]]
            for depth in range(config.layers)
        ]
        variables = [variable for layer in self._all_layers() for variable in layer.trainable_variables]
        for variable, value in zip(variables, initial, strict=True):
            variable.assign(value)

    @property
    def weights(self) -> Sequence[tf.Variable]:
        return [variable.value for layer in self._all_layers() for variable in layer.trainable_variables]

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        for directions in self.layers:
            outputs = [_restore_time_order(layer, layer(inputs, mask=valid, training=training)) for layer in directions]
            inputs = tf.concat(outputs, axis=-1) if len(outputs) > 1 else outputs[0]
        return inputs

    def _all_layers(self) -> list[keras.layers.RNN]:
        return [layer for directions in self.layers for layer in directions]


def _keras_layer(config: RecurrentConfig, use_cudnn: UseCudnn, depth: int, backwards: bool) -> keras.layers.RNN:
    """Return one direction of one layer; its weights are zero until they are assigned."""
    layer = getattr(keras.layers, config.keras_name)(
        config.units,
        activation=config.activation,
        return_sequences=config.all_outputs or depth < config.layers - 1,
        go_backwards=backwards,
        dropout=config.dropout,
        recurrent_dropout=config.recurrent_dropout,
        seed=config.seed + 2 * depth + backwards,
        use_cudnn=use_cudnn,
        kernel_initializer="zeros",
        recurrent_initializer="zeros",
    )
    layer.build((None, None, config.width(depth)))
    return layer


def _restore_time_order(layer: keras.layers.RNN, outputs: tf.Tensor) -> tf.Tensor:
    return tf.reverse(outputs, [1]) if layer.go_backwards and layer.return_sequences else outputs


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
"""The function that creates each implementation's stack, by workload as in `workloads.recurrent_layers`."""


class RecurrentModel:
    """A stack and a dense head in float32, on the last output or on all, as configured.

    Inputs are sequences [batch, timesteps, features], or (sequences, lengths [batch]) where their lengths differ.
    """

    def __init__(self, config: RecurrentConfig, stack: Stack, head: Sequence[tf.Tensor]) -> None:
        self.weight_names: Sequence[str] = list(weight_shapes(config))
        self.stack = stack
        self._kernel, self._bias = (tf.Variable(value) for value in head)
        self._config = config

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables in the layout of `recurrent.loop`, for every implementation."""
        return [*self.stack.weights, self._kernel, self._bias]

    def set_weights(self, values: Sequence[Any]) -> None:
        """Assign another model's weights, arrays or tensors in the same order and shapes."""
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(value)

    def loss(self, inputs: Any, targets: tf.Tensor) -> tf.Tensor:
        """Return the mean squared error; for all outputs, each sequence's mean over its true steps, averaged."""
        answers, valid = self._answers(inputs, training=True)
        errors = tf.square(answers - targets)
        if valid is not None and self._config.all_outputs:
            counted = tf.cast(valid, tf.float32)[..., tf.newaxis]
            errors = tf.reduce_sum(errors * counted, 1) / tf.reduce_sum(counted, 1)
        return tf.reduce_mean(errors)

    def outputs(self, inputs: Any) -> tf.Tensor:
        """Return the sums that it computes for the sequences, [batch, 1] or [batch, timesteps, 1]; 0 at padding."""
        answers, valid = self._answers(inputs, training=False)
        if valid is None or not self._config.all_outputs:
            return answers
        return tf.where(valid[..., tf.newaxis], answers, 0.0)

    def _answers(self, inputs: Any, *, training: bool) -> tuple[tf.Tensor, tf.Tensor | None]:
        sequences, lengths = inputs if isinstance(inputs, tuple) else (inputs, None)
        valid = None
        if lengths is not None:
            valid = valid_steps(lengths, sequences.shape[1], left_padded=self._config.left_padded)
        outputs = self.stack(sequences, valid, training=training)
        return tf.tensordot(tf.cast(outputs, tf.float32), self._kernel, 1) + self._bias, valid


def recurrent_model(workload: str, variant: Variant) -> RecurrentModel:
    config = config_of(workload, variant)
    *layers, kernel, bias = recurrent_weights(config)
    stack = STACKS[workload][str(variant["implementation"])](config, layers)
    return RecurrentModel(config, stack, (kernel, bias))


def recipe_of(workload: str) -> Callable[[Variant], Recipe]:
    def recipe(variant: Variant) -> Recipe:
        return Recipe(
            model=lambda: recurrent_model(workload, variant),
            optimizer=lambda weights: Adam(weights, ADAM_RATE),
            elementwise=True,
            batch=partial(synthetic_batch, workload, variant),
            map_batches=map_in_threads,
        )

    return recipe
