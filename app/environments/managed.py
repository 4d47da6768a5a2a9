"""The environments that the program has made on this machine: list them, make one, remove one."""

import contextlib
import errno
import logging
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from app.environments.known import choose_python, find_uv, requirements_of, system_name, torch_options
from app.environments.records import (
    Action,
    Environment,
    EnvironmentAnswer,
    EnvironmentOffer,
    EnvironmentRequest,
    Report,
)
from app.environments.steps import DISK_FULL, CancelledError, InstallError, locked, run_step
from app.errors import UserError
from app.paths import ROOT
from app.units import byte_size
from workloads.catalog import (
    ENVIRONMENT_STAMP,
    FRAMEWORKS,
    TRY_PROCESSOR,
    environment_folder,
    environments_folder,
    find_python,
    installed_framework,
)

_DISK_PER_DOWNLOAD = 5
"""Bytes on disk for each that is downloaded, with uv's cache: 4.6 for TensorFlow 2.19."""
_AGAIN = "add it again"

_logger = logging.getLogger("variantscope.environments")


class _Stamp(msgspec.Struct, frozen=True, kw_only=True):
    python: str
    packages: tuple[str, ...]
    size_bytes: int


def manage_environments(action: Action, request: EnvironmentRequest, report: Report, uv: str = "") -> EnvironmentAnswer:
    """List the environments of this machine, or offer, add or remove that of a name.

    One counts as added once its stamp is written. One that was interrupted is made anew, from what uv kept.

    `report` gets how far it is. `uv` is a path; "" is the one that is found here.

    Raises:
        InstallError: It cannot be made, or was cancelled (`CancelledError`).
        UserError: No environment can have that name, one of that name has other packages, there is none to remove, or
            a process uses it.
    """
    try:
        match action:
            case "offer":
                return EnvironmentAnswer(offer=_offer(request, report, uv))
            case "add":
                return EnvironmentAnswer(environments=(_add(request, report, uv),))
            case "remove":
                _remove(request.name)
        return EnvironmentAnswer(environments=tuple(list_environments()), lacks_uv=_lacks_uv())
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = f"{DISK_FULL} try again." if is_full else f"{error.strerror}: {error.filename}."
        raise InstallError(f"{request.name or 'The list'} failed: {reason}") from error


def list_environments() -> list[Environment]:
    """Return the environments on this machine by name."""
    folders = environments_folder().glob("*/")
    return [_read_environment(folder) for folder in sorted(folders) if environment_folder(folder.name) is not None]


def _lacks_uv() -> str:
    try:
        return find_uv() and ""
    except InstallError:
        return system_name()


def _read_environment(folder: Path) -> Environment:
    name = folder.name
    try:
        stamp = msgspec.json.decode((folder / ENVIRONMENT_STAMP).read_bytes(), type=_Stamp)
    except (OSError, msgspec.MsgspecError):
        return Environment(name=name, folder=str(folder), state="unfinished")
    return Environment(
        name=name,
        folder=str(folder),
        state="complete" if find_python(name) else "broken",
        frameworks={
            key: version
            for key, framework in FRAMEWORKS.items()
            if (version := installed_framework(name, framework)) is not None
        },
        python=stamp.python,
        packages=stamp.packages,
        size_bytes=stamp.size_bytes,
    )


def _complete(request: EnvironmentRequest) -> Environment | None:
    """Return the environment of that name if it is complete; raises `UserError` where it has other packages."""
    there = _read_environment(_folder_of(request.name))
    requirements = requirements_of(request.name, request.packages, request.cuda)
    if there.state != "complete":
        return None
    if there.packages != requirements and (request.packages or request.cuda is not None):
        has = ", ".join(there.packages)
        raise UserError(f"{request.name} is there already, with {has}; remove it first, or take another name.")
    return there


def _offer(request: EnvironmentRequest, report: Report, uv: str) -> EnvironmentOffer | None:
    """Return what it takes, by uv's own resolution; None for one that is there."""
    if _complete(request):
        return None
    target = _folder_of(request.name)
    _make_parent(target)
    with tempfile.TemporaryDirectory(prefix="variantscope-", ignore_cleanup_errors=True) as scratch:
        maker = _Maker(Path(scratch) / request.name, request, report, uv)
        maker.find_packages()
        sizes = maker.download_sizes()
        python = maker.python_version()
    size = None if None in sizes else sum(size_bytes for size_bytes in sizes if size_bytes is not None)
    free = shutil.disk_usage(target.parent).free
    if size is not None and free < size * _DISK_PER_DOWNLOAD:
        raise InstallError(
            f"{target.name} needs about {byte_size(size * _DISK_PER_DOWNLOAD)} of disk space, and "
            f"{target.parent} has {byte_size(free)} free; free some, or set XDG_DATA_HOME to a larger disk."
        )
    return EnvironmentOffer(
        name=target.name,
        folder=str(target),
        python=python,
        packages=len(sizes),
        download_bytes=size,
        free_bytes=free,
    )


def _add(request: EnvironmentRequest, report: Report, uv: str) -> Environment:
    folder = _folder_of(request.name)
    waiting = f"Waiting for another program that makes {request.name}"
    with _locked(folder, lambda: report(waiting)) as lock:
        if (there := _complete(request)) is not None:
            return there
        _check_unused(folder)
        _delete(folder)
        try:
            _Maker(folder, request, report, uv, lock).make()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # what was fetched is in uv's cache
            raise
        return _read_environment(folder)


def _remove(name: str) -> None:
    folder = _folder_of(name)
    if not folder.is_dir():
        raise UserError(f"There is no environment called {name}; `env list` shows those there are.")

    def refuse() -> bool:
        raise UserError(f"{name} is being made or removed by another program; wait for it.")

    with _locked(folder, refuse):
        _check_unused(folder)
        _delete(folder)


def _delete(folder: Path) -> None:
    """Remove a folder, its stamp first: what an interruption leaves is unfinished."""
    (folder / ENVIRONMENT_STAMP).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _folder_of(name: str) -> Path:
    folder = environment_folder(name)
    if folder is None:
        raise UserError(
            f"{name!r} cannot be the name of an environment: letters, figures, dots, hyphens, 64 at most, no slash."
        )
    return folder


@contextlib.contextmanager
def _locked(folder: Path, on_wait: Callable[[], bool]) -> Iterator[int]:
    _make_parent(folder)
    with locked(folder.with_name(f".{folder.name}.lock"), on_wait) as handle:
        yield handle


def _make_parent(folder: Path) -> None:
    parent = folder.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{parent} cannot be made ({error.strerror})"
        raise InstallError(f"{reason}; set XDG_DATA_HOME to a folder of your own.") from error
    if not os.access(parent, os.W_OK):
        raise InstallError(f"{parent} cannot be written; set XDG_DATA_HOME to a folder of your own.")


def _check_unused(folder: Path) -> None:
    """Raise `UserError` if a process runs by the environment's Python."""
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or [""]
        if Path(command[0]).is_relative_to(folder):
            what = "a run, or a worker on standby" if "workloads" in " ".join(command) else "a program"
            use = f"{what} (process {process.pid}) runs by its Python"
            raise UserError(f"{folder.name} is in use: {use}; wait for its end, or end it.")


class _Maker:
    """Makes one environment in a folder that is not there yet, by uv."""

    def __init__(
        self, folder: Path, request: EnvironmentRequest, report: Report, uv: str, lock: int | None = None
    ) -> None:
        self._folder = folder
        self._requirements = requirements_of(request.name, request.packages, request.cuda)
        self._torch = torch_options(self._requirements, request.cuda)
        self._report = report
        self._uv = uv or find_uv()
        self._held = [] if lock is None else [lock]
        self._log = _folder_of(request.name).with_name(f".{request.name}.log")
        self._python = folder / "bin" / "python"
        # uv writes it under no other name: https://packaging.python.org/specifications/pylock-toml
        self._lock_file = folder / "pylock.toml"

    def find_packages(self) -> None:
        """Make the empty environment, and let uv find what it needs."""
        python = choose_python(self._requirements)
        self._run("Making the environment", self._uv, "venv", "--python", python, str(self._folder))
        requirements = self._folder / "requirements.in"
        requirements.write_text("".join(f"{requirement}\n" for requirement in self._requirements), encoding="utf-8")
        command = [self._uv, "pip", "compile", "--quiet", "--no-header", "--format", "pylock.toml", *self._torch]
        options = ["--python", str(self._python), "--output-file", str(self._lock_file)]
        self._run("Looking for the packages", *command, *options, str(requirements))

    def download_sizes(self) -> Sequence[int | None]:
        """Return the size of each package, None where the index does not say it.

        uv lists all wheels that fit this machine and fetches one: the largest counts.
        """
        packages = tomllib.loads(self._lock_file.read_text(encoding="utf-8")).get("packages", [])
        files = [
            package.get("wheels") or [package.get("sdist") or package.get("archive") or {}] for package in packages
        ]
        return [max((file["size"] for file in alternatives if "size" in file), default=None) for alternatives in files]

    def python_version(self) -> str:
        """Return the version that the environment's own file says (https://peps.python.org/pep-0405)."""
        lines = (self._folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        pairs = dict(line.replace(" ", "").split("=", 1) for line in lines if "=" in line)
        return pairs.get("version") or pairs.get("version_info", "")

    def make(self) -> None:
        """Make it whole, and write its stamp."""
        self.find_packages()
        install = [self._uv, "pip", "install", "--python", str(self._python), "-r", str(self._lock_file)]
        self._run("Installing the packages", *install)
        self._try_processor()
        self._stamp()

    def _try_processor(self) -> None:
        """Find out what the framework computes on this processor; what cannot be tried the first run will tell."""
        entry = ROOT / "workloads" / "entry.py"
        try:
            self._run("Trying it on this processor", str(self._python), str(entry), *TRY_PROCESSOR)
        except CancelledError:
            raise
        except InstallError as error:
            _logger.warning("%s was not tried on this processor: %s", self._folder.name, error)

    def _stamp(self) -> None:
        files = (path for path in self._folder.rglob("*") if not path.is_symlink())
        stamp = _Stamp(
            python=self.python_version(),
            packages=self._requirements,
            size_bytes=sum(path.stat().st_size for path in files if path.is_file()),
        )
        part = self._folder / f"{ENVIRONMENT_STAMP}.part"
        with part.open("wb") as file:
            file.write(msgspec.json.encode(stamp))
            file.flush()
            os.fsync(file.fileno())
        part.rename(self._folder / ENVIRONMENT_STAMP)

    def _run(self, title: str, *command: str) -> None:
        def watch(line: str, _seconds: int) -> bool:
            is_said = line and command[0] == self._uv  # what a framework says at its start is no progress
            return self._report(f"{title}: {line}" if is_said else f"{title} …")

        run_step(title, command, self._log, watch=watch, held=self._held, again=_AGAIN)
