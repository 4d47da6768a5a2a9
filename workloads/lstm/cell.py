"""The arithmetic of an LSTM cell after its products (Hochreiter, Schmidhuber 1997; forget gate: Gers et al. 2000)."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from workloads.compiled import compiled
from workloads.lstm.layout import GATES
from workloads.lstm.loop import State


def next_state(i: tf.Tensor, f: tf.Tensor, g: tf.Tensor, o: tf.Tensor, cell: tf.Tensor) -> State:
    """The state after a step, of the gates' sums: c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'); s is the sigmoid."""
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(cell), cell


def split_state(sums: tf.Tensor, cell: tf.Tensor, axis: int) -> State:
    """The state after a step, of all four gates' sums side by side on one axis."""
    i, f, g, o = tf.split(sums, GATES, axis)
    return next_state(i, f, g, o, cell)


def one_kernel(function: Callable[..., State]) -> Callable[..., State]:
    """The point-wise function compiled to one kernel, and its gradient to another.

    The gradient computes the forward values again: it keeps nothing but the function's inputs, where TensorFlow would
    store each intermediate of each time step.
    """

    def gradient(inputs: tuple[tf.Tensor, ...], gradients: tuple[tf.Tensor, ...]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([one for one in inputs if one.dtype.is_floating])
            outputs = function(*inputs)
        return tape.gradient(outputs, inputs, gradients)

    forward, backward = compiled(function), compiled(gradient)

    def both(*inputs: tf.Tensor) -> tuple[State, Callable[..., Any]]:
        return forward(*inputs), lambda *gradients: backward(inputs, gradients)

    whole: Callable[..., State] = tf.custom_gradient(both)
    return whole
