"""Another Python for a run: where it is, and the libraries that it must have.

It is given as the path of a virtual environment's folder or of the Python itself; for packages, whose environment uv
creates, also as a version.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from workloads.framework import FRAMEWORK, FRAMEWORKS, Framework

_LIBRARIES = {"msgspec": "0.18", "numpy": "1.26"}
MINIMUM_VERSIONS = _LIBRARIES | {
    name: version for framework in FRAMEWORKS.values() for name, version in framework.minimum_versions.items()
}
"""The oldest versions that workloads can use."""


DEFAULT_VARIABLE = "VARIANTSCOPE_INTERPRETER"
"""The environment variable for the interpreter of runs that name none."""
NO_PYTHON = (
    "{interpreter} is neither a virtual environment's folder nor a Python on this machine; leave it empty for this "
    "program's own."
)
_VERSION = re.compile(r"3\.\d+(\.\d+)?")


def default_interpreter() -> str:
    """Return the interpreter of a run that names none, from the variable; "" is the Python of this program."""
    named = os.environ.get(DEFAULT_VARIABLE, "")
    return os.path.abspath(named) if named else ""  # noqa: PTH100 - pathlib keeps the dots


def is_version(interpreter: str) -> bool:
    """Return whether it is a Python version, for which uv finds or downloads the Python."""
    return _VERSION.fullmatch(interpreter) is not None


def find_python(interpreter: str) -> Path | None:
    """Return the Python of a virtual environment's folder, or the Python itself; None if there is none.

    A relative path does not count: it would mean another file wherever a program is started.
    """
    if not os.path.isabs(interpreter):  # noqa: PTH117 - it may be no path at all
        return None
    folder = Path(interpreter)
    named = [folder] if folder.name.startswith("python") else []
    inside = [folder / "bin" / name for name in ("python", "python3")]
    return next((python for python in (*named, *inside) if _is_program(python)), None)


def _is_program(path: Path) -> bool:
    # Another user's run may contain any text: `Path.is_file` raises if a name is too long.
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def installed_framework(interpreter: str = "", framework: Framework = FRAMEWORK) -> str | None:
    """Return a framework's version in a virtual environment, or None if its metadata lack it; imports nothing.

    `interpreter` is the environment's folder or its Python; empty is this program's own.
    """
    import importlib.metadata

    folders = _package_folders(interpreter)
    distributions = (
        distribution
        for name in framework.distributions
        for distribution in importlib.metadata.distributions(name=name, path=folders or [])
    )
    return next((distribution.version for distribution in distributions), None)


def lacks_framework(interpreter: str, framework: Framework) -> bool:
    """Return whether the environment of runs with this interpreter, or with none (""), lacks a framework.

    A Python outside a virtual environment counts as having it: its packages cannot be listed.
    """
    chosen = interpreter or default_interpreter()
    folders = _package_folders(chosen)
    package = framework.modules[0]
    if folders is None or any(Path(folder, package).is_dir() for folder in folders):
        return False
    return installed_framework(chosen, framework) is None  # an editable install has no folder


def _package_folders(interpreter: str) -> list[str] | None:
    """Return the package folders of a virtual environment, "" for this process; None if they are unknown."""
    if not interpreter:
        return sys.path
    python = find_python(interpreter)
    settings = python and python.parents[1] / "pyvenv.cfg"
    if python is None or settings is None or not settings.exists():
        return None
    text = settings.read_text(encoding="utf-8", errors="replace")
    if re.search(r"^include-system-site-packages\s*=\s*true", text, re.MULTILINE | re.IGNORECASE):
        return None  # it also has the packages of its base Python
    return [str(folder) for folder in python.parents[1].glob("lib/python*/site-packages")]


def missing_libraries() -> str | None:
    """Return one sentence on libraries that every worker needs and this Python lacks; None if it has them all.

    A missing framework is only mentioned along with others: a workload may not need it.
    """
    problems = {name: problem for name in _LIBRARIES if (problem := _library_problem(name))}
    if not problems:
        return None
    package = FRAMEWORK.distributions[0]
    if importlib.util.find_spec(package) is None:
        problems[package] = f"{package} is missing"
    return f"{sys.executable} cannot run workloads: {', '.join(problems.values())}; {install_command(problems)}."


def install_command(libraries: Iterable[str]) -> str:
    requirements = " ".join(f"'{name}>={MINIMUM_VERSIONS[name]}'" for name in libraries)
    return f"install with `{sys.executable} -m pip install {requirements}`"


def is_older(version: str, name: str) -> bool:
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
