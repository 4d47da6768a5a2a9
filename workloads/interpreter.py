"""Another virtual environment's Python for a run: where it is, and the libraries that it must have."""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from workloads.framework import FRAMEWORK

_LIBRARIES = {"msgspec": "0.18", "numpy": "1.26"}
MINIMUM_VERSIONS = {**_LIBRARIES, **FRAMEWORK.minimum_versions}
"""The oldest versions that workloads can use."""


def find_python(path: str) -> Path | None:
    """Return the Python of a virtual environment's folder, or the Python itself; None if there is none at that path."""
    folder = Path(path)
    named = [folder] if folder.name.startswith("python") else []
    inside = [folder / "bin" / name for name in ("python", "python3")]
    return next((python for python in (*named, *inside) if python.is_file() and os.access(python, os.X_OK)), None)


def installed_framework(path: str = "") -> str | None:
    """Return the framework's version in a virtual environment, or None where its packages do not say; imports nothing.

    Args:
        path: The environment's folder or its Python; empty is this program's own.
    """
    import importlib.metadata

    folders = sys.path
    if path:
        python = find_python(path)
        if python is None or not (python.parents[1] / "pyvenv.cfg").exists():
            return None
        folders = [str(folder) for folder in python.parents[1].glob("lib/python*/site-packages")]
    found = (
        each for name in FRAMEWORK.distributions for each in importlib.metadata.distributions(name=name, path=folders)
    )
    return next((each.version for each in found), None)


def missing_libraries() -> str | None:
    """Return one sentence on what a worker needs and this Python lacks before its order is known; None if nothing.

    A missing framework is named next to others; alone it does not keep a workload without one from running.
    """
    problems = {name: problem for name in _LIBRARIES if (problem := _library_problem(name))}
    if not problems:
        return None
    package = FRAMEWORK.distributions[0]
    if importlib.util.find_spec(package) is None:
        problems[package] = f"{package} is missing"
    return f"{sys.executable} cannot run workloads: {', '.join(problems.values())}; {install_command(problems)}."


def install_command(libraries: Iterable[str]) -> str:
    """Return the command that installs them in this Python."""
    wanted = " ".join(f"'{name}>={MINIMUM_VERSIONS[name]}'" for name in libraries)
    return f"install with `{sys.executable} -m pip install {wanted}`"


def is_older(version: str, name: str) -> bool:
    """Return whether that version of a library is older than workloads can use."""
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
