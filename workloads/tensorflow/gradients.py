"""Loss and gradients of a variant's first step, or its outputs, in which equivalent variants agree.

It is the measured step, with precision, layout, XLA and the exchange between replicas, except that the optimizer
records the gradients and changes nothing.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import RunSpec
from workloads.tensorflow.recipe import Batch, Model, Recipe, compile_function
from workloads.tensorflow.runtime import Replicas, compute_dtype
from workloads.tensorflow.steps import build_task
from workloads.training import do_nothing
from workloads.weights import mean_gradients, moments, read_start, write_gradients

Arrays = list[NDArray[np.float64]]


class GradientRecorder:
    """An optimizer that records the gradients of each step, and updates nothing."""

    def __init__(self, weights: Sequence[tf.Variable]) -> None:
        self._gradients = [tf.Variable(tf.zeros(weight.shape, weight.dtype), trainable=False) for weight in weights]
        self._mask = tf.Variable(0.0, trainable=False)

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        """Record the gradients and `mask`, which is 0 if float16 gradients are not finite."""
        for variable, value in zip((*self._gradients, self._mask), (*gradients, mask), strict=True):
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)

    def gradients(self) -> Arrays:
        """Return the gradients of the last step; all NaN if it would have been skipped."""
        results = tf.distribute.get_strategy().experimental_local_results
        replica = [results(variable)[0] for variable in (self._mask, *self._gradients)]
        mask, *gradients = (np.asarray(value.numpy(), dtype=np.float64) for value in replica)
        return gradients if mask else [np.array(np.nan)]


def compute_gradients(recipe: Recipe, replicas: Replicas, request: ComputeGradients) -> ComputedGradients:
    """Run the step on one batch, part by part, and write the results.

    Raises:
        RefusedError: The weights to start from have other shapes, or gradients are not finite.
    """
    with replicas.strategy.scope():
        model = recipe.model()
        start = _start_weights(model, request.start_path)
    with tf.device("CPU:0"):
        batch = recipe.batch(0)
    size = int(request.spec.variant["batch_size"]) // request.parts
    spec = RunSpec(workload=request.spec.workload, variant={**request.spec.variant, "batch_size": size, "epochs": 0})
    recorders: list[GradientRecorder] = []

    def recorder(weights: Sequence[tf.Variable]) -> GradientRecorder:
        recorders.append(GradientRecorder(weights))
        return recorders[-1]

    parted = dataclasses.replace(
        recipe,
        model=lambda: model,
        optimizer=recorder,
        batch=lambda index: _part(batch, index * size, size),
        batches=request.parts,
        elementwise=False,
    )
    if request.spec.variant["mode"] == "train":
        names = model.weight_names
        task = build_task(parted, spec.variant, replicas)
        gradients, losses = mean_gradients(
            lambda: (task.fetch(task.step()), recorders[0].gradients()),
            request.parts,
            do_nothing,  # the step itself halves the scale
        )
    else:
        names, losses = ["outputs"], ()
        gradients = [_outputs(model, parted, spec, replicas, request.parts)]
    write_gradients(request.path, names, gradients, start)
    return ComputedGradients(losses=losses, batch=moments(tf.nest.flatten(batch)))


def _start_weights(model: Model, path: str | None) -> list[Any]:
    """Assign another variant's weights; without them, return the seed's."""
    if path is None:
        return [np.asarray(weight.numpy()) for weight in model.weights]
    values = read_start(path, [tuple(weight.shape) for weight in model.weights])
    for weight, value in zip(model.weights, values, strict=True):
        weight.assign(value)
    return []


def _part(batch: Batch, start: int, size: int) -> Batch:
    inputs, targets = tf.nest.map_structure(lambda tensor: tensor[start : start + size], batch)
    return inputs, targets


def _outputs(model: Model, recipe: Recipe, spec: RunSpec, replicas: Replicas, parts: int) -> NDArray[np.float64]:
    """Return the whole batch's outputs, in inference on the first device."""
    dtype = compute_dtype(str(spec.variant["precision"])) if recipe.casts_inputs else None
    forward = compile_function(model.outputs, xla=bool(spec.variant["xla"]))

    def outputs(index: int) -> Any:
        with tf.device(replicas.devices[0]):
            inputs, _ = tf.nest.map_structure(tf.convert_to_tensor, recipe.batch(index))
            return forward(
                tf.nest.map_structure(lambda x: tf.cast(x, dtype) if dtype and x.dtype.is_floating else x, inputs)
            )

    return np.concatenate([np.asarray(outputs(index), np.float64) for index in range(parts)])
