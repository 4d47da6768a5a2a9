"""A training step written by hand in plain PyTorch, and the program's runs of the same step, in turns.

    python -m tests.gpu.bare_torch CASE             one JSON line of the step by hand: milliseconds a step
    python -m tests.gpu.bare_torch PAIRS CASE …     so many pairs of a case: script, run, script, run …

The second prints a line a case: milliseconds of both, and the ratio of the run's step to the script's with the 95 %
interval of its mean over pairs. A script is a process of its own, as a run is, with nothing of the program in it.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SECONDS, _WARMUP_STEPS = 2.5, 30
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "cnn10": ("cnn10", {"layout": "NHWC", "precision": "tf32", "batch_size": "1024"}),
    "cnn10-bfloat16": ("cnn10", {"layout": "NHWC", "precision": "bfloat16", "batch_size": "1024"}),
    "wrn28-10": ("wrn28-10", {"layout": "NHWC", "precision": "tf32", "batch_size": "128"}),
    "lstm": ("lstm", {"implementation": "cudnn", "precision": "tf32"}),
    "lstm-graph": ("lstm", {"implementation": "cudnn", "precision": "tf32", "cuda_graph": "true"}),
    "small": ("cnn10", {"layout": "NHWC", "precision": "float32", "batch_size": "16", "channels": "8", "gpus": "0"}),
}
_T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Student's t for 95 % by degrees of freedom."""


def cnn10(nn: Any, channels: int = 64) -> Any:
    layers, width_in = [], 3
    for block, width in enumerate((channels, 2 * channels, 4 * channels)):
        for _ in range(3):
            layers += [nn.Conv2d(width_in, width, 3, padding=1, bias=False), _norm(nn, width), nn.ReLU()]
            width_in = width
        layers += [nn.AvgPool2d(2)] if block < 2 else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(width_in, 10)


def wide_resnet(nn: Any) -> Any:
    class Halved(nn.Module):  # type: ignore[misc]
        """A convolution with stride 2 and zeros at the far sides, as TensorFlow pads."""

        def __init__(self, width_in: int, width: int, size: int) -> None:
            super().__init__()
            self.far, self.conv = size - 2, nn.Conv2d(width_in, width, size, 2, bias=False)

        def forward(self, images: Any) -> Any:
            padded = nn.functional.pad(images, (0, self.far, 0, self.far)) if self.far > 0 else images
            return self.conv(padded)

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, width_in: int, width: int, stride: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = _norm(nn, width_in), _norm(nn, width)
            is_halved = stride == 2
            self.conv1 = (
                Halved(width_in, width, 3) if is_halved else nn.Conv2d(width_in, width, 3, padding=1, bias=False)
            )
            self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.shortcut = None
            if width_in != width:
                self.shortcut = Halved(width_in, width, 1) if is_halved else nn.Conv2d(width_in, width, 1, bias=False)

        def forward(self, images: Any) -> Any:
            normed = nn.functional.relu(self.norm1(images))
            body = self.conv2(nn.functional.relu(self.norm2(self.conv1(normed))))
            return body + (images if self.shortcut is None else self.shortcut(normed))

    layers, width_in = [nn.Conv2d(3, 16, 3, padding=1, bias=False)], 16
    for group, width in enumerate((160, 320, 640)):
        for number in range(4):
            layers.append(Block(width_in, width, 2 if group and not number else 1))
            width_in = width
    body = nn.Sequential(*layers, _norm(nn, 640), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return body, nn.Linear(640, 10)


def _norm(nn: Any, channels: int) -> Any:
    return nn.BatchNorm2d(channels, 1e-3, 0.01)


def step_of(case: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """The step of a case, and what waits for the device."""
    import torch
    from torch import nn

    workload, texts = CASES[case]
    device = "cpu" if texts.get("gpus") == "0" else "cuda"
    torch.backends.fp32_precision = "tf32" if texts["precision"] == "tf32" else "ieee"
    torch.backends.cudnn.benchmark = True
    dtype = torch.bfloat16 if texts["precision"] == "bfloat16" else torch.float32
    if workload == "lstm":
        lstm, head = nn.LSTM(512, 512, batch_first=True), nn.Linear(512, 1)
        net = nn.ModuleList([lstm, head]).to(device)
        inputs = [torch.rand(64, 100, 512, device=device) for _ in range(8)]
        targets = [torch.rand(64, 1, device=device) for _ in range(8)]
        captured = "cuda_graph" in texts
        optimizer = torch.optim.Adam(net.parameters(), 0.003, fused=True, capturable=captured)

        def loss_of(batch: Any, target: Any) -> Any:
            return nn.functional.mse_loss(head(lstm(batch)[0][:, -1]), target)

    else:
        body, head = cnn10(nn, int(texts.get("channels", 64))) if workload == "cnn10" else wide_resnet(nn)
        net = nn.ModuleList([body, head]).to(device, memory_format=torch.channels_last)
        size = int(texts["batch_size"])
        inputs = [torch.randn(size, 3, 32, 32).to(device, dtype, memory_format=torch.channels_last) for _ in range(8)]
        targets = [torch.randint(0, 10, (size,), device=device) for _ in range(8)]
        captured = False
        optimizer = torch.optim.SGD(net.parameters(), 0.05, 0.9, fused=True)

        def loss_of(batch: Any, target: Any) -> Any:
            with torch.autocast(device, dtype, enabled=dtype is not torch.float32):
                pooled = body(batch)
            return nn.functional.cross_entropy(head(pooled.float()), target)

    def train(batch: Any, target: Any) -> None:
        optimizer.zero_grad(set_to_none=not captured)
        loss_of(batch, target).backward()
        optimizer.step()

    turns = 0

    def eager() -> None:
        nonlocal turns
        turns += 1
        train(inputs[turns % 8], targets[turns % 8])

    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    return (_graph_of(train, inputs, targets) if captured else eager), wait


def _graph_of(train: Callable[..., None], inputs: list[Any], targets: list[Any]) -> Callable[[], None]:
    """The step captured whole, which copies its batch first."""
    import torch

    static = (torch.empty_like(inputs[0]), torch.empty_like(targets[0]))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            train(*static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train(*static)
    turns = 0

    def step() -> None:
        nonlocal turns
        turns += 1
        static[0].copy_(inputs[turns % 8])
        static[1].copy_(targets[turns % 8])
        graph.replay()

    return step


def bare_ms(case: str) -> float:
    """Milliseconds a step of the script: one loop, one wait at its end."""
    step, wait = step_of(case)
    for _ in range(_WARMUP_STEPS):
        step()
    wait()
    started_s, steps = time.monotonic(), 0
    while time.monotonic() - started_s < _SECONDS:
        step()
        steps += 1
    wait()
    return 1e3 * (time.monotonic() - started_s) / steps


def script_ms(case: str) -> float:
    printed = subprocess.run([sys.executable, "-m", __spec__.name, case], check=True, stdout=subprocess.PIPE).stdout
    return float(json.loads(printed)["ms"])


def run_ms(case: str, database: Path) -> float:
    """Milliseconds a step of a run of the program, from its throughput, which counts all of the measured part."""
    workload, texts = CASES[case]
    settings = {"framework": "pytorch", "seconds": f"{_SECONDS}", "evidence": "off", **texts}
    words = [word for name, text in settings.items() for word in ("-s", f"{name}={text}")]
    command = [sys.executable, "-m", "app", "run", workload, "--json", "--db", str(database), *words]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    measured = json.loads(printed)["measured"]
    return 1e3 * float(measured["seconds"]) / int(measured["steps"])


def pairs(case: str, count: int, database: Path) -> dict[str, Any]:
    scripts, runs = [], []
    for _ in range(count):
        scripts.append(script_ms(case))
        runs.append(run_ms(case, database))
    ratios = [run / script for run, script in zip(runs, scripts, strict=True)]
    half = _T_95[count - 1] * statistics.stdev(ratios) / count**0.5
    mean = statistics.mean(ratios)
    return {
        "case": case,
        "pairs": count,
        "script_ms": statistics.median(scripts),
        "run_ms": statistics.median(runs),
        "ratio": [round(figure, 4) for figure in (mean - half, mean, mean + half)],
    }


def main() -> None:
    """Times one script, or pairs."""
    first, *cases = sys.argv[1:]
    if not cases:
        print(json.dumps({"case": first, "ms": bare_ms(first)}), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            print(json.dumps(pairs(case, int(first), Path(folder) / "runs.db")), flush=True)


if __name__ == "__main__":
    main()
