"""Stored images through tf.data: shuffled and cropped, copied to each replica's device ahead of its step.

The host lays them out once as the variant asks, so no step transposes them.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from workloads.cifar10 import ImageData, Split
from workloads.errors import RefusedError
from workloads.protocol import Variant
from workloads.tensorflow.recipe import Batch
from workloads.tensorflow.runtime import Replicas, compute_dtype
from workloads.training import plan_of

_PADDING = 4
_IDENTITY_CROP = (_PADDING, _PADDING, 0)
_NO_CLASS = -1


@dataclass(frozen=True, slots=True)
class BatchSlice:
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

    def shuffled(self, part: BatchSlice, seed: int, first: int, *, augmented: bool) -> tf.data.Dataset:
        """Return batches in another order for every pass over the images, from batch number `first` on.

        A pass leaves out what does not fill a batch. Batch number and seed decide everything, so that replicas which
        take parts of the same batch agree. `augmented` is whether to crop and mirror.
        """
        batches_per_pass = self.count // part.batch

        def element(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
            positions = number % batches_per_pass * part.batch + tf.range(part.start, part.stop, dtype=tf.int64)
            chosen = tf.random.experimental.index_shuffle(
                positions, _key(seed, number // batches_per_pass), self.count - 1
            )
            crops = (
                _random_crops(part.batch, _key(seed, number))[part.start : part.stop]
                if augmented
                else _identity_crops(part)
            )
            return tf.gather(self._images, chosen), tf.gather(self._classes, chosen), crops

        return _dataset(first, element)

    def in_order(self, part: BatchSlice) -> tf.data.Dataset:
        """Return batches in the order of the file, repeated; what the last one lacks has the class -1."""
        batches_per_pass = -(-self.count // part.batch)

        def element(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
            positions = number % batches_per_pass * part.batch + tf.range(part.start, part.stop, dtype=tf.int64)
            chosen = tf.minimum(positions, self.count - 1)
            classes = tf.where(positions < self.count, tf.gather(self._classes, chosen), _NO_CLASS)
            return tf.gather(self._images, chosen), classes, _identity_crops(part)

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


def _identity_crops(part: BatchSlice) -> tf.Tensor:
    return tf.tile(tf.constant([_IDENTITY_CROP], tf.int64), [part.stop - part.start, 1])


class Preprocessing:
    """The first part of a step with a batch from the host: bytes become numbers, (x - mean) / deviation per channel.

    Both are those of the training images, so that these have mean 0 and deviation 1; or 0 and 255. A crop reaches up to
    4 pixels beyond its image, where there are zeros (He et al. 2016, section 4.2).
    """

    def __init__(self, training: Split, variant: Variant) -> None:
        self._layout = str(variant["layout"])
        self._dtype = compute_dtype(str(variant["precision"]))
        self._crops = variant["augmentation"] == "crop_mirror"
        self.mean, self.deviation = scaling_of(training, str(variant["scaling"]))

    def __call__(self, images: tf.Tensor, crops: tf.Tensor) -> tf.Tensor:
        """Return images in the layout and type of the variant, from bytes and their crops."""
        shape = (1, 3, 1, 1) if self._layout == "NCHW" else (1, 1, 1, 3)
        values = (tf.cast(images, tf.float32) - self.mean.reshape(shape)) / self.deviation.reshape(shape)
        return tf.cast(crop(values, crops, self._layout) if self._crops else values, self._dtype)


def scaling_of(training: Split, scaling: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return what is subtracted from each channel, and by what it is divided, [3]."""
    if scaling == "unit":
        return np.zeros(3, np.float32), np.full(3, 255, np.float32)
    mean, deviation = channel_statistics(training.images)
    return mean.astype(np.float32), deviation.astype(np.float32)


def channel_statistics(images: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation [3] of images [n, 3, height, width]."""
    axes = (0, 2, 3)
    mean = images.mean(axis=axes)
    square = np.square(images, dtype=np.uint16).mean(axis=axes)
    return mean, np.sqrt(np.maximum(square - mean**2, 1.0))


def crop(images: tf.Tensor, crops: tf.Tensor, layout: str) -> tf.Tensor:
    """Return crops of images with a border of zeros, as large as the images and in the same layout.

    Images are [n, channels, height, width] (NCHW) or [n, height, width, channels] (NHWC). Crops are first row, first
    column, and 1 to mirror, [n, 3].
    """
    channels_first = layout == "NCHW"
    count, shape = images.shape[0], list(images.shape)
    height, width = shape[2:] if channels_first else shape[1:3]
    border = [_PADDING, _PADDING]
    padded = tf.pad(images, [[0, 0], [0, 0], border, border] if channels_first else [[0, 0], border, border, [0, 0]])
    columns = tf.range(width, dtype=tf.int64)
    columns = columns + crops[:, 2:] * (width - 1 - 2 * columns) + crops[:, 1:2]
    rows = tf.range(height, dtype=tf.int64) + crops[:, :1]
    stride = width + 2 * _PADDING
    positions = tf.reshape(rows[:, :, tf.newaxis] * stride + columns[:, tf.newaxis, :], [count, height * width])
    pixels = stride * (height + 2 * _PADDING)
    flat = tf.reshape(padded, [count, shape[1], pixels] if channels_first else [count, pixels, shape[3]])
    return tf.reshape(tf.gather(flat, positions, axis=2 if channels_first else 1, batch_dims=1), shape)


_PREFETCHED_BATCHES = 2
"""While a step computes with one batch, the next is on the device, and the one after that on its way."""


class PrefetchQueue:
    """Batches of the replicas' datasets, in step with each other, on the devices ahead of their step.

    TensorFlow begins a copy to a GPU only when that GPU has done its earlier work, so copies are made ahead.
    Thread: each replica's copies have their own; the methods are for the thread of the loop.
    """

    def __init__(
        self,
        dataset_of: Callable[[BatchSlice], tf.data.Dataset],
        batch: int,
        replicas: Replicas,
        prepare: Preprocessing,
    ) -> None:
        self._replicas = replicas
        self._prepare = prepare
        self._reuse = False
        size = batch // replicas.count
        parts = [BatchSlice(batch, first, first + size) for first in range(0, size * replicas.count, size)]
        self._queues = [
            _ReplicaQueue(dataset_of(part), device) for part, device in zip(parts, replicas.devices, strict=True)
        ]
        self._pending = deque(self._fetch() for _ in range(_PREFETCHED_BATCHES))

    def take(self) -> Any:
        """Wait until the next batch is on the devices and return it, a value per replica."""
        following = self._pending.popleft()
        self._pending.append(following if self._reuse else self._fetch())
        values = [future.result() for future in following]
        return self._replicas.strategy.experimental_distribute_values_from_function(
            lambda context: values[context.replica_id_in_sync_group]
        )

    def batch(self, taken: tuple[tf.Tensor, ...]) -> Batch:
        """Return inputs and targets of what was taken, made on the device."""
        images, classes, crops = taken
        return self._prepare(images, crops), classes

    def reuse_batches(self, reuse: bool) -> None:
        """Repeat the batches that are there already, or go on."""
        self._reuse = reuse

    def _fetch(self) -> list["Future[Any]"]:
        return [lane.fetch() for lane in self._queues]


def training_queue(stored: ImageData, variant: Variant, replicas: Replicas) -> PrefetchQueue:
    """Return the queue of training images, cropped and mirrored by chance if the variant says so and trains.

    The steps before the measured part take the end of a pass, so that the measured part begins with one.

    Raises:
        RefusedError: The images do not fill a batch.
    """
    batch, before = int(variant["batch_size"]), 1 + plan_of(variant).warmup_steps
    images = Images(stored.train, str(variant["layout"]))
    if batch > images.count:
        raise RefusedError(f"{images.count:,} training images do not fill a batch of {batch:,}; use a smaller one.")
    first = -before % (images.count // batch)
    seed = int(variant["seed"])
    augmented = variant["mode"] == "train" and variant["augmentation"] == "crop_mirror"
    return PrefetchQueue(
        lambda part: images.shuffled(part, seed, first, augmented=augmented),
        batch,
        replicas,
        Preprocessing(stored.train, variant),
    )


def evaluation_queue(stored: ImageData, variant: Variant, replicas: Replicas) -> PrefetchQueue:
    """Return the queue of test images in their order, not cropped."""
    images = Images(stored.test, str(variant["layout"]))
    return PrefetchQueue(images.in_order, int(variant["batch_size"]), replicas, Preprocessing(stored.train, variant))


class _ReplicaQueue:
    """One replica's dataset, from the host to its device."""

    def __init__(self, dataset: tf.data.Dataset, device: str) -> None:
        self._batches = iter(dataset)
        self._device = device
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"feed {device}")

    def fetch(self) -> "Future[Any]":
        return self._thread.submit(self._copy)

    def _copy(self) -> Any:
        batch = next(self._batches)
        with tf.device(self._device):
            return tf.nest.map_structure(tf.identity, batch)
