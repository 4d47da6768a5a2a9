"""The LSTM workload: a stack of Keras LSTM layers, a dense head on the last output, the adding problem, Adam."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from workloads.data import adding_problem
from workloads.lstm import cudnn, standard
from workloads.optimizers import Adam
from workloads.protocol import Variant
from workloads.recipe import Recipe

MakeLayer = Callable[[int, bool, bool], keras.layers.LSTM]
"""(units, return_sequences, go_backwards) to one direction of one layer."""

_LAYERS: dict[str, MakeLayer] = {"standard": standard.layer, "cudnn": cudnn.layer}


class LstmModel:
    """Layers of one or two directions each.

    Both directions are made here, since Keras's `Bidirectional` copies a layer without its `use_cudnn`.
    """

    def __init__(self, make: MakeLayer, variant: Variant) -> None:
        units, count = int(variant["units"]), int(variant["layers"])
        backwards = (False, True) if variant["bidirectional"] else (False,)
        self.layers = [[make(units, depth < count - 1, back) for back in backwards] for depth in range(count)]
        self._head = keras.layers.Dense(1, dtype="float32")
        width = int(variant["features"])
        for directions in self.layers:
            for layer in directions:
                layer.build((None, int(variant["timesteps"]), width))
            width = units * len(directions)
        self._head.build((None, width))

    @property
    def weights(self) -> Sequence[tf.Variable]:
        """The trained variables."""
        layers = [layer for directions in self.layers for layer in directions] + [self._head]
        return [variable.value for layer in layers for variable in layer.trainable_variables]

    def loss(self, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Mean squared error."""
        return tf.reduce_mean(tf.square(self._answers(inputs, training=True) - targets))

    def outputs(self, inputs: tf.Tensor) -> tf.Tensor:
        """The sums it reads from the sequences, [batch, 1]."""
        return self._answers(inputs, training=False)

    def _answers(self, inputs: tf.Tensor, *, training: bool) -> tf.Tensor:
        for directions in self.layers:
            parts = [_in_time_order(layer, layer(inputs, training=training)) for layer in directions]
            inputs = tf.concat(parts, axis=-1) if len(parts) > 1 else parts[0]
        return self._head(inputs)


def _in_time_order(layer: keras.layers.LSTM, outputs: tf.Tensor) -> tf.Tensor:
    """A layer that goes backwards gives its sequence from the end."""
    return tf.reverse(outputs, [1]) if layer.go_backwards and layer.return_sequences else outputs


def recipe(variant: Variant) -> Recipe:
    """The LSTM of a variant on the adding problem."""
    sizes = (int(variant["batch_size"]), int(variant["timesteps"]), int(variant["features"]))
    seed = int(variant["seed"])
    return Recipe(
        model=lambda: LstmModel(_LAYERS[str(variant["implementation"])], variant),
        optimizer=lambda weights: Adam(weights, 0.003),
        batch=lambda index: adding_problem(seed, index, *sizes),
    )
