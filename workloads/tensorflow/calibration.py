"""Measures how fast a device multiplies matrices: the peak that utilisation refers to.

The matrices are square and hold normal numbers: a GPU spends less power on zeros, and clocks higher. Their size doubles
until one product takes 10 ms or the size is 8192, where the arithmetic of every GPU outlasts its memory traffic; so a
processor is done within a second. The rate is that of the best of several batches of products.
"""

import math
import sys
import time

import tensorflow as tf

from workloads.protocol import Calibration
from workloads.tensorflow.runtime import compute_dtype

_MIN_SIZE, _MAX_SIZE = 512, 8192
_MIN_PRODUCT_S = 0.01
_BATCH_S = 0.05
_BATCHES = 8
_BUDGET_S = 0.3


def calibrate(tf_device: str, device: str, precision: str) -> Calibration | None:
    """Measure a device in a precision that TensorFlow is set to.

    `tf_device` is its name in TensorFlow, such as `GPU:0`; `device` is its UUID, or `cpu`.

    Returns:
        The rate, or None, with a line in the log, if the device cannot do it now, for instance without free memory.
    """
    try:
        with tf.device(tf_device):
            size, flops_per_s = _measure(compute_dtype(precision))
    except tf.errors.OpError as error:
        print(f"No calibration of {device} in {precision}: {error.message}", file=sys.stderr)  # noqa: T201
        return None
    return Calibration(device=device, precision=precision, size=size, flops_per_s=flops_per_s)


def _measure(dtype: str) -> tuple[int, float]:
    """Return the chosen size and the operations per second, 2 size³ per product."""
    size = _MIN_SIZE
    while (one_s := _one_product_s(pair := _matrices(size, dtype))) < _MIN_PRODUCT_S and size < _MAX_SIZE:
        size *= 2
    count = math.ceil(_BATCH_S / one_s)
    end_s, fastest_s = time.monotonic() + _BUDGET_S, one_s
    for _ in range(_BATCHES):
        fastest_s = min(fastest_s, _products_s(pair, count) / count)
        if time.monotonic() > end_s:
            break
    return size, 2 * size**3 / fastest_s


def _matrices(size: int, dtype: str) -> tuple[tf.Tensor, tf.Tensor]:
    first, second = (tf.random.stateless_normal([size, size], [seed, size]) for seed in (1, 2))
    return tf.cast(first, dtype), tf.cast(second, dtype)


def _one_product_s(matrices: tuple[tf.Tensor, tf.Tensor]) -> float:
    """Return the seconds of one product, after one that let the library choose its kernel."""
    _products_s(matrices, 1)
    return _products_s(matrices, 1)


def _products_s(matrices: tuple[tf.Tensor, tf.Tensor], count: int) -> float:
    """Return the seconds of so many products, one after the other."""
    start_s = time.monotonic()
    for _ in range(count):
        tf.linalg.matmul(*matrices)
    tf.test.experimental.sync_devices()
    return time.monotonic() - start_s
