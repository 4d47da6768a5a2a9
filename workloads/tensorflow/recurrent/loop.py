"""The common parts of recurrent implementations: stacks and their weights, and the loop over time steps.

For each layer and direction, from the first layer up, forward before backward: kernel [inputs, gates * units],
recurrent kernel [units, gates * units], bias; the order of the gates is Keras's. Then the head's kernel and bias.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import tensorflow as tf

from workloads.recurrent import RecurrentConfig
from workloads.tensorflow.recipe import compile_function


class Weights(NamedTuple):
    """The weights of one direction of one layer, as variables or as tensors."""

    kernel: tf.Tensor
    recurrent: tf.Tensor
    bias: tf.Tensor


def group_by_layer(flat: Sequence[tf.Tensor], config: RecurrentConfig) -> list[list[Weights]]:
    per_direction = len(Weights._fields)
    directions = [Weights(*flat[start : start + per_direction]) for start in range(0, len(flat), per_direction)]
    return [directions[start : start + config.directions] for start in range(0, len(directions), config.directions)]


class Stack(Protocol):
    """Layers of one or two directions, computed in the type of the inputs."""

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables in the layout of `workloads.tensorflow.recurrent.loop`, float32."""

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """Return the top layer's last outputs, [batch, directions * units], or all of them, as configured.

        The backward direction's last output is that of the first step in time. All are [batch, timesteps, directions *
        units], in the order of time; those at padding are undefined.

        Inputs are [batch, timesteps, features]. `valid` marks the steps that are not padding, [batch, timesteps], None
        if all are true steps; padding changes no state. `training` enables dropout.
        """


class BaseStack:
    """The base of all stacks except Keras's: their variables have the common layout."""

    def __init__(self, config: RecurrentConfig, initial: Sequence[tf.Tensor]) -> None:
        self._config = config
        self._weights = [tf.Variable(value) for value in initial]

    @property
    def weights(self) -> Sequence[tf.Variable]:
        return self._weights

    def _layers(self, dtype: tf.DType) -> list[list[Weights]]:
        """Return the weights cast once to the type to compute in, layer by layer, direction by direction."""
        return group_by_layer([tf.cast(weight, dtype) for weight in self._weights], self._config)


_Config = TypeVar("_Config", bound=RecurrentConfig)

MakeStack = Callable[[_Config, Sequence[tf.Tensor]], Stack]
"""Creates a stack from a configuration and the stack's initial weights."""


State = tuple[tf.Tensor, ...]
"""A direction's output h, then the rest of its state, such as an LSTM's cell c; each [batch, units], or [units, batch]
if everything is transposed."""

Step = Callable[[Any, State], State]
"""Returns the state after a step, from the step's inputs and the state before it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One direction of one layer: its step, and what it computes from all inputs [timesteps, ...] before the loop."""

    step: Step
    prepare: Callable[[tf.Tensor], tf.Tensor] = lambda inputs: inputs


MakeCell = Callable[[Weights], Cell]
"""Creates a cell from a direction's weights, already in the type to compute in."""


def compile_pointwise(function: Callable[..., State]) -> Callable[..., State]:
    """Compile a point-wise function to one kernel, and its gradient to another.

    The gradient recomputes the forward values, so that only the function's inputs are kept, where TensorFlow would
    store every intermediate value of every time step.
    """

    def gradient(inputs: tuple[tf.Tensor, ...], gradients: tuple[tf.Tensor, ...]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([tensor for tensor in inputs if tensor.dtype.is_floating])
            outputs = function(*inputs)
        return tape.gradient(outputs, inputs, gradients)

    forward, backward = compile_function(function), compile_function(gradient)

    def with_gradient(*inputs: tf.Tensor) -> tuple[State, Callable[..., Any]]:
        return forward(*inputs), lambda *gradients: backward(inputs, gradients)

    compiled_function: Callable[..., State] = tf.custom_gradient(with_gradient)
    return compiled_function


def run_loop(
    step: Step,
    inputs: Any,
    state: State,
    *,
    unroll: int = 1,
    backwards: bool = False,
    sequence: bool = False,
    output: Callable[[State], tf.Tensor] = operator.itemgetter(0),
) -> tuple[State, tf.Tensor | None]:
    """Run a step over time.

    `inputs` are any nest of tensors [timesteps, ...]; the step reads the nest of their slices at its time. An iteration
    of the loop runs `unroll` steps; remaining steps follow the loop. With `backwards` the last time comes first.
    `output` selects the step's output from the state after it.

    Returns:
        The state after all steps, and every step's output in the order of time if `sequence` is set, else None.
    """
    steps = tf.nest.flatten(inputs)[0].shape[0]
    arrays = tf.nest.map_structure(lambda tensor: tf.TensorArray(tensor.dtype, steps).unstack(tensor), inputs)
    shape = output(state).shape
    outputs = (tf.TensorArray(state[0].dtype, steps, element_shape=shape),) if sequence else ()
    start_time, direction = (steps - 1, -1) if backwards else (0, 1)

    def iteration(time: tf.Tensor, state: State, outputs: tuple[tf.TensorArray, ...]) -> tuple[Any, ...]:
        for _ in range(unroll):
            state = step(tf.nest.map_structure(lambda array: array.read(time), arrays), state)  # noqa: B023
            outputs = tuple(array.write(time, output(state)) for array in outputs)
            time += direction
        return time, state, outputs

    iterations = steps // unroll
    _, state, outputs = tf.while_loop(
        lambda *_: True, iteration, (tf.constant(start_time), state, outputs), maximum_iterations=iterations
    )
    times = range(steps)[::direction][iterations * unroll :]
    for time, slices in zip(times, _slices(inputs, times), strict=True):
        state = step(slices, state)
        outputs = tuple(array.write(time, output(state)) for array in outputs)
    return state, outputs[0].stack() if outputs else None


def _slices(inputs: Any, times: range) -> list[Any]:
    """Return the nest of slices of each time, without a TensorArray.

    XLA for the CPU crashes (TensorFlow 2.21) on the gradient of consecutive reads of a TensorArray outside a loop.
    """
    if not times:
        return []
    unstacked = [tf.unstack(tensor[min(times) : max(times) + 1])[:: times.step] for tensor in tf.nest.flatten(inputs)]
    return [tf.nest.pack_sequence_as(inputs, slices) for slices in zip(*unstacked, strict=True)]


def padded_step(step: Step) -> Step:
    """Return a step that reads (inputs, valid) and leaves the state unchanged at padding."""

    def masked(inputs: tuple[Any, tf.Tensor], state: State) -> State:
        updated = step(inputs[0], state)
        return tuple(tf.where(inputs[1], value, previous) for value, previous in zip(updated, state, strict=True))

    return masked


def dropout_step(step: Step, mask: tf.Tensor) -> Step:
    """Return a step whose products read the last output multiplied by `mask`.

    A step's products read the first part of the state, everything else the last. With a single part both are the
    output.
    """

    def dropped(inputs: Any, state: State) -> State:
        return step(inputs, (state[0] * mask, state[-1]))

    return dropped


def in_groups(product: Callable[[tf.Tensor], tf.Tensor], inputs: tf.Tensor, steps: int) -> tf.Tensor:
    """Return the product of inputs [timesteps, ...], computed for that many steps at a time; 0 means all."""
    timesteps = inputs.shape[0]
    sizes = [min(steps, timesteps - start) for start in range(0, timesteps, steps)] if steps else [timesteps]
    products = [product(group) for group in (tf.split(inputs, sizes) if len(sizes) > 1 else [inputs])]
    return tf.concat(products, 0) if len(products) > 1 else products[0]


def zero_padded(tensor: tf.Tensor, axis: int, width: int) -> tf.Tensor:
    """Return the tensor with an axis padded with zeros up to a width; unchanged if it has that width."""
    missing = width - tensor.shape[axis]
    if not missing:
        return tensor
    return tf.pad(tensor, [[0, missing if number == axis else 0] for number in range(len(tensor.shape))])


def batched_cell(weights: Weights, bias: tf.Tensor, gates: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], State]) -> Cell:
    """Return a cell of one batched product per step, [2, batch, width] x [2, width, sums], and its gates.

    `gates` returns the state, given the products, the bias, and the last part of the state before the step.
    """
    width = max(weights.kernel.shape[0], weights.recurrent.shape[0])
    matrices = tf.stack([zero_padded(weights.kernel, 0, width), zero_padded(weights.recurrent, 0, width)])

    def step(inputs: tf.Tensor, state: State) -> State:
        return gates(tf.stack([inputs, zero_padded(state[0], 1, width)]) @ matrices, bias, state[-1])

    return Cell(step, prepare=lambda inputs: zero_padded(inputs, 2, width))


def valid_steps(lengths: tf.Tensor, timesteps: int, *, left_padded: bool) -> tf.Tensor:
    """Return which steps are true ones, not padding, as [batch, timesteps].

    `lengths` are the true steps of each sequence, [batch]. With `left_padded` the padding comes first.
    """
    positions = tf.range(timesteps, dtype=lengths.dtype)
    return (positions >= timesteps - lengths[:, tf.newaxis]) if left_padded else (positions < lengths[:, tf.newaxis])


class LoopStack(BaseStack):
    """Layers of cells; `transposed` cells read [features, batch] per step and have a state [units, batch]."""

    def __init__(
        self, config: RecurrentConfig, initial: Sequence[tf.Tensor], make_cell: MakeCell, *, transposed: bool = False
    ) -> None:
        super().__init__(config, initial)
        self._make_cell = make_cell
        self._transposed = transposed

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        layers = self._layers(inputs.dtype)
        features_axis, sequence = (
            (1, tf.transpose(inputs, [1, 2, 0])) if self._transposed else (2, tf.transpose(inputs, [1, 0, 2]))
        )
        if valid is not None:
            valid = tf.expand_dims(tf.transpose(valid), features_axis)
        for depth, layer in enumerate(layers):
            needs_all = self._config.all_outputs or depth < len(layers) - 1
            ends = [
                self._direction(weights, sequence, valid, backwards=bool(number), sequence=needs_all, training=training)
                for number, weights in enumerate(layer)
            ]
            if needs_all:
                sequence = tf.concat([outputs for _, outputs in ends], features_axis)
        if self._config.all_outputs:
            return tf.transpose(sequence, [2, 0, 1] if self._transposed else [1, 0, 2])
        output = tf.concat([direction_output for (direction_output, *_), _ in ends], features_axis - 1)
        return tf.transpose(output) if self._transposed else output

    def _direction(
        self,
        weights: Weights,
        inputs: tf.Tensor,
        valid: tf.Tensor | None,
        *,
        backwards: bool,
        sequence: bool,
        training: bool,
    ) -> tuple[State, tf.Tensor | None]:
        """Return the last state of one direction of one layer and, if `sequence` is set, all its outputs."""
        config, cell = self._config, self._make_cell(weights)
        batch = inputs.shape[2 if self._transposed else 1]
        shape = [config.units, batch] if self._transposed else [batch, config.units]
        step = cell.step
        if training and config.dropout:
            inputs = tf.nn.dropout(inputs, config.dropout, noise_shape=[1, *inputs.shape[1:]])
        if training and config.recurrent_dropout:
            step = dropout_step(step, tf.nn.dropout(tf.ones(shape, inputs.dtype), config.recurrent_dropout))
        prepared = cell.prepare(inputs)
        if valid is not None:
            step, prepared = padded_step(step), (prepared, valid)
        start = (tf.zeros(shape, inputs.dtype),) * config.state_parts
        return run_loop(step, prepared, start, unroll=config.unroll, backwards=backwards, sequence=sequence)
