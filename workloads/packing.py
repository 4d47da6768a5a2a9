"""All gradients of a replica in one buffer, so that replicas exchange them at once instead of weight by weight."""

from collections.abc import Sequence

import tensorflow as tf


def packed(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """The gradients one after another, a vector; they are of one type, as the weights are."""
    return tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)


def unpacked(buffer: tf.Tensor, weights: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """The gradients again, each in the shape of its weight."""
    parts = tf.split(buffer, [weight.shape.num_elements() for weight in weights])
    return [tf.reshape(part, weight.shape) for part, weight in zip(parts, weights, strict=True)]
