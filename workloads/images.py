"""Stored images on their way into a step: through tf.data as bytes, made into numbers and cropped on the device.

The host lays them out once as the variant asks, so no step transposes them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from workloads.cifar10 import Split

_PADDING = 4
_PLAIN = (_PADDING, _PADDING, 0)
_NO_CLASS = -1


@dataclass(frozen=True, slots=True)
class Part:
    """Which of a global batch of `batch` images one replica takes: from `start` up to `stop`, without it."""

    batch: int
    start: int
    stop: int


class Images:
    """The images of a split in the host's memory, in one layout.

    A dataset of them gives without end: images [n, …] as uint8, classes [n] as int64, crops [n, 3] as int64 (the crop's
    first row and column in the padded image, and 1 where it is mirrored).
    """

    def __init__(self, split: Split, layout: str) -> None:
        self.count = len(split.classes)
        images = split.images if layout == "NCHW" else split.images.transpose(0, 2, 3, 1)
        with tf.device("CPU:0"):
            self._images = tf.constant(images)
            self._classes = tf.constant(split.classes)

    def shuffled(self, part: Part, seed: int, first: int, *, augmented: bool) -> tf.data.Dataset:
        """Batches in an order of their own for every pass over the images, from batch number `first` on.

        A pass leaves out what does not fill a batch. Batch number and seed decide everything, so that replicas which
        take parts of the same batch agree.
        """
        a_pass = self.count // part.batch

        def element(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
            places = number % a_pass * part.batch + tf.range(part.start, part.stop, dtype=tf.int64)
            chosen = tf.random.experimental.index_shuffle(places, _key(seed, number // a_pass), self.count - 1)
            crops = _random_crops(part.batch, _key(seed, number))[part.start : part.stop] if augmented else _plain(part)
            return tf.gather(self._images, chosen), tf.gather(self._classes, chosen), crops

        return _dataset(first, element)

    def in_order(self, part: Part) -> tf.data.Dataset:
        """Batches in the order of the file, over and over; what the last one lacks has the class -1."""
        a_pass = -(-self.count // part.batch)

        def element(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
            places = number % a_pass * part.batch + tf.range(part.start, part.stop, dtype=tf.int64)
            chosen = tf.minimum(places, self.count - 1)
            classes = tf.where(places < self.count, tf.gather(self._classes, chosen), _NO_CLASS)
            return tf.gather(self._images, chosen), classes, _plain(part)

        return _dataset(0, element)


def _dataset(first: int, element: Callable[[tf.Tensor], tuple[tf.Tensor, ...]]) -> tf.data.Dataset:
    plain = tf.autograph.experimental.do_not_convert(element)
    numbers = tf.data.Dataset.counter(first)
    return numbers.map(plain, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _key(seed: int, number: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.constant(seed, tf.int64), number])


def _random_crops(batch: int, key: tf.Tensor) -> tf.Tensor:
    corners = 2 * _PADDING + 1
    drawn = tf.random.stateless_uniform([batch], key, 0, 2 * corners**2, tf.int64)
    return tf.stack([drawn // (2 * corners), drawn // 2 % corners, drawn % 2], axis=1)


def _plain(part: Part) -> tf.Tensor:
    return tf.tile(tf.constant([_PLAIN], tf.int64), [part.stop - part.start, 1])


class Preparation:
    """What a step does first with a batch from the host: bytes become numbers of mean 0 and deviation 1 by channel.

    Mean and deviation are those of the training images. A crop reaches up to 4 pixels beyond its image, where there
    are zeros (He et al. 2016, section 4.2).
    """

    def __init__(self, training: Split, layout: str, dtype: str) -> None:
        self._layout = layout
        self._dtype = dtype
        shape = (1, 3, 1, 1) if layout == "NCHW" else (1, 1, 1, 3)
        mean, deviation = channel_statistics(training.images)
        self._mean = mean.astype(np.float32).reshape(shape)
        self._deviation = deviation.astype(np.float32).reshape(shape)

    def __call__(self, images: tf.Tensor, crops: tf.Tensor) -> tf.Tensor:
        """Images in the layout and type of the variant, from bytes and their crops."""
        values = (tf.cast(images, tf.float32) - self._mean) / self._deviation
        return tf.cast(cropped(values, crops, self._layout), self._dtype)


def channel_statistics(images: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation [3] of images [n, 3, height, width]."""
    over = (0, 2, 3)
    mean = images.mean(axis=over)
    square = np.square(images, dtype=np.uint16).mean(axis=over)
    return mean, np.sqrt(np.maximum(square - mean**2, 1.0))


def cropped(images: tf.Tensor, crops: tf.Tensor, layout: str) -> tf.Tensor:
    """Of images with a border of zeros the crops [n, 3], as large as the images were, in the same layout."""
    channels_first = layout == "NCHW"
    count, shape = images.shape[0], list(images.shape)
    height, width = shape[2:] if channels_first else shape[1:3]
    border = [_PADDING, _PADDING]
    padded = tf.pad(images, [[0, 0], [0, 0], border, border] if channels_first else [[0, 0], border, border, [0, 0]])
    across = tf.range(width, dtype=tf.int64)
    across = across + crops[:, 2:] * (width - 1 - 2 * across) + crops[:, 1:2]
    down = tf.range(height, dtype=tf.int64) + crops[:, :1]
    stride = width + 2 * _PADDING
    places = tf.reshape(down[:, :, tf.newaxis] * stride + across[:, tf.newaxis, :], [count, height * width])
    pixels = stride * (height + 2 * _PADDING)
    flat = tf.reshape(padded, [count, shape[1], pixels] if channels_first else [count, pixels, shape[3]])
    return tf.reshape(tf.gather(flat, places, axis=2 if channels_first else 1, batch_dims=1), shape)
