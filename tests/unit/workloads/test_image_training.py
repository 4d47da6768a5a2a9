"""Stored images on the host: every one once a pass, replicas in step."""

from itertools import islice

import numpy as np

from tests.fakes import cifar10 as fakes
from workloads.image_training import BatchSlice, HostBatch, Images, channel_statistics

IMAGES = fakes.split(40, seed=1)
HOST = Images(IMAGES, "NCHW")


def numbers(batches: list[HostBatch]) -> list[int]:
    """Which of the images they are."""
    numbers_by_bytes = {image.tobytes(): number for number, image in enumerate(IMAGES.images)}
    return [numbers_by_bytes[image.tobytes()] for batch in batches for image in batch[0]]


def test_a_pass_has_every_image_once_and_the_next_another_order() -> None:
    batches = list(islice(HOST.shuffled(BatchSlice(8, 0, 8), 1, 0, augmented=True), 10))
    first, second = numbers(batches[:5]), numbers(batches[5:])
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second != sorted(second)
    for batch in batches:
        assert [IMAGES.classes[number] for number in numbers([batch])] == batch[2].tolist()
    other_seed = list(islice(HOST.shuffled(BatchSlice(8, 0, 8), 2, 0, augmented=True), 5))
    assert numbers(other_seed) != first


def test_what_does_not_fill_a_batch_is_left_out_of_a_pass() -> None:
    batches = list(islice(HOST.shuffled(BatchSlice(24, 0, 24), 1, 0, augmented=False), 4))
    assert all(len(set(numbers([batch]))) == 24 for batch in batches)
    assert numbers(batches[:1]) != numbers(batches[1:2]), "the next batch is of the next pass"


def test_replicas_take_parts_of_one_batch() -> None:
    whole, left, right = (
        list(islice(HOST.shuffled(BatchSlice(8, start, stop), 1, 3, augmented=True), 2))
        for start, stop in ((0, 8), (0, 4), (4, 8))
    )
    for of_all, *of_parts in zip(whole, left, right, strict=True):
        for mine, *theirs in zip(of_all, *of_parts, strict=True):
            np.testing.assert_array_equal(mine, np.concatenate(theirs))


def test_the_test_images_come_in_order_and_the_last_batch_is_filled_up_with_no_class() -> None:
    batches = list(islice(HOST.in_order(BatchSlice(16, 0, 16)), 4))
    classes = np.concatenate([classes for *_, classes in batches])
    assert classes[:40].tolist() == IMAGES.classes.tolist()
    assert classes[40:48].tolist() == [-1] * 8
    assert classes[48:].tolist() == IMAGES.classes[:16].tolist(), "and from the start again"


def test_an_image_of_one_colour_can_be_normalised() -> None:
    _, deviation = channel_statistics(np.full((2, 3, 32, 32), 7, np.uint8))
    assert deviation.tolist() == [1.0, 1.0, 1.0]
