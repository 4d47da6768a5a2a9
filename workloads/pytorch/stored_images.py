"""Stored images in a PyTorch step: copied to the device ahead of it, converted to numbers and cropped within it."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

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
from workloads.pytorch.ranks import Share

Inputs = tuple[Tensor, Tensor]
"""Images as bytes, and their crops."""
Copied = tuple[Inputs, Tensor, Any]
"""A batch's inputs and classes on the device, and the event of its copy; None on the CPU."""


class PrefetchQueue:
    """A rank's batches, copied to the device ahead of their step.

    Thread: copies have their own; the methods are for the thread of the loop.
    """

    def __init__(self, batches: Iterator[HostBatch], layout: str, device: torch.device) -> None:
        self._batches = batches
        self._channels_last = layout == "NHWC"
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._reuse = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"feed {device}")
        self._pending = deque(self._fetch() for _ in range(PREFETCHED_BATCHES))
        self.first = self._pending[0].result()[:2]

    def take(self) -> tuple[Inputs, Tensor]:
        """Return the next batch, inputs and classes; work enqueued from now on waits until it is on the device."""
        following = self._pending.popleft()
        self._pending.append(following if self._reuse else self._fetch())
        inputs, classes, copied = following.result()
        if copied is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(copied)
            for tensor in (*inputs, classes):
                tensor.record_stream(stream)  # otherwise the next copy may take its memory before the step has read it
        return inputs, classes

    def reuse_batches(self, reuse: bool) -> None:
        """Repeat the batches that are already there, or continue."""
        self._reuse = reuse

    def _fetch(self) -> "Future[Copied]":
        return self._thread.submit(self._copy)

    def _copy(self) -> Copied:
        tensors = [torch.from_numpy(array) for array in next(self._batches)]
        copied = None
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                tensors = [tensor.pin_memory().to(self._device, non_blocking=True) for tensor in tensors]
                copied = self._stream.record_event()
        images, crops, classes = tensors
        return (images.permute(0, 3, 1, 2) if self._channels_last else images, crops), classes, copied


def training_queue(stored: ImageData, variant: Variant, share: Share, device: torch.device) -> PrefetchQueue:
    """Return the queue of a rank's `training_batches`, which may raise `RefusedError`."""
    batches = training_batches(stored, variant, share.ranks)[share.rank]
    return PrefetchQueue(batches, str(variant["layout"]), device)


class EvaluationImages:
    """A rank's part of the test images."""

    def __init__(self, stored: ImageData, variant: Variant, share: Share, device: torch.device) -> None:
        batches = evaluation_batches(stored, variant, share.ranks)[share.rank]
        self._queue = PrefetchQueue(batches, str(variant["layout"]), device)
        self._steps = evaluation_steps(stored, variant)

    def count_correct(self, outputs: Callable[[Inputs], Tensor]) -> Tensor:
        """Return how many of them have the class with the largest output, as a float32 scalar on the device."""
        counts = []
        for _ in range(self._steps):
            inputs, classes = self._queue.take()
            counts.append((outputs(inputs).argmax(1) == classes).sum())
        return torch.stack(counts).sum().float()


class Preprocessing(nn.Module):  # type: ignore[misc] # mypy knows no PyTorch
    """The first part of a step with a batch from the host: bytes become numbers, (x - mean) / deviation per channel.

    A crop reaches up to 4 pixels beyond its image, into zeros (He et al. 2016, section 4.2).
    """

    def __init__(self, training: Split, variant: Variant) -> None:
        super().__init__()
        for name, values in zip(("mean", "deviation"), scaling_of(training, str(variant["scaling"])), strict=True):
            self.register_buffer(name, torch.from_numpy(values).reshape(1, 3, 1, 1))
        self._crops = variant["augmentation"] == "crop_mirror"
        self._channels_last = variant["layout"] == "NHWC"

    def forward(self, inputs: Inputs) -> Tensor:
        """Return images as float32, in the memory format of their bytes."""
        images, crops = inputs
        values = (images.float() - self.mean) / self.deviation
        return crop(values, crops, channels_last=self._channels_last) if self._crops else values


def crop(images: Tensor, crops: Tensor, *, channels_last: bool) -> Tensor:
    """Return crops of images [n, channels, height, width] with a border of zeros, in the same size and memory format.

    Crops are first row, first column, and 1 to mirror, [n, 3].
    """
    _, channels, height, width = images.shape
    padded = functional.pad(images, [PADDING] * 4)
    columns = torch.arange(width, device=images.device)
    columns = columns + crops[:, 2:] * (width - 1 - 2 * columns) + crops[:, 1:2]
    rows = torch.arange(height, device=images.device) + crops[:, :1]
    positions = (rows[:, :, None] * (width + 2 * PADDING) + columns[:, None, :]).flatten(1)
    # Gathers in the memory order of the images, so without a transpose.
    if channels_last:
        pixels = padded.permute(0, 2, 3, 1).flatten(1, 2)
        chosen = pixels.gather(1, positions[:, :, None].expand(-1, -1, channels))
        return chosen.unflatten(1, (height, width)).permute(0, 3, 1, 2)
    chosen = padded.flatten(2).gather(2, positions[:, None, :].expand(-1, channels, -1))
    return chosen.unflatten(2, (height, width))
