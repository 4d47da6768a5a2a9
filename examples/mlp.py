"""Two custom workloads: a multilayer perceptron on synthetic images, and a text classifier on synthetic texts.

python -m app list parameters examples/mlp.py:mlp
python -m app run examples/mlp.py:mlp -s units=512
python -m app experiment examples/mlp.py:mlp -s units=256,512
"""

from typing import Literal

import keras
import numpy as np

CLASSES = 10


def mlp(
    batch_size: int = 256,
    units: int = 256,
    layers: int = 2,
    activation: Literal["relu", "tanh"] = "relu",
    dropout: float = 0.0,
    seed: int = 1,
):
    """Dense layers classify synthetic 28 x 28 images into ten classes.

    units: Units of each hidden layer.
    layers: Hidden layers, one after the other.
    activation: Activation after each hidden layer.
    dropout: Share of each hidden layer's outputs dropped in training.
    """
    model = keras.Sequential([keras.Input((784,))])
    for _ in range(layers):
        model.add(keras.layers.Dense(units, activation))
        model.add(keras.layers.Dropout(dropout))
    model.add(keras.layers.Dense(CLASSES))
    patterns = np.random.default_rng(seed).normal(size=(CLASSES, 784))

    def batch(step):
        rng = np.random.default_rng([seed, step])
        classes = rng.integers(0, CLASSES, batch_size)
        noise = 10 * rng.normal(size=(batch_size, 784))
        return patterns[classes] + noise, classes

    return model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch


def words(batch_size: int = 64, length: int = 50, width: int = 32, bidirectional: bool = False, seed: int = 1):
    """An LSTM classifies synthetic texts by which of two vocabularies they use.

    length: Words per text.
    width: Size of the embedding, and units of the LSTM.
    bidirectional: Read each text in both directions.
    """
    vocabulary = 500
    lstm = keras.layers.LSTM(width)
    model = keras.Sequential(
        [
            keras.Input((length,), dtype="int64"),
            keras.layers.Embedding(2 * vocabulary, width),
            keras.layers.Bidirectional(lstm) if bidirectional else lstm,
            keras.layers.Dense(1),
        ]
    )

    def batch(step):
        rng = np.random.default_rng([seed, step])
        second = rng.integers(0, 2, (batch_size, 1))
        return rng.integers(0, vocabulary, (batch_size, length)) + vocabulary * second, second

    return model, keras.losses.BinaryCrossentropy(from_logits=True), batch
