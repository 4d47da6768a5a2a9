"""A custom workload: the ResNet-50 of resnet50.py in PyTorch, on synthetic images.

python -m app list parameters examples/resnet50_torch.py:resnet50
python -m app run examples/resnet50_torch.py:resnet50 -s precision=bfloat16 -s compile=true
python -m app run examples/resnet50_torch.py:resnet50 -s gpus=0 -s image_size=64 -s batch_size=8

The model is that of keras.applications (He et al. 2015, arxiv.org/abs/1512.03385), which has the stride of a block in
its first convolution, a bias in each convolution, and 25,583,592 weights. Other than there, initial weights are
PyTorch's own, and the layout can be chosen: it is what matters most for the speed of PyTorch's convolutions.
"""

from typing import Literal

import numpy as np
import torch
from torch import nn

_CELLS = 8
_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels, blocks, and the stride of the first block."""


def _convolved(channels_in, channels, size, stride=1):
    """A convolution with batch norm, with Keras's epsilon and momentum."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, size, stride, size // 2), nn.BatchNorm2d(channels, eps=1.001e-5, momentum=0.01)
    )


class Block(nn.Module):
    """Three convolutions, added to their input or to a projection of it."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.layers = nn.Sequential(
            _convolved(channels_in, channels, 1, stride),
            nn.ReLU(),
            _convolved(channels, channels, 3),
            nn.ReLU(),
            _convolved(channels, 4 * channels, 1),
        )
        same = channels_in == 4 * channels
        self.shortcut = nn.Identity() if same else _convolved(channels_in, 4 * channels, 1, stride)

    def forward(self, images):
        """Return images of four times the block's channels."""
        return torch.relu(self.shortcut(images) + self.layers(images))


def resnet50(
    batch_size: int = 64,
    image_size: int = 224,
    classes: int = 1000,
    layout: Literal["channels_last", "channels_first"] = "channels_last",
    seed: int = 1,
):
    """ResNet-50 classifies synthetic images.

    image_size: Height and width of an image in pixels, at least 32.
    classes: Number of classes.
    layout: Order in which an image's numbers lie in memory.
    """
    blocks, channels_in = [], 64
    for channels, count, stride in _STAGES:
        for number in range(count):
            blocks.append(Block(channels_in, channels, stride if number == 0 else 1))
            channels_in = 4 * channels
    model = nn.Sequential(
        _convolved(3, 64, 7, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels_in, classes),
    )
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model.to(memory_format=form)
    patterns = np.random.default_rng(seed).standard_normal((classes, _CELLS, _CELLS, 3), dtype=np.float32)
    cell = np.arange(image_size) * _CELLS // image_size

    def batch(step):
        rng = np.random.default_rng([seed, step])
        kinds = rng.integers(0, classes, batch_size)
        noise = rng.standard_normal((batch_size, image_size, image_size, 3), dtype=np.float32)
        images = torch.from_numpy(patterns[kinds][:, cell][:, :, cell] + noise)
        return images.permute(0, 3, 1, 2).contiguous(memory_format=form), kinds

    return model, nn.CrossEntropyLoss(), batch
