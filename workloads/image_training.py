"""How image workloads train, the same for every framework: batches of stored images on the host, and learning rates.

Nothing here needs a framework. The order of images and their crops depend only on the seed and the batch's number.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from workloads.cifar10 import ImageData, Split, training_images
from workloads.errors import RefusedError
from workloads.protocol import Variant
from workloads.training import plan_of, planned_steps

MOMENTUM = 0.9
PADDING = 4
PREFETCHED_BATCHES = 2
"""While a step computes with one batch, the next is on the device and the one after that is being copied."""
_IDENTITY_CROP = (PADDING, PADDING, 0)
_NO_CLASS = -1
_ORDER, _CROPS = 0, 1
"""What a generator draws: a pass and a batch of the same number then draw independently."""

HostBatch = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]
"""Images [n, …], crops [n, 3] (first row and column in the padded image; 1 if mirrored), classes [n]."""


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """The part of a global batch of `batch` images that one replica takes: from `start` up to but excluding `stop`."""

    batch: int
    start: int
    stop: int


class Images:
    """The images of a split in host memory, laid out once as the variant requests, so that no step transposes them."""

    def __init__(self, split: Split, layout: str) -> None:
        self.count = len(split.classes)
        self._images = np.ascontiguousarray(split.images if layout == "NCHW" else split.images.transpose(0, 2, 3, 1))
        self._classes = split.classes

    def shuffled(self, batch_slice: BatchSlice, seed: int, start: int, *, augmented: bool) -> Iterator[HostBatch]:
        """Yield batches in another order for every pass over the images, from batch number `start` on.

        A pass leaves out what does not fill a batch. Batch number and seed decide everything, so that the replicas that
        share a batch agree. `augmented` is whether to crop and mirror.
        """
        batches_per_pass = self.count // batch_slice.batch
        passes = itertools.count(start // batches_per_pass)
        skipped = start % batches_per_pass
        for number in passes:
            order = np.random.default_rng([seed, _ORDER, number]).permutation(self.count)
            for position in range(skipped, batches_per_pass):
                chosen = order[position * batch_slice.batch :][batch_slice.start : batch_slice.stop]
                batch = number * batches_per_pass + position
                crops = _random_crops(batch_slice, seed, batch) if augmented else _identity_crops(batch_slice)
                yield self._images[chosen], crops, self._classes[chosen]
            skipped = 0

    def in_order(self, batch_slice: BatchSlice) -> Iterator[HostBatch]:
        """Yield batches in the file's order, repeatedly; padding of the last one has the class -1."""
        while True:
            for start in range(0, self.count, batch_slice.batch):
                positions = start + np.arange(batch_slice.start, batch_slice.stop)
                chosen = np.minimum(positions, self.count - 1)
                classes = np.where(positions < self.count, self._classes[chosen], _NO_CLASS)
                yield self._images[chosen], _identity_crops(batch_slice), classes


def _random_crops(batch_slice: BatchSlice, seed: int, batch: int) -> NDArray[np.int64]:
    corners = 2 * PADDING + 1
    drawn = np.random.default_rng([seed, _CROPS, batch]).integers(0, [corners, corners, 2], [batch_slice.batch, 3])
    return drawn[batch_slice.start : batch_slice.stop]


def _identity_crops(batch_slice: BatchSlice) -> NDArray[np.int64]:
    return np.tile(np.array(_IDENTITY_CROP, np.int64), [batch_slice.stop - batch_slice.start, 1])


def training_batches(stored: ImageData, variant: Variant, replicas: int) -> list[Iterator[HostBatch]]:
    """Return each replica's batches of training images, randomly cropped and mirrored if the variant says so.

    The steps before the measured part use the end of a pass, so that the measured part begins with a new pass.

    Raises:
        RefusedError: The images do not fill a batch.
    """
    batch, steps_before = int(variant["batch_size"]), 1 + plan_of(variant).warmup_steps
    images = Images(stored.train, str(variant["layout"]))
    if batch > images.count:
        raise RefusedError(f"{images.count:,} training images do not fill a batch of {batch:,}; use a smaller one.")
    start, seed = -steps_before % (images.count // batch), int(variant["seed"])
    augmented = variant["mode"] == "train" and variant["augmentation"] == "crop_mirror"
    return [images.shuffled(batch_slice, seed, start, augmented=augmented) for batch_slice in _slices(batch, replicas)]


def evaluation_batches(stored: ImageData, variant: Variant, replicas: int) -> list[Iterator[HostBatch]]:
    """Return each replica's batches of test images in their order, uncropped."""
    images = Images(stored.test, str(variant["layout"]))
    return [images.in_order(batch_slice) for batch_slice in _slices(int(variant["batch_size"]), replicas)]


def _slices(batch: int, replicas: int) -> list[BatchSlice]:
    size = batch // replicas
    return [BatchSlice(batch, start, start + size) for start in range(0, size * replicas, size)]


def epoch_steps(stored: ImageData, variant: Variant) -> int:
    return len(stored.train.classes) // int(variant["batch_size"])


def evaluation_steps(stored: ImageData, variant: Variant) -> int:
    """Return the number of batches in a pass over the test images, the last one padded."""
    return -(-len(stored.test.classes) // int(variant["batch_size"]))


def scaling_of(training: Split, scaling: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the offset to subtract from each channel [3] and the scale to divide it by [3].

    They give the training images mean 0 and deviation 1, or are 0 and 255.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A learning rate that changes from step to step, reaches 0 at the end and stays there; `peak` is the highest.

    `cosine` is peak (1 + cos(pi p)) / 2 at the share p of all steps, without restarts (Loshchilov and Hutter 2017,
    "SGDR"). `one_cycle` rises linearly to the peak, then falls linearly (Smith and Topin 2018, "Super-convergence").
    """

    kind: Literal["cosine", "one_cycle"]
    peak: float
    steps: int

    def rate(self, number: Any, library: Any = np) -> Any:
        """Return the rate of step `number`, from 0; p is taken at its middle, so that no step has the rate 0.

        `number` is a float. `library` is NumPy or another library with functions of the same names.
        """
        share = library.minimum((number + 0.5) / self.steps, 1.0)
        if self.kind == "cosine":
            return 0.5 * self.peak * (1.0 + library.cos(math.pi * share))
        return self.peak * library.minimum(share / _RISING_SHARE, (1.0 - share) / (1.0 - _RISING_SHARE))


_RISING_SHARE = 0.3
"""The rising share of one cycle, as in PyTorch's `OneCycleLR`."""


def learning_rate(variant: Variant) -> float | Schedule:
    peak, steps = float(variant["learning_rate"]), planned_steps(variant, training_images(variant))
    if (kind := variant["schedule"]) == "constant":
        return peak
    return Schedule(kind=cast(Literal["cosine", "one_cycle"], kind), peak=peak, steps=steps)
