"""How long a step of a script takes that has no loop of its own."""

import statistics
import time
from collections.abc import Callable

_TIMINGS = 5
_SECONDS = 0.4


def median_ms(step: Callable[[], object], wait: Callable[[], object], *, warmup_steps: int, burst: int) -> float:
    """Milliseconds a step: the median of five timings of 0.4 s.

    `wait` waits for the device: after the warm-up, and after every `burst` steps.
    """
    for _ in range(warmup_steps):
        step()
    return statistics.median(_time_burst(step, wait, burst) for _ in range(_TIMINGS))


def _time_burst(step: Callable[[], object], wait: Callable[[], object], burst: int) -> float:
    wait()
    started_s, steps = time.monotonic(), 0
    while time.monotonic() - started_s < _SECONDS:
        for _ in range(burst):
            step()
        steps += burst
        wait()
    return 1e3 * (time.monotonic() - started_s) / steps
