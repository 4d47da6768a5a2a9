"""Another virtual environment's Python for a run: where it is, and the libraries that it must have."""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

MINIMUM_VERSIONS = {"msgspec": "0.18", "numpy": "1.26", "tensorflow": "2.16", "keras": "3.2"}
"""The oldest versions that workloads can use: Keras 3 is TensorFlow's own since 2.16, `use_cudnn` came with 3.2."""
_LIBRARIES = ("msgspec", "numpy")
_TENSORFLOW = ("tensorflow", "tensorflow-cpu")


def find_python(path: str) -> Path | None:
    """The Python of a virtual environment's folder, or the Python itself; None where there is none at that path."""
    folder = Path(path)
    named = [folder] if folder.name.startswith("python") else []
    inside = [folder / "bin" / name for name in ("python", "python3")]
    return next((python for python in (*named, *inside) if python.is_file() and os.access(python, os.X_OK)), None)


def installed_tensorflow(path: str) -> str | None:
    """The version that a virtual environment's own packages tell, nothing imported; None where they do not."""
    python = find_python(path)
    if python is None or not (python.parents[1] / "pyvenv.cfg").exists():
        return None
    import importlib.metadata

    folders = [str(folder) for folder in python.parents[1].glob("lib/python*/site-packages")]
    found = (each for name in _TENSORFLOW for each in importlib.metadata.distributions(name=name, path=folders))
    return next((each.version for each in found), None)


def missing_libraries() -> str | None:
    """What this Python has not, of what a worker needs before its order is known: one sentence; None where it has all.

    That TensorFlow is missing is said beside the others; alone it is no hindrance to a workload without it.
    """
    problems = {name: problem for name in _LIBRARIES if (problem := _library_problem(name))}
    if not problems:
        return None
    if importlib.util.find_spec("tensorflow") is None:
        problems["tensorflow"] = "tensorflow is missing"
    return f"{sys.executable} cannot run workloads: {', '.join(problems.values())}; {install_command(problems)}."


def install_command(libraries: Iterable[str]) -> str:
    """The command that installs them in this Python."""
    wanted = " ".join(f"'{name}>={MINIMUM_VERSIONS[name]}'" for name in libraries)
    return f"install with `{sys.executable} -m pip install {wanted}`"


def is_older(version: str, name: str) -> bool:
    """Whether that version of a library is older than workloads can use."""
    return _version_numbers(version) < _version_numbers(MINIMUM_VERSIONS[name])


def _library_problem(name: str) -> str | None:
    import importlib.metadata

    if importlib.util.find_spec(name) is None:
        return f"{name} is missing"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return f"{name} {version} is older than {MINIMUM_VERSIONS[name]}" if is_older(version, name) else None


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
