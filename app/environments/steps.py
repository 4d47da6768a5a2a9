"""Steps that make a virtual environment and install packages: by uv where it is, else by venv and pip.

`start.py` imports this from a bare checkout, before anything is installed and before it has looked at the Python: it
needs the standard library alone, and Python 3.7 can read it.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import fcntl
import os
import re
import select
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
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PASSING = re.compile("^[\u2588\u2591\u2800-\u28ff]|^Progress [0-9]+ of ")
"""Lines that only show how far a step is, of uv and of pip; they stay out of its log."""
_LOOK_S = 0.2
_END_S = 10.0
_CHUNK_BYTES = 65_536
_MOST_CAUSE = 300


class InstallError(UserError):
    """Something on this machine is in the way of an install; the message is one sentence with what to do."""


class CancelledError(InstallError):
    """The user has ended an install."""


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


def venv_command(folder: Path, python: str, uv: str | None) -> list[str]:
    """Return the command that makes an empty virtual environment.

    Args:
        folder: Its folder.
        python: The Python underneath.
        uv: Path of uv, which is used where there is one; else venv.
    """
    return [*([uv, "venv", "--python", python] if uv else [python, "-m", "venv"]), str(folder)]


def install_command(
    python: Path, requirements: Sequence[str], uv: str | None, *options: str, pip: Sequence[str] = ()
) -> list[str]:
    """Return the command that installs requirements.

    Args:
        python: The environment's Python.
        requirements: The packages.
        uv: Path of uv, which is used where there is one; else pip.
        options: More for either; pip shows no bar, unless they say another.
        pip: The command of another environment's pip, in place of its own.
    """
    if uv:
        return [uv, "pip", "install", "--python", str(python), *options, *requirements]
    tool = [*pip, "--python", str(python)] if pip else [str(python), "-m", "pip"]
    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    return [*tool, "install", *quiet, *options, *requirements]


def explain(title: str, log: str, path: Path, again: str = "start again") -> str:
    """Return one sentence on why an install step failed.

    Args:
        title: Title of the step.
        log: Its output.
        path: File with the output.
        again: What to do once the reason is mended.
    """
    if "No space left on device" in log or "os error 28" in log:
        return f"{title} failed: the disk is full. Free some GB (TensorFlow alone unpacks to about 2) and {again}."
    if _OFFLINE.search(log):
        connect = f"Connect, or name a mirror in {' or '.join(_MIRRORS)}, and {again}"
        return f"{title} failed: no network. {connect}; what was fetched is kept."
    if "ensurepip is not" in log:
        return f"{title} failed: this Python has no ensurepip; install the package python3-venv, or uv, and {again}."
    lines = [line.strip() for line in log.splitlines() if line.strip()] or [""]
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "×"))]
    cause = next((line.partition(":")[2] for line in lines if line.startswith("cause:")), "")  # as uv says it
    return f"{title} failed: {(errors or lines)[-1]}{cause and ':'}{cause[:_MOST_CAUSE]} (the whole log: {path})"


def run_step(
    title: str,
    command: Sequence[str],
    log: Path,
    *,
    watch: Callable[[str, int], None],
    is_cancelled: Callable[[], bool] = lambda: False,
    held: Sequence[int] = (),
    again: str = "start again",
) -> str:
    """Run one step on a terminal of its own, where installers say how far they are, and return its output.

    Where there are no terminals it is a pipe, on which some say less.

    Args:
        title: Title of the step.
        command: The command.
        log: The file that its output is written to.
        watch: Gets what the command has printed anew, and the seconds since it began: several times a second.
        is_cancelled: Returns whether to end it.
        held: Open files that the command keeps open, such as a lock: should this process be killed, it may live on.
        again: What to do once the reason of a failure is mended.

    Raises:
        InstallError: The step failed, or was cancelled (`CancelledError`).
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    ours, theirs = _open_terminal()
    with open(ours, "rb", buffering=0) as terminal, log.open("w", encoding="utf-8") as out:  # noqa: PTH123 - a handle
        process = _start(command, theirs, held)
        try:
            for text, seconds in _read(terminal.fileno(), process):
                out.writelines(f"{line}\n" for line in text.splitlines() if line and not _PASSING.match(line))
                watch(text, seconds)
                if is_cancelled():
                    raise CancelledError(f"{title} was stopped; what was fetched is kept.")
            process.wait()
        except BaseException:
            _end(process)
            raise
    text = log.read_text(encoding="utf-8")
    if process.returncode:
        raise InstallError(explain(title, text, log, again))
    return text


def _open_terminal() -> tuple[int, int]:
    """Return our end and that of the step, of a terminal or, as in a container without /dev/pts, of a pipe."""
    try:
        return os.openpty()
    except OSError:
        return os.pipe()


def _start(command: Sequence[str], terminal: int, held: Sequence[int]) -> subprocess.Popen[bytes]:
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "200"}
    environment = {**os.environ, **quiet}
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):  # they lead an installer to other packages
        environment.pop(name, None)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            start_new_session=True,
            pass_fds=held,
        )
    except OSError as error:
        raise InstallError(f"{command[0]} cannot be run ({error.strerror}).") from error
    finally:
        os.close(terminal)


def _read(terminal: int, process: subprocess.Popen[bytes]) -> Iterator[tuple[str, int]]:
    """Yield the lines printed so far and the seconds since the begin, until the process is gone."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    began, rest, chunk = time.monotonic(), "", b" "
    while chunk:
        chunk = b" "
        if select.select([terminal], [], [], _LOOK_S)[0]:
            chunk = _read_chunk(terminal)
            rest += _ESCAPE.sub("", decoder.decode(chunk, final=not chunk)).replace("\r", "\n")
        elif process.poll() is not None:
            chunk = b""  # what it has started holds the terminal open
        end = len(rest) if not chunk else rest.rfind("\n") + 1
        yield rest[:end], int(time.monotonic() - began)
        rest = rest[end:]


def _read_chunk(terminal: int) -> bytes:
    try:
        return os.read(terminal, _CHUNK_BYTES)
    except OSError:  # Linux's way to say that the other side has closed
        return b""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S)
            return


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[], None], is_cancelled: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """Hold the lock of a folder or file for as long as the handle is open, here or in a command that keeps it.

    Args:
        path: What to lock; a file is made.
        on_wait: Called once if another program holds it.
        is_cancelled: Returns whether to wait no longer.

    Raises:
        CancelledError: The wait was given up.
    """
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o600)
    try:
        waits = False
        while not _try_lock(handle):
            if not waits:
                on_wait()
            waits = True
            if is_cancelled():
                raise CancelledError("The wait for another program that installs was stopped.")
            time.sleep(_LOOK_S)
        yield handle
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network file system that cannot lock a folder: go on without
        pass
    return True
