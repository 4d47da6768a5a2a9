"""A workload without a framework, for tests: blocks of sleep with a falling loss, and every way to fail."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from workloads.errors import OutOfMemoryError
from workloads.protocol import Variant
from workloads.training import Task

_FAILURE_STEP = 3
"""The step at which a behaviour other than training sets in, after a few sound steps."""


def task(variant: Variant) -> Task:
    behaviour = str(variant["behaviour"])
    if behaviour == "ignore_stop":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    failure = _FAILURES.get(behaviour)
    if behaviour == "out_of_memory" and int(variant["batch_size"]) <= int(variant["fitting_batch_size"]):
        failure = None
    step = _Steps(float(variant["step_ms"]) / 1000, failure)
    fetch = _loss_then_nan if behaviour == "not_finite" else _loss
    return Task(step=step, fetch=fetch, examples=int(variant["batch_size"]), trains=variant["mode"] == "train")


def ignores_stop(variant: Variant) -> bool:
    """Return whether a run ignores the request to stop: `hang` ends by SIGTERM, `ignore_stop` only by SIGKILL."""
    return variant.get("behaviour") in ("hang", "ignore_stop")


class _Steps:
    """Sleeps one step and returns its number; at the failing step it fails first."""

    def __init__(self, step_s: float, failure: Callable[[], object] | None) -> None:
        self._step_s = step_s
        self._failure = failure
        self._number = -1

    def __call__(self) -> int:
        self._number += 1
        if self._number == _FAILURE_STEP and self._failure is not None:
            self._failure()
        time.sleep(self._step_s)
        return self._number


def _loss(step: int) -> float:
    return 1.0 / (1.0 + step / 10)


def _loss_then_nan(step: int) -> float:
    return _loss(step) if step < _FAILURE_STEP else float("nan")


def _fail() -> NoReturn:
    raise ValueError("the dummy fails, as asked")


def _run_out_of_memory() -> NoReturn:
    raise OutOfMemoryError("the dummy runs out of memory, as asked")


def _print_garbage() -> None:
    print("garbage from Python", flush=True)  # noqa: T201
    os.write(1, b'{"type":"finished","outcome":"completed","t_ns":1}\n\xff\xfe garbage below Python\n')


_FAILURES: dict[str, Callable[[], object]] = {
    "fail": _fail,
    "out_of_memory": _run_out_of_memory,
    "print_garbage": _print_garbage,
    "hang": threading.Event().wait,
    "kill_self": lambda: os.kill(os.getpid(), signal.SIGKILL),
}
