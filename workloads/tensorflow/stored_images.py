"""Stored images in TensorFlow: copied to each replica's device ahead of a step, prepared within it, and tested on."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from workloads.cifar10 import ImageData, Split
from workloads.image_training import (
    PADDING,
    PREFETCHED_BATCHES,
    HostBatch,
    evaluation_batches,
    evaluation_steps,
    scaling_of,
    training_batches,
)
from workloads.protocol import Variant
from workloads.tensorflow.recipe import Batch, Model, compile_function
from workloads.tensorflow.runtime import Replicas, compute_dtype


class Preprocessing:
    """The first part of a step with a batch from the host: bytes become numbers, (x - mean) / deviation per channel.

    A crop reaches up to 4 pixels beyond its image, into zeros (He et al. 2016, section 4.2).
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


def crop(images: tf.Tensor, crops: tf.Tensor, layout: str) -> tf.Tensor:
    """Return crops of images with a border of zeros, in the same size and layout.

    Images are [n, channels, height, width] (NCHW) or [n, height, width, channels] (NHWC). Crops are first row, first
    column, and 1 to mirror, [n, 3].
    """
    channels_first = layout == "NCHW"
    count, shape = images.shape[0], list(images.shape)
    height, width = shape[2:] if channels_first else shape[1:3]
    border = [PADDING, PADDING]
    padded = tf.pad(images, [[0, 0], [0, 0], border, border] if channels_first else [[0, 0], border, border, [0, 0]])
    columns = tf.range(width, dtype=tf.int64)
    columns = columns + crops[:, 2:] * (width - 1 - 2 * columns) + crops[:, 1:2]
    rows = tf.range(height, dtype=tf.int64) + crops[:, :1]
    stride = width + 2 * PADDING
    positions = tf.reshape(rows[:, :, tf.newaxis] * stride + columns[:, tf.newaxis, :], [count, height * width])
    pixels = stride * (height + 2 * PADDING)
    flat = tf.reshape(padded, [count, shape[1], pixels] if channels_first else [count, pixels, shape[3]])
    return tf.reshape(tf.gather(flat, positions, axis=2 if channels_first else 1, batch_dims=1), shape)


class PrefetchQueue:
    """The replicas' batches, in step with each other, copied to the devices ahead of their step.

    TensorFlow begins a copy to a GPU only after that GPU's earlier work, so copies are made ahead. Thread: each
    replica's copies have their own; the methods are for the thread of the loop.
    """

    def __init__(self, batches: Sequence[Iterator[HostBatch]], replicas: Replicas, prepare: Preprocessing) -> None:
        self._replicas = replicas
        self._prepare = prepare
        self._reuse = False
        pairs = zip(batches, replicas.devices, strict=True)
        self._queues = [_ReplicaQueue(of_replica, device) for of_replica, device in pairs]
        self._pending = deque(self._fetch() for _ in range(PREFETCHED_BATCHES))

    def take(self) -> Any:
        """Wait until the next batch is on the devices and return it, a value per replica."""
        following = self._pending.popleft()
        self._pending.append(following if self._reuse else self._fetch())
        values = [future.result() for future in following]
        return self._replicas.strategy.experimental_distribute_values_from_function(
            lambda context: values[context.replica_id_in_sync_group]
        )

    def batch(self, tensors: tuple[tf.Tensor, ...]) -> Batch:
        images, crops, classes = tensors
        return self._prepare(images, crops), classes

    def reuse_batches(self, reuse: bool) -> None:
        """Repeat the batches that are already there, or continue."""
        self._reuse = reuse

    def _fetch(self) -> list["Future[Any]"]:
        return [lane.fetch() for lane in self._queues]


def training_queue(stored: ImageData, variant: Variant, replicas: Replicas) -> PrefetchQueue:
    """Return the queue of `training_batches`, which may raise `RefusedError`."""
    batches = training_batches(stored, variant, replicas.count)
    return PrefetchQueue(batches, replicas, Preprocessing(stored.train, variant))


def evaluation_queue(stored: ImageData, variant: Variant, replicas: Replicas) -> PrefetchQueue:
    batches = evaluation_batches(stored, variant, replicas.count)
    return PrefetchQueue(batches, replicas, Preprocessing(stored.train, variant))


class _ReplicaQueue:
    """One replica's batches, from the host to its device."""

    def __init__(self, batches: Iterator[HostBatch], device: str) -> None:
        self._batches = batches
        self._device = device
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"feed {device}")

    def fetch(self) -> "Future[Any]":
        return self._thread.submit(self._copy)

    def _copy(self) -> Any:
        with tf.device("CPU:0"):
            batch = [tf.convert_to_tensor(array) for array in next(self._batches)]
        with tf.device(self._device):
            return tuple(tf.identity(tensor) for tensor in batch)


class Accuracy:
    """The accuracy on all test images; each replica uses its own running statistics on its slice of a batch."""

    def __init__(self, stored: ImageData, model: Model, variant: Variant, replicas: Replicas) -> None:
        xla = bool(variant["xla"])
        self._count, self._batch_count = len(stored.test.classes), evaluation_steps(stored, variant)
        self._replicas = replicas
        self._queue = evaluation_queue(stored, variant, replicas)
        self._outputs = compile_function(model.outputs) if xla and replicas.count > 1 else model.outputs
        self._count_batch = compile_function(
            lambda batch: replicas.strategy.run(self._count_correct, (batch,)), xla=xla and replicas.count == 1
        )

    def __call__(self) -> float:
        results = [self._count_batch(self._queue.take()) for _ in range(self._batch_count)]
        counts = (count for result in results for count in self._replicas.strategy.experimental_local_results(result))
        return sum(float(count) for count in counts) / self._count

    def _count_correct(self, batch: Any) -> tf.Tensor:
        inputs, classes = self._queue.batch(batch)
        predicted = tf.argmax(self._outputs(inputs), axis=1, output_type=tf.int64)
        return tf.reduce_sum(tf.cast(predicted == classes, tf.float32))
