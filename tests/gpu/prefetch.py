"""What it costs to feed a step from the host: stored images against images that are on the devices already.

    python -m tests.gpu.prefetch GPU_UUID[,GPU_UUID] [SETTING=VALUE[,VALUE] ...]

Every combination of the values given of `cnn10` is timed on as many random images as CIFAR-10 has (no copy of it is
needed), first made on the devices, then from the host, and printed as one JSON line: the settings, images a second of
both, and what the second waited for data in percent. `cpu` in place of GPUs computes on the CPU.
"""

import gc
import itertools
import json
import sys

import numpy as np

from tests.gpu.steps import value_of
from workloads import catalog
from workloads.cifar10 import ImageData, Split
from workloads.machine import Gpu, Machine
from workloads.protocol import Block, DataReady, Message, Value, Variant
from workloads.tensorflow import runtime
from workloads.tensorflow.backend import TensorflowBackend, recipe_of
from workloads.training import Loop, plan_of

_WORKLOAD = "cnn10"


def main() -> None:
    """Times every combination on the GPUs given."""
    devices, *words = sys.argv[1:]
    lists = [word.split("=", 1) for word in words]
    uuids = [] if devices == "cpu" else devices.split(",")
    machine = Machine(gpus=tuple(Gpu(index=n, uuid=uuid, name="") for n, uuid in enumerate(uuids)), cpu_count=64)
    TensorflowBackend().import_framework(uuids)
    images = ImageData(_random(50_000), _random(10_000))
    for values in itertools.product(*(texts.split(",") for _, texts in lists)):
        settings = {name: value_of(_WORKLOAD, name, text) for (name, _), text in zip(lists, values, strict=True)}
        variant = catalog.complete(_WORKLOAD, {"seconds": 3.0, "gpus": len(uuids), **settings}, machine).variant
        print(json.dumps({**settings, **_timed(variant, images)}), flush=True)


def _random(count: int) -> Split:
    rng = np.random.default_rng(1)
    return Split(rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, count))


def _timed(variant: Variant, images: ImageData) -> dict[str, Value | None]:
    images_per_s, _ = _images_per_s(variant, None)
    stored, ready_s = _images_per_s(variant, images)
    step_s = int(variant["batch_size"]) / stored
    return {
        "made_images_per_s": images_per_s,
        "stored_images_per_s": stored,
        "waiting_pct": None if ready_s is None else 100 * max(0.0, 1 - ready_s / step_s),
    }


def _images_per_s(variant: Variant, images: ImageData | None) -> tuple[float, float | None]:
    """Images a second of the measured part, and seconds of a step whose data were ready."""
    from workloads.tensorflow.steps import build_task

    messages: list[Message] = []
    task = build_task(recipe_of(_WORKLOAD)(variant), variant, runtime.configure(variant), images)
    Loop(task, plan_of(variant), messages.append, lambda: False).run()
    blocks = [message for message in messages if isinstance(message, Block) and message.phase == "measure"]
    ready = [message.time_ns / 1e9 / message.steps for message in messages if isinstance(message, DataReady)]
    gc.collect()
    seconds = sum(block.end_ns - block.start_ns for block in blocks) / 1e9
    return sum(block.examples for block in blocks) / seconds, ready[0] if ready else None


if __name__ == "__main__":
    main()
