"""How many of the test images a model classes rightly."""

from typing import Any

import tensorflow as tf

from workloads.cifar10 import Cifar10
from workloads.compiled import compiled
from workloads.feed import testing_feed
from workloads.protocol import Variant
from workloads.recipe import Model
from workloads.runtime import Replicas


class Accuracy:
    """The share of all test images, each replica with its own running statistics on its slice of every batch."""

    def __init__(self, stored: Cifar10, model: Model, variant: Variant, replicas: Replicas) -> None:
        batch, xla = int(variant["batch_size"]), bool(variant["xla"])
        self._count = len(stored.test.classes)
        self._batches = -(-self._count // batch)
        self._replicas = replicas
        self._feed = testing_feed(stored, variant, replicas)
        self._outputs = compiled(model.outputs) if xla and replicas.count > 1 else model.outputs
        self._run = compiled(
            lambda taken: replicas.strategy.run(self._right, (taken,)), xla=xla and replicas.count == 1
        )

    def __call__(self) -> float:
        """From 0 to 1, with the weights as they are now."""
        results = [self._run(self._feed.take()) for _ in range(self._batches)]
        parts = (part for result in results for part in self._replicas.strategy.experimental_local_results(result))
        return sum(float(part) for part in parts) / self._count

    def _right(self, taken: Any) -> tf.Tensor:
        inputs, classes = self._feed.batch(taken)
        found = tf.argmax(self._outputs(inputs), axis=1, output_type=tf.int64)
        return tf.reduce_sum(tf.cast(found == classes, tf.float32))
