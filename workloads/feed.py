"""Stored data: batches that come through tf.data from the host, each replica's on its device before its step asks."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from workloads.cifar10 import Cifar10
from workloads.errors import RefusedError
from workloads.images import Images, Part, Preparation
from workloads.protocol import Variant
from workloads.recipe import Batch
from workloads.runtime import Replicas, compute_dtype
from workloads.training import plan_of

_AHEAD = 2
"""While one batch is computed with, the next is on the device, and the one after that on its way."""


class Feed:
    """What the datasets of the replicas give, in step with each other; each has a thread of its own to copy.

    TensorFlow begins a copy to a GPU only when that GPU has done what it was given before, so the copies are made
    ahead, and by threads that may wait.
    """

    def __init__(
        self, dataset_of: Callable[[Part], tf.data.Dataset], batch: int, replicas: Replicas, prepare: Preparation
    ) -> None:
        self._replicas = replicas
        self._prepare = prepare
        self._held = False
        size = batch // replicas.count
        parts = [Part(batch, first, first + size) for first in range(0, size * replicas.count, size)]
        self._lanes = [_Lane(dataset_of(part), device) for part, device in zip(parts, replicas.devices, strict=True)]
        self._ahead = deque(self._fetch() for _ in range(_AHEAD))

    def take(self) -> Any:
        """The next batch on the devices, once it is there; a value for each replica."""
        following = self._ahead.popleft()
        self._ahead.append(following if self._held else self._fetch())
        values = [future.result() for future in following]
        return self._replicas.strategy.experimental_distribute_values_from_function(
            lambda context: values[context.replica_id_in_sync_group]
        )

    def batch(self, taken: tuple[tf.Tensor, ...]) -> Batch:
        """What was taken as inputs and targets, made on the device."""
        images, classes, crops = taken
        return self._prepare(images, crops), classes

    def hold(self, held: bool) -> None:
        """Give those batches again and again that are there already, or go on."""
        self._held = held

    def _fetch(self) -> list["Future[Any]"]:
        return [lane.fetch() for lane in self._lanes]


def training_feed(stored: Cifar10, variant: Variant, replicas: Replicas) -> Feed:
    """The training images, cropped and mirrored by chance where they are trained on.

    The steps before the measured part take the end of a pass, so that the measured part begins with one. Raises
    `RefusedError` where the images do not fill a batch.
    """
    batch, before = int(variant["batch_size"]), 1 + plan_of(variant).warmup_steps
    images = Images(stored.train, str(variant["layout"]))
    if batch > images.count:
        raise RefusedError(f"{images.count:,} training images do not fill a batch of {batch:,}; use a smaller one.")
    first = -before % (images.count // batch)
    seed, augmented = int(variant["seed"]), variant["mode"] == "train"
    return Feed(
        lambda part: images.shuffled(part, seed, first, augmented=augmented),
        batch,
        replicas,
        _preparation(stored, variant),
    )


def testing_feed(stored: Cifar10, variant: Variant, replicas: Replicas) -> Feed:
    """The test images in their order, as they are."""
    images = Images(stored.test, str(variant["layout"]))
    return Feed(images.in_order, int(variant["batch_size"]), replicas, _preparation(stored, variant))


def _preparation(stored: Cifar10, variant: Variant) -> Preparation:
    return Preparation(stored.train, str(variant["layout"]), compute_dtype(str(variant["precision"])))


class _Lane:
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
