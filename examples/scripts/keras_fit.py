"""A convolutional network on random images in Keras: `fit` with validation and mixed precision."""

import argparse

import keras
import numpy as np
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=512)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--images", type=int, default=20_000)
parser.add_argument("--jit", action="store_true")
args = parser.parse_args()

keras.mixed_precision.set_global_policy("mixed_bfloat16")
rng = np.random.default_rng(0)
x = rng.standard_normal((args.images, 32, 32, 3), dtype="float32")
y = rng.integers(0, 10, args.images)
model = keras.Sequential([keras.Input((32, 32, 3))])
for width in (args.width, 2 * args.width, 4 * args.width):
    for _ in range(2):
        model.add(layers.Conv2D(width, 3, padding="same", use_bias=False))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
    model.add(layers.MaxPooling2D())
model.add(layers.GlobalAveragePooling2D())
model.add(layers.Dense(10, dtype="float32"))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"], jit_compile=args.jit)
model.fit(x, y, batch_size=args.batch_size, epochs=1000, validation_split=0.1, verbose=2)
