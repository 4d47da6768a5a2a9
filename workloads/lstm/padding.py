"""Zeros where a tensor is too narrow or a sequence too short."""

import tensorflow as tf


def filled(tensor: tf.Tensor, axis: int, width: int) -> tf.Tensor:
    """The tensor with zeros at the end of an axis up to `width`; as it is where it is wide enough."""
    missing = width - tensor.shape[axis]
    if not missing:
        return tensor
    return tf.pad(tensor, [[0, missing if number == axis else 0] for number in range(len(tensor.shape))])


def valid_steps(lengths: tf.Tensor, timesteps: int, *, left: bool) -> tf.Tensor:
    """[batch, timesteps]: which steps are true ones, the first of each sequence or (`left`: padded before) the last."""
    places = tf.range(timesteps, dtype=lengths.dtype)
    return (places >= timesteps - lengths[:, tf.newaxis]) if left else (places < lengths[:, tf.newaxis])
