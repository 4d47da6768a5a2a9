"""Building blocks of a step: compiled functions, per-replica variables, and gradients packed into one buffer."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def compile_function(function: Callable[..., Any], *, xla: bool = True) -> Any:
    """Return the function as a graph, without AutoGraph: it has nothing to convert, and leaves files behind."""
    return tf.function(function, jit_compile=xla, autograph=False)


def pack(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the gradients one after another as a vector; they are of one type, as the weights are."""
    return tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)


def unpack(buffer: tf.Tensor, weights: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """Return the gradients of a packed vector, each in the shape of its weight."""
    parts = tf.split(buffer, [weight.shape.num_elements() for weight in weights])
    return [tf.reshape(part, weight.shape) for part, weight in zip(parts, weights, strict=True)]


def per_replica_variable(initial: tf.Tensor) -> tf.Variable:
    """Return a variable that each replica changes on its own; a reader outside gets their mean."""
    return tf.Variable(
        initial,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.MEAN,
    )
