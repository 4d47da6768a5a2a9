"""Loss, gradients and outputs of an image network at weights that are equal for every implementation, and in numpy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.lstm_answers import Answers
from workloads.catalog import Machine, complete
from workloads.protocol import Value, Variant

Array = NDArray[Any]
SIZES: dict[str, dict[str, Value]] = {
    "cnn10": {"channels": 4},
    "wrn28-10": {"depth": 10, "widen": 1},
}


SEED = 11
TOO_NEAR = 3e-6
"""As near to a jump of a gradient float32 may be on its other side; with the seed above no value is."""


def variant_of(workload: str, **settings: Value) -> Variant:
    """Return the complete variant at tiny sizes."""
    return complete(
        workload, {"gpus": 0, "batch_size": 4, "seed": SEED, **SIZES[workload], **settings}, Machine()
    ).variant


def random_cnn(workload: str, variant: Variant) -> Any:
    """Return the network with random scales, offsets and biases, which a training begins with as ones and zeros."""
    import tensorflow as tf

    from workloads.tensorflow.cnn.model import build_cnn

    model = build_cnn(workload, variant)
    for number, weight in enumerate(model.weights):
        if weight.shape.rank == 1:
            weight.assign_add(0.3 * tf.random.stateless_normal(weight.shape, [11, number]))
    return model


def _batch(variant: Variant, layout: str) -> Any:
    from workloads.seeding import synthetic_images

    return synthetic_images(3, 0, int(variant["batch_size"]), layout)


def answers(workload: str, variant: Variant) -> Answers:
    """Compute a forward and a backward pass in float32, compiled by XLA if the variant says so.

    The outputs are the logits in inference, after that step's statistics.
    """
    import tensorflow as tf

    from workloads.tensorflow.recipe import compile_function

    model = random_cnn(workload, variant)
    images, classes = _batch(variant, str(variant["layout"]))

    def differentiate() -> Any:
        with tf.GradientTape() as tape:
            loss = model.loss(images, classes)
        return loss, tape.gradient(loss, list(model.weights))

    xla = bool(variant["xla"])
    loss, gradients = compile_function(differentiate, xla=xla)()
    logits = compile_function(model.outputs, xla=xla)(images)
    return Answers(logits.numpy(), float(loss), [gradient.numpy() for gradient in gradients])


@dataclass
class _Pass:
    """A forward pass in numpy: the weights not read yet, and the running statistics, which are None in training.

    `nearest` is how near a value came to where a gradient jumps: ReLU's zero, or the largest of a square.
    """

    weights: Iterator[Array]
    bias: bool
    running: Iterator[tuple[Array, Array]] | None = None
    batch_statistics: list[tuple[Array, Array]] = field(default_factory=list)
    nearest: float = 1.0

    def convolve(self, images: Array, stride: int = 1) -> Array:
        """Convolve as TensorFlow's SAME pads: an odd number of zeros has the larger half behind."""
        kernel = next(self.weights)
        zeros = max(len(kernel) - stride, 0)
        around = (zeros // 2, zeros - zeros // 2)
        padded = np.pad(images, ((0, 0), around, around, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[:2], axis=(1, 2))[:, ::stride, ::stride]
        convolved: Array = np.einsum("nhwcij,ijco->nhwo", windows, kernel, optimize=True)
        return convolved + next(self.weights) if self.bias else convolved

    def norm_relu(self, images: Array) -> Array:
        self.batch_statistics.append((images.mean((0, 1, 2)), images.var((0, 1, 2))))
        mean, variance = self.batch_statistics[-1] if self.running is None else next(self.running)
        scaled = (images - mean) / np.sqrt(variance + 1e-3) * next(self.weights) + next(self.weights)
        self.nearest = min(self.nearest, np.abs(scaled).min())
        return np.asarray(np.maximum(scaled, 0))

    def halve(self, images: Array, pooling: Value) -> Array:
        n, h, w, c = images.shape
        squares = images.reshape(n, h // 2, 2, w // 2, 2, c)
        if pooling == "average":
            return np.asarray(squares.mean((2, 4)))
        *_, second, first = np.sort(squares.transpose(2, 4, 0, 1, 3, 5).reshape(4, n, h // 2, w // 2, c), axis=0)
        self.nearest = min(self.nearest, (first - second)[first > 0].min())
        return np.asarray(first)


def _cnn10(through: _Pass, images: Array, variant: Variant) -> Array:
    for block in range(3):
        for place in range(3):
            halved = variant["pooling"] == "strided" and (block, place) in ((0, 2), (1, 2))
            images = through.norm_relu(through.convolve(images, 2 if halved else 1))
        if variant["pooling"] != "strided" and block < 2:
            images = through.halve(images, variant["pooling"])
    return images


def _wide(through: _Pass, images: Array, variant: Variant) -> Array:
    images = through.convolve(images)
    for group in range(3):
        for block in range((int(variant["depth"]) - 4) // 6):
            stride = 2 if group and not block else 1
            normed = through.norm_relu(images)
            first = through.convolve(normed, stride)
            body = through.convolve(through.norm_relu(first))
            same = images.shape == body.shape
            images = body + (images if same else through.convolve(normed, stride))
    return through.norm_relu(images)


def _logits(through: _Pass, workload: str, variant: Variant, images: Array) -> Array:
    features = (_cnn10 if workload == "cnn10" else _wide)(through, images, variant)
    return np.asarray(features.mean((1, 2)) @ next(through.weights) + next(through.weights))


def numpy_answers(workload: str, variant: Variant) -> Answers:
    """Return what numpy alone answers in float64, written after the articles and not after `workloads.cnn`.

    In place of gradients stand the slopes along `_directions`, by central differences.
    """
    batch, classes = _batch(variant, "NHWC")
    images = batch.astype(np.float64)
    weights = [weight.numpy().astype(np.float64) for weight in random_cnn(workload, variant).weights]

    def training(weights: Sequence[Array]) -> tuple[float, _Pass]:
        through = _Pass(iter(weights), bool(variant["bias"]))
        logits = _logits(through, workload, variant, images)
        sums = np.log(np.exp(logits).sum(1))
        return float((sums - logits[np.arange(len(images)), classes]).mean()), through

    def slope(number: int, direction: Array, step: float = 1e-7) -> float:
        above, below = (
            training([*weights[:number], weights[number] + move * direction, *weights[number + 1 :]])[0]
            for move in (step, -step)
        )
        return (above - below) / (2 * step)

    loss, through = training(weights)
    assert through.nearest > TOO_NEAR, f"{through.nearest}: take another seed"
    running = [(0.01 * mean, 0.99 + 0.01 * variance) for mean, variance in through.batch_statistics]
    logits = _logits(_Pass(iter(weights), bool(variant["bias"]), iter(running)), workload, variant, images)
    slopes = [slope(number, direction) for number, direction in enumerate(_directions(weights))]
    return Answers(logits, loss, [np.array(slopes)])


def _directions(weights: Sequence[Array]) -> list[Array]:
    """Return a random direction of length 1 for each weight."""
    rng = np.random.default_rng(1)
    drawn = [rng.normal(size=weight.shape) for weight in weights]
    return [one / np.linalg.norm(one) for one in drawn]


def with_slopes(found: Answers) -> Answers:
    """Return the answers with one slope for each weight in place of the gradients, as `numpy_answers` has them."""
    pairs = zip(_directions(found.gradients), found.gradients, strict=True)
    return replace(found, gradients=[np.array([np.vdot(direction, gradient) for direction, gradient in pairs])])
