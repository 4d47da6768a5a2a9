"""Stored images in a TensorFlow step: scaled, cropped and mirrored as said."""

import numpy as np
import pytest

from tests.fakes import cifar10 as fakes
from workloads.catalog import Machine, complete
from workloads.cifar10 import ImageData
from workloads.image_training import BatchSlice, Images
from workloads.protocol import Value, Variant
from workloads.tensorflow.runtime import replicas_on

IMAGES = fakes.split(40, seed=1)


def variant(**given: Value) -> Variant:
    return complete("cnn10", {"gpus": 0, "data": "stand_in", "layout": "NCHW", **given}, Machine()).variant


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_crops_are_cut_from_normalised_images_with_zeros_around(layout: str) -> None:
    import tensorflow as tf

    from workloads.tensorflow.stored_images import Preprocessing

    pixels, crops, _ = next(Images(IMAGES, layout).shuffled(BatchSlice(40, 0, 40), 1, 0, augmented=True))
    prepared = Preprocessing(IMAGES, variant(layout=layout))(tf.constant(pixels), tf.constant(crops)).numpy()
    if layout == "NHWC":
        pixels, prepared = pixels.transpose(0, 3, 1, 2), prepared.transpose(0, 3, 1, 2)
    mean = IMAGES.images.mean(axis=(0, 2, 3)).reshape(1, 3, 1, 1)
    deviation = IMAGES.images.std(axis=(0, 2, 3)).reshape(1, 3, 1, 1)
    padded = np.pad((pixels - mean) / deviation, ((0, 0), (0, 0), (4, 4), (4, 4)))
    for image, crop, (row, column, mirrored) in zip(padded, prepared, crops, strict=True):
        wanted = image[:, row : row + 32, column : column + 32]
        np.testing.assert_allclose(crop, wanted[:, :, ::-1] if mirrored else wanted, atol=1e-4)
    assert {tuple(crop) for crop in crops[:, :2]} > {tuple(crop) for crop in crops[:1, :2]}
    assert set(crops[:, 2]) == {0, 1}
    assert crops[:, :2].min() >= 0
    assert crops[:, :2].max() <= 8


def test_images_that_are_not_augmented_are_the_images() -> None:
    import tensorflow as tf

    from workloads.tensorflow.stored_images import Preprocessing

    pixels, crops, _ = next(Images(IMAGES, "NCHW").in_order(BatchSlice(8, 0, 8)))
    prepared = Preprocessing(IMAGES, variant())(tf.constant(pixels), tf.constant(crops)).numpy()
    np.testing.assert_allclose(prepared.std(), 1.0, atol=0.1)
    again = prepared * IMAGES.images.std(axis=(0, 2, 3)).reshape(1, 3, 1, 1)
    again += IMAGES.images.mean(axis=(0, 2, 3)).reshape(1, 3, 1, 1)
    np.testing.assert_allclose(again, pixels, atol=1e-3)


def test_the_articles_way_divides_by_255_and_cuts_nothing() -> None:
    import tensorflow as tf

    from workloads.tensorflow.stored_images import Preprocessing, training_queue

    way = variant(scaling="unit", augmentation="none", batch_size=40)
    pixels, crops, _ = next(Images(IMAGES, "NCHW").shuffled(BatchSlice(8, 0, 8), 1, 0, augmented=True))
    prepare = Preprocessing(IMAGES, way)
    np.testing.assert_array_equal(prepare(tf.constant(pixels), tf.constant(crops)), pixels / np.float32(255))
    graph = tf.function(prepare).get_concrete_function(tf.constant(pixels), tf.constant(crops)).graph
    assert not {"Pad", "GatherV2", "Transpose"} & {node.type for node in graph.get_operations()}
    queue = training_queue(ImageData(IMAGES, IMAGES), way, replicas_on(["CPU:0"]))
    taken, classes = queue.batch(queue.take())
    originals = {image.tobytes() for image in IMAGES.images}
    assert {image.tobytes() for image in np.rint(taken.numpy() * 255).astype(np.uint8)} == originals
    assert sorted(classes.numpy()) == sorted(IMAGES.classes)
