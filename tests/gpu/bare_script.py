"""A training script that times its own steps, alone and measured by the program, in turn: what measuring costs.

    python -m tests.gpu.bare_script PAIRS BATCH LAYERS STEPS

Linear layers of 4,096 in TF32 on the first GPU, smaller ones on the CPU. Each side is a process that makes as many
steps to warm up, and then times `STEPS` between two synchronisations; the order of a pair is reversed each time. Prints
both medians, and the ratio of the measured script's own time to the bare one's with the 95 % interval of its mean.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from app.analysis import intervals
from app.telemetry.sampler import take_inventory
from tests.fakes.command_line import CommandLine

_SCRIPT = """
import sys, time
import torch

batch, layers, steps, width, device, out = *map(int, sys.argv[1:5]), *sys.argv[5:7]
torch.backends.cuda.matmul.allow_tf32 = True
net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).to(device)
optimizer = torch.optim.SGD(net.parameters(), 1e-4, foreach=True)
x = torch.randn(batch, width, device=device)
wait = torch.cuda.synchronize if device == "cuda" else int


def train():
    wait()
    start_s = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    wait()
    return 1e3 * (time.perf_counter() - start_s) / steps


train()
with open(out, "a") as file:
    print(train(), file=file)
"""


def main(pairs: int, batch: int, layers: int, steps: int) -> None:
    gpus = take_inventory().machine.gpus[:1]
    with tempfile.TemporaryDirectory() as name:
        folder, times = Path(name), Path(name) / "times"
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text(_SCRIPT)
        device = ("4096", "cuda") if gpus else ("256", "cpu")
        words = ("train.py", *map(str, (batch, layers, steps)), *device, str(times))
        own = ("-s", f"gpus={len(gpus)}", "-s", "seconds=600", "-s", "evidence=off", "-C", str(folder / "code"))

        def bare() -> None:
            environment = os.environ | ({"CUDA_VISIBLE_DEVICES": gpus[0].uuid} if gpus else {})
            subprocess.run([sys.executable, *words], cwd=folder / "code", env=environment, check=True)

        def measured() -> None:
            document = CommandLine(folder).json("run", *own, "--", sys.executable, *words)
            assert document["outcome"] == "completed", document["reason"]

        ratios, sides_ms = [], []
        for number in range(pairs):
            for side in (bare, measured)[:: -1 if number % 2 else 1]:
                side()
            latest = [float(line) for line in times.read_text().split()[-2:]]
            bare_ms, measured_ms = latest[:: -1 if number % 2 else 1]
            sides_ms.append((bare_ms, measured_ms))
            ratios.append(measured_ms / bare_ms)
            print(f"bare {bare_ms:.4f} ms, measured {measured_ms:.4f} ms", flush=True)
        bare_ms, measured_ms = (statistics.median(side) for side in zip(*sides_ms, strict=True))
        print(f"{pairs} pairs: bare {bare_ms:.4f} ms, measured {measured_ms:.4f} ms, ratio {intervals.mean(ratios)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
