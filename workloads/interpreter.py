"""Another virtual environment's Python for a run: where it is, and the libraries that it must have."""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

OLDEST = {"msgspec": "0.18", "numpy": "1.26", "tensorflow": "2.16", "keras": "3.2"}
"""The oldest versions that workloads can use: Keras 3 is TensorFlow's own since 2.16, `use_cudnn` came with 3.2."""
_LIBRARIES = ("msgspec", "numpy")
_TENSORFLOW = ("tensorflow", "tensorflow-cpu")


def python_of(path: str) -> Path | None:
    """The Python of a virtual environment's folder, or the Python itself; None where there is none at that path."""
    given = Path(path)
    named = [given] if given.name.startswith("python") else []
    inside = [given / "bin" / name for name in ("python", "python3")]
    return next((python for python in (*named, *inside) if python.is_file() and os.access(python, os.X_OK)), None)


def installed_tensorflow(path: str) -> str | None:
    """The version that a virtual environment's own packages tell, nothing imported; None where they do not."""
    python = python_of(path)
    if python is None or not (python.parents[1] / "pyvenv.cfg").exists():
        return None
    import importlib.metadata

    folders = [str(folder) for folder in python.parents[1].glob("lib/python*/site-packages")]
    found = (each for name in _TENSORFLOW for each in importlib.metadata.distributions(name=name, path=folders))
    return next((each.version for each in found), None)


def lacking() -> str | None:
    """What this Python has not, of what a worker needs before its order is known: one sentence; None where it has all.

    That TensorFlow is missing is said beside the others; alone it is no hindrance to a workload without it.
    """
    wrong = {name: words for name in _LIBRARIES if (words := _wrong(name))}
    if not wrong:
        return None
    if importlib.util.find_spec("tensorflow") is None:
        wrong["tensorflow"] = "tensorflow is missing"
    return f"{sys.executable} cannot run workloads: {', '.join(wrong.values())}; {install_words(wrong)}."


def install_words(libraries: Iterable[str]) -> str:
    """The command that installs them in this Python."""
    wanted = " ".join(f"'{name}>={OLDEST[name]}'" for name in libraries)
    return f"install with `{sys.executable} -m pip install {wanted}`"


def is_older(version: str, name: str) -> bool:
    """Whether that version of a library is older than workloads can use."""
    return _numbers(version) < _numbers(OLDEST[name])


def _wrong(name: str) -> str | None:
    import importlib.metadata

    if importlib.util.find_spec(name) is None:
        return f"{name} is missing"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return f"{name} {version} is older than {OLDEST[name]}" if is_older(version, name) else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
