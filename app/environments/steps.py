"""Steps that create a virtual environment and install packages, each a command that reports its progress.

`start.py` imports this from a bare checkout, before anything is installed and before it checks the Python: it needs
only the standard library, and Python 3.7 can read it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from app.errors import UserError

_OFFLINE = re.compile(
    "Temporary failure|Name or service not known|NameResolutionError|NewConnectionError|ConnectTimeoutError|"
    "Network is unreachable|Max retries exceeded|Could not resolve|dns error|error sending request|"
    "Failed to establish a new connection"
)
_MIRRORS = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")
_TORCH_INDEX = "download.pytorch.org"
_LOOK_S = 0.2
_END_S = 10.0
_TAIL_BYTES = 4_096
_FULL = "No space left on device"
_FULL_BYTES = 2**20
_MOST_CAUSE = 300
DISK_FULL = "the disk is full. Free some GB (TensorFlow alone unpacks to about 2) and"


class InstallError(UserError):
    """A problem of this machine prevents an install; the message is one sentence with what to do."""


class CancelledError(InstallError):
    """The user cancelled an install."""


def loadable(library: str) -> bool:
    """Return whether the system's linker finds a shared library."""
    try:
        return bool(ctypes.CDLL(library))
    except OSError:
        return False


def nvidia_driver() -> bool:
    """Return whether an NVIDIA driver is installed here (always false except on Linux)."""
    there = any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/nvidiactl"))) or shutil.which("nvidia-smi")
    return sys.platform == "linux" and (bool(there) or loadable("libnvidia-ml.so.1"))


def explain(title: str, log: str, path: Path, again: str = "start again") -> str:
    """Return one sentence on why an install step failed.

    `log` is its output, also in the file; `again` is what to do once the problem is solved.
    """
    if _FULL in log or "os error 28" in log:
        return f"{title} failed: {DISK_FULL} {again}."
    if _OFFLINE.search(log):
        connect = f"Connect, or name a mirror in {' or '.join(_MIRRORS)}"
        if _TORCH_INDEX in log:  # which mirrors of PyPI lack
            other = "or take that of PyPI, with CUDA (set UV_INDEX to it)"
            connect = f"Connect to {_TORCH_INDEX}, which has this build of PyTorch, {other}"
        return f"{title} failed: no network. {connect}, and {again}; what was downloaded is kept."
    lines = [line.strip() for line in log.splitlines() if line.strip()] or [""]
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "×"))]
    cause = next((line.partition(":")[2] for line in lines if line.startswith("cause:")), "")  # in uv's output
    return f"{title} failed: {(errors or lines)[-1]}{cause and ':'}{cause[:_MOST_CAUSE]} (the whole log: {path})"


def run_step(
    title: str, command: Sequence[str], log: Path, *, watch: Callable[[str, int], bool], again: str = "start again"
) -> None:
    """Run one step, with output to its log, in the log's folder: the user's folder may contain other people's files.

    `watch` gets the last line that it printed and the seconds since it began, several times a second; it returns
    whether to continue. `again` is what to do once the problem is solved.

    Raises:
        InstallError: The step failed, or was cancelled (`CancelledError`).
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w+b") as output:
        process, began_s = _start(command, log.parent, output.fileno()), time.monotonic()
        try:
            while process.poll() is None:
                if not watch(_last_line(output.fileno()), int(time.monotonic() - began_s)):
                    raise CancelledError(f"{title} was stopped; what was downloaded is kept.")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        text = log.read_text(encoding="utf-8", errors="replace")
        if shutil.disk_usage(log.parent).free < _FULL_BYTES:
            text += _FULL  # if the packages found no space, the step's message about it may be lost too
        raise InstallError(explain(title, text, log, again))


def installer_environment() -> dict[str, str]:
    """Return this process's environment for uv, pip and their child processes, with only the user's settings."""
    environment = dict(os.environ)
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):  # they point an installer to other packages
        environment.pop(name, None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # uv leaves it to the first import: else each compiles again
    if "PIP_INDEX_URL" in environment and "UV_INDEX_URL" not in environment:  # the user's mirror: uv does not read it
        environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
    # uv would read the configuration of the current folder, and of its parents, which may belong to others.
    config = Path(environment.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    files = (folder / "uv" / "uv.toml" for folder in (config, Path("/etc/xdg"), Path("/etc")))
    if "UV_CONFIG_FILE" not in environment:
        file = next(filter(Path.is_file, files), None)
        environment.update({"UV_CONFIG_FILE": str(file)} if file else {"UV_NO_CONFIG": "1"})
    return environment


def _start(command: Sequence[str], folder: Path, output: int) -> subprocess.Popen[bytes]:
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**installer_environment(), **quiet},
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise InstallError(f"{command[0]} cannot be run ({error.strerror}).") from error


def _last_line(output: int) -> str:
    """Return the last complete line of a file being written, "" without one."""
    tail = os.pread(output, _TAIL_BYTES, max(0, os.fstat(output).st_size - _TAIL_BYTES))
    lines = tail[: tail.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S)
            return


@contextlib.contextmanager
def locked(folder: Path, on_wait: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock of a folder.

    `on_wait` is called several times a second while another program holds it; it returns whether to continue waiting.

    Raises:
        CancelledError: The wait was given up.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        while not _try_lock(handle):
            if not on_wait():
                raise CancelledError("The wait for another program that installs was stopped.")
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network file system that cannot lock a folder: continue without
        pass
    return True
