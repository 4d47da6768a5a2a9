"""A stack whose layers go through time one after the other, each direction in a loop of its own."""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.config import LstmConfig
from workloads.lstm.loop import MakeCell, State, carrying, dropping, run
from workloads.lstm.stack import OwnStack
from workloads.lstm.weights import Weights


class LoopStack(OwnStack):
    """Layers of cells; `transposed` cells read [features, batch] a step and keep their state [units, batch]."""

    def __init__(
        self, config: LstmConfig, initial: Sequence[tf.Tensor], make_cell: MakeCell, *, transposed: bool = False
    ) -> None:
        super().__init__(config, initial)
        self._make_cell = make_cell
        self._transposed = transposed

    def __call__(self, inputs: tf.Tensor, valid: tf.Tensor | None, *, training: bool) -> tf.Tensor:
        """The last outputs of the top layer."""
        layers = self._layers(inputs.dtype)
        features_axis, sequence = (1, tf.transpose(inputs, [1, 2, 0])) if self._transposed else (2, _swapped(inputs))
        if valid is not None:
            valid = tf.expand_dims(tf.transpose(valid), features_axis)
        for depth, layer in enumerate(layers):
            top = depth == len(layers) - 1
            ends = [
                self._direction(weights, sequence, valid, backwards=bool(number), sequence=not top, training=training)
                for number, weights in enumerate(layer)
            ]
            if not top:
                sequence = tf.concat([outputs for _, outputs in ends], features_axis)
        last = tf.concat([output for (output, _), _ in ends], features_axis - 1)
        return tf.transpose(last) if self._transposed else last

    def _direction(
        self,
        weights: Weights,
        inputs: tf.Tensor,
        valid: tf.Tensor | None,
        *,
        backwards: bool,
        sequence: bool,
        training: bool,
    ) -> tuple[State, tf.Tensor | None]:
        """The last state and, where `sequence` is set, all outputs of one direction of one layer."""
        config, cell = self._config, self._make_cell(weights)
        batch = inputs.shape[2 if self._transposed else 1]
        shape = [config.units, batch] if self._transposed else [batch, config.units]
        step = cell.step
        if training and config.dropout:
            inputs = tf.nn.dropout(inputs, config.dropout, noise_shape=[1, *inputs.shape[1:]])
        if training and config.recurrent_dropout:
            step = dropping(step, tf.nn.dropout(tf.ones(shape, inputs.dtype), config.recurrent_dropout))
        prepared = cell.prepare(inputs)
        if valid is not None:
            step, prepared = carrying(step), (prepared, valid)
        zeros = tf.zeros(shape, inputs.dtype)
        return run(step, prepared, (zeros, zeros), unroll=config.unroll, backwards=backwards, sequence=sequence)


def _swapped(inputs: tf.Tensor) -> tf.Tensor:
    return tf.transpose(inputs, [1, 0, 2])
