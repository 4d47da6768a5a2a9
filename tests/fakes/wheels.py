"""Wheels that a test writes, and uv with these alone: real environments without a network."""

import importlib.metadata
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes] | None = None) -> None:
    """Write a wheel with these files, else one module (https://packaging.python.org/specifications/binary-distribution-format)."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in (files or {f"{name}.py": f"__version__ = {version!r}\n".encode()}).items():
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def use_wheels(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Give uv a cache of its own and wheels of what a worker needs and of two versions of `tiny`; return their folder.

    msgspec is that of these tests; numpy, which a dummy does not import, is empty.
    """
    wheels = folder / "wheels"
    wheels.mkdir()
    own = importlib.metadata.distribution("msgspec")
    files = {
        str(file): Path(str(file.locate())).read_bytes()
        for file in own.files or ()
        if file.parts[0] == "msgspec" and "__pycache__" not in file.parts
    }
    for name, version, content in (
        ("msgspec", own.version, files),
        ("numpy", "2.4.6", {}),
        ("tiny", "1.0", {}),
        ("tiny", "2.0", {}),
    ):
        write_wheel(wheels, name, version, content)
    (folder / "uv.toml").write_text(f'no-index = true\nfind-links = ["{wheels}"]\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(folder / "uv.toml"))
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv"))
    return wheels
