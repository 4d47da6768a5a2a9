"""From a recipe to a task: batches on the devices, and the step as one `tf.function`, on one replica or on several."""

from typing import Any

import tensorflow as tf

from workloads import runtime
from workloads.accuracy import Accuracy
from workloads.cifar10 import Cifar10
from workloads.compiled import compiled
from workloads.feed import training_feed
from workloads.optimizers import LossScale, Optimizer
from workloads.packing import packed, unpacked
from workloads.pool import Pool
from workloads.protocol import Variant
from workloads.recipe import Batches, Model, Recipe
from workloads.replicated import per_replica
from workloads.runtime import Replicas
from workloads.saving import save
from workloads.training import Passes, Task


def build_task(recipe: Recipe, variant: Variant, replicas: Replicas, stored: Cifar10 | None = None) -> Task:
    """Make the model and its data on the devices and the step that joins them; nothing is traced or compiled yet.

    Data are made by the recipe, or `stored` ones; raises `RefusedError` where those are fewer than a batch.
    """
    trains = variant["mode"] == "train"
    with replicas.strategy.scope():
        model = recipe.model()
        optimizer = _optimizer(recipe, model, variant) if trains else None
    feed = training_feed(stored, variant, replicas) if stored else None
    batches = feed or Pool(recipe, variant, replicas)
    xla = bool(variant["xla"])
    with replicas.strategy.scope():
        one = _Step(model, optimizer, batches, replicas.count, xla=xla)

    def on_replicas(taken: Any) -> None:
        replicas.strategy.run(one.train if trains else one.infer, (taken,))

    run = compiled(on_replicas, xla=xla and replicas.count == 1)

    def step() -> tf.Variable:
        run(batches.take())
        return one.result

    def fetch(result: tf.Variable) -> float:
        tf.test.experimental.sync_devices()
        return float(result.read_value())

    return Task(
        step=step,
        fetch=fetch,
        examples=int(variant["batch_size"]),
        trains=trains,
        allocator_bytes=lambda: runtime.allocator(replicas, "current"),
        allocator_peak_bytes=lambda: runtime.allocator(replicas, "peak"),
        save_weights=lambda path: save(model, variant, replicas, path),
        hold=feed.hold if feed else None,
        passes=_passes(stored, model, variant, replicas) if stored and variant["epochs"] else None,
    )


def _passes(stored: Cifar10, model: Model, variant: Variant, replicas: Replicas) -> Passes:
    steps = len(stored.train.classes) // int(variant["batch_size"])
    return Passes(steps=steps, accuracy=Accuracy(stored, model, variant, replicas))


def _optimizer(recipe: Recipe, model: Model, variant: Variant) -> Optimizer:
    optimizer = recipe.optimizer(model.weights)
    return LossScale(optimizer) if variant["precision"] == "float16" else optimizer


class _Step:
    """One replica's part of a step; a training step averages gradients over replicas.

    With several replicas their gradients are exchanged in one buffer. XLA compiles what comes before and what comes
    after that: it cannot compile the communication between them. What a step gives stays in a variable of each replica:
    as the function's output it would be sent to one device, and the host would wait for all of them after every step
    instead of preparing the next one.
    """

    def __init__(
        self, model: Model, optimizer: Optimizer | None, batches: Batches, replicas: int, *, xla: bool
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._batches = batches
        self._replicas = replicas
        inner = xla and replicas > 1
        self._differentiate = compiled(self._gradients) if inner else self._gradients
        self._update = compiled(self._apply) if inner else self._apply
        self._answer = compiled(self._outputs) if inner else self._outputs
        self.result = per_replica(tf.constant(0.0))

    def train(self, taken: Any) -> None:
        """Forward, backward, update; the result is the loss before the update."""
        loss, gradients = self._differentiate(*self._batches.batch(taken))
        if self._replicas > 1:
            gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        self._update(gradients)
        self.result.assign(loss, read_value=False)

    def infer(self, taken: Any) -> None:
        """Forward; the result is the mean of all outputs."""
        inputs, _ = self._batches.batch(taken)
        self.result.assign(self._answer(inputs), read_value=False)

    def _gradients(self, inputs: Any, targets: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """The loss and the gradients: in one buffer where they are to be exchanged."""
        with tf.GradientTape() as tape:
            loss = self._model.loss(inputs, targets)
            scaled = self._optimizer.scaled(loss) if isinstance(self._optimizer, LossScale) else loss
        gradients = tape.gradient(scaled, list(self._model.weights), unconnected_gradients="zero")
        # Those of an embedding come in pieces, one for each word of the batch.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return loss, packed(gradients) if self._replicas > 1 else gradients

    def _apply(self, gradients: Any) -> None:
        assert self._optimizer is not None
        several = self._replicas > 1
        self._optimizer.apply(unpacked(gradients, self._model.weights) if several else gradients, tf.constant(1.0))

    def _outputs(self, inputs: Any) -> tf.Tensor:
        return tf.reduce_mean(tf.cast(self._model.outputs(inputs), tf.float32))
