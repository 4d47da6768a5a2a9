"""Starts worker processes with a message pipe and a log pipe, and ends orphaned processes they leave."""

import contextlib
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol

import psutil

from app.paths import ROOT
from app.records import LogLine
from workloads.catalog import find_python
from workloads.protocol import Message, ProtocolError, Start, decode_message, encode


def pipe_name(pipe: IO[bytes]) -> str:
    """The pipe, at either end, as Linux calls it in /proc/PID/fd (proc(5))."""
    return f"pipe:[{os.fstat(pipe.fileno()).st_ino}]"


def kill_process_group(leader: int) -> None:
    """Kills a process that leads a group of its own, and all in that group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_writers(pipes: Collection[str]) -> list[int]:
    """Kills all that can write to these pipes, also those that left the group (Linux; elsewhere none is found)."""
    writers = [pid for pid in psutil.pids() if pid != os.getpid() and _writes_to(pid, pipes)]
    for pid in writers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return writers


def _writes_to(pid: int, pipes: Collection[str]) -> bool:
    # Another user's, or gone meanwhile; so may be any of its files.
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) in pipes and link.lstat().st_mode & stat.S_IWUSR:
                    return True
    return False


_log = logging.getLogger("variantscope.worker")

_MAX_LINE_CHARS = 4_000
_LEFT_TO_READ_S = 1.0
"""Once a worker is gone, its pipes hold 64 KiB at most: what takes longer is held open by a process it left behind."""
_READER_TIMEOUT_S = 10.0
"""Where it left none behind, the machine is too busy for the readers; their last messages must not come too late."""

WORKER = (sys.executable, "-m", "workloads.worker")
"""The command of a worker of this machine."""


@dataclass(frozen=True, slots=True)
class BrokenMessage:
    """A line of the message pipe that is no message."""

    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The worker's process is gone and what it said is read; a negative code is the signal that ended it."""

    exit_code: int


WorkerEvent = Message | LogLine | BrokenMessage | Exited
Post = Callable[[WorkerEvent], None]


class Worker(Protocol):
    """One started worker. What it says is posted by threads of the launcher; `Exited` is the last of it."""

    @property
    def pid(self) -> int:
        """The worker's process id."""

    def ask_to_stop(self) -> None:
        """Closes its stdin: the polite request."""

    def terminate(self) -> None:
        """Sends SIGTERM."""

    def kill(self) -> None:
        """Sends SIGKILL to it and all it started."""


class Launcher(Protocol):
    """Starts workers."""

    def launch(self, start: Start, post: Post) -> Worker:
        """Starts a fresh worker on this order; everything it says goes to `post`.

        Call it on the thread that waits for the worker: on Linux the worker dies with that thread.
        """


def child_environment() -> dict[str, str]:
    """The environment of a child: ours, with the program's root first on PYTHONPATH for `-m workloads…`."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _external_command(command: tuple[str, ...], interpreter: str) -> tuple[str, ...]:
    """The command `python -m module …`, by another environment's Python."""
    _, _, *arguments = command
    return (str(find_python(interpreter) or interpreter), str(ROOT / "workloads" / "entry.py"), *arguments)


def _external_environment() -> dict[str, str]:
    """The environment without the variables that tell our Python where its libraries are."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """All that a worker's process is started with, and so all that its imports can depend on."""

    command: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]

    @classmethod
    def current(cls, command: tuple[str, ...], interpreter: str = "") -> "ProcessSpec":
        """As the program's own surroundings are at this moment; by another environment's Python where one is named."""
        if interpreter:
            return cls(_external_command(command, interpreter), str(Path.cwd()), _external_environment())
        return cls(command, str(Path.cwd()), child_environment())

    def start(self) -> "subprocess.Popen[bytes]":
        """The process, with three pipes and a session of its own: Ctrl-C in a terminal reaches only the program.

        Raises `OSError` with a sentence's end for the user where it cannot be started.
        """
        try:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )
        except OSError as error:
            program, reason = self.command[0], error.strerror
            if isinstance(error, FileNotFoundError) and Path(program).exists():
                # execve(2): the same error for a file that is there.
                reason = "the program that its first line names, or its loader, is missing"
            raise OSError(f"{program} cannot be run ({reason})") from error


def requested_interpreter(start: Start) -> str:
    """The other environment that an order names; "" is the program's own."""
    return str(start.spec.variant.get("interpreter", ""))


class LocalLauncher:
    """Starts workers on this machine as `python -m workloads.worker`, or another command that speaks the protocol."""

    def __init__(self, command: tuple[str, ...] = WORKER) -> None:
        self._command = command

    def launch(self, start: Start, post: Post) -> Worker:
        """Starts the process, its readers and the watcher of its end."""
        worker = LocalWorker(ProcessSpec.current(self._command, requested_interpreter(start)).start(), post)
        _log.info("worker %d launched", worker.pid)
        worker.listen()
        worker.send_start(start)
        return worker


class LocalWorker:
    """A worker process of this machine."""

    def __init__(self, process: "subprocess.Popen[bytes]", post: Post) -> None:
        self._process = process
        self._post = post

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Whether its process is over, its last words perhaps not read yet."""
        # Popen.poll() says no as long as another thread waits for the process and has not come to hear of its end.
        try:
            return psutil.Process(self._process.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def listen(self) -> None:
        """Begins to read what the worker says, and to wait for its end."""
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None, "started with three pipes"
        assert stderr is not None, "started with three pipes"
        pipes = (pipe_name(stdout), pipe_name(stderr))
        readers = (
            threading.Thread(target=self._read_messages, args=(stdout,), name="worker messages", daemon=True),
            threading.Thread(target=self._read_log, args=(stderr,), name="worker log", daemon=True),
        )
        for reader in readers:
            reader.start()
        threading.Thread(target=self._watch, args=(readers, pipes), name="worker end", daemon=True).start()

    def send_start(self, start: Start) -> None:
        """Sends the worker its order."""
        stdin, line = self._process.stdin, encode(start)
        assert stdin is not None, "started with three pipes"
        # It may have died before it reads: the pipe is broken then, or closed by `_watch` already. Exited follows.
        with contextlib.suppress(BrokenPipeError, ValueError):
            stdin.write(line)
            stdin.flush()

    def ask_to_stop(self) -> None:
        """Closes its stdin."""
        stdin = self._process.stdin
        assert stdin is not None, "started with three pipes"
        # Closing flushes; an order that a dead worker never read cannot be flushed.
        with contextlib.suppress(BrokenPipeError):
            stdin.close()

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Sends SIGKILL to its whole process group."""
        kill_process_group(self._process.pid)

    def _read_messages(self, pipe: BinaryIO) -> None:
        with pipe:
            for line in pipe:
                try:
                    self._post(decode_message(line))
                except ProtocolError as error:
                    self._post(BrokenMessage(str(error), _decode_line(line)))

    def _read_log(self, pipe: BinaryIO) -> None:
        with pipe:
            for line in pipe:
                self._post(LogLine(time.monotonic_ns(), _decode_line(line)))

    def _watch(self, readers: tuple[threading.Thread, ...], pipes: Collection[str]) -> None:
        exit_code = self._process.wait()
        # Whatever it left behind would hold the pipes open.
        self.kill()
        _join_readers(readers, _LEFT_TO_READ_S)
        if any(reader.is_alive() for reader in readers):
            if ended := end_writers(pipes):
                _log.warning("worker %d left behind: %s", self.pid, ended)
                message = f"(ended what this run left behind: process {', '.join(map(str, ended))})"
                self._post(LogLine(time.monotonic_ns(), message))
            _join_readers(readers, _READER_TIMEOUT_S)
        self.ask_to_stop()
        _log.info("worker %d exited with status %d", self.pid, exit_code)
        self._post(Exited(exit_code))


def _decode_line(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip()[:_MAX_LINE_CHARS]


def _join_readers(readers: tuple[threading.Thread, ...], limit_s: float) -> None:
    """Waits until they have read their pipes to the end, so long at most."""
    end_s = time.monotonic() + limit_s
    for reader in readers:
        reader.join(max(0.0, end_s - time.monotonic()))
