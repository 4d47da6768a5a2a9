"""Step times of the LSTM's implementations without the program around them, one process for a whole list.

    python -m tests.gpu.lstm_steps GPU_UUID [SETTING=VALUE[,VALUE] ...]

Every combination of the values given is built and timed by a plain loop (`workloads.bare`), and printed as one JSON
line: the settings, milliseconds a step (median of five timings) and the compile time. One that fails says why.
"""

import itertools
import json
import statistics
import sys
import time
from typing import Any

from tests.gpu.words import value_of
from workloads import catalog, runtime
from workloads.bare import time_steps
from workloads.build import recipe_of
from workloads.kinds import Gpu, Machine
from workloads.protocol import Variant
from workloads.steps import build_task

_TIMINGS = 5
_SECONDS = 0.4


def main() -> None:
    """Times every combination on the GPU given (`cpu` for none)."""
    device, lists = sys.argv[1], [word.split("=", 1) for word in sys.argv[2:]]
    gpus = () if device == "cpu" else (Gpu(index=0, uuid=device, name=""),)
    runtime.prepare_environment([gpu.uuid for gpu in gpus])
    runtime.import_tensorflow(len(gpus))
    for values in itertools.product(*(texts.split(",") for _, texts in lists)):
        settings = {name: value_of("lstm", name, text) for (name, _), text in zip(lists, values, strict=True)}
        spec = catalog.complete("lstm", settings, Machine(gpus=gpus, cpu_count=64))
        refusals = catalog.check(spec, Machine(gpus=gpus, cpu_count=64))
        found = {"refused": refusals[0].reason} if refusals else _timed(spec.variant)
        sys.stdout.write(json.dumps({**settings, **found}) + "\n")
        sys.stdout.flush()


def _timed(variant: Variant) -> dict[str, Any]:
    try:
        task = build_task(recipe_of("lstm")(variant), variant, runtime.configure(variant))
        started_s = time.monotonic()
        task.fetch(task.step())
        compile_s = time.monotonic() - started_s
        times = [time_steps(task, 3, _SECONDS, 0) for _ in range(_TIMINGS)]
    except Exception as error:  # noqa: BLE001 - the rest of the list is still of use
        return {"failed": f"{type(error).__name__}: {error}"[:300]}
    return {"ms": statistics.median(1e3 * seconds / steps for steps, seconds in times), "compile_s": compile_s}


if __name__ == "__main__":
    main()
