"""Custom workloads that never leave a GPU idle: `python -m app run tests/gpu/saturated.py:products`.

`tests/gpu/tracing.py` measures what a profiler does to their kernels.
"""

from typing import Any

import keras


def products(batch_size: int = 16_384, units: int = 8_192, layers: int = 8, short: int = 0) -> tuple[Any, ...]:
    """Large matrix products, and after them short ones, which the host launches while the large ones run.

    units: Units of each large layer: a product takes milliseconds.
    layers: Large layers, one after the other.
    short: Layers of 256 units on 64 examples, one after the other: a kernel takes microseconds.
    """
    inputs = keras.Input((64,))
    large = inputs
    for _ in range(layers):
        large = keras.layers.Dense(units, use_bias=False)(large)
    small = keras.layers.Lambda(lambda examples: examples[:64])(large)
    for _ in range(short):
        small = keras.layers.Dense(256, use_bias=False)(small)
    outputs = keras.layers.Dense(1)(large)
    model = keras.Model(inputs, outputs + keras.ops.mean(small) if short else outputs)

    def batch(step: int) -> tuple[Any, Any]:
        values = keras.random.normal((batch_size, 64), seed=step)
        return keras.ops.convert_to_numpy(values), keras.ops.convert_to_numpy(values[:, :1])

    return model, "mean_squared_error", batch
