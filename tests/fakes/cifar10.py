"""Tiny copies of CIFAR-10 in its own format, with classes that a small network learns in a few passes."""

import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.cifar10 import TEST_FILE, Checksums, ImageData, Split
from workloads.cifar10_copy import ARCHIVE, FOLDER, TRAINING_FILES


def split(count: int, seed: int) -> Split:
    """Return noise over a pattern per class: one of eight plain colours, black above white, or white above black."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(count) % 10)
    patterns = np.zeros((10, 3, 32, 32))
    for number in range(8):
        patterns[number] = np.array([number & 1, number >> 1 & 1, number >> 2 & 1]).reshape(3, 1, 1)
    patterns[8, :, 16:], patterns[9, :, :16] = 1, 1
    images = 48 + 160 * patterns[classes] + rng.normal(0.0, 20.0, (count, 3, 32, 32))
    return Split(np.clip(images, 0, 255).astype(np.uint8), classes.astype(np.int64))


def files(data: ImageData) -> dict[str, bytes]:
    """Return the content of the six files; the training images fill five of them equally."""
    parts = np.split(np.arange(len(data.train.classes)), len(TRAINING_FILES))
    made = {
        name: pickled(data.train.images[part], data.train.classes[part])
        for name, part in zip(TRAINING_FILES, parts, strict=True)
    }
    return {**made, TEST_FILE: pickled(data.test.images, data.test.classes)}


def pickled(images: NDArray[np.uint8], classes: NDArray[np.int64]) -> bytes:
    """Return a file as Python 2 and its NumPy wrote it: pickle protocol 2, texts as byte strings."""
    pixels = images.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _text("b") + b"\x87R"
        b"(K\x01" + _number(len(classes)) + _number(3072) + b"\x86"
        b"cnumpy\ndtype\n" + _text("u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + _text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    )
    labels = b"](" + b"".join(_number(int(number)) for number in classes) + b"e"
    fields = _text("batch_label") + _text("a batch") + _text("labels") + labels + _text("data") + array
    return b"\x80\x02}(" + fields + _text("filenames") + b"](" + _text("a.png") + b"eu."


def _text(word: str) -> bytes:
    return b"U" + bytes([len(word)]) + word.encode()


def _number(number: int) -> bytes:
    return b"M" + struct.pack("<H", number)


def write_folder(parent: Path, content: dict[str, bytes]) -> None:
    """Write the files into the archive's folder in `parent`."""
    (parent / FOLDER).mkdir(parents=True)
    for name, data in content.items():
        (parent / FOLDER / name).write_bytes(data)


def write_archive(parent: Path, content: dict[str, bytes]) -> None:
    """Write the files as the archive in `parent`."""
    with tarfile.open(parent / ARCHIVE, "w:gz") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def checksums(parent: Path, content: dict[str, bytes]) -> Checksums:
    """Return the checksums of what was written, as if it had been published."""
    archive = parent / ARCHIVE
    return Checksums(
        archive=_md5(archive.read_bytes()) if archive.exists() else "",
        files={name: _md5(data) for name, data in content.items()},
    )


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
