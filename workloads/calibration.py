"""Measures how fast a device multiplies matrices: the peak that utilisation refers to.

The matrices are square and hold normal numbers, because zeros cost a GPU less power and let it clock higher. Their size
doubles until one product takes 10 ms, which keeps a processor under a second, or until it is 8192, where every GPU is
bound by arithmetic, not memory. The rate is the best of several batches of products.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence

from workloads.errors import describe_error
from workloads.protocol import Calibration

_MIN_SIZE, _MAX_SIZE = 512, 8192
_MIN_PRODUCT_S = 0.01
_BATCH_S = 0.05
_BATCHES = 8
_BUDGET_S = 0.3

Products = Callable[[int], None]
"""Computes that many products, one after the other, and waits for them."""


def calibrate(
    make: Callable[[int], Products], gpu_uuids: Sequence[str], precision: str, error_type: type[Exception]
) -> Calibration | None:
    """Measure the first GPU, or without GPUs the CPU, in the precision that the framework is set to.

    `make` creates two matrices of a size. Returns None, with a line in the log, if the framework raises an
    `error_type`.
    """
    device = gpu_uuids[0] if gpu_uuids else "cpu"
    try:
        size, flops_per_s = _fastest_rate(make)
    except error_type as error:
        print(f"No calibration of {device} in {precision}: {describe_error(error)}", file=sys.stderr)  # noqa: T201
        return None
    return Calibration(device=device, precision=precision, size=size, flops_per_s=flops_per_s)


def _fastest_rate(make: Callable[[int], Products]) -> tuple[int, float]:
    size = _MIN_SIZE
    while (one_s := _one_product_s(products := make(size))) < _MIN_PRODUCT_S and size < _MAX_SIZE:
        size *= 2
    count = math.ceil(_BATCH_S / one_s)
    end_s, fastest_s = time.monotonic() + _BUDGET_S, one_s
    for _ in range(_BATCHES):
        fastest_s = min(fastest_s, _seconds(products, count) / count)
        if time.monotonic() > end_s:
            break
    return size, 2 * size**3 / fastest_s


def _one_product_s(products: Products) -> float:
    products(1)
    return _seconds(products, 1)


def _seconds(products: Products, count: int) -> float:
    start_s = time.monotonic()
    products(count)
    return time.monotonic() - start_s
