"""The image workloads: a network from one implementation's layers, its initial weights, cross entropy and momentum.

Convolution kernels are [height, width, in, out] in both layouts.
"""

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

from workloads import cnn
from workloads.cnn import Layer, Net, net_of
from workloads.image_training import learning_rate
from workloads.protocol import Variant
from workloads.seeding import image_weights, map_in_threads, synthetic_batch
from workloads.tensorflow.cnn import layers
from workloads.tensorflow.cnn.layers import MakeLayer
from workloads.tensorflow.optimizers import Momentum
from workloads.tensorflow.recipe import Recipe

_LAYER_FACTORIES: dict[tuple[str, bool], MakeLayer] = {
    ("native", False): layers.native_layer,
    ("native", True): layers.native_xla_layer,
    ("keras", False): layers.keras_layer,
    ("keras", True): layers.keras_layer,
}
"""The function that creates an implementation's layers, without and with XLA."""


class Cnn:
    """A network in one layout, its operations named by their layers."""

    def __init__(self, net: Net, make_layer: MakeLayer, layout: str, seed: int) -> None:
        self._net = net
        self.weight_names: Sequence[str] = cnn.weight_names(net)
        self.layers = {spec.name: make_layer(spec, initial, layout) for spec, initial in image_weights(net, seed)}

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables, in the same order for every implementation."""
        return [weight for layer in self.layers.values() for weight in layer.weights]

    @property
    def statistics(self) -> Sequence[tf.Variable]:
        """Return the running statistics of batch norm, in the order of `cnn.saved_shapes`."""
        return [variable for layer in self.layers.values() for variable in layer.statistics]

    def loss(self, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        logits = self._logits(inputs, training=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))

    def outputs(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the logits, [batch, 10], with the running statistics."""
        return self._logits(inputs, training=False)

    def _logits(self, images: tf.Tensor, *, training: bool) -> tf.Tensor:
        def apply(layer: Layer, images: tf.Tensor) -> tf.Tensor:
            with tf.name_scope(layer.name):
                return self.layers[layer.name](images, training)

        return cnn.evaluate(self._net, images, apply)


def build_cnn(workload: str, variant: Variant) -> Cnn:
    make = _LAYER_FACTORIES[str(variant["implementation"]), bool(variant["xla"])]
    return Cnn(net_of(workload, variant), make, str(variant["layout"]), int(variant["seed"]))


def recipe_of(workload: str) -> Callable[[Variant], Recipe]:
    def recipe(variant: Variant) -> Recipe:
        return Recipe(
            model=lambda: build_cnn(workload, variant),
            optimizer=lambda weights: Momentum(weights, learning_rate(variant), float(variant["weight_decay"])),
            elementwise=True,
            batch=partial(synthetic_batch, workload, variant),
            map_batches=map_in_threads,
        )

    return recipe
