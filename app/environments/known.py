"""The environments that the program knows how to make, what every environment needs for a worker, and uv."""

import contextlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app import units
from app.environments.steps import InstallError, nvidia_driver
from app.paths import PROGRAM
from workloads.catalog import FRAMEWORK, FRAMEWORKS, JAX, MINIMUM_VERSIONS, PYTORCH, Framework

_OLDEST_PYTHON = 11
"""The minor version of the oldest Python that workloads run by; `MINIMUM_VERSIONS` has the libraries."""
_INSTALL_UV = "curl -LsSf https://astral.sh/uv/install.sh | sh"
"""https://docs.astral.sh/uv/getting-started/installation: into ~/.local/bin, and nobody has to be root."""


@dataclass(frozen=True, slots=True)
class KnownEnvironment:
    """A version of a framework; the minor versions are of the newest and the oldest Python that it has wheels for."""

    name: str
    version: str
    newest_python: int
    framework: Framework = FRAMEWORK
    oldest_python: int = _OLDEST_PYTHON


KNOWN = (
    KnownEnvironment("tf221", "2.21", 13),
    KnownEnvironment("tf220", "2.20", 13),
    KnownEnvironment("tf219", "2.19", 12),
    KnownEnvironment("tf218", "2.18", 12),
    KnownEnvironment("tf217", "2.17", 12),
    KnownEnvironment("tf216", "2.16", 12),
    KnownEnvironment("torch215", "2.15", 15, PYTORCH),
    KnownEnvironment("torch214", "2.14", 14, PYTORCH),
    KnownEnvironment("torch213", "2.13", 14, PYTORCH),
    KnownEnvironment("torch212", "2.12", 14, PYTORCH),
    KnownEnvironment("torch211", "2.11", 14, PYTORCH),
    KnownEnvironment("torch210", "2.10", 14, PYTORCH),
    KnownEnvironment("torch29", "2.9", 14, PYTORCH),
    KnownEnvironment("jax010", "0.10", 14, JAX),
    KnownEnvironment("jax011", "0.11", 14, JAX, 12),
    KnownEnvironment("jax09", "0.9", 14, JAX),
    KnownEnvironment("jax08", "0.8", 14, JAX),
)
"""First of each framework the newest that every Python of this program can have: that is offered.

Resolved by uv with `--only-binary :all:` for each Python: TensorFlow with and without CUDA 2026-11-22, PyTorch with
CUDA 2026-11-27, JAX with and without 2026-11-28."""
_NEWEST_SIZES = {FRAMEWORK.name: (335e6, 3_440e6), PYTORCH.name: (220e6, 3_016e6), JAX.name: (141e6, 3_346e6)}
"""Bytes to download without and with CUDA, of the newest of each framework on Linux x86_64 with Python 3.12, as PyPI
says them; PyTorch's without CUDA is of 2.13."""

_PINNED = re.compile(r"(tensorflow|torch|jax)(?:-cpu)?(?:\[[\w,-]*\])?\s*[=~]=\s*(\d+\.\d+)", re.IGNORECASE)
_OF_TORCH = re.compile(r"torch(?![\w.-])", re.IGNORECASE)
_WORKER_PACKAGES = (
    *(f"{name}>={MINIMUM_VERSIONS[name]}" for name in ("msgspec", "numpy")),
    "platformdirs>=4",  # where CIFAR-10 lies
)


def newest(framework: Framework = FRAMEWORK) -> KnownEnvironment:
    """Return the environment of a framework's newest version."""
    return next(environment for environment in KNOWN if environment.framework is framework)


def command_to_add(host: str = "", framework: Framework = FRAMEWORK) -> str:
    """Return the command, with its size, that makes an environment on a host of `--on`, "" for this machine."""
    on = f" --on {host}" if host else ""
    plain, cuda = map(units.byte_size, _NEWEST_SIZES[framework.name])
    return f"`{PROGRAM} env add {newest(framework).name}{on}` ({plain} to download, with CUDA {cuda})"


def requirements_of(name: str, packages: Sequence[str], cuda: bool | None = None) -> tuple[str, ...]:
    """Return what is installed into an environment.

    Without `packages`, which are requirements of pip, the name says it. `cuda` is whether with CUDA's libraries; None
    for those of this machine's driver.

    Raises:
        InstallError: The name is unknown.
    """
    if packages:
        return (*packages, *_WORKER_PACKAGES)
    match = next((environment for environment in KNOWN if environment.name == name), None)
    if match is None:
        names = ", ".join(environment.name for environment in KNOWN)
        named = (framework for framework in FRAMEWORKS.values() if framework.modules[0] in name.lower())
        example = newest(next(named, FRAMEWORK))
        raise InstallError(
            f"{name} is none of the environments that are known ({names}); say what is in it, as in: "
            f"env add {name} --packages '{example.framework.distributions[0]}=={example.version}.*'."
        )
    if match.framework is PYTORCH:
        return (f"torch=={match.version}.*", *_WORKER_PACKAGES)
    if match.framework is JAX:
        return (f"jax{'[cuda12]' if _with_cuda(cuda) else ''}=={match.version}.*", *_WORKER_PACKAGES)
    keras = f"keras>={MINIMUM_VERSIONS['keras']}"
    return (f"{_distribution(cuda)}=={match.version}.*", keras, *_WORKER_PACKAGES)


def torch_options(requirements: Sequence[str], cuda: bool | None = None) -> tuple[str, ...]:
    """Return what tells uv the build of PyTorch: for this machine's driver, or the CPU, of PyTorch's own index.

    With CUDA whatever the driver is, it is the build of the default index. uv's own variable goes before.
    """
    if cuda or "UV_TORCH_BACKEND" in os.environ or not any(map(_OF_TORCH.match, requirements)):
        return ()
    return ("--torch-backend", "auto" if cuda is None else "cpu")


def _with_cuda(cuda: bool | None) -> bool:
    return bool(nvidia_driver()) if cuda is None else cuda


def _distribution(cuda: bool | None) -> str:
    if _with_cuda(cuda):
        return "tensorflow[and-cuda]"
    # The other platforms have no tensorflow-cpu of every version, and their tensorflow has no CUDA code.
    return "tensorflow-cpu" if (sys.platform, platform.machine()) == ("linux", "x86_64") else "tensorflow"


def choose_python(requirements: Sequence[str], minor: int = sys.version_info.minor) -> str:
    """Return, as uv takes it, a Python with wheels of the framework: this one, else one that uv finds or fetches."""
    pinned = {match.groups() for requirement in requirements if (match := _PINNED.match(requirement.lower()))}
    environments = (
        environment for environment in KNOWN if (environment.framework.distributions[0], environment.version) in pinned
    )
    environment = next(environments, KNOWN[0])
    if environment.oldest_python <= minor <= environment.newest_python:
        return str(Path(sys.executable).resolve())  # not the Python inside an environment, which may be removed
    return f">=3.{environment.oldest_python},<3.{environment.newest_python + 1}"


def find_uv() -> str:
    """Return the path of uv: the program's own; on a host, which has none, that on the PATH or in ~/.local/bin.

    Raises:
        InstallError: There is none.
    """
    with contextlib.suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin  # here, for every run imports this module

        return find_uv_bin()
    # A shell that ssh starts may not have that folder on the PATH.
    if path := shutil.which("uv") or shutil.which("uv", path=str(Path.home() / ".local" / "bin")):
        return path
    raise InstallError(f"uv, which makes environments, is not on {platform.node()}; install it there: {_INSTALL_UV}")


def system_name() -> str:
    """Return which programs run on this machine: the system, the processor and the C library."""
    return f"{platform.system()} {platform.machine()} {platform.libc_ver()[0]}".strip()
