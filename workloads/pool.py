"""Made data: some batches that stay on the devices, and the choice among them within the step."""

from typing import Any

import tensorflow as tf

from workloads import runtime
from workloads.protocol import Variant
from workloads.recipe import Batch, Recipe
from workloads.runtime import Replicas

_POOL_BYTES = 256 * 2**20
_POOL_BATCHES = 64


class Pool:
    """Batches on each replica's device, each with its own slice of every global batch; one more axis in front."""

    def __init__(self, recipe: Recipe, variant: Variant, replicas: Replicas) -> None:
        with replicas.strategy.scope():
            self._cursor = tf.Variable(0, dtype=tf.int64, trainable=False)
        dtype = runtime.compute_dtype(str(variant["precision"]))

        def one(context: Any) -> Batch:
            replica = context.replica_id_in_sync_group
            with tf.device(replicas.devices[replica]):
                return _slices(recipe, dtype, int(variant["batch_size"]) // replicas.count, replica)

        self._batches = replicas.strategy.experimental_distribute_values_from_function(one)

    def take(self) -> Any:
        """All of them, for every step."""
        return self._batches

    def batch(self, taken: Batch) -> Batch:
        """The next batch, chosen on the device."""
        index = self._cursor.read_value()
        count = tf.nest.flatten(taken)[0].shape[0]
        following = tf.where(index + 1 < count, index + 1, tf.zeros_like(index))
        tf.raw_ops.AssignVariableOp(resource=self._cursor.handle, value=following)
        inputs, targets = tf.nest.map_structure(lambda batches: tf.gather(batches, index), taken)
        return inputs, targets


def _slices(recipe: Recipe, dtype: str, size: int, replica: int) -> Batch:
    part = slice(replica * size, (replica + 1) * size)

    def batch(index: int) -> Batch:
        inputs, targets = tf.nest.map_structure(lambda whole: whole[part], recipe.batch(index))
        return tf.nest.map_structure(lambda one: tf.cast(one, dtype) if one.dtype.is_floating else one, inputs), targets

    first = batch(0)
    size_bytes = sum(int(tf.size(one)) * one.dtype.size for one in tf.nest.flatten(first[0]))
    count = max(1, min(_POOL_BATCHES, _POOL_BYTES // max(1, size_bytes)))
    batches = [first, *(batch(index) for index in range(1, count))]
    inputs, targets = tf.nest.map_structure(lambda *same: tf.stack(same), *batches)
    return inputs, targets
