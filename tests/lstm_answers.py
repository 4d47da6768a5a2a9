"""Outputs, loss and gradients of a recurrent variant at random weights that are equal for every implementation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.catalog import Gpu, Machine, check, complete
from workloads.protocol import Value, Variant

Array = NDArray[Any]
CPU = Machine(cpu_count=2)
A_GPU = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="", compute_capability=(9, 0)),), cpu_count=2)


@dataclass(frozen=True)
class Answers:
    """Outputs of a batch in inference, the loss in training mode, and the gradient of every weight."""

    outputs: Array
    loss: float
    gradients: list[Array]

    def agree(self, other: "Answers", tolerance: float) -> None:
        """Fail where a number differs by more than the tolerance, absolute or relative."""
        np.testing.assert_allclose(self.outputs, other.outputs, rtol=tolerance, atol=tolerance)
        assert abs(self.loss - other.loss) < tolerance * max(1.0, other.loss)
        for mine, theirs in zip(self.gradients, other.gradients, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def variant_of(machine: Machine, workload: str = "lstm", /, **settings: Value) -> Variant | None:
    """Return the complete variant, or None where it cannot run."""
    spec = complete(workload, settings, machine)
    return None if check(spec, machine) else spec.variant


def random_model(variant: Variant, workload: str = "lstm") -> Any:
    from workloads.tensorflow.recurrent import model

    made = model.recurrent_model(workload, variant)
    shapes = zip(made.weight_names, made.weights, strict=True)
    made.set_weights([_normal(name, list(weight.shape), number) for number, (name, weight) in enumerate(shapes)])
    return made


def _normal(name: str, shape: list[int], number: int) -> Any:
    """Return values so large that gates differ, but not so large that they saturate."""
    import tensorflow as tf

    deviation = 0.5 if name.endswith("bias") else 1.6 / shape[0] ** 0.5
    return deviation * tf.random.stateless_normal(shape, [7, number])


def batch_of(variant: Variant) -> Any:
    import tensorflow as tf

    from workloads.tensorflow.recurrent import model
    from workloads.tensorflow.runtime import compute_dtype

    dtype = compute_dtype(str(variant["precision"]))
    inputs, targets = tf.nest.map_structure(tf.convert_to_tensor, model.recipe_of("lstm")(variant).batch(0))
    return tf.nest.map_structure(lambda x: tf.cast(x, dtype) if x.dtype.is_floating else x, inputs), targets


def answers(variant: Variant, workload: str = "lstm", *, traced: bool = True) -> Answers:
    """Compute a forward and a backward pass: operation by operation, or as a graph, with XLA if the variant says so."""
    import tensorflow as tf

    made, (inputs, targets) = random_model(variant, workload), batch_of(variant)

    def run() -> tuple[Any, Any, Any]:
        with tf.GradientTape() as tape:
            loss = made.loss(inputs, targets)
        return made.outputs(inputs), loss, tape.gradient(loss, list(made.weights))

    graph = tf.function(run, jit_compile=bool(variant["xla"]), autograph=False)
    outputs, loss, gradients = graph() if traced else run()
    return Answers(outputs.numpy(), float(loss), [gradient.numpy() for gradient in gradients])
