"""The 10-layer CNN in both layouts, against itself and against Keras's batch norm."""

from typing import Any

import numpy as np


def forward_and_gradients(layout: str) -> tuple[Any, list[Any]]:
    import tensorflow as tf

    from workloads.cnn.cnn10 import Cnn10
    from workloads.data import made_images

    model = Cnn10(3, 4, layout)
    images, classes = made_images(3, 0, 4, layout)

    def run() -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = model.loss(images, classes)
        return model.outputs(images), tape.gradient(loss, list(model.weights))

    logits, gradients = tf.function(run)()
    return logits.numpy(), [gradient.numpy() for gradient in gradients]


def test_layouts_agree() -> None:
    logits_first, gradients_first = forward_and_gradients("NCHW")
    logits_last, gradients_last = forward_and_gradients("NHWC")
    np.testing.assert_allclose(logits_first, logits_last, atol=1e-4)
    for first, last in zip(gradients_first, gradients_last, strict=True):
        np.testing.assert_allclose(first, last, atol=1e-4)


def test_images_are_the_same_in_both_layouts() -> None:
    from workloads.data import made_images

    first, classes = made_images(1, 2, 3, "NCHW")
    last, same = made_images(1, 2, 3, "NHWC")
    assert first.shape == (3, 3, 32, 32)
    np.testing.assert_array_equal(np.transpose(first.numpy(), [0, 2, 3, 1]), last.numpy())
    np.testing.assert_array_equal(classes.numpy(), same.numpy())


def test_running_statistics_are_kerass() -> None:
    import keras
    import tensorflow as tf

    from workloads.cnn.layers import ConvUnit

    unit = ConvUnit(1, 0, 3, 5, "NHWC")
    images = tf.random.stateless_normal([2, 4, 4, 3], [1, 2])
    reference = keras.layers.BatchNormalization()
    reference(tf.nn.conv2d(images, unit.weights[0], 1, "SAME"), training=True)
    tf.function(lambda: unit(images, training=True))()
    np.testing.assert_allclose(unit.mean.numpy(), reference.moving_mean.numpy(), atol=1e-6)
    np.testing.assert_allclose(unit.variance.numpy(), reference.moving_variance.numpy(), rtol=1e-5)
