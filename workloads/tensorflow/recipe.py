"""What an implementation provides: a model, its data and its optimizer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from workloads.tensorflow.optimizers import Optimizer

Batch = tuple[Any, tf.Tensor]
"""Inputs, a tensor or a nest of them, and targets; the batch axis comes first."""


class Batches(Protocol):
    """Where batches come from."""

    def take(self) -> Any:
        """What the next step is given: a value for each replica."""

    def batch(self, taken: Any) -> Batch:
        """Within the step, on a replica's device: the batch in what that replica was given."""


class Model(Protocol):
    """Variables, and pure functions of a batch over them; inputs are a tensor or a nest of them."""

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables."""

    def loss(self, inputs: Any, targets: tf.Tensor) -> tf.Tensor:
        """The mean loss of a batch in training mode, a float32 scalar."""

    def outputs(self, inputs: Any) -> tf.Tensor:
        """The answers to a batch in inference mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to make one variant. `batch(index)` gives inputs and targets of one global batch, the batch axis first."""

    model: Callable[[], Model]
    optimizer: Callable[[Sequence[tf.Variable]], Optimizer]
    batch: Callable[[int], Batch]
