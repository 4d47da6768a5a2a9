"""Packages that a variant names: uv installs them in its shared, pruned cache, and starts the worker."""

import contextlib
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from app.environments.steps import CancelledError, InstallError, installer_environment, nvidia_driver, run_step
from app.errors import UserError, write_error
from app.grants import refuse, require, variant_grants
from app.values import units
from workloads.catalog import (
    BETWEEN_PACKAGES,
    MINIMUM_VERSIONS,
    NO_PYTHON,
    cache_folder,
    default_interpreter,
    find_python,
    is_version,
)

_INSTALL_UV = "curl -LsSf https://astral.sh/uv/install.sh | sh"
"""https://docs.astral.sh/uv/getting-started/installation: into ~/.local/bin, without root."""
_WORKER_PACKAGES = tuple(f"{name}>={MINIMUM_VERSIONS[name]}" for name in ("msgspec", "numpy"))
_OF_TORCH = re.compile(r"torch(?![\w.-])", re.IGNORECASE)
_TORCH_INDEX = "https://download.pytorch.org/whl/"
_LARGE_BYTES = 200e6
_FROM_CACHE = ("--quiet", "--offline")
_ENDS_WITH_PARENT = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""uv outlives its parent, and the worker uv: the kernel ends both with the thread that started them (prctl(2))."""


def find_uv() -> str:
    """Return the path of uv: this Python's own, or one on the PATH or in ~/.local/bin.

    Raises:
        InstallError: There is none.
    """
    with contextlib.suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin  # here: every run imports this module

        return find_uv_bin()
    # A shell started by ssh may lack that folder on its PATH.
    if path := shutil.which("uv") or shutil.which("uv", path=str(Path.home() / ".local" / "bin")):
        return path
    raise InstallError(f"uv, which installs packages, is not on {platform.node()}; install it there: {_INSTALL_UV}")


def worker_command(packages: str, interpreter: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the command that fetches these packages and runs a Python with them and the arguments.

    Raises:
        UserError: There is no such Python, or no uv.
    """
    return (sys.executable, "-ISc", _ENDS_WITH_PARENT, *_uv_run(packages, interpreter, *_FROM_CACHE), *arguments)


def _uv_run(packages: str, interpreter: str, *options: str) -> tuple[str, ...]:
    words = (f"--with={word}" for word in (*packages.split(), *_WORKER_PACKAGES))
    isolated = ("--isolated", "--no-project", "--python", _python_request(interpreter))
    return (find_uv(), "run", *options, *isolated, *_torch_index(packages), *words, "--", "python")


def _python_request(interpreter: str) -> str:
    """Return, in uv's notation, a Python outside virtual environments."""
    if is_version(interpreter):
        return interpreter
    named = interpreter or default_interpreter()
    python = find_python(named) if named else Path(sys.executable)
    if python is None:
        raise UserError(NO_PYTHON.format(interpreter=named))
    return str(python.resolve())


def _torch_index(packages: str) -> tuple[str, ...]:
    """Return the arguments that select PyTorch's build for `uv run`: only `uv pip` supports `UV_TORCH_BACKEND`.

    By default it is the default index's build, with CUDA, if there is a driver; else the build for the CPU.
    """
    backend = os.environ.get("UV_TORCH_BACKEND", "auto")
    if backend == "auto" and not nvidia_driver():
        backend = "cpu"
    is_wanted = any(map(_OF_TORCH.match, packages.split())) and backend != "auto" and "UV_INDEX" not in os.environ
    return ("--index", f"{_TORCH_INDEX}{backend}") if is_wanted else ()


def worker_environment(folder: str) -> dict[str, str]:
    """Return that command's environment variables; the worker runs in `folder`, uv in `uv_folder`."""
    return {**installer_environment(), "PYTHONSAFEPATH": "1", "VARIANTSCOPE_FOLDER": folder}


def uv_folder() -> Path:
    """Return the folder in which uv runs, with its logs; in the user's folder it would read other people's files."""
    folder = cache_folder() / "packages"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    return folder


def fetch_packages(packages: str, interpreter: str, report: Callable[[str], bool]) -> None:
    """Have uv install those of these packages that it lacks; if it has all, no network is needed.

    `report` takes sentences on what uv does, several times a second, and returns whether to continue. Large downloads
    are announced.

    Raises:
        InstallError: The installation failed, or was stopped (`CancelledError`).
        UserError: These packages are not granted, or the cache cannot be written.
    """
    require(variant_grants({"packages": packages}, ""), refuse)
    for word in packages.split():
        if word.startswith("-"):
            raise InstallError(f"{word} is not a package: uv's options are its environment variables.")
        if re.search(BETWEEN_PACKAGES, word):
            raise InstallError(f"{word} is not a package: separate packages by spaces; a run has one set.")
    folder, name = uv_folder(), hashlib.sha256(f"{packages} {interpreter}".encode()).hexdigest()[:16]

    def step(title: str, *command: str, reported: bool = True) -> None:
        def watch(line: str, _seconds: int) -> bool:
            return report((line or f"{title} …") if reported else "")

        run_step(title, command, folder / f"{name}.log", watch=watch, again="start the run again")

    try:
        try:
            step("Looking into uv's cache", *_uv_run(packages, interpreter, *_FROM_CACHE), "-c", "", reported=False)
            return
        except CancelledError:
            raise
        except InstallError:
            sizes = _download_sizes(packages, interpreter, partial(step, "Looking for the packages"))
        if None not in sizes and (total := sum(filter(None, sizes))) > _LARGE_BYTES:
            report(f"{packages}: {len(sizes)} packages, {units.byte_size(total)} to download at most.")
        step("Installing the packages", *_uv_run(packages, interpreter), "-c", "")
    except OSError as error:
        raise write_error(folder, error) from error


def _download_sizes(packages: str, interpreter: str, step: Callable[..., None]) -> Sequence[int | None]:
    """Return the size of each package that uv selects, None if the index does not report it.

    uv lists all wheels that fit this machine and fetches one: the largest counts.
    """
    with tempfile.TemporaryDirectory(dir=uv_folder()) as folder:
        requirements, lock = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        requirements.write_text("\n".join((*packages.split(), *_WORKER_PACKAGES)), encoding="utf-8")
        python = ("--python", _python_request(interpreter))
        compiled = ("--quiet", "--format", "pylock.toml", *python, *_torch_index(packages), "--output-file", str(lock))
        step(find_uv(), "pip", "compile", *compiled, str(requirements))
        locked = tomllib.loads(lock.read_text(encoding="utf-8")).get("packages", [])
    files = [package.get("wheels") or [package.get("sdist") or package.get("archive") or {}] for package in locked]
    return [max((file["size"] for file in alternatives if "size" in file), default=None) for alternatives in files]
