"""A Keras optimizer of the user's as the program's steps have one: on each replica's weights, without communication."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import keras
import tensorflow as tf

from workloads.compiled import compiled


class KerasOptimizer:
    """Every replica has an optimizer of its own, made of the given one's configuration.

    Gradients come in averaged; the one given would add them up over replicas once more. Where a step `may_skip` its
    update, weights and state are put back then.
    """

    def __init__(self, given: keras.Optimizer, weights: Sequence[tf.Variable], *, may_skip: bool) -> None:
        strategy = tf.distribute.get_strategy()
        of_replicas = zip(*map(strategy.experimental_local_results, weights), strict=True)
        # A strategy's scope is one thread's: what is made and traced on another is of the replica alone.
        with ThreadPoolExecutor(1, thread_name_prefix="optimizer") as outside:
            self._replicas = list(outside.map(lambda own: _OfReplica(given, own, may_skip=may_skip), of_replicas))

    def apply(self, gradients: Sequence[tf.Tensor], keep: tf.Tensor) -> None:
        """Update each weight of the replica that calls by its gradient, or none."""
        replica = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
        self._replicas[int(replica)].update(list(gradients), keep)


class _OfReplica:
    """The optimizer of one replica, with its update traced."""

    def __init__(self, given: keras.Optimizer, weights: Sequence[tf.Variable], *, may_skip: bool) -> None:
        self._weights = list(weights)
        self._may_skip = may_skip
        with tf.device(self._weights[0].device):
            self._optimizer = type(given).from_config(given.get_config())
            self._optimizer.build(self._weights)
        kinds = [tf.TensorSpec(weight.shape, weight.dtype) for weight in weights]
        self.update = compiled(self._update, xla=False).get_concrete_function(kinds, tf.TensorSpec((), tf.float32))

    def _update(self, gradients: list[tf.Tensor], keep: tf.Tensor) -> None:
        state = [*self._weights, *(variable.value for variable in self._optimizer.variables)] if self._may_skip else []
        with tf.device(self._weights[0].device):
            before = [one.read_value() for one in state]
            self._optimizer.apply(gradients, self._weights)
            for one, old in zip(state, before, strict=True):
                one.assign(tf.where(keep > 0, one, old))
