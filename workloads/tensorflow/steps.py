"""Builds a task from a recipe: the step as one `tf.function` on one or several replicas."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from workloads.cifar10 import ImageData
from workloads.custom.evidence import checksums, count_distinct, sample_stride
from workloads.image_training import epoch_steps
from workloads.protocol import Variant
from workloads.seeding import batch_count
from workloads.tensorflow import runtime
from workloads.tensorflow.optimizers import LossScale, Optimizer
from workloads.tensorflow.recipe import Batch, Batches, Model, Recipe, compile_function, per_replica_variable
from workloads.tensorflow.runtime import Replicas
from workloads.tensorflow.saving import make_keeper
from workloads.tensorflow.stored_images import Accuracy, training_queue
from workloads.training import Inspection, Passes, Task, do_nothing


def join(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the tensors joined to one vector, matrices first, in a type that holds them all."""
    dtype = functools.reduce(np.promote_types, (tensor.dtype.as_numpy_dtype for tensor in tensors))
    vectors = [tf.reshape(tf.cast(tensor, dtype), [-1]) for tensor in sorted(tensors, key=_is_vector)]
    return tf.concat(vectors, axis=0)


def split(buffer: tf.Tensor, weights: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """Split a buffer of `join` into tensors, each in the shape and type of its weight."""
    order = sorted(range(len(weights)), key=lambda number: _is_vector(weights[number]))
    vectors = tf.split(buffer, [weights[number].shape.num_elements() for number in order])
    by_number = dict(zip(order, vectors, strict=True))
    return [tf.cast(tf.reshape(by_number[number], weight.shape), weight.dtype) for number, weight in enumerate(weights)]


def _is_vector(tensor: tf.Tensor | tf.Variable) -> bool:
    return len(tensor.shape) < 2


class JoinedOptimizer:
    """An elementwise optimizer that treats all weights as two: all matrices as one column, and a vector of the rest.

    It gives the same numbers in two operations instead of one for each weight. The host starts them after the
    gradients' exchange, while the GPUs wait: 0.7 ms for the sixty of `cnn10` on two GPUs, as traced
    (docs/internals/measurements/2026-11-21-cnn.md).

    It trains these two and copies them to the weights at each step: values assigned to a weight in between are lost.
    """

    def __init__(self, weights: Sequence[tf.Variable], optimizer: Callable[[Sequence[tf.Variable]], Optimizer]) -> None:
        """Copy the weights to update; `optimizer` creates the optimizer of given variables."""
        groups = [[weight for weight in weights if _is_vector(weight) is vector] for vector in (False, True)]
        self._groups = [group for group in groups if group]
        self._joined = [_joined_variable(group) for group in self._groups]
        self._optimizer = optimizer(self._joined)

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        """Update all weights by their gradients, which are a buffer of `join`, if `mask` is 1."""
        (buffer,) = gradients
        self._optimizer.apply(self._parts(buffer), mask)
        for joined, group in zip(self._joined, self._groups, strict=True):
            for weight, value in zip(group, split(joined.read_value(), group), strict=True):
                tf.raw_ops.AssignVariableOp(resource=weight.handle, value=value)

    def _parts(self, buffer: tf.Tensor) -> list[tf.Tensor]:
        """Return each variable's part of the buffer, as slices: `tf.split` would copy."""
        parts, start = [], 0
        for joined in self._joined:
            end = start + joined.shape.num_elements()
            parts.append(tf.reshape(buffer[start:end], joined.shape))
            start = end
        return parts


def _joined_variable(weights: Sequence[tf.Variable]) -> tf.Variable:
    values = join([weight.read_value() for weight in weights])
    return tf.Variable(values if _is_vector(weights[0]) else values[:, tf.newaxis], trainable=False)


def count_distinct_outputs(
    answers: Callable[[Any], Sequence[Sequence[tf.Tensor]]], batch: Any, replicas: Replicas
) -> tuple[int, int, int]:
    """Count in the first replica's first batch, which has every kind of example; the least of all modes."""
    with tf.device(replicas.devices[0]):
        results = replicas.strategy.experimental_local_results
        inputs, _ = tf.nest.map_structure(lambda tensor: results(tensor)[0][0], batch)
        return count_distinct(tf.nest.flatten(inputs), [list(map(_sample, outputs)) for outputs in answers(inputs)])


def _sample(output: tf.Tensor) -> Any:
    """Return some numbers of each row, in float64; an output without rows unchanged."""
    if not output.shape.rank:
        return output
    rows = tf.reshape(output, [output.shape[0], -1])
    return tf.cast(rows[:, :: sample_stride(rows.shape[1])], tf.float64)


class DeviceBatches:
    """Batches that stay on the devices, each replica with its slice of every global batch; one extra axis in front."""

    def __init__(self, recipe: Recipe, variant: Variant, replicas: Replicas) -> None:
        with replicas.strategy.scope():
            self._cursor = tf.Variable(0, dtype=tf.int64, trainable=False)
        dtype = runtime.compute_dtype(str(variant["precision"])) if recipe.casts_inputs else None

        def replica_batches(context: Any) -> Batch:
            replica = context.replica_id_in_sync_group
            with tf.device(replicas.devices[replica]):
                return _replica_batches(recipe, dtype, int(variant["batch_size"]) // replicas.count, replica)

        self._batches = replicas.strategy.experimental_distribute_values_from_function(replica_batches)

    def take(self) -> Any:
        return self._batches

    def batch(self, tensors: Batch) -> Batch:
        index = self._cursor.read_value()
        count = tf.nest.flatten(tensors)[0].shape[0]
        following = tf.where(index + 1 < count, index + 1, tf.zeros_like(index))
        tf.raw_ops.AssignVariableOp(resource=self._cursor.handle, value=following)
        inputs, targets = tf.nest.map_structure(lambda batches: tf.gather(batches, index), tensors)
        return inputs, targets


def _replica_batches(recipe: Recipe, dtype: str | None, size: int, replica: int) -> Batch:
    share = slice(replica * size, (replica + 1) * size)

    def on_device(batch: Batch) -> Batch:
        inputs, targets = tf.nest.map_structure(lambda tensor: tf.convert_to_tensor(tensor[share]), batch)
        return tf.nest.map_structure(
            lambda tensor: tf.cast(tensor, dtype) if dtype and tensor.dtype.is_floating else tensor, inputs
        ), targets

    first_batch = on_device(recipe.batch(0))
    size_bytes = sum(int(tf.size(tensor)) * tensor.dtype.size for tensor in tf.nest.flatten(first_batch))
    count = recipe.batches or batch_count(size_bytes)
    batches = [first_batch, *map(on_device, recipe.map_batches(recipe.batch, range(1, count)))]
    inputs, targets = tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *batches)
    return inputs, targets


def build_task(recipe: Recipe, variant: Variant, replicas: Replicas, stored: ImageData | None = None) -> Task:
    """Create the model and its data on the devices, and the step that joins them; nothing is traced or compiled yet.

    Stored images replace the recipe's data.

    Raises:
        RefusedError: The stored images do not fill a batch.
    """
    trains = variant["mode"] == "train"
    # On one GPU the host is ahead at the updates, or the GPU waits for it anyway, and XLA joins operations itself.
    joined = recipe.elementwise and replicas.count > 1 and not variant["xla"]
    with replicas.strategy.scope():
        model = recipe.model()
        optimizer = _optimizer(recipe, model, variant, joined=joined) if trains else None
    prefetch = training_queue(stored, variant, replicas) if stored else None
    batches = prefetch or DeviceBatches(recipe, variant, replicas)
    xla = bool(variant["xla"])
    with replicas.strategy.scope():
        replica_step = _Step(model, optimizer, batches, replicas.count, joined=joined, xla=xla)

    def on_replicas(batch: Any) -> None:
        replica_step.eager_steps += tf.executing_eagerly()
        replicas.strategy.run(replica_step.train if trains else replica_step.infer, (batch,))

    run = compile_function(on_replicas, xla=xla and replicas.count == 1)

    def step() -> tf.Variable:
        run(batches.take())
        return replica_step.result

    keeper, passes = make_keeper(model, replicas, stored), None
    if stored and variant["epochs"]:
        passes = Passes(steps=epoch_steps(stored, variant), accuracy=Accuracy(stored, model, variant, replicas))
    return Task(
        step=step,
        fetch=_fetch,
        examples=int(variant["batch_size"]),
        trains=trains,
        allocator_bytes=lambda: runtime.allocator_bytes(replicas, "current"),
        allocator_peak_bytes=lambda: runtime.allocator_bytes(replicas, "peak"),
        keep_weights=keeper.keep if variant.get("save_weights", False) else do_nothing,
        save_weights=keeper.save,
        reuse_batches=prefetch.reuse_batches if prefetch else None,
        passes=passes,
        layers=recipe.layers(),
        inspection=recipe.answers
        and Inspection(
            eager_steps=lambda: replica_step.eager_steps,
            loss=lambda: _fetch(replica_step.result),
            checksums=lambda: checksums(zip(model.weight_names, model.weights, strict=True)),
            without_gradient=lambda: replica_step.without_gradient,
            count_distinct=functools.partial(count_distinct_outputs, recipe.answers, batches.take(), replicas),
            frozen=recipe.frozen,
        ),
    )


def _fetch(result: tf.Variable) -> float:
    tf.test.experimental.sync_devices()
    return float(result.read_value())


def _optimizer(recipe: Recipe, model: Model, variant: Variant, *, joined: bool) -> Optimizer:
    optimizer = JoinedOptimizer(model.weights, recipe.optimizer) if joined else recipe.optimizer(model.weights)
    return LossScale(optimizer) if variant["precision"] == "float16" else optimizer


class _Step:
    """One replica's part of a step; a training step averages gradients over replicas.

    With several replicas their gradients are exchanged in one buffer, which a joined optimizer takes whole. XLA
    compiles what comes before and after the exchange, but cannot compile this communication. A step's result stays in a
    variable of each replica: as the function's output it would be sent to one device, and the host would wait for all
    devices after every step instead of preparing the next one.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer | None,
        batches: Batches,
        replicas: int,
        *,
        joined: bool,
        xla: bool,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._batches = batches
        self._replicas = replicas
        self._joined = joined
        inner = xla and replicas > 1
        self._differentiate = compile_function(self._gradients) if inner else self._gradients
        self._update = compile_function(self._apply) if inner else self._apply
        self._answer = compile_function(self._outputs) if inner else self._outputs
        self.result = per_replica_variable(tf.constant(0.0))
        self.without_gradient: Sequence[str] = ()
        self.eager_steps = 0

    def train(self, batch: Any) -> None:
        """Run forward pass, backward pass and update; the result is the loss before the update."""
        loss, gradients = self._differentiate(*self._batches.batch(batch))
        if self._replicas > 1:
            gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        self._update(gradients)
        # A loss that Keras was told not to reduce has one value per example; their sum is differentiated.
        self.result.assign(tf.reduce_mean(loss), read_value=False)

    def infer(self, batch: Any) -> None:
        """Run the forward pass; the result is the mean of all outputs."""
        inputs, _ = self._batches.batch(batch)
        self.result.assign(self._answer(inputs), read_value=False)

    def _gradients(self, inputs: Any, targets: Any) -> tuple[tf.Tensor, Any]:
        """Return the loss and the gradients, in one buffer if replicas exchange them."""
        with tf.GradientTape() as tape:
            loss = self._model.loss(inputs, targets)
            scaled = self._optimizer.scaled(loss) if isinstance(self._optimizer, LossScale) else loss
        weights = list(self._model.weights)
        gradients = tape.gradient(scaled, weights)
        named = zip(self._model.weight_names, gradients, strict=True)
        self.without_gradient = [name for name, gradient in named if gradient is None]
        # The gradients of an embedding come in pieces, one for each word of the batch.
        gradients = [
            tf.zeros_like(weight) if gradient is None else tf.convert_to_tensor(gradient)
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
        return loss, join(gradients) if self._replicas > 1 else gradients

    def _apply(self, gradients: Any) -> None:
        assert self._optimizer is not None
        if self._replicas > 1:
            gradients = [gradients] if self._joined else split(gradients, self._model.weights)
        self._optimizer.apply(gradients, tf.constant(1.0))

    def _outputs(self, inputs: Any) -> tf.Tensor:
        return tf.reduce_mean(tf.cast(self._model.outputs(inputs), tf.float32))
