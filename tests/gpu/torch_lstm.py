"""PyTorch's `nn.LSTM` on the same task as `lstm`, for the tables: one JSON line a case.

    python tests/gpu/torch_lstm.py LAYERS[,LAYERS] PRECISION[,PRECISION]

Batch 64, 100 steps, 512 features, 512 units, a linear head on the last output, mean squared error, fused Adam;
milliseconds a step are the median of five timings. Needs PyTorch with CUDA, and nothing of this project.
"""

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

BATCH, STEPS, FEATURES, UNITS = 64, 100, 512, 512
DTYPES = {"float32": None, "tf32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Net(torch.nn.Module):  # type: ignore[misc]
    """The LSTM stack and its head."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(FEATURES, UNITS, layers, batch_first=True)
        self.head = torch.nn.Linear(UNITS, 1)

    def forward(self, inputs: Any) -> Any:
        """The answers to a batch, [batch, 1]."""
        return self.head(self.lstm(inputs)[0][:, -1])


def timed(step: Callable[[], None]) -> float:
    """Milliseconds a step: the median of five timings."""
    for _ in range(20):
        step()
    found = []
    for _ in range(5):
        torch.cuda.synchronize()
        started, steps = time.monotonic(), 0
        while time.monotonic() - started < 0.4:
            for _ in range(20):
                step()
            steps += 20
            torch.cuda.synchronize()
        found.append(1e3 * (time.monotonic() - started) / steps)
    return statistics.median(found)


def case(layers: int, precision: str) -> dict[str, Any]:
    """Training and inference times of one size in one precision."""
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    net = Net(layers).cuda()
    dtype = DTYPES[precision]
    cast = (lambda: torch.autocast("cuda", dtype)) if dtype else contextlib.nullcontext
    inputs, targets = torch.rand(BATCH, STEPS, FEATURES, device="cuda"), torch.rand(BATCH, 1, device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), 0.003, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "float16")

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        with cast():
            loss = torch.nn.functional.mse_loss(net(inputs).float(), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def infer() -> None:
        with torch.inference_mode(), cast():
            net(inputs)

    result = {"layers": layers, "precision": precision}
    result["train_ms"] = timed(train)
    net.eval()
    result["inference_ms"] = timed(infer)
    return result


def main() -> None:
    """Times every case and prints it."""
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    for layers in map(int, sys.argv[1].split(",")):
        for precision in sys.argv[2].split(","):
            print(json.dumps({**versions, **case(layers, precision)}), flush=True)


if __name__ == "__main__":
    main()
