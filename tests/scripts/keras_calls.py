"""Keras without fit: two models by train_on_batch, and a function of TensorFlow that updates weights beside another."""

import sys
import threading

import keras
import numpy as np
import tensorflow as tf

models = [keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]) for _ in range(2)]
x, y = np.zeros((32, 8), np.float32), np.zeros((32, 4), np.float32)
optimizer = keras.optimizers.Adam()


@tf.function
def train(x: tf.Tensor, y: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((models[0](x) - y) ** 2)
    weights = models[0].trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))


@tf.function
def evaluate(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(1_000):
        x = tf.sin(x)
    return x


def evaluate_always() -> None:
    while True:
        evaluate(x)


if sys.argv[1] == "function":
    threading.Thread(target=evaluate_always, daemon=True).start()
while sys.argv[1] == "function":
    train(x, y)
for model in models:
    model.compile("adam", "mse")
while True:
    models[0].train_on_batch(x, y)
    models[0].train_on_batch(x, y)
    models[1].train_on_batch(x, y)
