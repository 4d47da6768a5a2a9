"""The step of a custom PyTorch file and the same step by hand, in turn in one process: milliseconds and their ratio.

    python -m tests.gpu.custom_step ROUNDS FILE.py:NAME [NAME=VALUE …]

By hand is a loop over batches on the device that waits for it at its end alone. Both sides of a round make as many
steps to warm up and as many that count, about a second of them; the order is reversed each round. The interval is of
the mean of the rounds' ratios, by Student's t.
"""

import importlib
import inspect
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from app.analysis import intervals
from app.runs.custom import read_source
from app.telemetry.sampler import take_inventory
from workloads.build import build, import_libraries
from workloads.catalog import CustomFile, custom_workload, fill_defaults, parse
from workloads.custom.source import describe_file
from workloads.protocol import Block, RunSpec
from workloads.training import Loop, Task, TrainingPlan

_ROUND_S = 1.0
_WARMUP_STEPS = 10


def by_hand(spec: RunSpec, path: Path, function: str) -> Any:
    """Return a function that warms up, trains that many steps by hand and returns milliseconds per step."""
    import torch

    sys.path.insert(0, str(path.parent))
    build_model = getattr(importlib.import_module(path.stem), function)
    parameters = inspect.signature(build_model).parameters
    module, loss, batch = build_model(**{name: spec.variant[name] for name in parameters})
    device = torch.device("cuda" if int(spec.variant["gpus"]) else "cpu")
    module.to(device)
    optimizer = torch.optim.Adam(module.parameters(), 0.001, eps=1e-7, fused=True)
    batches = [[torch.as_tensor(part).to(device) for part in batch(number)] for number in range(4)]
    bfloat16 = spec.variant["precision"] == "bfloat16"

    def answer(inputs: Any, targets: Any) -> Any:
        outputs = module(inputs)
        return loss(outputs, targets)

    compiled = torch.compile(answer) if spec.variant["compile"] else answer

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def train(steps: int) -> float:
        for number in range(-_WARMUP_STEPS, steps):
            if number == 0:
                wait()
                start_s = time.perf_counter()
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                result = compiled(*batches[number % len(batches)])
            result.backward()
            optimizer.step()
        wait()
        return 1e3 * (time.perf_counter() - start_s) / steps

    return train


def by_program(task: Task, steps: int) -> float:
    """Run the program's own loop for that many steps and return milliseconds per measured step."""
    messages: list[Any] = []
    plan = TrainingPlan(warmup_steps=_WARMUP_STEPS, seconds=0.0, steps=steps)
    Loop(task, plan, messages.append, lambda: False).run()
    blocks = [message for message in messages if isinstance(message, Block) and message.phase == "measure"]
    return (blocks[-1].end_ns - blocks[0].start_ns) / 1e6 / sum(block.steps for block in blocks)


def main(rounds: int, workload: str, settings: dict[str, str]) -> None:
    machine = take_inventory().machine
    path, function = Path(workload.rpartition(":")[0]).resolve(), workload.rpartition(":")[2]
    source = read_source(path)
    (described,) = (one for one in describe_file(source, function).workloads if one.name == function)
    given = custom_workload(described, CustomFile(path=source.path, sha256=source.sha256))
    parameters = {parameter.name: parameter for parameter in given.parameters}
    values = {name: parse(parameters[name], text) for name, text in settings.items()}
    spec = fill_defaults(given, values, machine)
    import_libraries(spec, [gpu.uuid for gpu in machine.gpus][: int(spec.variant["gpus"])])
    task = build(spec, source)
    train = by_hand(spec, path, function)
    by_program(task, _WARMUP_STEPS), train(_WARMUP_STEPS)  # compile
    steps = max(10, round(1e3 * _ROUND_S / train(_WARMUP_STEPS)))
    pairs = []
    for number in range(rounds):
        if number % 2:
            hand_ms, program_ms = train(steps), by_program(task, steps)
        else:
            program_ms, hand_ms = by_program(task, steps), train(steps)
        pairs.append((hand_ms, program_ms))
    ratio = intervals.mean([program_ms / hand_ms for hand_ms, program_ms in pairs])
    assert ratio is not None
    hand_ms, program_ms = (statistics.median(side) for side in zip(*pairs, strict=True))
    words = " ".join(f"{name}={value}" for name, value in settings.items())
    print(
        f"{function} {words}: by hand {hand_ms:.3f} ms, by the program {program_ms:.3f} ms, ratio {ratio}", flush=True
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], dict(word.split("=", 1) for word in sys.argv[3:]))
