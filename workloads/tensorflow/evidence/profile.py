"""Traces a few steps with TensorFlow's profiler, outside all timing; its failure is a note, never the run's end."""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import tensorflow as tf

from workloads.tensorflow.evidence import xplane
from workloads.tensorflow.evidence.xplane import Trace
from workloads.training import Task

_MAX_STEPS = 10
_BUDGET_S = 1.0
_BUDGET_EVENTS = 200_000
_TIMEOUT_S = 120.0


def trace_steps(task: Task, *, gpu: bool) -> Trace:
    """Trace as many steps as fit into about a second and 200,000 events, at least one.

    The first trace of a process is of one step: it starts the profiler and shows how many fit. If only one does, it is
    the result.
    """
    first, step_s = _profile_steps(task, 1, gpu=gpu)
    steps = int(min(_MAX_STEPS, _BUDGET_S / step_s, _BUDGET_EVENTS / max(1, first.events)))
    return _profile_steps(task, steps, gpu=gpu)[0] if steps > 1 else first


def _profile_steps(task: Task, steps: int, *, gpu: bool) -> tuple[Trace, float]:
    """Return the trace of some steps, and the seconds that one of them took under the profiler."""
    with TemporaryDirectory(prefix="variantscope-") as folder:
        tf.profiler.experimental.start(folder)
        try:
            start_s = time.monotonic()
            for _ in range(steps):
                result = task.step()
            task.fetch(result)
            step_s = (time.monotonic() - start_s) / steps
        finally:
            tf.profiler.experimental.stop()
        (file,) = Path(folder).rglob("*.xplane.pb")
        return xplane.read(file.read_bytes(), steps, gpu=gpu), step_s


def run_guarded(work: Callable[[], Trace], timeout_s: float = _TIMEOUT_S) -> Trace:
    """Return the trace, or an empty one with a note of what went wrong; the traceback goes to the log.

    In a thread, since a profiler that hangs cannot be interrupted: the thread is left behind.
    """
    done: list[Trace] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a profiler must not cost the run
            traceback.print_exc(file=sys.stderr)
            done.append(_empty_trace(f"The profiler could not be used: {_first_line(error)}."))

    thread = threading.Thread(target=run, name="profiler", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return done[0] if done else _empty_trace(f"The profiler did not answer within {timeout_s:.0f} s.")


def _empty_trace(note: str) -> Trace:
    return Trace(notes=(note,))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
