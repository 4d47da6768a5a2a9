"""Custom workloads that do not do what their parameters say, for tests of evidence, and to try by hand:

python -m app run tests/mislabelled.py:layouts -s layout=channels_first
python -m app run tests/mislabelled.py:forgotten
python -m app run tests/mislabelled.py:types -s precision=bfloat16
python -m app run tests/mislabelled.py:compiled_inside
python -m app run tests/mislabelled.py:python_calls
python -m app run tests/mislabelled.py:recurrent
python -m app run tests/mislabelled.py:shortcuts -s how=branch
"""

from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def _data(batch_size: int, *shape: int) -> Any:
    def batch(step: int) -> Any:
        rng = np.random.default_rng(step)
        return rng.normal(size=(batch_size, *shape)).astype("float32"), rng.normal(size=(batch_size, 4))

    return batch


def layouts(
    batch_size: int = 8,
    layout: Literal["channels_last", "channels_first"] = "channels_last",
    norm_axis: int = -1,
) -> Any:
    """Two layers stay channels_last, whatever the layout; norm_axis should be 1 for channels_first."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 8)),
            layers.Conv2D(4, 3, padding="same", data_format="channels_last", name="conv"),
            layers.BatchNormalization(axis=norm_axis, name="norm"),
            layers.MaxPooling2D(data_format=layout, name="pool"),
            layers.GlobalAveragePooling2D(data_format="channels_last", name="global_pool"),
            layers.Dense(4, name="head"),
        ]
    )
    return model, "mse", _data(batch_size, 8, 8, 8)


def formats(batch_size: int = 8, norm_axis: int = 1) -> Any:
    """A norm over the wrong axis, in a model without a parameter for its layout."""
    return layouts(batch_size, norm_axis=norm_axis)


def forgotten(batch_size: int = 8, filters: int = 4) -> Any:
    """Norm and global pooling as they were, the mistake of "channels_first makes GPU training a little faster".

    With 8 filters, as many as the images are wide, Keras adds the bias along the wrong axis, too.
    """
    model = keras.Sequential(
        [
            keras.Input((3, 8, 8)),
            layers.Conv2D(filters, 3, padding="same", data_format="channels_first", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.MaxPooling2D(data_format="channels_first", name="pool"),
            layers.GlobalAveragePooling2D(name="global_pool"),
            layers.Dense(4, name="head"),
        ]
    )
    return model, "mse", _data(batch_size, 3, 8, 8)


def types(batch_size: int = 64, units: int = 2048, large: Literal["float32", "as requested"] = "float32") -> Any:
    """Six small layers in the requested type, and two large ones in a type of their own."""
    dtype = None if large == "as requested" else large
    model = keras.Sequential(
        [
            keras.Input((16,)),
            *(layers.Dense(16, name=f"small{number}") for number in range(6)),
            layers.Dense(units, dtype=dtype, name="large1"),
            layers.Dense(units, dtype=dtype, name="large2"),
            layers.Dense(4, name="head"),
        ]
    )
    return model, "mse", _data(batch_size, 16)


class _Called(layers.Layer):  # type: ignore[misc]
    def call(self, inputs: Any) -> Any:
        products = tf.py_function(lambda one: one @ tf.transpose(one) @ one, [inputs], inputs.dtype)
        return tf.ensure_shape(products, inputs.shape)


class _Compiled(layers.Dense):  # type: ignore[misc]
    def call(self, inputs: Any, training: Any = None) -> Any:
        return tf.function(super().call, jit_compile=True, autograph=False)(inputs)


def compiled_inside(batch_size: int = 8) -> Any:
    """One of two layers asks for XLA by itself, whatever the parameter xla says."""
    model = keras.Sequential([keras.Input((4,)), _Compiled(16), layers.Dense(4)])
    return model, "mse", _data(batch_size, 4)


def python_calls(batch_size: int = 8) -> Any:
    """Products in tf.py_function, out of the graph's sight."""
    model = keras.Sequential([keras.Input((4,)), _Called(), _Called(), layers.Dense(4)])
    return model, "mse", _data(batch_size, 4)


def recurrent(batch_size: int = 4, recurrent_dropout: float = 0.2) -> Any:
    """On a GPU the first layer has cuDNN, the second has not: its recurrent dropout keeps Keras from it."""
    model = keras.Sequential(
        [
            keras.Input((5, 3)),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True, name="both")),
            layers.LSTM(4, recurrent_dropout=recurrent_dropout, name="last"),
            layers.Dense(4),
        ]
    )
    return model, "mse", _data(batch_size, 5, 3)


class _Branch(layers.Dense):  # type: ignore[misc]
    def build(self, shape: Any) -> None:
        super().build(shape)
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: Any = None) -> Any:
        self.calls.assign(self.calls + 1)
        dense = super().call
        return tf.cond(self.calls.value < 2, lambda: dense(inputs), lambda: inputs)


class _Loop(layers.Dense):  # type: ignore[misc]
    def call(self, inputs: Any, training: Any = None) -> Any:
        dense = super().call
        return tf.while_loop(lambda step, _: step < 3, lambda step, one: (step + 1, dense(one)), (0, inputs))[1]


class _First(layers.Dense):  # type: ignore[misc]
    def call(self, inputs: Any, training: Any = None) -> Any:
        return tf.tile(super().call(inputs[:1]), (inputs.shape[0], 1))


class _FirstInTraining(_First):
    def call(self, inputs: Any, training: Any = None) -> Any:
        return super().call(inputs) if training else layers.Dense.call(self, inputs)


_LAYERS = {"branch": _Branch, "loop": _Loop, "one answer": _First, "one answer in training": _FirstInTraining}


def statistics(batch_size: int = 16, frozen: Literal["none", "inner", "all but the head"] = "none") -> Any:
    """A batch norm, whose statistics of a few steps leave nothing of small inputs; weights that stay as they are."""
    names = {"none": (), "inner": ("inner",), "all but the head": ("inner", "norm")}[frozen]
    inner = layers.Dense(4, name="inner", trainable="inner" not in names)
    norm = layers.BatchNormalization(epsilon=1e-12, name="norm", trainable="norm" not in names)
    scaled = layers.Rescaling(1.0 if names else 1e-9)
    model = keras.Sequential([keras.Input((4,)), inner, scaled, norm, layers.Dense(4, name="head")])
    return model, "mse", _data(batch_size, 4)


def shortcuts(
    batch_size: int = 16,
    how: Literal[
        "none", "eager", "branch", "loop", "one answer", "one answer in training", "one example",
        "no gradient", "a head alone", "no rate", "bfloat16 weights", "constant loss",
    ] = "none",
) -> Any:  # fmt: skip
    """Two dense layers, and a way to work less than it seems: all but `eager` leave a graph that has everything."""
    if how == "eager":
        tf.config.run_functions_eagerly(True)
    dtype = "bfloat16" if how == "bfloat16 weights" else None
    inputs = keras.Input((4,))
    inner = _LAYERS.get(how, layers.Dense)(4, dtype=dtype, name="inner")(inputs)
    outputs = layers.Dense(4, dtype=dtype, name="outer")(inner)
    model = keras.Model(inputs, [outputs, layers.Dense(4, name="alone")(inner)] if how == "a head alone" else outputs)
    losses: dict[str, Any] = {
        "a head alone": ["mse", None],
        "no gradient": lambda _, given: tf.stop_gradient(given),
        "constant loss": lambda _, given: given - tf.stop_gradient(given),
    }
    random = _data(batch_size, 4)

    def batch(step: int) -> Any:
        values, wanted = random(step)
        return values[[0] * batch_size if how == "one example" else slice(None)], (
            [wanted, wanted] if how == "a head alone" else wanted
        )

    return model, losses.get(how, "mse"), batch, keras.optimizers.SGD(0.0) if how == "no rate" else None
