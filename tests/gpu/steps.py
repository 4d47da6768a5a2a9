"""Step times of a workload's variants without the program around them, one process for a whole list.

    python -m tests.gpu.steps WORKLOAD GPU_UUID[,GPU_UUID] [SETTING=VALUE[,VALUE] ...]

Every combination of the values given is built and timed by a plain loop (`benchmarks.bare`), and printed as one JSON
line: the settings, milliseconds a step (median of five timings), examples and operations a second, and the time of the
first step. One that cannot run or fails says why. `cpu` in place of GPUs computes on the CPU.
"""

import gc
import itertools
import json
import statistics
import sys
import time
from typing import Any

from benchmarks.bare import time_steps
from workloads import catalog
from workloads.build import build
from workloads.machine import Gpu, Machine
from workloads.protocol import RunSpec, Value
from workloads.tensorflow.backend import TensorflowBackend
from workloads.worker import flops_per_step


def value_of(workload: str, name: str, text: str) -> Value:
    """The value of a parameter that a word stands for."""
    return catalog.parse(catalog.workload(workload).parameter(name), text)


_TIMINGS = 5
_SECONDS = 0.4


def main() -> None:
    """Times every combination on the GPUs given."""
    workload, devices, *words = sys.argv[1:]
    lists = [word.split("=", 1) for word in words]
    uuids = [] if devices == "cpu" else devices.split(",")
    machine = Machine(gpus=tuple(Gpu(index=n, uuid=uuid, name="") for n, uuid in enumerate(uuids)), cpu_count=64)
    TensorflowBackend().import_framework(uuids)
    for values in itertools.product(*(texts.split(",") for _, texts in lists)):
        settings = {name: value_of(workload, name, text) for (name, _), text in zip(lists, values, strict=True)}
        spec = catalog.complete(workload, settings, machine)
        refusals = catalog.check(spec, machine)
        result = {"refused": refusals[0].reason} if refusals else _timed(spec)
        sys.stdout.write(json.dumps({**settings, **result}) + "\n")
        sys.stdout.flush()
        gc.collect()


def _timed(spec: RunSpec) -> dict[str, Any]:
    try:
        task = build(spec)
        started_s = time.monotonic()
        task.fetch(task.step())
        compile_s = time.monotonic() - started_s
        times = [time_steps(task, 3, _SECONDS, 0) for _ in range(_TIMINGS)]
    except Exception as error:  # noqa: BLE001 - the rest of the list is still of use
        return {"failed": f"{type(error).__name__}: {error}"[:300]}
    step_s = statistics.median(seconds / steps for steps, seconds in times)
    return {
        "ms": 1e3 * step_s,
        "examples_per_s": task.examples / step_s,
        "gflops": (flops_per_step(spec) or 0) / step_s / 1e9,
        "compile_s": compile_s,
    }


if __name__ == "__main__":
    main()
