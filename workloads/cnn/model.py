"""The image workloads: a network from one implementation's layers, cross entropy, gradient descent with momentum."""

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from workloads.cnn import keras_layers, native, native_xla, nets
from workloads.cnn.layer import MakeLayer
from workloads.cnn.nets import Net, Sum, net_of
from workloads.cnn.weights import initial_weights
from workloads.data import made_images
from workloads.errors import RefusedError
from workloads.optimizers import Momentum
from workloads.protocol import Variant
from workloads.recipe import Recipe

_LAYERS: dict[tuple[str, bool], MakeLayer] = {
    ("native", False): native.layer,
    ("native", True): native_xla.layer,
    ("keras", False): keras_layers.layer,
    ("keras", True): keras_layers.layer,
}
"""Who makes the layers of an implementation, without XLA and with it."""


class Cnn:
    """A network in one layout, its operations named by their layers."""

    def __init__(self, net: Net, make: MakeLayer, layout: str, seed: int) -> None:
        self._net = net
        self.layers = {spec.name: make(spec, initial, layout) for spec, initial in initial_weights(net, seed)}

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables, in the same order for every implementation."""
        return [weight for layer in self.layers.values() for weight in layer.weights]

    def loss(self, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Mean cross entropy."""
        logits = self._run(self._net, inputs, training=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))

    def outputs(self, inputs: tf.Tensor) -> tf.Tensor:
        """The logits, [batch, 10], with the running statistics."""
        return self._run(self._net, inputs, training=False)

    def _run(self, parts: Iterable[nets.Layer | Sum], images: tf.Tensor, *, training: bool) -> tf.Tensor:
        for part in parts:
            if isinstance(part, Sum):
                body = self._run(part.body, images, training=training)
                images = body + self._run(part.shortcut, images, training=training)
            else:
                with tf.name_scope(part.name):
                    images = self.layers[part.name](images, training)
        return images


def cnn(workload: str, variant: Variant) -> Cnn:
    """The network of a variant with its initial weights."""
    make = _LAYERS[str(variant["implementation"]), bool(variant["xla"])]
    return Cnn(net_of(workload, variant), make, str(variant["layout"]), int(variant["seed"]))


def recipe_of(workload: str) -> Callable[[Variant], Recipe]:
    """The function that gives an image workload's recipe for a variant.

    The optimizer is plain gradient descent with momentum: no weight decay, no schedule of its rate. Raises
    `RefusedError` where TensorFlow lacks what the layout needs.
    """

    def recipe(variant: Variant) -> Recipe:
        _check_layout(variant)
        seed, layout = int(variant["seed"]), str(variant["layout"])
        return Recipe(
            model=lambda: cnn(workload, variant),
            optimizer=Momentum,
            batch=lambda index: made_images(seed, index, int(variant["batch_size"]), layout),
        )

    return recipe


def _check_layout(variant: Variant) -> None:
    """Whether there is oneDNN is a matter of TensorFlow's build and of the environment, so no rule can know it."""
    plain_cpu = int(variant["gpus"]) == 0 and not variant["xla"]
    if plain_cpu and variant["layout"] == "NCHW" and not _pywrap_util_port.IsMklEnabled():
        raise RefusedError(
            "On the CPU TensorFlow has NCHW in oneDNN only, which is off here (TF_ENABLE_ONEDNN_OPTS=0) or not "
            "part of this TensorFlow; use layout=NHWC or xla=true."
        )
