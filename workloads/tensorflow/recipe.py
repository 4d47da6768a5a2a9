"""The interface of an implementation: model, data and optimizer; and helpers that build graphs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from workloads.tensorflow.optimizers import Optimizer
from workloads.training import Layer

Batch = tuple[Any, Any]
"""Inputs and targets, each a tensor, an array or a nest of them; the batch axis comes first."""


class Batches(Protocol):
    """A source of batches."""

    def take(self) -> Any:
        """Return the next step's argument: a value per replica."""

    def batch(self, tensors: Any) -> Batch:
        """Return the batch from a replica's argument; called within the step, on that replica's device."""


class Model(Protocol):
    """Variables, and pure functions of a batch over them; inputs are a tensor or a nest of them."""

    @property
    def weight_names(self) -> Sequence[str]:
        """Return the names of the trained variables."""

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """Return the trained variables."""

    def loss(self, inputs: Any, targets: Any) -> tf.Tensor:
        """Return the loss of a batch in training mode, a float32 scalar; its mean over replicas is minimised."""

    def outputs(self, inputs: Any) -> tf.Tensor:
        """Return the outputs of a batch in inference mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to build one variant. `batch(index)` returns inputs and targets of one global batch, the batch axis first.

    `layers` returns a custom model's layers once it is created, `answers` its outputs for inputs in each mode that
    shows whether they differ, and `frozen` what `Inspection.frozen` does. `map_batches` creates several; it may use
    threads if `batch` allows it. `batches` is the number of batches that take turns; None means as many as memory
    allows. `elementwise`: the optimizer updates each number by its own gradient, and otherwise depends only on whether
    a weight is a vector, so that weights can be joined. `casts_inputs`: the step casts floating-point inputs to the
    precision, which Keras's layers do themselves.
    """

    model: Callable[[], Model]
    optimizer: Callable[[Sequence[tf.Variable]], Optimizer]
    batch: Callable[[int], Batch]
    layers: Callable[[], tuple[Layer, ...]] = tuple
    answers: Callable[[Any], Sequence[Sequence[tf.Tensor]]] | None = None
    frozen: Callable[[], str] = str
    map_batches: Callable[[Callable[[int], Batch], Iterable[int]], Iterable[Batch]] = map
    batches: int | None = None
    elementwise: bool = False
    casts_inputs: bool = True


def compile_function(function: Callable[..., Any], *, xla: bool = True) -> Any:
    """Return the function as a graph, without AutoGraph, which has nothing to convert and leaves files behind."""
    return tf.function(function, jit_compile=xla, autograph=False)


def per_replica_variable(initial: tf.Tensor) -> tf.Variable:
    """Return a variable that each replica changes on its own; outside a replica it reads as the mean."""
    return tf.Variable(
        initial,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.MEAN,
    )
