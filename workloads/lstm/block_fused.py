"""The block-fused implementation: one op a layer and direction, `BlockLSTMV2`, which loops over time inside.

TensorFlow registers the gradient of `BlockLSTM`, whose gates lie in another order, for `BlockLSTMV2` too: the forward
pass is right and every gradient wrong. So the op's true gradient, `BlockLSTMGradV2`, is called here.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from workloads.lstm.config import LstmConfig
from workloads.lstm.layout import GATES
from workloads.lstm.stack import OwnStack
from workloads.lstm.weights import Weights


class BlockFused(OwnStack):
    """Layers of block-fused directions; the second direction reads reversed time."""

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """The last outputs of the top layer; `valid` must be None."""
        assert valid is None
        sequence = tf.transpose(inputs, [1, 0, 2])
        for layer in self._layers(inputs.dtype):
            parts = [self._direction(weights, sequence, training=training) for weights in layer[:1]]
            parts += [
                tf.reverse(self._direction(weights, tf.reverse(sequence, [0]), training=training), [0])
                for weights in layer[1:]
            ]
            sequence = tf.concat(parts, 2)
        units = self._config.units
        return tf.concat([sequence[-1, :, :units], sequence[0, :, units:]], 1)

    def _direction(self, weights: Weights, inputs: tf.Tensor, *, training: bool) -> tf.Tensor:
        if training and self._config.dropout:
            inputs = tf.nn.dropout(inputs, self._config.dropout, noise_shape=[1, *inputs.shape[1:]])
        outputs: tf.Tensor = tf.custom_gradient(_with_gradient)(
            inputs, tf.concat([weights.kernel, weights.recurrent], 0), weights.bias
        )
        return outputs


def _with_gradient(
    inputs: tf.Tensor, matrix: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
    """All outputs [timesteps, batch, units] of inputs [timesteps, batch, features], and what gives the gradients."""
    steps, batch, _ = inputs.shape
    units = bias.shape[0] // GATES
    start, peephole = tf.zeros([batch, units], inputs.dtype), tf.zeros([units], inputs.dtype)
    given = {
        "seq_len_max": tf.constant(steps, tf.int64), "x": inputs, "cs_prev": start, "h_prev": start,
        "w": matrix, "wci": peephole, "wcf": peephole, "wco": peephole, "b": bias,
    }  # fmt: skip
    made = tf.raw_ops.BlockLSTMV2(**given)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
        back = tf.raw_ops.BlockLSTMGradV2(
            **given, **made._asdict(), cs_grad=tf.zeros_like(made.cs), h_grad=upstream, use_peephole=False
        )
        return back.x_grad, back.w_grad, back.b_grad

    return made.h, gradient


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> BlockFused:
    """Layers of block-fused directions."""
    return BlockFused(config, initial)
