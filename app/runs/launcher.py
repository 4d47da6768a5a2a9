"""Start worker processes with a message pipe and a log pipe, and end the orphans that they leave."""

import contextlib
import logging
import os
import queue
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import psutil

from app.environments.packages import uv_folder, worker_command, worker_environment
from app.errors import UserError
from app.grants import order_grants, ordered_variant, refuse, require, variant_grants
from app.paths import ROOT, python_environment
from app.runs.environment import sources_hash
from app.runs.pipes import discard, log_lines, message_lines
from app.values.samples import LogLine
from workloads.catalog import NO_PYTHON, default_interpreter, find_python
from workloads.job_protocol import JobRequest
from workloads.protocol import Message, ProtocolError, Start, decode_message, encode


def pipe_name(pipe: IO[bytes]) -> str:
    """Return the name of a pipe, the same at both ends, as Linux shows it in /proc/PID/fd (proc(5))."""
    return f"pipe:[{os.fstat(pipe.fileno()).st_ino}]"


def kill_process_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_writers(pipes: Collection[str]) -> list[int]:
    """Kill every other process that can write to these pipes, and return their ids; elsewhere than on Linux, none.

    This finds those that left their worker's process group, too.
    """
    writers = [pid for pid in psutil.pids() if pid != os.getpid() and _writes_to(pid, pipes)]
    for pid in writers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return writers


def _writes_to(pid: int, pipes: Collection[str]) -> bool:
    # The process may be another user's, or gone by now; so may each of its files.
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) in pipes and link.lstat().st_mode & stat.S_IWUSR:
                    return True
    return False


_log = logging.getLogger("variantscope.worker")

_MAX_BROKEN_BYTES = 4_000
_LEFT_TO_READ_S = 1.0
"""A pipe holds 64 KiB at most. If reading the rest takes longer, an orphan of the worker holds the pipe open."""
_READER_TIMEOUT_S = 10.0
"""Without an orphan, the machine is too busy for the readers: `Exited` must not overtake the last messages."""

_SIGNAL_BASE = 128

WORKER = (sys.executable, "-m", "workloads.worker")
"""The command that starts a worker on this machine."""


@dataclass(frozen=True, slots=True)
class BrokenMessage:
    """A line on the message pipe that is no message; nothing after it is read."""

    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The worker's process is gone and both pipes are read; a negative exit code is the signal that ended it."""

    exit_code: int


Said = TypeVar("Said", bound=msgspec.Struct)
"""What a process says: messages, or the result of a job."""
WorkerEvent = Message | LogLine | BrokenMessage | Exited
Post = Callable[[WorkerEvent], None]


class Worker(Protocol):
    """One started worker. `Exited` is its last event.

    Thread: any. Its events are posted by threads of the launcher.
    """

    @property
    def pid(self) -> int:
        """Process id of the worker."""

    def ask_to_stop(self) -> None:
        """Close its stdin, the request to stop."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL to it and its process group."""


class Python(NamedTuple):
    """What a worker runs by: the interpreter, "" for this program's own, and the packages that uv adds to it."""

    interpreter: str = ""
    packages: str = ""


def _external_command(command: tuple[str, ...], python: Python) -> tuple[str, ...]:
    """Return the command `python -m module …` for another Python."""
    arguments = (str(ROOT / "workloads" / "entry.py"), *command[2:])
    if python.packages:
        return worker_command(python.packages, python.interpreter, arguments)
    path = find_python(python.interpreter)
    if path is None:
        raise UserError(NO_PYTHON.format(interpreter=python.interpreter))
    return (str(path), *arguments)


def _external_environment() -> dict[str, str]:
    """Return this process's environment without the variables that lead this Python to its libraries."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return environment | {"PYTHONSAFEPATH": "1"}


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Everything that a worker's process is started with, and so everything that its imports can depend on.

    `python` is what was named for it; `sources` is the hash of what it imports of this program.
    """

    command: tuple[str, ...]
    python: Python
    folder: str
    environment: Mapping[str, str]
    sources: str

    @classmethod
    def current(cls, command: tuple[str, ...], python: Python = Python()) -> "ProcessSpec":  # noqa: B008 - frozen
        """Return the spec of a command `python -m module …` for this process's environment and folder as they are now.

        `python` is used in place of this process's own.

        Raises:
            UserError: This machine has no such Python, or no uv for packages.
        """
        folder = str(Path.cwd())
        environment = python_environment()
        if any(python):
            command, environment = _external_command(command, python), _external_environment()
        if python.packages:
            folder, environment = str(uv_folder()), worker_environment(folder)
        return cls(command, python, folder, environment, sources_hash())

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the process with three pipes and in its own session: Ctrl-C in a terminal reaches only the program.

        Raises:
            OSError: It cannot be started; its text ends a sentence for the user.
            UserError: Its Python is not granted.
        """
        require(variant_grants(self.python._asdict(), ""), refuse)
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
                # execve(2) gives the same error for a file that exists but cannot be loaded.
                reason = "the program that its first line names, or its loader, is missing"
            raise OSError(f"{program} cannot be run ({reason})") from error


def granted_python(order: Start | JobRequest) -> Python:
    """Return the Python and the packages that an order names, else this machine's default.

    Raises:
        UserError: The order names a Python or packages, or has a text, that are not granted.
    """
    require(order_grants(order), refuse)
    variant = ordered_variant(order)
    return Python(str(variant.get("interpreter") or default_interpreter()), str(variant.get("packages", "")))


class Launcher:
    """Starts workers on this machine.

    Thread: `launch` the one that waits for the worker; on Linux the worker dies with it.
    """

    def __init__(self, command: tuple[str, ...] = WORKER) -> None:
        """Take `python -m workloads.worker`, or another command that speaks the protocol."""
        self._command = command

    def launch(self, start: Start, post: Post) -> Worker:
        """Start the process, the threads that read its pipes, and the thread that waits for its end.

        `post` gets each event of the worker, on threads of its own.

        Raises:
            OSError: The worker cannot be started; its text ends a sentence for the user.
            UserError: The run cannot be made on this machine.
        """
        worker = LocalWorker(ProcessSpec.current(self._command, granted_python(start)).start(), post, decode_message)
        _log.info("worker %d launched", worker.pid)
        worker.listen()
        worker.send(start)
        return worker


class LocalWorker(Generic[Said]):
    """A worker process on this machine.

    Four threads belong to it: one per pipe reads or writes until that closes, one waits for the process and posts
    `Exited` last. A `post` that does not return holds up the worker, whose pipe fills.

    Thread: any.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        post: Callable[[Said | LogLine | BrokenMessage | Exited], None],
        decode: Callable[[bytes], Said],
    ) -> None:
        """Take a process that was started with three pipes.

        `post` gets each event of it, on threads of its own. `decode` returns the message on a line; it raises
        `ProtocolError`.
        """
        self._process = process
        self._post = post
        self._decode = decode
        self._orders: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_over = threading.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Whether its process is over; its last messages may not be read yet."""
        # Popen.poll() returns None while another thread is in Popen.wait() and has not been woken yet.
        try:
            return psutil.Process(self._process.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def listen(self) -> None:
        """Start to read and write the worker's pipes and to wait for its end."""
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None, "started with three pipes"
        assert stdout is not None, "started with three pipes"
        assert stderr is not None, "started with three pipes"
        pipes = (pipe_name(stdout), pipe_name(stderr))
        readers = (
            threading.Thread(target=self._read_messages, args=(stdout,), name="worker messages", daemon=True),
            threading.Thread(target=self._read_log, args=(stderr,), name="worker log", daemon=True),
        )
        others = (
            threading.Thread(target=self._write_orders, args=(stdin,), name="worker order", daemon=True),
            threading.Thread(target=self._watch, args=(readers, pipes), name="worker end", daemon=True),
        )
        for thread in (*readers, *others):
            thread.start()

    def send(self, order: Start | JobRequest) -> None:
        """Send the worker its order; raises `UserError` for a text that is not granted."""
        require(order_grants(order), refuse)
        self._orders.put(encode(order))

    def ask_to_stop(self) -> None:
        self._orders.put(None)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to its process group."""
        kill_process_group(self._process.pid)

    def _write_orders(self, pipe: BinaryIO) -> None:
        # It may die before it reads: then the pipe is broken. One that never reads holds up this thread alone.
        with contextlib.suppress(BrokenPipeError), pipe:
            while (order := self._orders.get()) is not None:
                pipe.write(order)
                pipe.flush()

    def _read_messages(self, pipe: BinaryIO) -> None:
        with pipe:
            line = b""
            try:
                for line in message_lines(pipe, self._is_over.wait):
                    self._post(self._decode(line))
            except ProtocolError as error:
                self._post(BrokenMessage(str(error), line[:_MAX_BROKEN_BYTES].decode(errors="replace").rstrip()))
                discard(pipe)

    def _read_log(self, pipe: BinaryIO) -> None:
        with pipe:
            for text in log_lines(pipe):
                self._post(LogLine(time.monotonic_ns(), text))

    def _watch(self, readers: tuple[threading.Thread, ...], pipes: Collection[str]) -> None:
        exit_code = self._process.wait()
        if exit_code - _SIGNAL_BASE in signal.valid_signals():  # so uv says, as a shell does, which signal ended it
            exit_code = _SIGNAL_BASE - exit_code
        self._is_over.set()
        # Orphans in its group would hold the pipes open.
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


def _join_readers(readers: tuple[threading.Thread, ...], limit_s: float) -> None:
    """Wait until the threads have read their pipes to the end, for `limit_s` at most."""
    end_s = time.monotonic() + limit_s
    for reader in readers:
        reader.join(max(0.0, end_s - time.monotonic()))
