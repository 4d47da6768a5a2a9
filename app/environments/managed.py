"""The environments that the program has made on this machine: list them, make one, remove one."""

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from app.environments.downloads import (
    Download,
    DownloadProgress,
    dry_run_command,
    read_downloads,
    total_bytes,
)
from app.environments.known import choose_python, find_pip, find_uv, requirements_of
from app.environments.records import (
    Environment,
    EnvironmentOffer,
    EnvironmentProgress,
    EnvironmentRequest,
    Environments,
    Listener,
)
from app.environments.steps import CancelledError, InstallError, install_command, locked, run_step, venv_command
from app.errors import UserError
from app.paths import ROOT
from app.units import byte_size
from workloads.catalog import (
    ENVIRONMENT_STAMP,
    TRY_PROCESSOR,
    environment_folder,
    environments_folder,
    find_python,
    installed_framework,
)

_DISK_PER_DOWNLOAD = 5
"""Bytes on disk for each that is downloaded, with the installer's cache: 4.6 for TensorFlow 2.19 by pip."""
_AGAIN = "add it again"

_logger = logging.getLogger("variantscope.environments")


class _Stamp(msgspec.Struct, frozen=True, kw_only=True):
    python: str
    packages: tuple[str, ...]
    size_bytes: int


def list_environments() -> list[Environment]:
    """Return the environments on this machine by name."""
    folders = environments_folder().glob("*/")
    return [_read_environment(folder) for folder in sorted(folders) if environment_folder(folder.name) is not None]


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
        framework=installed_framework(name),
        python=stamp.python,
        packages=stamp.packages,
        size_bytes=stamp.size_bytes,
    )


def make_environment(request: EnvironmentRequest, listener: Listener) -> Environment:
    """Make an environment; one that is there already is returned as it is.

    It counts as made once its stamp is written. One that was interrupted is made anew, from what the installer kept.

    Args:
        request: What to make.
        listener: Decides on the download, and follows it.

    Raises:
        InstallError: It cannot be made, or was cancelled (`CancelledError`).
        UserError: No environment can have that name, or one of that name has other packages.
    """
    requirements = requirements_of(request.name, request.packages, request.cuda)
    with _locked_folder(request.name, listener) as (folder, lock):
        old = _read_environment(folder)
        if old.state == "complete":
            if old.packages != requirements and (request.packages or request.cuda is not None):
                has = ", ".join(old.packages)
                raise UserError(f"{request.name} is there already, with {has}; remove it first, or take another name.")
            return old
        _check_unused(folder)
        return _Maker(folder, requirements, lock, listener).make()


def remove_environment(name: str) -> None:
    """Remove an environment.

    Raises:
        UserError: There is none of that name, or a process uses it.
    """
    folder = _folder_of(name)
    if not folder.is_dir():
        raise UserError(f"There is no environment called {name}; `env list` shows those there are.")
    with _locked_folder(name, None):
        _check_unused(folder)
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder, its stamp first: what an interruption leaves is unfinished."""
    (folder / ENVIRONMENT_STAMP).unlink(missing_ok=True)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InstallError(f"{folder} cannot be removed ({error.strerror}).") from error


def _folder_of(name: str) -> Path:
    folder = environment_folder(name)
    if folder is None:
        raise UserError(
            f"{name!r} cannot be the name of an environment: letters, figures, dots, hyphens, 64 at most, no slash."
        )
    return folder


@contextlib.contextmanager
def _locked_folder(name: str, listener: Listener | None) -> Iterator[tuple[Path, int]]:
    """Lock an environment, and yield its folder and the lock; wait for another program that makes or removes it."""
    folder = _folder_of(name)

    def is_cancelled() -> bool:
        return listener is not None and listener.is_cancelled()

    def say_waiting() -> None:
        if listener is None:
            raise UserError(f"{name} is being made or removed by another program; wait for it.")
        listener.progress(EnvironmentProgress(title=f"Waiting for another program that makes {name}"))

    lock = folder.with_name(f".{name}.lock")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.touch(0o600)
    except OSError as error:
        reason = f"{folder.parent} cannot be written ({error.strerror})"
        raise InstallError(f"{reason}; set XDG_DATA_HOME to a folder of your own.") from error
    with locked(lock, say_waiting, is_cancelled) as handle:
        yield folder, handle


def _check_unused(folder: Path) -> None:
    """Raise `UserError` if a process runs by the environment's Python."""
    for process in psutil.process_iter(["pid", "cmdline"]):
        command = process.info["cmdline"] or [""]
        if Path(command[0]).is_relative_to(folder):
            what = "a run, or a worker on standby" if "workloads" in " ".join(command) else "a program"
            use = f"{what} (process {process.pid}) runs by its Python"
            raise UserError(f"{folder.name} is in use: {use}; wait for its end, or end it.")


class _Maker:
    """Makes one environment, with its lock held."""

    def __init__(self, folder: Path, requirements: Sequence[str], lock: int, listener: Listener) -> None:
        self._folder = folder
        self._requirements = tuple(requirements)
        self._lock = lock
        self._listener = listener
        self._uv = find_uv()
        self._pip = () if self._uv else find_pip()
        self._log = folder.with_name(f".{folder.name}.log")

    def make(self) -> Environment:
        """Make it anew, in place of what is left of an interrupted one."""
        python = choose_python(self._requirements, self._uv)
        _remove(self._folder)
        try:
            bare = ["--without-pip"] if self._pip else []
            self._run("Making the environment", [*venv_command(self._folder, python, self._uv), *bare])
            downloads = self._find_downloads()
            self._ask(downloads)
            self._install(downloads)
            self._try_processor()
            self._stamp()
        except UserError:
            _remove(self._folder)  # what was fetched is in the installer's cache
            raise
        return _read_environment(self._folder)

    def _find_downloads(self) -> list[Download]:
        self._run("Looking for the packages", dry_run_command(self._folder, self._requirements, self._uv, self._pip))
        return read_downloads(self._folder, self._uv)

    def _ask(self, downloads: Sequence[Download]) -> None:
        """Check the disk and ask; raise `InstallError`."""
        size, free = total_bytes(downloads), shutil.disk_usage(self._folder).free
        if size is not None and free < size * _DISK_PER_DOWNLOAD:
            raise InstallError(
                f"{self._folder.name} needs about {byte_size(size * _DISK_PER_DOWNLOAD)} of disk space, and "
                f"{self._folder.parent} has {byte_size(free)} free; free some, or set XDG_DATA_HOME to a larger disk."
            )
        offer = EnvironmentOffer(
            name=self._folder.name,
            folder=str(self._folder),
            python=self._python_version(),
            tool="uv" if self._uv else "pip",
            packages=len(downloads),
            download_bytes=size,
            free_bytes=free,
        )
        if not self._listener.confirm(offer):
            raise CancelledError(f"{self._folder.name} was not made.")

    def _install(self, downloads: Sequence[Download]) -> None:
        """Install exactly what was found, so that the size was true."""
        options = ["--progress-bar", "raw"] if self._pip else []
        pins = [each.pin for each in downloads]
        python = self._folder / "bin" / "python"
        command = install_command(python, pins or self._requirements, self._uv, *options, pip=self._pip)

        def report(title: str, done: int, total: int | None) -> None:
            self._listener.progress(EnvironmentProgress(title=title, done_bytes=done, total_bytes=total))

        self._run("Installing the packages", command, DownloadProgress(downloads, report))

    def _try_processor(self) -> None:
        """Find out what the framework computes on this processor; what cannot be tried the first run will tell."""
        python, entry = self._folder / "bin" / "python", ROOT / "workloads" / "entry.py"
        try:
            self._run("Trying it on this processor", [str(python), str(entry), *TRY_PROCESSOR])
        except CancelledError:
            raise
        except InstallError as error:
            _logger.warning("%s was not tried on this processor: %s", self._folder.name, error)

    def _stamp(self) -> None:
        files = (path for path in self._folder.rglob("*") if not path.is_symlink())
        stamp = _Stamp(
            python=self._python_version(),
            packages=self._requirements,
            size_bytes=sum(path.stat().st_size for path in files if path.is_file()),
        )
        part = self._folder / f"{ENVIRONMENT_STAMP}.part"
        with part.open("wb") as file:
            file.write(msgspec.json.encode(stamp))
            os.fsync(file.fileno())
        part.rename(self._folder / ENVIRONMENT_STAMP)

    def _python_version(self) -> str:
        """Return the version that the environment's own file says (https://peps.python.org/pep-0405)."""
        lines = (self._folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        pairs = dict(line.replace(" ", "").split("=", 1) for line in lines if "=" in line)
        return pairs.get("version") or pairs.get("version_info", "")

    def _run(self, title: str, command: Sequence[str], watch: DownloadProgress | None = None) -> None:
        def show(text: str, seconds: int) -> None:
            if watch is not None:
                watch(text, seconds)
            else:
                self._listener.progress(EnvironmentProgress(title=title))

        held = [self._lock]
        listener = self._listener
        run_step(title, command, self._log, watch=show, is_cancelled=listener.is_cancelled, held=held, again=_AGAIN)


LOCAL_ENVIRONMENTS = Environments(list=list_environments, make=make_environment, remove=remove_environment)
"""Those of this machine."""
