"""The interface of an implementation: a model, its data and its optimizer; and what they build graphs with."""

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
        """Return what the next step takes: a value per replica."""

    def batch(self, tensors: Any) -> Batch:
        """Return the batch in what a replica took; called within the step, on that replica's device."""


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
    """How to make one variant. `batch(index)` gives inputs and targets of one global batch, the batch axis first.

    `layers` gives those of a custom model, once it is made, `answers` its outputs for inputs in each mode that tells
    whether they differ, and `frozen` what `Inspection.frozen` does.
    `map_batches` makes several; one with threads is for a `batch` that several may call.
    `batches` is how many there are to go round; None is as many as memory is for.
    `elementwise` is whether the optimizer updates each number by its own gradient, and knows nothing else of a weight
    than whether it is a vector: such weights can be joined.
    `casts_inputs` is whether the step casts floating-point inputs to the precision; Keras's layers do it themselves.
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
    """Return the function as a graph, without AutoGraph: it has nothing to convert, and leaves files behind."""
    return tf.function(function, jit_compile=xla, autograph=False)


def per_replica_variable(initial: tf.Tensor) -> tf.Variable:
    """Return a variable that each replica changes on its own; a reader outside gets their mean."""
    return tf.Variable(
        initial,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.MEAN,
    )
