"""PyTorch trains on stored images as TensorFlow does: same batches, rates, epochs and accuracy, on one rank and two."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from tests.evidence_runs import spec_of
from tests.fakes import cifar10 as fakes
from tests.fakes import tensorflow as in_tensorflow
from tests.fakes.tensorflow import TensorflowProcess
from tests.unit.workloads.pytorch.test_ranks import collected, connected, in_pytorch
from tests.unit.workloads.test_frameworks import task_of
from workloads.catalog import Machine, check
from workloads.cifar10 import ImageData
from workloads.errors import RefusedError
from workloads.image_training import BatchSlice, Images
from workloads.protocol import DataReady, Epoch, Value
from workloads.pytorch import ranks
from workloads.pytorch.ranks import Share
from workloads.pytorch.stored_images import EvaluationImages, Inputs, PrefetchQueue, Preprocessing, crop

pytestmark = pytest.mark.usefixtures("restored_variables")
STORED: dict[str, Value] = {"data": "stand_in", "images": 400, "batch_size": 40, "epochs": 2, "layout": "NHWC"}
CPU = torch.device("cpu")


def epochs_of(messages: list[Any]) -> list[Epoch]:
    return [message for message in messages if isinstance(message, Epoch)]


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "one_cycle", "weight_decay": 1e-3},
        {"schedule": "cosine", "augmentation": "none", "scaling": "unit"},
    ],
)
def test_both_frameworks_train_alike(settings: dict[str, Value], tensorflow: TensorflowProcess) -> None:
    expected, their_messages = tensorflow.call(
        in_tensorflow.train_on_stored_images, spec_of("cnn10", **STORED, **settings)
    )
    spec = in_pytorch("cnn10", **STORED, **settings)
    assert check(spec, Machine(cpu_count=2)) == ()
    losses, messages = in_tensorflow.train(spec, task_of(spec))
    assert losses[:12] == pytest.approx(expected[:12], rel=1e-4)
    theirs, ours = epochs_of(their_messages), epochs_of(messages)
    assert [(epoch.epoch, epoch.steps, epoch.examples) for epoch in ours] == [(1, 10, 400), (2, 10, 400)]
    assert [epoch.accuracy for epoch in ours] == pytest.approx(
        [epoch.accuracy for epoch in theirs], abs=2.5 / 80
    )  # two images of 80 near a border
    (ready,) = (message for message in messages if isinstance(message, DataReady))
    assert ready.steps > 0


def test_two_ranks_train_as_tensorflow_s_replicas_do(
    monkeypatch: pytest.MonkeyPatch, tensorflow: TensorflowProcess
) -> None:
    reference_spec = spec_of("cnn10", **STORED)
    expected, their_messages = tensorflow.call(in_tensorflow.train_on_stored_images, reference_spec, replicas=2)
    monkeypatch.setattr(ranks, "replica_count", lambda variant: 2)
    spec = in_pytorch("cnn10", **STORED)
    with connected(spec) as task:
        losses, messages = in_tensorflow.train(spec, task)
        evidence = collected(spec, task)
    assert losses[:12] == pytest.approx(expected[:12], rel=1e-4)
    reference, accuracy = ([epoch.accuracy for epoch in epochs_of(run)] for run in (their_messages, messages))
    assert accuracy == pytest.approx(reference, abs=2.5 / 80)  # two images of 80 near a border
    assert evidence.actual == {**evidence.requested, "all_reduce": "gloo"}, "each rank has its part of a batch"


def test_the_rate_is_0_after_the_last_step() -> None:
    spec = in_pytorch("cnn10", **STORED, schedule="cosine")
    task = task_of(spec)
    in_tensorflow.train(spec, task)
    step: Any = task.step
    weights = step.state().weights
    task.fetch(task.step())
    assert step.state().weights == weights


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_crops_are_cut_from_scaled_images_with_zeros_around_in_their_memory_format(layout: str) -> None:
    split = fakes.split(40, seed=1)
    source = Images(split, layout)
    batches = islice(source.shuffled(BatchSlice(40, 0, 40), 1, 0, augmented=True), 2)
    (images, crops), _ = PrefetchQueue(batches, layout, CPU).take()
    values = Preprocessing(split, in_pytorch("cnn10", data="stand_in", layout=layout).variant)((images, crops))
    mean, deviation = (f(split.images, axis=(0, 2, 3)).reshape(1, 3, 1, 1) for f in (np.mean, np.std))
    padded = np.pad((images.numpy() - mean) / deviation, ((0, 0), (0, 0), (4, 4), (4, 4)))
    for image, value, (row, column, mirrored) in zip(padded, values.numpy(), crops.numpy(), strict=True):
        window = image[:, row : row + 32, column : column + 32]
        np.testing.assert_allclose(value, window[:, :, ::-1] if mirrored else window, atol=1e-4)
    channels_last = values.is_contiguous(memory_format=torch.channels_last)
    assert (channels_last, values.is_contiguous()) == (layout == "NHWC", layout == "NCHW")
    whole = torch.tensor([[4, 4, 0]]).expand(40, 3)
    assert torch.equal(crop(images.float(), whole, channels_last=layout == "NHWC"), images.float())


def test_every_test_image_is_tried_once_also_where_batches_do_not_divide_them() -> None:
    data = ImageData(fakes.split(50, seed=1), fakes.split(90, seed=2))
    variant = in_pytorch("cnn10", data="stand_in", batch_size=28, layout="NCHW").variant

    def outputs(inputs: Inputs) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.full([len(inputs[0])], 4), 10)

    parts = [EvaluationImages(data, variant, Share(rank, 2), CPU) for rank in range(2)]
    assert [sum(float(part.count_correct(outputs)) for part in parts) for _ in range(2)] == [9, 9]


@pytest.mark.parametrize("settings", [{"layout": "NHWC"}, {"layout": "NCHW", "mode": "inference"}])
def test_what_prepares_images_does_not_touch_the_evidence(settings: dict[str, Value]) -> None:
    spec = in_pytorch("cnn10", **{**STORED, "epochs": 0, **settings})
    task = task_of(spec)
    task.fetch(task.step())
    evidence = collected(spec, task)
    assert (evidence.match, evidence.actual) == (True, evidence.requested)


def test_a_batch_that_the_images_do_not_fill_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"400 training images do not fill a batch of 401"):
        task_of(in_pytorch("cnn10", **{**STORED, "batch_size": 401}))
