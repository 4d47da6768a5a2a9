"""The environments that the program knows how to make, and what every environment needs for a worker."""

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app import units
from app.environments.steps import InstallError, nvidia_driver
from app.paths import PROGRAM
from workloads.catalog import MINIMUM_VERSIONS

_OLDEST_PYTHON = 11
"""The minor version of the oldest Python that workloads run by; `MINIMUM_VERSIONS` has the libraries."""
_PYTHON_S = 10.0
_PIP_WITH_BYTES = (24, 1)
"""The first pip with `--progress-bar raw`."""


@dataclass(frozen=True, slots=True)
class KnownEnvironment:
    """A version of the framework; `newest_python` is the minor version of the newest Python that it has wheels for."""

    name: str
    framework: str
    newest_python: int


KNOWN = (
    KnownEnvironment("tf221", "2.21", 13),
    KnownEnvironment("tf220", "2.20", 13),
    KnownEnvironment("tf219", "2.19", 12),
    KnownEnvironment("tf218", "2.18", 12),
    KnownEnvironment("tf217", "2.17", 12),
    KnownEnvironment("tf216", "2.16", 12),
)
"""The newest first. Resolved by uv with `--only-binary :all:` for each Python, with and without CUDA: 2026-11-22."""
_NEWEST_SIZE = f"{units.byte_size(335e6)} to download, with CUDA {units.byte_size(3_440e6)}"
"""Of the first, on Linux x86_64 with Python 3.12, by the sizes that PyPI says."""

_FRAMEWORK = re.compile(r"tensorflow(?:-cpu)?(?:\[[\w,-]*\])?\s*[=~]=\s*(\d+\.\d+)", re.IGNORECASE)
_WORKER_PACKAGES = (
    *(f"{name}>={MINIMUM_VERSIONS[name]}" for name in ("msgspec", "numpy")),
    "platformdirs>=4",  # where CIFAR-10 lies
)


def find_known(name: str) -> KnownEnvironment | None:
    """Return the known environment of that name."""
    return next((known for known in KNOWN if known.name == name), None)


def command_to_add(host: str = "") -> str:
    """Return the command, with its size, that makes an environment on a host of `--on`, "" for this machine."""
    on = f" --on {host}" if host else ""
    return f"`{PROGRAM} env add {KNOWN[0].name}{on}` ({_NEWEST_SIZE})"


def requirements_of(name: str, packages: Sequence[str], cuda: bool | None = None) -> tuple[str, ...]:
    """Return what is installed into an environment.

    Args:
        name: Its name, which says it if no packages do.
        packages: Requirements of pip; none for a known environment.
        cuda: Whether with CUDA's libraries; None for those of this machine's driver.

    Raises:
        InstallError: The name is unknown.
    """
    if packages:
        return (*packages, *_WORKER_PACKAGES)
    known = find_known(name)
    if known is None:
        names = ", ".join(each.name for each in KNOWN)
        raise InstallError(
            f"{name} is none of the environments that are known ({names}); "
            f"say what is in it, as in: env add {name} --packages 'tensorflow==2.19.*'."
        )
    keras = f"keras>={MINIMUM_VERSIONS['keras']}"
    return (f"{_distribution(cuda)}=={known.framework}.*", keras, *_WORKER_PACKAGES)


def _distribution(cuda: bool | None) -> str:
    if nvidia_driver() if cuda is None else cuda:
        return "tensorflow[and-cuda]"
    # The other platforms have no tensorflow-cpu of every version, and their tensorflow has no CUDA code.
    return "tensorflow-cpu" if (sys.platform, platform.machine()) == ("linux", "x86_64") else "tensorflow"


def choose_python(requirements: Sequence[str], uv: str | None, minor: int = sys.version_info.minor) -> str:
    """Return a Python that has wheels of the framework: this one, another on the PATH, or a version that uv fetches.

    Args:
        requirements: What is to be installed.
        uv: Path of uv, if there is one.
        minor: Minor version of the Python that this program runs by.

    Raises:
        InstallError: There is none.
    """
    found = (_FRAMEWORK.match(requirement) for requirement in requirements)
    version = next((match[1] for match in found if match), "")
    newest = next((known.newest_python for known in KNOWN if known.framework == version), KNOWN[0].newest_python)
    usable = range(newest, _OLDEST_PYTHON - 1, -1)
    if minor in usable:
        return str(Path(sys.executable).resolve())  # not the Python inside an environment, which may be removed
    names = [f"3.{minor}" for minor in usable]
    others = (shutil.which(f"python{name}") for name in names)
    if working := next((each for each in others if each and _works(each)), None):
        return working
    if uv:
        return names[0]
    raise InstallError(
        f"TensorFlow {version} has packages for Python {' and '.join(reversed(names))}, and here is 3.{minor}; install "
        "one of these, or uv, which fetches it."
    )


def find_uv() -> str | None:
    """Return the path of uv; a shell that ssh starts may not have its folder on the PATH."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path.home() / ".local" / "bin"))


def find_pip() -> tuple[str, ...]:
    """Return the command of this program's own pip, if it is new enough to say how many bytes it has; else nothing."""
    import importlib.metadata  # here, for every run imports this module

    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return ()
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    return (sys.executable, "-m", "pip") if numbers >= _PIP_WITH_BYTES else ()


def _works(python: str) -> bool:
    """Return whether a program is a Python, and no shim of one that is not there."""
    try:
        return not subprocess.run([python, "-V"], capture_output=True, timeout=_PYTHON_S, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
