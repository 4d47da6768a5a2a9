"""PyTorch's `nn.LSTM` on the same task as `lstm`, for the tables: one JSON line a case.

    python -m tests.gpu.torch_lstm LAYERS[,LAYERS] PRECISION[,PRECISION]

Batch 64, 100 steps, 512 features, 512 units, a linear head on the last output, mean squared error, fused Adam;
milliseconds a step are the median of five timings. Needs PyTorch with CUDA, and nothing of the program.
"""

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from tests.gpu.timing import median_ms

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
    result["train_ms"] = _ms(train)
    net.eval()
    result["inference_ms"] = _ms(infer)
    return result


def _ms(step: Callable[[], None]) -> float:
    return median_ms(step, torch.cuda.synchronize, warmup_steps=20, burst=20)


def main() -> None:
    """Times every case and prints it."""
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    for layers in map(int, sys.argv[1].split(",")):
        for precision in sys.argv[2].split(","):
            print(json.dumps({**versions, **case(layers, precision)}), flush=True)


if __name__ == "__main__":
    main()
