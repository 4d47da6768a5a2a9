"""Keras' fit, with validation after each epoch; `keras_fit.py jax` makes the data in JAX, which Keras does not use."""

import sys

import jax.numpy as jnp
import keras
import numpy as np

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")
library = jnp if "jax" in sys.argv else np
x, y = (np.array(library.zeros((250, size), np.float32)) for size in (8, 4))
model.fit(x, y, batch_size=32, epochs=100_000, verbose=0, validation_data=(x, y))
