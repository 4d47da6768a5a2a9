"""From a recipe to a task: batches on the devices, and the step as one `tf.function`, on one replica or on several."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from workloads import runtime
from workloads.optimizers import LossScale, Optimizer
from workloads.packing import packed, unpacked
from workloads.protocol import Variant
from workloads.recipe import Model, Recipe
from workloads.runtime import Replicas
from workloads.saving import save
from workloads.training import Task

_POOL_BYTES = 256 * 2**20
_POOL_BATCHES = 64

Pool = tuple[Any, Any]
"""Inputs and targets, each a nest of tensors; in a pool of batches with one more axis at the front."""


def build_task(recipe: Recipe, variant: Variant, replicas: Replicas) -> Task:
    """Make the model and its data on the devices and the step that joins them; nothing is traced or compiled yet."""
    trains = variant["mode"] == "train"
    with replicas.strategy.scope():
        model = recipe.model()
        cursor = tf.Variable(0, dtype=tf.int64, trainable=False)
        optimizer = _optimizer(recipe, model, variant) if trains else None
    pool = _pool(recipe, variant, replicas)
    one = _Step(model, optimizer, cursor, replicas.count, xla=bool(variant["xla"]))

    def step() -> Any:
        return replicas.strategy.run(one.train if trains else one.infer, (pool,))

    def fetch(result: Any) -> float:
        tf.test.experimental.sync_devices()
        parts = replicas.strategy.experimental_local_results(result)
        return sum(float(part) for part in parts) / len(parts)

    return Task(
        step=_compiled(step, xla=bool(variant["xla"]) and replicas.count == 1),
        fetch=fetch,
        examples=int(variant["batch_size"]),
        trains=trains,
        allocator_bytes=lambda: runtime.allocator(replicas, "current"),
        allocator_peak_bytes=lambda: runtime.allocator(replicas, "peak"),
        save_weights=lambda path: save(model, variant, replicas, path),
    )


def _compiled(function: Callable[..., Any], *, xla: bool = True) -> Any:
    """The function as a graph; AutoGraph has nothing to convert, and leaves files where a process ends at once."""
    return tf.function(function, jit_compile=xla, autograph=False)


def _optimizer(recipe: Recipe, model: Model, variant: Variant) -> Optimizer:
    optimizer = recipe.optimizer(model.weights)
    return LossScale(optimizer) if variant["precision"] == "float16" else optimizer


def _pool(recipe: Recipe, variant: Variant, replicas: Replicas) -> Any:
    """Some batches on each replica's device, each replica with its own slice of every global batch."""
    dtype = runtime.compute_dtype(str(variant["precision"]))

    def one(context: Any) -> Pool:
        replica = context.replica_id_in_sync_group
        with tf.device(replicas.devices[replica]):
            return _slices(recipe, dtype, int(variant["batch_size"]) // replicas.count, replica)

    return replicas.strategy.experimental_distribute_values_from_function(one)


def _slices(recipe: Recipe, dtype: str, size: int, replica: int) -> Pool:
    part = slice(replica * size, (replica + 1) * size)

    def batch(index: int) -> Pool:
        inputs, targets = tf.nest.map_structure(lambda whole: whole[part], recipe.batch(index))
        return tf.nest.map_structure(lambda one: tf.cast(one, dtype) if one.dtype.is_floating else one, inputs), targets

    first = batch(0)
    size_bytes = sum(int(tf.size(one)) * one.dtype.size for one in tf.nest.flatten(first[0]))
    count = max(1, min(_POOL_BATCHES, _POOL_BYTES // max(1, size_bytes)))
    batches = [first, *(batch(index) for index in range(1, count))]
    inputs, targets = tf.nest.map_structure(lambda *same: tf.stack(same), *batches)
    return inputs, targets


class _Step:
    """One replica's part of a step; a training step averages gradients over replicas.

    With several replicas their gradients are exchanged in one buffer. XLA compiles what comes before and what comes
    after that: it cannot compile the communication between them.
    """

    def __init__(
        self, model: Model, optimizer: Optimizer | None, cursor: tf.Variable, replicas: int, *, xla: bool
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._cursor = cursor
        self._replicas = replicas
        inner = xla and replicas > 1
        self._differentiate = _compiled(self._gradients) if inner else self._gradients
        self._update = _compiled(self._apply) if inner else self._apply
        self._answer = _compiled(self._outputs) if inner else self._outputs

    def train(self, pool: Pool) -> tf.Tensor:
        """Forward, backward, update; returns the loss before the update, once the update is under way."""
        loss, gradients = self._differentiate(*self._next(pool))
        if self._replicas > 1:
            gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        self._update(gradients)
        return loss

    def infer(self, pool: Pool) -> tf.Tensor:
        """Forward; returns the mean of all outputs."""
        inputs, _ = self._next(pool)
        return self._answer(inputs)

    def _next(self, pool: Pool) -> Pool:
        """The next batch of the pool, chosen on the device."""
        index = self._cursor.read_value()
        count = tf.nest.flatten(pool)[0].shape[0]
        following = tf.where(index + 1 < count, index + 1, tf.zeros_like(index))
        tf.raw_ops.AssignVariableOp(resource=self._cursor.handle, value=following)
        inputs, targets = tf.nest.map_structure(lambda batches: tf.gather(batches, index), pool)
        return inputs, targets

    def _gradients(self, inputs: Any, targets: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """The loss and the gradients: in one buffer where they are to be exchanged."""
        with tf.GradientTape() as tape:
            loss = self._model.loss(inputs, targets)
            scaled = self._optimizer.scaled(loss) if isinstance(self._optimizer, LossScale) else loss
        gradients = tape.gradient(scaled, list(self._model.weights))
        return loss, packed(gradients) if self._replicas > 1 else gradients

    def _apply(self, gradients: Any) -> None:
        assert self._optimizer is not None
        several = self._replicas > 1
        self._optimizer.apply(unpacked(gradients, self._model.weights) if several else gradients, tf.constant(1.0))

    def _outputs(self, inputs: Any) -> tf.Tensor:
        return tf.reduce_mean(tf.cast(self._model.outputs(inputs), tf.float32))
