"""Loss, gradients and outputs of an image network at the initial weights of a seed, equal for every implementation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.catalog import Machine, complete
from workloads.protocol import Value, Variant

Array = NDArray[Any]
SIZES: dict[str, dict[str, Value]] = {
    "cnn10": {"channels": 4},
    "wrn28-10": {"depth": 10, "widen": 1},
}


@dataclass(frozen=True)
class Answers:
    """The loss in training mode, the gradient of every weight, and after that step's statistics the logits."""

    loss: float
    gradients: list[Array]
    logits: Array

    def agree(self, other: "Answers", tolerance: float) -> None:
        """Fail where a number differs by more than the tolerance."""
        np.testing.assert_allclose(self.loss, other.loss, atol=tolerance)
        np.testing.assert_allclose(self.logits, other.logits, atol=tolerance)
        for mine, theirs in zip(self.gradients, other.gradients, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=tolerance)


def variant_of(workload: str, **settings: Value) -> Variant:
    """Return the complete variant at tiny sizes."""
    return complete(workload, {"gpus": 0, "batch_size": 4, "seed": 3, **SIZES[workload], **settings}, Machine()).variant


def answers(workload: str, variant: Variant) -> Answers:
    """Compute a forward and a backward pass in float32, compiled by XLA if the variant says so; then inference."""
    import tensorflow as tf

    from workloads.tensorflow.cnn.model import build_cnn
    from workloads.tensorflow.recipe import compile_function
    from workloads.tensorflow.synthetic import synthetic_images

    model = build_cnn(workload, variant)
    images, classes = synthetic_images(3, 0, int(variant["batch_size"]), str(variant["layout"]))

    def differentiate() -> Any:
        with tf.GradientTape() as tape:
            loss = model.loss(images, classes)
        return loss, tape.gradient(loss, list(model.weights))

    xla = bool(variant["xla"])
    loss, gradients = compile_function(differentiate, xla=xla)()
    logits = compile_function(model.outputs, xla=xla)(images)
    return Answers(float(loss), [gradient.numpy() for gradient in gradients], logits.numpy())


def cnn10_loss(weights: Sequence[Array], images: Array, classes: Array, pooling: str) -> float:
    """Return the loss of `cnn10` in training mode, computed by numpy alone.

    Args:
        weights: All weights in the model's order, convolutions with biases.
        images: Images in NHWC.
        classes: Their classes.
        pooling: As the parameter.
    """
    left = iter(weights)
    for block in range(3):
        for place in range(3):
            halved = pooling == "strided" and (block, place) in ((0, 2), (1, 2))
            images = _convolve(images, next(left), 2 if halved else 1) + next(left)
            centred = images - images.mean((0, 1, 2))
            normed = centred / np.sqrt((centred**2).mean((0, 1, 2)) + 1e-3)
            images = np.maximum(normed * next(left) + next(left), 0)
        if pooling != "strided" and block < 2:
            n, h, w, c = images.shape
            squares = images.reshape(n, h // 2, 2, w // 2, 2, c)
            images = squares.max((2, 4)) if pooling == "max" else squares.mean((2, 4))
    logits = images.mean((1, 2)) @ next(left) + next(left)
    sums = np.log(np.exp(logits).sum(1))
    return float((sums - logits[np.arange(len(classes)), classes]).mean())


def _convolve(images: Array, kernel: Array, stride: int) -> Array:
    """Convolve as TensorFlow's SAME pads: an odd number of zeros has the larger half behind."""
    zeros = 2 if stride == 1 else 1
    around = (zeros // 2, zeros - zeros // 2)
    padded = np.pad(images, ((0, 0), around, around, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    convolved: Array = np.einsum("nhwcij,ijco->nhwo", windows, kernel, optimize=True)
    return convolved
