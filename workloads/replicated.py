"""Variables of which each replica has its own."""

import tensorflow as tf


def per_replica(initial: tf.Tensor) -> tf.Variable:
    """A variable that each replica moves on its own; a reader outside gets their mean."""
    return tf.Variable(
        initial,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.MEAN,
    )
