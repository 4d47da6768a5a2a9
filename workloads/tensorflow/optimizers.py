"""Optimizers as TensorFlow's fused update operations, on the variables of the replica that calls them.

They do not communicate: gradients arrive averaged over replicas, so every replica makes the same update.
"""

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from workloads.image_training import MOMENTUM, Schedule
from workloads.recurrent import ADAM_BETAS, ADAM_EPSILON
from workloads.training import GOOD_STEPS, LOSS_SCALE


class Optimizer(Protocol):
    """Updates the weights for which it was created."""

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        """Update each weight by its gradient, in the order the weights were given.

        `mask` is 1 for an update and 0 for none; a number, because a branch would wait for the device at every step.
        """


def _zeros_like(weights: Sequence[tf.Variable]) -> list[tf.Variable]:
    return [tf.Variable(tf.zeros(weight.shape, weight.dtype), trainable=False) for weight in weights]


def _masked_decay(decay: float, mask: tf.Tensor) -> tf.Tensor:
    """Return the decay of an average, or 1 (the average stays) without an update."""
    return 1.0 - (1.0 - decay) * mask


class Adam:
    """Adam (Kingma and Ba 2015) with its usual constants, for float32 weights."""

    def __init__(self, weights: Sequence[tf.Variable], rate: float = 0.001) -> None:
        self._weights = weights
        self._rate = rate
        self._first, self._second = _zeros_like(weights), _zeros_like(weights)
        self._powers = [tf.Variable(beta, trainable=False) for beta in ADAM_BETAS]

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        betas = [_masked_decay(beta, mask) for beta in ADAM_BETAS]
        first, second = (power.read_value() for power in self._powers)
        for weight, m, v, gradient in zip(self._weights, self._first, self._second, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle, m=m.handle, v=v.handle, beta1_power=first, beta2_power=second,
                lr=self._rate * mask, beta1=betas[0], beta2=betas[1], epsilon=ADAM_EPSILON, grad=gradient,
            )  # fmt: skip
        for power, value, beta in zip(self._powers, (first, second), betas, strict=True):
            tf.raw_ops.AssignVariableOp(resource=power.handle, value=value * beta)


class Momentum:
    """Stochastic gradient descent with momentum 0.9.

    Weight decay adds its share of each kernel to the gradient, as the penalty of half the square would; vectors
    (biases, and scales and offsets of batch norm) have none.
    """

    def __init__(
        self, weights: Sequence[tf.Variable], rate: float | Schedule = 0.05, weight_decay: float = 0.0
    ) -> None:
        self._weights = weights
        self._rate = rate
        self._decay = weight_decay
        self._sums = _zeros_like(weights)
        self._steps = tf.Variable(0, dtype=tf.int64, trainable=False) if isinstance(rate, Schedule) else None

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        """Update each weight by its gradient if `mask` is 1; the schedule also counts steps without an update."""
        momentum, rate = _masked_decay(MOMENTUM, mask), self._next_rate() * mask
        for weight, total, gradient in zip(self._weights, self._sums, gradients, strict=True):
            decays = self._decay and len(weight.shape) > 1
            slope = gradient + self._decay * mask * weight.read_value() if decays else gradient
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=total.handle, lr=rate, grad=slope, momentum=momentum
            )

    def _next_rate(self) -> tf.Tensor | float:
        if self._steps is None or not isinstance(self._rate, Schedule):
            return self._rate
        number = self._steps.read_value()
        tf.raw_ops.AssignVariableOp(resource=self._steps.handle, value=number + 1)
        return self._rate.rate(tf.cast(number, tf.float32), tf)


class LossScale:
    """Dynamic loss scaling for float16 (Micikevicius et al. 2018), the same on every replica.

    The loss is multiplied before the backward pass; a step whose gradients are not finite is skipped and halves the
    scale, 2,000 good steps in a row double it.
    """

    def __init__(self, optimizer: Optimizer, initial: float = LOSS_SCALE) -> None:
        self._optimizer = optimizer
        self._scale = tf.Variable(initial, trainable=False)
        self._good_steps = tf.Variable(0.0, trainable=False)

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * self._scale.read_value()

    def apply(self, gradients: Sequence[tf.Tensor], mask: tf.Tensor) -> None:
        """Undo the scale, and update the weights if every gradient is finite."""
        scale, good_steps = self._scale.read_value(), self._good_steps.read_value()
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
        mask *= tf.cast(finite, tf.float32)
        factor = mask / scale
        unscaled = [tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype)) for gradient in gradients]
        self._optimizer.apply(unscaled, mask)
        grown = good_steps >= GOOD_STEPS - 1
        up, count = tf.where(grown, scale * 2.0, scale), tf.where(grown, 0.0, good_steps + 1.0)
        down = tf.maximum(scale / 2.0, 1.0)
        tf.raw_ops.AssignVariableOp(resource=self._scale.handle, value=tf.where(finite, up, down))
        tf.raw_ops.AssignVariableOp(resource=self._good_steps.handle, value=tf.where(finite, count, 0.0))
