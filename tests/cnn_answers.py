"""Loss, gradients and outputs of an image network at the initial weights of a seed, equal for every implementation."""

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
