"""The image workloads: a network from one implementation's layers, its initial weights, cross entropy and momentum.

Convolution kernels are [height, width, in, out] in both layouts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from workloads import cnn
from workloads.cnn import Conv, Layer, Net, Norm, Pool, Relu, net_of, weight_shapes
from workloads.image_training import learning_rate
from workloads.protocol import Variant
from workloads.seeding import image_weights, map_in_threads, synthetic_batch
from workloads.tensorflow.cnn import layers
from workloads.tensorflow.cnn.layers import MakeLayer
from workloads.tensorflow.optimizers import Momentum
from workloads.tensorflow.recipe import Recipe, compile_function

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


def trainable_layouts() -> dict[str, tuple[str, ...]]:
    """Return, by precision, the layouts in which TensorFlow trains on two images on the CPU without XLA."""
    return {
        precision: tuple(layout for layout in ("NHWC", "NCHW") if _trains(tf.as_dtype(precision), layout))
        for precision in ("float32", "bfloat16", "float16")
    }


_EACH_OPERATION: tuple[Layer, ...] = (
    Conv(name="conv", channels_in=4, channels=4, side=8, bias=True),
    Norm(name="norm", channels=4),
    Relu(name="relu"),
    Pool(name="average"),
    Pool(name="max", method="max"),
)


def _trains(dtype: tf.DType, layout: str) -> bool:
    built = [
        layers.native_layer(layer, [tf.ones(shape) for shape in weight_shapes(layer)], layout)
        for layer in _EACH_OPERATION
    ]
    weights = [weight for layer in built for weight in layer.weights]
    images = tf.ones([2, 4, 8, 8] if layout == "NCHW" else [2, 8, 8, 4], dtype)

    def gradients() -> Any:
        outputs = images
        with tf.GradientTape() as tape:
            for layer in built:
                outputs = layer(outputs, True)
            loss = tf.reduce_sum(tf.cast(outputs, tf.float32))
        return tape.gradient(loss, weights)

    try:
        compile_function(gradients, xla=False)()
    except tf.errors.OpError:
        return False
    return True
