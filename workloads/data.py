"""Synthetic training data, made from the seed by stateless operations on the device that uses them.

A batch is (inputs, targets); the same seed and index give the same batch on every machine of one kind.
"""

import tensorflow as tf

CLASSES = 10
IMAGE_SIZE = 32
_NOISE = 0.01


def adding_problem(seed: int, index: int, batch: int, timesteps: int, features: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Sequences [batch, timesteps, features] and targets [batch, 1]: the sum of the two marked values.

    Feature 0 is a value in [0, 1), feature 1 marks one step of each half, the rest is low noise. The best constant
    answer has a mean squared error of 1/6 (Hochreiter and Schmidhuber 1997, experiment 4).
    """
    keys = _keys(seed, index, 4)
    values = tf.random.stateless_uniform([batch, timesteps], keys[0])
    half = timesteps // 2
    early = tf.random.stateless_uniform([batch], keys[1], 0, half, tf.int32)
    late = tf.random.stateless_uniform([batch], keys[2], half, timesteps, tf.int32)
    marks = tf.one_hot(early, timesteps) + tf.one_hot(late, timesteps)
    noise = _NOISE * tf.random.stateless_normal([batch, timesteps, features - 2], keys[3])
    inputs = tf.concat([values[..., tf.newaxis], marks[..., tf.newaxis], noise], axis=-1)
    return inputs, tf.reduce_sum(values * marks, axis=1, keepdims=True)


def made_images(seed: int, index: int, batch: int, layout: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Images [batch, 32, 32, 3] (NCHW: [batch, 3, 32, 32]) and classes [batch]: smooth class patterns under noise.

    Classes are int64, since TensorFlow keeps int32 tensors in host memory, to be copied at every step.
    """
    keys = _keys(seed, index, 2)
    coarse = tf.random.stateless_normal([CLASSES, 4, 4, 3], [seed, -1])
    patterns = tf.image.resize(coarse, [IMAGE_SIZE, IMAGE_SIZE], "bilinear")
    classes = tf.random.stateless_uniform([batch], keys[0], 0, CLASSES, tf.int64)
    images = tf.gather(patterns, classes)
    images += tf.random.stateless_normal([batch, IMAGE_SIZE, IMAGE_SIZE, 3], keys[1])
    return (tf.transpose(images, [0, 3, 1, 2]) if layout == "NCHW" else images), classes


def _keys(seed: int, index: int, count: int) -> list[tf.Tensor]:
    return [tf.constant([seed, index * 16 + number], tf.int32) for number in range(count)]
