"""Stored images through tf.data: every one once a pass, replicas in step, cropped and mirrored as said."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fakes import cifar10 as fakes
from workloads.catalog import Machine, complete
from workloads.cifar10 import ImageData, Split
from workloads.protocol import Value, Variant
from workloads.tensorflow.runtime import replicas_on

IMAGES = fakes.split(40, seed=1)


def variant(**given: Value) -> Variant:
    return complete("cnn10", {"gpus": 0, "data": "stand_in", "layout": "NCHW", **given}, Machine()).variant


def images(layout: str = "NCHW") -> Any:
    from workloads.tensorflow.prefetch import Images

    return Images(IMAGES, layout)


def part(batch: int, start: int, stop: int) -> Any:
    from workloads.tensorflow.prefetch import BatchSlice

    return BatchSlice(batch, start, stop)


def some(dataset: Any, count: int) -> list[tuple[NDArray[Any], ...]]:
    return [tuple(one.numpy() for one in element) for element in dataset.take(count)]


def numbers(batches: list[tuple[NDArray[Any], ...]]) -> list[int]:
    """Which of the images they are."""
    known = {image.tobytes(): number for number, image in enumerate(IMAGES.images)}
    return [known[image.tobytes()] for batch in batches for image in batch[0]]


def test_a_pass_has_every_image_once_and_the_next_another_order() -> None:
    batches = some(images().shuffled(part(8, 0, 8), 1, 0, augmented=True), 10)
    first, second = numbers(batches[:5]), numbers(batches[5:])
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second != sorted(second)
    for pixels, classes, _ in batches:
        assert [IMAGES.classes[number] for number in numbers([(pixels,)])] == classes.tolist()
    other = some(images().shuffled(part(8, 0, 8), 2, 0, augmented=True), 5)
    assert numbers(other) != first


def test_what_does_not_fill_a_batch_is_left_out_of_a_pass() -> None:
    batches = some(images().shuffled(part(24, 0, 24), 1, 0, augmented=False), 4)
    assert all(len(set(numbers([batch]))) == 24 for batch in batches)
    assert numbers(batches[:1]) != numbers(batches[1:2]), "the next batch is of the next pass"


def test_replicas_take_parts_of_one_batch() -> None:
    whole, left, right = (
        some(images().shuffled(part(8, start, stop), 1, 3, augmented=True), 2)
        for start, stop in ((0, 8), (0, 4), (4, 8))
    )
    for of_all, *of_parts in zip(whole, left, right, strict=True):
        for mine, *theirs in zip(of_all, *of_parts, strict=True):
            np.testing.assert_array_equal(mine, np.concatenate(theirs))


def test_the_test_images_come_in_order_and_the_last_batch_is_filled_up_with_no_class() -> None:
    batches = some(images().in_order(part(16, 0, 16)), 4)
    classes = np.concatenate([classes for _, classes, _ in batches])
    assert classes[:40].tolist() == IMAGES.classes.tolist()
    assert classes[40:48].tolist() == [-1] * 8
    assert classes[48:].tolist() == IMAGES.classes[:16].tolist(), "and from the start again"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_crops_are_cut_from_normalised_images_with_zeros_around(layout: str) -> None:
    import tensorflow as tf

    from workloads.tensorflow.prefetch import Preprocessing

    pixels, _, crops = some(images(layout).shuffled(part(40, 0, 40), 1, 0, augmented=True), 1)[0]
    prepared = Preprocessing(IMAGES, variant(layout=layout))(tf.constant(pixels), tf.constant(crops)).numpy()
    if layout == "NHWC":
        pixels, prepared = pixels.transpose(0, 3, 1, 2), prepared.transpose(0, 3, 1, 2)
    mean = IMAGES.images.mean(axis=(0, 2, 3)).reshape(1, 3, 1, 1)
    deviation = IMAGES.images.std(axis=(0, 2, 3)).reshape(1, 3, 1, 1)
    padded = np.pad((pixels - mean) / deviation, ((0, 0), (0, 0), (4, 4), (4, 4)))
    for image, found, (row, column, mirrored) in zip(padded, prepared, crops, strict=True):
        wanted = image[:, row : row + 32, column : column + 32]
        np.testing.assert_allclose(found, wanted[:, :, ::-1] if mirrored else wanted, atol=1e-4)
    assert {tuple(crop) for crop in crops[:, :2]} > {tuple(crop) for crop in crops[:1, :2]}
    assert set(crops[:, 2]) == {0, 1}
    assert crops[:, :2].min() >= 0
    assert crops[:, :2].max() <= 8


def test_images_that_are_not_augmented_are_the_images() -> None:
    import tensorflow as tf

    from workloads.tensorflow.prefetch import Preprocessing

    pixels, _, crops = some(images().in_order(part(8, 0, 8)), 1)[0]
    prepared = Preprocessing(IMAGES, variant())(tf.constant(pixels), tf.constant(crops)).numpy()
    np.testing.assert_allclose(prepared.std(), 1.0, atol=0.1)
    again = prepared * IMAGES.images.std(axis=(0, 2, 3)).reshape(1, 3, 1, 1)
    again += IMAGES.images.mean(axis=(0, 2, 3)).reshape(1, 3, 1, 1)
    np.testing.assert_allclose(again, pixels, atol=1e-3)


def test_the_articles_way_divides_by_255_and_cuts_nothing() -> None:
    import tensorflow as tf

    from workloads.tensorflow.prefetch import Preprocessing, training_queue

    way = variant(scaling="unit", augmentation="none", batch_size=40)
    pixels, _, crops = some(images().shuffled(part(8, 0, 8), 1, 0, augmented=True), 1)[0]
    prepare = Preprocessing(IMAGES, way)
    np.testing.assert_array_equal(prepare(tf.constant(pixels), tf.constant(crops)), pixels / np.float32(255))
    graph = tf.function(prepare).get_concrete_function(tf.constant(pixels), tf.constant(crops)).graph
    assert not {"Pad", "GatherV2", "Transpose"} & {node.type for node in graph.get_operations()}
    queue = training_queue(ImageData(IMAGES, IMAGES), way, replicas_on(["CPU:0"]))
    taken, classes = queue.batch(queue.take())
    originals = {image.tobytes() for image in IMAGES.images}
    assert {image.tobytes() for image in np.rint(taken.numpy() * 255).astype(np.uint8)} == originals
    assert sorted(classes.numpy()) == sorted(IMAGES.classes)


def test_an_image_of_one_colour_can_be_normalised() -> None:
    from workloads.tensorflow.prefetch import channel_statistics

    _, deviation = channel_statistics(Split(np.full((2, 3, 32, 32), 7, np.uint8), np.zeros(2, np.int64)).images)
    assert deviation.tolist() == [1.0, 1.0, 1.0]
