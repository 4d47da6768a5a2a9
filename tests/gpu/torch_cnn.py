"""The same image networks in PyTorch, for the tables: one JSON line a case.

    python -m tests.gpu.torch_cnn MODEL BATCH[,BATCH] PRECISION[,PRECISION] HOW[,HOW]

MODEL is cnn10 or wrn28-10, PRECISION float32, tf32, bfloat16 or float16, HOW contiguous (NCHW) or channels_last (NHWC),
either with +compile behind it for `torch.compile`. Random 32x32 images that stay on the GPU, cross entropy, gradient
descent with momentum; milliseconds a step are the median of five timings. Needs PyTorch with CUDA, and nothing of the
program.
"""

import contextlib
import itertools
import json
import sys
import time
from typing import Any

import torch
from torch import nn

from tests.gpu.timing import median_ms

DTYPES = {"float32": None, "tf32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def norm(channels: int) -> Any:
    """Batch norm as Keras has it by default."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def conv(channels_in: int, channels: int, kernel: int = 3, stride: int = 1) -> Any:
    """A convolution without bias."""
    return nn.Conv2d(channels_in, channels, kernel, stride, kernel // 2, bias=False)


def cnn10() -> Any:
    """Three blocks of three convolutions with 64, 128 and 256 channels, pooling between."""
    widths, layers = [3, 64, 128, 256], []
    for block in range(3):
        for place in range(3):
            before = widths[block] if place == 0 else widths[block + 1]
            layers += [conv(before, widths[block + 1]), norm(widths[block + 1]), nn.ReLU(inplace=True)]
        layers += [nn.AvgPool2d(2)] if block < 2 else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


class Block(nn.Module):  # type: ignore[misc]
    """A basic block, norm and ReLU first."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = norm(channels_in), conv(channels_in, channels, 3, stride)
        self.norm2, self.conv2 = norm(channels), conv(channels, channels)
        self.shortcut = conv(channels_in, channels, 1, stride) if channels_in != channels else None

    def forward(self, images: Any) -> Any:
        """Images with this block's channels."""
        normed = torch.relu(self.norm1(images))
        body = self.conv2(torch.relu(self.norm2(self.conv1(normed))))
        return body + (images if self.shortcut is None else self.shortcut(normed))


def wide_resnet(depth: int = 28, widen: int = 10) -> Any:
    """The wide residual network."""
    widths = [16, 16 * widen, 32 * widen, 64 * widen]
    layers = [conv(3, widths[0])]
    for group in range(3):
        for place in range((depth - 4) // 6):
            before = widths[group] if place == 0 else widths[group + 1]
            layers.append(Block(before, widths[group + 1], 2 if group and place == 0 else 1))
    head = (norm(widths[3]), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[3], 10))
    return nn.Sequential(*layers, *head)


def case(model: str, batch: int, precision: str, how: str) -> dict[str, Any]:
    """Training time of one network in one precision and memory format."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    memory_format = FORMATS[how.removesuffix("+compile")]
    net = {"cnn10": cnn10, "wrn28-10": wide_resnet}[model]().cuda().to(memory_format=memory_format)
    run = torch.compile(net) if how.endswith("+compile") else net
    dtype = DTYPES[precision]
    cast = (lambda: torch.autocast("cuda", dtype)) if dtype else contextlib.nullcontext
    images = torch.randn(batch, 3, 32, 32, device="cuda").to(memory_format=memory_format)
    classes = torch.randint(0, 10, (batch,), device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "float16")

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        with cast():
            loss = nn.functional.cross_entropy(run(images).float(), classes)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    started = time.monotonic()
    train()
    torch.cuda.synchronize()
    compile_s = time.monotonic() - started
    ms = median_ms(train, torch.cuda.synchronize, warmup_steps=10, burst=5)
    return {"ms": ms, "examples_per_s": 1e3 * batch / ms, "compile_s": compile_s}


def main() -> None:
    """Times every case and prints it."""
    model, batches, precisions, hows = sys.argv[1:]
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    for batch, precision, how in itertools.product(
        map(int, batches.split(",")), precisions.split(","), hows.split(",")
    ):
        settings = {"model": model, "batch_size": batch, "precision": precision, "how": how}
        try:
            found = case(model, batch, precision, how)
        except RuntimeError as error:
            found = {"failed": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({**versions, **settings, **found}), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
