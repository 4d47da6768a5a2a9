"""Wheels of no content, from which uv makes real environments for these tests without a network."""

import zipfile
from pathlib import Path

import pytest

FRAMEWORK_VERSION = "2.21.0"
"""Of tf221, which every supported Python can have."""
_VERSIONS = {
    "tensorflow": FRAMEWORK_VERSION,
    "tensorflow_cpu": FRAMEWORK_VERSION,
    "keras": "3.15.1",
    "torch": "2.15.0",
    "jax": "0.10.2",
    "msgspec": "0.22.0",
    "numpy": "2.4.6",
    "platformdirs": "4.5.0",
}


def write_wheels(folder: Path) -> None:
    """Write a wheel for each package of a known environment (https://packaging.python.org/specifications/binary-distribution-format)."""
    folder.mkdir()
    for name, version in _VERSIONS.items():
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", f"__version__ = {version!r}\n")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")


def use_wheels(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make environments below a folder from these wheels alone."""
    write_wheels(folder / "wheels")
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(folder / "user"))
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "user" / "uv"))
    (folder / "uv.toml").write_text(f'no-index = true\nfind-links = ["{folder / "wheels"}"]\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(folder / "uv.toml"))
