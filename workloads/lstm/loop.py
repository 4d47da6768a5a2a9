"""The loop over time that every rung of the ladder shares, and what can be laid around a step."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from workloads.lstm.weights import Weights

State = tuple[tf.Tensor, tf.Tensor]
"""A direction's output h and cell c, each [batch, units]; [units, batch] where everything is kept transposed."""

Step = Callable[[Any, State], State]
"""From what a step reads and the state before it to the state after it."""


def _as_they_are(inputs: tf.Tensor) -> tf.Tensor:
    return inputs


@dataclass(frozen=True, slots=True)
class Cell:
    """One direction of one layer: its step, and what it makes of all inputs [timesteps, ...] before the loop."""

    step: Step
    prepare: Callable[[tf.Tensor], tf.Tensor] = _as_they_are


MakeCell = Callable[[Weights], Cell]
"""From a direction's weights, already in the type to compute in."""


def run(
    step: Step, inputs: Any, state: State, *, unroll: int = 1, backwards: bool = False, sequence: bool = False
) -> tuple[State, tf.Tensor | None]:
    """The state after all steps and, where `sequence` is set, every step's output in the order of time.

    `inputs` is any nest of tensors [timesteps, ...]; a step reads the nest of its slices. One turn of the loop makes
    `unroll` steps, and those that are left at the end follow it.
    """
    steps = tf.nest.flatten(inputs)[0].shape[0]
    arrays = tf.nest.map_structure(lambda whole: tf.TensorArray(whole.dtype, steps).unstack(whole), inputs)
    outputs = (tf.TensorArray(state[0].dtype, steps, element_shape=state[0].shape),) if sequence else ()
    first, direction = (steps - 1, -1) if backwards else (0, 1)

    def turn(count: int, time: tf.Tensor, state: State, outputs: tuple[tf.TensorArray, ...]) -> tuple[Any, ...]:
        for _ in range(count):
            state = step(tf.nest.map_structure(lambda array: array.read(time), arrays), state)  # noqa: B023
            outputs = tuple(array.write(time, state[0]) for array in outputs)
            time += direction
        return time, state, outputs

    turns, rest = divmod(steps, unroll)
    looped = tf.while_loop(
        lambda *_: True, partial(turn, unroll), (tf.constant(first), state, outputs), maximum_iterations=turns
    )
    _, state, outputs = turn(rest, *looped)
    return state, outputs[0].stack() if outputs else None


def carrying(step: Step) -> Step:
    """The step that reads (inputs, valid) and leaves the state as it was where the step is padding."""

    def masked(inputs: tuple[Any, tf.Tensor], state: State) -> State:
        output, cell = step(inputs[0], state)
        return tf.where(inputs[1], output, state[0]), tf.where(inputs[1], cell, state[1])

    return masked


def dropping(step: Step, mask: tf.Tensor) -> Step:
    """The step whose products read the output before it multiplied by `mask`."""

    def dropped(inputs: Any, state: State) -> State:
        return step(inputs, (state[0] * mask, state[1]))

    return dropped
