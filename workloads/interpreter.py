"""Another virtual environment's Python for a run: where it is, and the libraries that it must have.

It is named by the path of its folder or of the Python itself. One that `env add` of the program made on that machine is
named by its name: a word without a slash.
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
"""The environment variable that names the interpreter of runs that name none."""
ENVIRONMENT_STAMP = "variantscope.json"
"""The file in a complete environment that the program made; it is written last, and deleted first."""
NO_PYTHON = (
    "{interpreter} is neither a virtual environment's folder nor a Python on this machine; leave it empty for this "
    "program's own."
)
MISSING_ENVIRONMENT = (
    "There is no complete environment called {interpreter} on this machine; a path has a slash: ./{interpreter}. The "
    "command `env add {interpreter}` makes it, and `env list` shows those there are."
)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def environments_folder() -> Path:
    """Return where the program makes environments: in the user's data folder.

    https://specifications.freedesktop.org/basedir-spec (XDG_DATA_HOME; a relative path is to be ignored).
    """
    data = os.environ.get("XDG_DATA_HOME", "")
    return Path(data if os.path.isabs(data) else Path.home() / ".local/share") / "variantscope" / "envs"  # noqa: PTH117


def environment_folder(name: str) -> Path | None:
    """Return the folder that the environment of that name has or would have; None for a path or no possible name."""
    return environments_folder() / name if _ENVIRONMENT_NAME.fullmatch(name) else None


def complete_environments() -> list[Path]:
    """Return the folders of the complete environments on this machine, the first one made first."""
    stamps = [path for path in environments_folder().glob(f"*/{ENVIRONMENT_STAMP}") if find_python(path.parent.name)]
    return [path.parent for path in sorted(stamps, key=lambda path: path.stat().st_mtime_ns)]


def default_interpreter(framework: Framework = FRAMEWORK) -> str:
    """Return the interpreter of a run that names none; "" is the Python that this program runs by.

    That is what the environment variable names, as for a host in the user's list. Else it is the program's own virtual
    environment where it has the framework; else the first that the program made here and that has it, or the first.
    """
    if named := os.environ.get(DEFAULT_VARIABLE):
        return os.path.abspath(named) if os.sep in named else named  # noqa: PTH100 - pathlib keeps the dots
    if sys.prefix != sys.base_prefix and importlib.util.find_spec(framework.modules[0]) is not None:
        return ""
    names = [folder.name for folder in complete_environments()]
    return next((name for name in names if not lacks_framework(name, framework)), (*names, "")[0])


def find_python(interpreter: str) -> Path | None:
    """Return the Python of an environment by its name or folder, or the Python itself; None if there is none.

    A relative path is none: it would name another file wherever a program is started.
    """
    is_path = os.path.isabs(interpreter)  # noqa: PTH117 - it may be a name
    folder = Path(interpreter) if is_path else environment_folder(interpreter)
    if folder is None or not (is_path or (folder / ENVIRONMENT_STAMP).is_file()):
        return None
    named = [folder] if folder.name.startswith("python") else []
    inside = [folder / "bin" / name for name in ("python", "python3")]
    return next((python for python in (*named, *inside) if _is_program(python)), None)


def _is_program(path: Path) -> bool:
    # Somebody else's run may name anything: `Path.is_file` raises where a name is too long.
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def missing_python(interpreter: str) -> str | None:
    """Return in one sentence why no Python is started by that name or path on this machine; None if one is."""
    if find_python(interpreter) is not None:
        return None
    reason = NO_PYTHON if environment_folder(interpreter) is None else MISSING_ENVIRONMENT
    return reason.format(interpreter=interpreter)


def installed_framework(interpreter: str = "", framework: Framework = FRAMEWORK) -> str | None:
    """Return a framework's version in a virtual environment, or None where its packages do not say; imports nothing.

    `interpreter` is the environment's name or folder, or its Python; empty is this program's own.
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
    """Return whether the environment of runs that name this interpreter, "" for none, is without a framework.

    A Python outside any virtual environment does not tell, so it counts as having it.
    """
    chosen = interpreter or default_interpreter(framework)
    folders = _package_folders(chosen)
    package = framework.modules[0]
    if folders is None or any(Path(folder, package).is_dir() for folder in folders):
        return False
    return installed_framework(chosen, framework) is None  # an editable install has no folder


def _package_folders(interpreter: str) -> list[str] | None:
    """Return where a virtual environment has its packages, "" for this process; None where that is not known."""
    if not interpreter:
        return sys.path
    python = find_python(interpreter)
    settings = python and python.parents[1] / "pyvenv.cfg"
    if python is None or settings is None or not settings.exists() or _sees_system(settings):
        return None
    return [str(folder) for folder in python.parents[1].glob("lib/python*/site-packages")]


def _sees_system(settings: Path) -> bool:
    """Return whether a virtual environment has the packages of its Python's installation too."""
    text = settings.read_text(encoding="utf-8", errors="replace")
    return re.search(r"^include-system-site-packages\s*=\s*true", text, re.MULTILINE | re.IGNORECASE) is not None


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
    requirements = " ".join(f"'{name}>={MINIMUM_VERSIONS[name]}'" for name in libraries)
    return f"install with `{sys.executable} -m pip install {requirements}`"


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
