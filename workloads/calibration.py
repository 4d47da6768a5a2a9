"""Measures how fast a device multiplies matrices: the peak that utilisation refers to.

The matrices are square and hold normal numbers: a GPU spends less power on zeros, and clocks higher. Their size doubles
until one product takes 10 ms or the size is 8192, where the arithmetic of every GPU outlasts its memory traffic; so a
processor is done within a second. The rate is that of the best of several batches of products.
"""

import math
import time
from collections.abc import Callable

from workloads.protocol import Calibration

_MIN_SIZE, _MAX_SIZE = 512, 8192
_MIN_PRODUCT_S = 0.01
_BATCH_S = 0.05
_BATCHES = 8
_BUDGET_S = 0.3

Products = Callable[[int], None]
"""Makes so many products, one after the other, and waits for them."""


def calibrate(make: Callable[[int], Products], device: str, precision: str) -> Calibration:
    """Measure a device in a precision that the framework is set to.

    `make` makes two matrices of a size; `device` is its UUID, or `cpu`.
    """
    size = _MIN_SIZE
    while (one_s := _one_product_s(products := make(size))) < _MIN_PRODUCT_S and size < _MAX_SIZE:
        size *= 2
    count = math.ceil(_BATCH_S / one_s)
    end_s, fastest_s = time.monotonic() + _BUDGET_S, one_s
    for _ in range(_BATCHES):
        fastest_s = min(fastest_s, _seconds(products, count) / count)
        if time.monotonic() > end_s:
            break
    return Calibration(device=device, precision=precision, size=size, flops_per_s=2 * size**3 / fastest_s)


def _one_product_s(products: Products) -> float:
    """Return the seconds of one product, after one that let the library choose its kernel."""
    products(1)
    return _seconds(products, 1)


def _seconds(products: Products, count: int) -> float:
    start_s = time.monotonic()
    products(count)
    return time.monotonic() - start_s
