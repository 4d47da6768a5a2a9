"""Synthetic data: sequences and images made from a seed, and a set of batches that stays on the devices.

A batch is (inputs, targets); the same seed and index give the same batch on every machine of one kind.
"""

from typing import Any

import tensorflow as tf

from workloads.cnn import CLASSES, COLOURS, IMAGE_SIZE
from workloads.protocol import Variant
from workloads.tensorflow import runtime
from workloads.tensorflow.recipe import Batch, Recipe
from workloads.tensorflow.recurrent.loop import valid_steps
from workloads.tensorflow.runtime import Replicas

_NOISE_SCALE = 0.01


def adding_problem(
    seed: int,
    index: int,
    batch: int,
    timesteps: int,
    features: int,
    padding: str = "fixed",
    *,
    running: bool = False,
) -> tuple[Any, tf.Tensor]:
    """Return sequences [batch, timesteps, features] and targets [batch, 1], the sum of the two marked values.

    Feature 0 is a value in [0, 1), feature 1 marks one step of each half, the rest is low noise. The best constant
    answer has a mean squared error of 1/6 (Hochreiter and Schmidhuber 1997, experiment 4). With `running` the targets
    are [batch, timesteps, 1]: at each step the sum of the marked values so far.

    `index` is the number of the batch; there are at least 2 features. `padding` is `fixed`, or `right_padded` or
    `left_padded`: a sequence takes from half of the steps to all of them, the others are zero, and the inputs are
    (sequences, lengths [batch]).
    """
    keys = _random_keys(seed, index, 5)
    values = tf.random.stateless_uniform([batch, timesteps], keys[0])
    lengths = _lengths(batch, timesteps, padding, keys[4])
    starts = timesteps - lengths if padding == "left_padded" else tf.zeros_like(lengths)
    half_lengths = lengths // 2
    early = starts + _random_indices(half_lengths, keys[1])
    late = starts + half_lengths + _random_indices(lengths - half_lengths, keys[2])
    marks = tf.one_hot(early, timesteps) + tf.one_hot(late, timesteps)
    noise = _NOISE_SCALE * tf.random.stateless_normal([batch, timesteps, features - 2], keys[3])
    inputs = tf.concat([values[..., tf.newaxis], marks[..., tf.newaxis], noise], axis=-1)
    sums = tf.cumsum(values * marks, axis=1)
    targets = sums[..., tf.newaxis] if running else tf.reduce_sum(values * marks, axis=1, keepdims=True)
    if padding == "fixed":
        return inputs, targets
    valid = valid_steps(lengths, timesteps, left=padding == "left_padded")
    return (tf.where(valid[..., tf.newaxis], inputs, 0.0), lengths), targets


def _lengths(batch: int, timesteps: int, padding: str, key: tf.Tensor) -> tf.Tensor:
    """Return how many steps of each sequence are true; int64 as the classes of images, and for the same reason."""
    if padding == "fixed":
        return tf.fill([batch], tf.constant(timesteps, tf.int64))
    shortest = max(2, timesteps // 2)
    return tf.random.stateless_uniform([batch], key, shortest, timesteps + 1, tf.int64)


def _random_indices(bounds: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Return a whole number from 0 up to each bound, exclusive."""
    return tf.cast(tf.random.stateless_uniform(bounds.shape, key) * tf.cast(bounds, tf.float32), tf.int64)


def synthetic_images(seed: int, index: int, batch: int, layout: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Return images [batch, 32, 32, 3] (NCHW: [batch, 3, 32, 32]) and classes [batch]: class patterns under noise.

    Classes are int64, since TensorFlow keeps int32 tensors in host memory, to be copied at every step. `index` is the
    number of the batch.
    """
    keys = _random_keys(seed, index, 2)
    coarse = tf.random.stateless_normal([CLASSES, 4, 4, COLOURS], [seed, -1])
    patterns = tf.image.resize(coarse, [IMAGE_SIZE, IMAGE_SIZE], "bilinear")
    classes = tf.random.stateless_uniform([batch], keys[0], 0, CLASSES, tf.int64)
    images = tf.gather(patterns, classes)
    images += tf.random.stateless_normal([batch, IMAGE_SIZE, IMAGE_SIZE, COLOURS], keys[1])
    return (tf.transpose(images, [0, 3, 1, 2]) if layout == "NCHW" else images), classes


def _random_keys(seed: int, index: int, count: int) -> list[tf.Tensor]:
    return [tf.constant([seed, index * 16 + number], tf.int32) for number in range(count)]


_MAX_BYTES = 256 * 2**20
_MAX_BATCHES = 64


class DeviceBatches:
    """Batches that stay on the devices, each replica with its slice of every global batch; one more axis in front."""

    def __init__(self, recipe: Recipe, variant: Variant, replicas: Replicas) -> None:
        with replicas.strategy.scope():
            self._cursor = tf.Variable(0, dtype=tf.int64, trainable=False)
        dtype = runtime.compute_dtype(str(variant["precision"])) if recipe.casts_inputs else None

        def replica_batches(context: Any) -> Batch:
            replica = context.replica_id_in_sync_group
            with tf.device(replicas.devices[replica]):
                return _replica_batches(recipe, dtype, int(variant["batch_size"]) // replicas.count, replica)

        self._batches = replicas.strategy.experimental_distribute_values_from_function(replica_batches)

    def take(self) -> Any:
        """Return all of them, for every step."""
        return self._batches

    def batch(self, taken: Batch) -> Batch:
        """Return the next batch, chosen on the device."""
        index = self._cursor.read_value()
        count = tf.nest.flatten(taken)[0].shape[0]
        following = tf.where(index + 1 < count, index + 1, tf.zeros_like(index))
        tf.raw_ops.AssignVariableOp(resource=self._cursor.handle, value=following)
        inputs, targets = tf.nest.map_structure(lambda batches: tf.gather(batches, index), taken)
        return inputs, targets


def _replica_batches(recipe: Recipe, dtype: str | None, size: int, replica: int) -> Batch:
    part = slice(replica * size, (replica + 1) * size)

    def batch(index: int) -> Batch:
        inputs, targets = tf.nest.map_structure(lambda whole: whole[part], recipe.batch(index))
        return tf.nest.map_structure(
            lambda one: tf.cast(one, dtype) if dtype and one.dtype.is_floating else one, inputs
        ), targets

    first = batch(0)
    size_bytes = sum(int(tf.size(one)) * one.dtype.size for one in tf.nest.flatten(first[0]))
    count = recipe.batches or max(1, min(_MAX_BATCHES, _MAX_BYTES // max(1, size_bytes)))
    batches = [first, *(batch(index) for index in range(1, count))]
    inputs, targets = tf.nest.map_structure(lambda *same: tf.stack(same), *batches)
    return inputs, targets
