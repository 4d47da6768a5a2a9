"""The stand-in for CIFAR-10 where there is no copy: as many images, as large, in ten classes that a network can learn.

An image is a part of one of its class's patterns, shifted, mirrored in half of the cases and of another strength each
time, over a weaker one of another class, with noise. So patterns, shifts and mirroring have to be learnt, and where the
other pattern is nearly as strong nobody can be certain. It is the same data for every seed of a run, as a
data set is; what is measured with it says nothing about CIFAR-10.
"""

import numpy as np
from numpy.typing import NDArray

_SEED = 20_190_718
_SIDE, _MARGIN, _CLASSES = 32, 4, 10
_PATTERNS = 4
"""Of each class."""
_COARSE = 12
_BLOCK = 1_000
"""Images that are made at a time, each block from its own seed: the first ones of many are those of few."""
_STRENGTHS = (24.0, 56.0)
_OTHER_SHARES = (0.1, 0.8)
_NOISE = 0.5

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images [n, 3, 32, 32] and their classes [n]."""


def stand_in_images(first: int, count: int) -> Labelled:
    """Return images from number `first` on; the same ones every time."""
    views = _views()
    blocks = [_block(number, views) for number in range(first // _BLOCK, -(-(first + count) // _BLOCK))]
    start = first % _BLOCK
    images, classes = (np.concatenate(parts)[start : start + count] for parts in zip(*blocks, strict=True))
    return images, classes


def _views() -> NDArray[np.float32]:
    """Return every part of every pattern, of mean 0 and deviation 1: [pattern, mirrored, row, column, 3, 32, 32]."""
    rng = np.random.default_rng(_SEED)
    side = _SIDE + 2 * _MARGIN
    coarse = rng.standard_normal((_CLASSES * _PATTERNS, 3, _COARSE, _COARSE))
    positions = np.linspace(0, _COARSE - 1, side)
    low = np.minimum(positions.astype(int), _COARSE - 2)
    share = positions - low
    # Linear between the coarse values, one axis after the other.
    for axis in (2, 3):
        weights = share.reshape([-1 if each == axis else 1 for each in range(4)])
        coarse = coarse.take(low, axis) * (1 - weights) + coarse.take(low + 1, axis) * weights
    patterns = (coarse - coarse.mean((1, 2, 3), keepdims=True)) / coarse.std((1, 2, 3), keepdims=True)
    both = np.stack([patterns, patterns[..., ::-1]], axis=1).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(both, (_SIDE, _SIDE), axis=(3, 4))
    return windows.transpose(0, 1, 3, 4, 2, 5, 6)


def _block(number: int, views: NDArray[np.float32]) -> Labelled:
    rng = np.random.default_rng((_SEED, number))
    classes = rng.integers(0, _CLASSES, _BLOCK)
    others = (classes + rng.integers(1, _CLASSES, _BLOCK)) % _CLASSES
    strength = rng.uniform(*_STRENGTHS, _BLOCK).astype(np.float32)
    other_strength = strength * rng.uniform(*_OTHER_SHARES, _BLOCK).astype(np.float32)
    values = _parts(rng, views, classes) * strength[:, None, None, None]
    values += _parts(rng, views, others) * other_strength[:, None, None, None]
    noise = rng.integers(-128, 128, values.shape, dtype=np.int8)
    values += 127.5 + _NOISE * noise
    return np.clip(values, 0, 255, out=values).astype(np.uint8), classes


def _parts(rng: np.random.Generator, views: NDArray[np.float32], classes: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return a part of a pattern of each class, chosen, shifted and mirrored by chance."""
    corners = 2 * _MARGIN + 1
    pattern, mirrored, rows, columns = (
        rng.integers(0, limit, len(classes)) for limit in (_PATTERNS, 2, corners, corners)
    )
    found: NDArray[np.float32] = views[classes * _PATTERNS + pattern, mirrored, rows, columns]
    return found
