"""CIFAR-10 (Krizhevsky 2009) from a local copy of its standard archive; only what was published is read.

A copy that is missing, damaged or not the published one raises `RefusedError` with what to do about it.
"""

import hashlib
import pickle
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.cifar10_copy import TRAINING_FILES, URL, data_folder, find
from workloads.errors import RefusedError
from workloads.protocol import Variant

_SEED = 20_190_718
_SIDE, _MARGIN, _STAND_IN_CLASSES = 32, 4, 10
_PATTERNS = 4
"""Patterns of each class."""
_COARSE = 12
_BLOCK = 1_000
"""Images generated at a time, each block from its own seed, so that the first images do not depend on the count."""
_STRENGTHS = (24.0, 56.0)
_OTHER_SHARES = (0.1, 0.8)
_NOISE = 0.5

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images [n, 3, 32, 32] and their classes [n]."""


def stand_in_images(start: int, count: int) -> Labelled:
    """Return substitute images from number `start` on; always the same ones."""
    views = _views()
    blocks = [_block(number, views) for number in range(start // _BLOCK, -(-(start + count) // _BLOCK))]
    offset = start % _BLOCK
    images, classes = (np.concatenate(arrays)[offset : offset + count] for arrays in zip(*blocks, strict=True))
    return images, classes


def _views() -> NDArray[np.float32]:
    """Return every part of every pattern, with mean 0 and deviation 1: [pattern, mirrored, row, column, 3, 32, 32]."""
    rng = np.random.default_rng(_SEED)
    side = _SIDE + 2 * _MARGIN
    coarse = rng.standard_normal((_STAND_IN_CLASSES * _PATTERNS, 3, _COARSE, _COARSE))
    positions = np.linspace(0, _COARSE - 1, side)
    low = np.minimum(positions.astype(int), _COARSE - 2)
    share = positions - low
    # Interpolate linearly between the coarse values, one axis after the other.
    for axis in (2, 3):
        weights = share.reshape([-1 if dimension == axis else 1 for dimension in range(4)])
        coarse = coarse.take(low, axis) * (1 - weights) + coarse.take(low + 1, axis) * weights
    patterns = (coarse - coarse.mean((1, 2, 3), keepdims=True)) / coarse.std((1, 2, 3), keepdims=True)
    orientations = np.stack([patterns, patterns[..., ::-1]], axis=1).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(orientations, (_SIDE, _SIDE), axis=(3, 4))
    return windows.transpose(0, 1, 3, 4, 2, 5, 6)


def _block(number: int, views: NDArray[np.float32]) -> Labelled:
    rng = np.random.default_rng((_SEED, number))
    classes = rng.integers(0, _STAND_IN_CLASSES, _BLOCK)
    other_classes = (classes + rng.integers(1, _STAND_IN_CLASSES, _BLOCK)) % _STAND_IN_CLASSES
    strength = rng.uniform(*_STRENGTHS, _BLOCK).astype(np.float32)
    other_strength = strength * rng.uniform(*_OTHER_SHARES, _BLOCK).astype(np.float32)
    values = _windows(rng, views, classes) * strength[:, None, None, None]
    values += _windows(rng, views, other_classes) * other_strength[:, None, None, None]
    noise = rng.integers(-128, 128, values.shape, dtype=np.int8)
    values += 127.5 + _NOISE * noise
    return np.clip(values, 0, 255, out=values).astype(np.uint8), classes


def _windows(rng: np.random.Generator, views: NDArray[np.float32], classes: NDArray[np.int64]) -> NDArray[np.float32]:
    corners = 2 * _MARGIN + 1
    pattern, mirrored, rows, columns = (
        rng.integers(0, limit, len(classes)) for limit in (_PATTERNS, 2, corners, corners)
    )
    images: NDArray[np.float32] = views[classes * _PATTERNS + pattern, mirrored, rows, columns]
    return images


TEST_FILE = "test_batch"
TRAINING_IMAGES = 50_000
_IMAGE_SHAPE = (3, 32, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksums:
    """The MD5 sums of the archive and of every file that is read from its folder."""

    archive: str
    files: Mapping[str, str]


PUBLISHED = Checksums(
    archive="c58f30108f718f92721af3b95e74349a",
    files={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
)
"""The archive's sum is from https://www.cs.toronto.edu/~kriz/cifar.html, the files' are those that torchvision checks.
"""


@dataclass(frozen=True, slots=True)
class Split:
    """Images [n, 3, 32, 32] as uint8, red first, and their classes [n] from 0 to 9 as int64."""

    images: NDArray[np.uint8]
    classes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ImageData:
    """Images to train on and images to test with."""

    train: Split
    test: Split


def stored_data(variant: Variant) -> ImageData | None:
    """Return the images of a variant, from this machine's copy or substitutes; None if its data are synthetic."""
    if variant.get("data", "synthetic") == "synthetic":
        return None
    count = training_images(variant)
    tested = -(-count // 5)
    if variant["data"] == "stand_in":
        return ImageData(Split(*stand_in_images(0, count)), Split(*stand_in_images(TRAINING_IMAGES, tested)))
    dataset = load(data_folder(str(variant["data_folder"])))
    return ImageData(_first_images(dataset.train, count), _first_images(dataset.test, tested))


def training_images(variant: Variant) -> int:
    return int(variant.get("images") or TRAINING_IMAGES)


def _first_images(split: Split, count: int) -> Split:
    return Split(split.images[:count], split.classes[:count])


def load(folder: Path, checksums: Checksums = PUBLISHED) -> ImageData:
    """Return the images of the copy in a folder; raises `RefusedError`."""
    source = find(folder)
    read_files = _from_archive if source.is_file() else _from_folder
    splits = {name: _split(content) for name, content in read_files(source, checksums)}
    for name in (*TRAINING_FILES, TEST_FILE):
        if name not in splits:
            raise RefusedError(f"{source} has no {name}; get the archive again from {URL}.")
    training = [splits[name] for name in TRAINING_FILES]
    images = np.concatenate([split.images for split in training])
    return ImageData(Split(images, np.concatenate([split.classes for split in training])), splits[TEST_FILE])


def _from_archive(path: Path, checksums: Checksums) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        _check(path, hashlib.file_digest(file, _md5).hexdigest(), checksums.archive)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in checksums.files and (content := archive.extractfile(member)) is not None:
                    yield name, content.read()


def _from_folder(path: Path, checksums: Checksums) -> Iterator[tuple[str, bytes]]:
    for name, checksum in checksums.files.items():
        if (path / name).is_file():
            content = (path / name).read_bytes()
            _check(path / name, _md5(content).hexdigest(), checksum)
            yield name, content


def _md5(content: bytes = b"") -> Any:
    return hashlib.md5(content, usedforsecurity=False)


def _check(path: Path, digest: str, published: str) -> None:
    if digest != published:
        raise RefusedError(
            f"{path} is not the file that was published: its MD5 sum is {digest} instead of {published}. "
            f"It is incomplete or damaged; get the archive again from {URL}."
        )


def _split(content: bytes) -> Split:
    fields = pickle.loads(content, encoding="bytes")  # noqa: S301 - by its checksum it is what was published
    return Split(fields[b"data"].reshape(-1, *_IMAGE_SHAPE), np.array(fields[b"labels"], np.int64))
