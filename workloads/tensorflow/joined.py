"""Tensors of different shapes, one after another in one buffer: to exchange them, and to update them, at once."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from workloads.tensorflow.optimizers import Optimizer


def join(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the tensors one after another as a vector, matrices first, in the type that holds those of all."""
    dtype = functools.reduce(np.promote_types, (tensor.dtype.as_numpy_dtype for tensor in tensors))
    parts = [tf.reshape(tf.cast(tensor, dtype), [-1]) for tensor in sorted(tensors, key=_is_vector)]
    return tf.concat(parts, axis=0)


def split(buffer: tf.Tensor, weights: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """Return the tensors of a buffer that `join` made, each in the shape and type of its weight."""
    order = sorted(range(len(weights)), key=lambda number: _is_vector(weights[number]))
    parts = tf.split(buffer, [weights[number].shape.num_elements() for number in order])
    found = dict(zip(order, parts, strict=True))
    return [tf.cast(tf.reshape(found[number], weight.shape), weight.dtype) for number, weight in enumerate(weights)]


def _is_vector(tensor: tf.Tensor | tf.Variable) -> bool:
    return len(tensor.shape) < 2


class JoinedOptimizer:
    """An elementwise optimizer of all weights as two: a matrix of one column, of all matrices, and a vector.

    It gives the same numbers in two operations in place of one for each weight. The host starts them after the
    gradients' exchange, while the GPUs wait: 0.7 ms for the sixty of `cnn10` on two GPUs, as traced
    (docs/measurements/2026-11-21-cnn.md).

    The two are what is trained, and the weights get their values at each step: what is assigned to a weight in between
    is lost.
    """

    def __init__(self, weights: Sequence[tf.Variable], optimizer: Callable[[Sequence[tf.Variable]], Optimizer]) -> None:
        """Copy the weights.

        Args:
            weights: The weights to update.
            optimizer: Makes the optimizer of given variables.
        """
        groups = [[weight for weight in weights if _is_vector(weight) is vector] for vector in (False, True)]
        self._groups = [group for group in groups if group]
        self._joined = [_joined_variable(group) for group in self._groups]
        self._optimizer = optimizer(self._joined)

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        """Update all weights by their gradients, which are one buffer that `join` made, if `mask` is 1."""
        (buffer,) = gradients
        self._optimizer.apply(self._parts(buffer), mask)
        for joined, group in zip(self._joined, self._groups, strict=True):
            for weight, value in zip(group, split(joined.read_value(), group), strict=True):
                tf.raw_ops.AssignVariableOp(resource=weight.handle, value=value)

    def _parts(self, buffer: tf.Tensor) -> list[tf.Tensor]:
        """Return each variable's part of the buffer, as slices: `tf.split` would copy."""
        parts, start = [], 0
        for joined in self._joined:
            end = start + joined.shape.num_elements()
            parts.append(tf.reshape(buffer[start:end], joined.shape))
            start = end
        return parts


def _joined_variable(weights: Sequence[tf.Variable]) -> tf.Variable:
    values = join([weight.read_value() for weight in weights])
    return tf.Variable(values if _is_vector(weights[0]) else values[:, tf.newaxis], trainable=False)
