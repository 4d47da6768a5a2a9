"""The same step without worker, messages or telemetry: what a bare script would measure.

`python -m benchmarks.bare` reads an order like a worker's on stdin and prints one JSON line: `steps`, `seconds`,
`examples_per_s`. It is the yardstick for what the rest of the program costs.
"""

import json
import sys
import time
from collections.abc import Sequence

from workloads.build import approve, build, import_libraries
from workloads.protocol import RunSpec, decode_start
from workloads.training import Task, give_up, plan_of


def bare_task(spec: RunSpec, gpu_uuids: Sequence[str] = ()) -> Task:
    """Return the variant ready to step in this process, once per process: the framework takes its settings once.

    Raises `RefusedError` if it cannot run.
    """
    full = approve(spec, gpu_uuids)
    import_libraries(full, gpu_uuids)
    task = build(full)
    task.connect(give_up)
    return task


def time_steps(task: Task, warmup_steps: int, seconds: float, steps: int) -> tuple[int, float]:
    """Return steps and seconds of one plain loop with one synchronisation at its end.

    Warm-up steps come after the first, and are not timed. It measures so many seconds if `steps` is 0.
    """
    for _ in range(1 + warmup_steps):
        result = task.step()
    task.fetch(result)
    done, start_s = 0, time.monotonic()
    while (done < steps) if steps else (time.monotonic() - start_s < seconds):
        result = task.step()
        done += 1
    task.fetch(result)
    return done, time.monotonic() - start_s


def main() -> None:
    """Time the order on stdin and print the result."""
    start = decode_start(sys.stdin.buffer.readline())
    spec = approve(start.spec, start.gpu_uuids)
    task, plan = bare_task(spec, start.gpu_uuids), plan_of(spec.variant)
    steps, seconds = time_steps(task, plan.warmup_steps, plan.seconds, plan.steps)
    line = {"steps": steps, "seconds": seconds, "examples_per_s": steps * task.examples / seconds}
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
