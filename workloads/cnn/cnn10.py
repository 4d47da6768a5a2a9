"""The 10-layer CNN: three blocks of three convolutions with c, 2c and 4c channels, pooling between, a dense head."""

from collections.abc import Sequence

import tensorflow as tf

from workloads.cnn.layers import ConvUnit, global_mean, halved, normal
from workloads.data import CLASSES, made_images
from workloads.optimizers import Momentum
from workloads.protocol import Variant
from workloads.recipe import Recipe


class Cnn10:
    """Nine convolution units and a dense layer, all in one layout."""

    def __init__(self, seed: int, channels: int, layout: str) -> None:
        self._layout = layout
        widths = [3] + [channels * 2**block for block in range(3) for _ in range(3)]
        self.units = [ConvUnit(seed, n, widths[n], widths[n + 1], layout) for n in range(9)]
        self._dense = normal(seed, 9, [widths[-1], CLASSES], widths[-1])
        self._bias = tf.Variable(tf.zeros([CLASSES]))

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables."""
        return [weight for unit in self.units for weight in unit.weights] + [self._dense, self._bias]

    def loss(self, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Mean cross entropy."""
        logits = self._logits(inputs, training=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))

    def outputs(self, inputs: tf.Tensor) -> tf.Tensor:
        """The logits, [batch, 10]."""
        return self._logits(inputs, training=False)

    def _logits(self, images: tf.Tensor, *, training: bool) -> tf.Tensor:
        for number, unit in enumerate(self.units):
            images = halved(images, self._layout) if number in (3, 6) else images
            images = unit(images, training=training)
        features = tf.cast(global_mean(images, self._layout), tf.float32)
        return tf.matmul(features, self._dense) + self._bias


def recipe(variant: Variant) -> Recipe:
    """The CNN of a variant on made images."""
    seed, layout = int(variant["seed"]), str(variant["layout"])
    return Recipe(
        model=lambda: Cnn10(seed, int(variant["channels"]), layout),
        optimizer=Momentum,
        batch=lambda index: made_images(seed, index, int(variant["batch_size"]), layout),
    )
