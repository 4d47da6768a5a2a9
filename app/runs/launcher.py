"""Starts worker processes, reads their two pipes in bounded memory, and ends the orphans that they leave.

A message pipe is read no faster than its limit, so a worker that sends more has to wait. A log is always read, so that
a print never waits for the program; lines beyond its limits are only counted.
"""

import contextlib
import logging
import os
import queue
import re
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import psutil

from app.environments.packages import uv_folder, worker_command, worker_environment
from app.environments.steps import installer_environment
from app.errors import UserError
from app.grants import order_grants, ordered_variant, refuse, require, variant_grants
from app.paths import ROOT, python_environment
from app.runs.environment import sources_hash
from app.values.samples import LogLine
from workloads.catalog import NO_PYTHON, default_interpreter, find_python, is_script
from workloads.job_protocol import JobRequest
from workloads.protocol import (
    MOST_MESSAGE_BYTES,
    Message,
    ProtocolError,
    RunSpec,
    Start,
    Variant,
    decode_message,
    encode,
)


def pipe_name(pipe: IO[bytes]) -> str:
    """Return the name of a pipe, the same at both ends, as Linux shows it in /proc/PID/fd (proc(5))."""
    return f"pipe:[{os.fstat(pipe.fileno()).st_ino}]"


def end_writers(pipes: Collection[str]) -> list[int]:
    """Kill every other process that can write to these pipes, and return their ids; only on Linux.

    This also finds those that left their worker's process group.
    """
    writers = [pid for pid in psutil.pids() if pid != os.getpid() and _writes_to(pid, pipes)]
    for pid in writers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return writers


def _writes_to(pid: int, pipes: Collection[str]) -> bool:
    # The process may belong to another user, or have ended; the same holds for its files.
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
    """A line on the message pipe that is not a message; nothing after it is read."""

    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The worker's process has ended and both pipes are read; a negative exit code is the signal that ended it."""

    exit_code: int


Said = TypeVar("Said", bound=msgspec.Struct)
"""A message type of the process: a worker's messages, or a job's result."""
WorkerEvent = Message | LogLine | BrokenMessage | Exited
Post = Callable[[WorkerEvent], None]


class Worker(Protocol):
    """One started worker. `Exited` is its last event. Thread: any. Its events are posted by threads of the launcher."""

    @property
    def pid(self) -> int: ...
    def ask_to_stop(self) -> None:
        """Close its stdin, which requests it to stop."""

    def terminate(self) -> None: ...
    def kill(self) -> None:
        """Send SIGKILL to it and its process group."""


class Python(NamedTuple):
    """A worker's Python: the interpreter, "" for this program's own, and the packages that uv adds to it."""

    interpreter: str = ""
    packages: str = ""


def _external_command(command: tuple[str, ...], python: Python) -> tuple[str, ...]:
    arguments = (str(ROOT / "workloads" / "entry.py"), *command[2:])
    if python.packages:
        return worker_command(python.packages, python.interpreter, arguments)
    path = find_python(python.interpreter)
    if path is None:
        raise UserError(NO_PYTHON.format(interpreter=python.interpreter))
    return (str(path), *arguments)


def _words_for_python(python: Python) -> tuple[str, ...]:
    """Return the words that replace `python` in a command; none if neither Python nor packages are named."""
    if python.packages:
        settings = (f"{name}={text}" for name, text in installer_environment().items() if os.environ.get(name) != text)
        return ("env", *settings, *worker_command(python.packages, python.interpreter, ()))
    if not python.interpreter:
        return ()
    return _external_command((), python)[:1]


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Everything that determines a worker's process at its start, and so its imports.

    `python` is the one named for it; `sources` is the hash of what it imports from this program.
    """

    command: tuple[str, ...]
    python: Python
    folder: str
    environment: Mapping[str, str]
    sources: str

    @classmethod
    def current(cls, command: tuple[str, ...], python: Python = Python()) -> "ProcessSpec":  # noqa: B008 - frozen
        """Return the spec of a command `python -m module …` in this process's current environment and folder.

        `python` is used instead of this process's own.

        Raises:
            UserError: This machine has no such Python, or no uv for packages.
        """
        folder = str(Path.cwd())
        environment = python_environment()
        if any(python):
            command = _external_command(command, python)
            # Without the variables that point this Python to its libraries.
            environment = {
                name: value for name, value in environment.items() if name not in ("PYTHONPATH", "PYTHONHOME")
            }
        if python.packages:
            folder, environment = str(uv_folder()), worker_environment(folder)
        return cls(command, python, folder, environment, sources_hash())

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the process with three pipes and in its own session: Ctrl-C in a terminal reaches only the program.

        Raises:
            OSError: It cannot start; the text ends a sentence for the user.
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
                # execve(2) gives the same error if the file exists but its loader is missing.
                reason = "the program that its first line names, or its loader, is missing"
            raise OSError(f"{program} cannot be run ({reason})") from error


def granted_python(order: Start | JobRequest) -> Python:
    """Return the Python and the packages that an order names, else this machine's default.

    Raises:
        UserError: The Python, packages or text of the order are not granted.
    """
    require(order_grants(order), refuse)
    return named_python(ordered_variant(order))


def named_python(variant: Variant) -> Python:
    """Return the Python and the packages that a variant names, else this machine's default; granted or not."""
    return Python(str(variant.get("interpreter") or default_interpreter()), str(variant.get("packages", "")))


class Launcher:
    """Starts workers on this machine.

    Thread: `launch` runs on the thread that waits for the worker; on Linux the worker dies with it.
    """

    def __init__(self, command: tuple[str, ...] = WORKER) -> None:
        self._command = command

    def expect(self, specs: Sequence[RunSpec]) -> None:
        """Prepare for runs in this order, if that helps; returns immediately."""

    def launch(self, start: Start, post: Post) -> Worker:
        """Start the process, the threads that read its pipes, and the thread that waits for its end.

        `post` gets each event of the worker, on other threads.

        Raises:
            OSError: The worker cannot start; the text ends a sentence for the user.
            UserError: The run cannot take place on this machine.
        """
        python = granted_python(start)
        if is_script(start.spec.workload):
            start, python = msgspec.structs.replace(start, python=_words_for_python(python)), Python()
        worker = LocalWorker(ProcessSpec.current(self._command, python).start(), post, decode_message)
        _log.info("worker %d launched", worker.pid)
        worker.listen()
        worker.send(start)
        return worker


class LocalWorker(Generic[Said]):
    """A worker process on this machine.

    It has four threads: one per pipe reads or writes until the pipe closes, one waits for the process and posts
    `Exited` last. If `post` blocks, so does the worker, because its pipe fills.

    Thread: any.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        post: Callable[[Said | LogLine | BrokenMessage | Exited], None],
        decode: Callable[[bytes], Said],
    ) -> None:
        """Take over a process that was started with three pipes.

        `post` gets each event, on other threads. `decode` returns the message on a line; it raises `ProtocolError`.
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
        """Return whether its process has ended; its last messages may not be read yet."""
        # Popen.poll() returns None while another thread is in Popen.wait() and has not been woken yet.
        try:
            return psutil.Process(self._process.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def listen(self) -> None:
        """Start reading and writing the worker's pipes and waiting for its end."""
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
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _write_orders(self, pipe: BinaryIO) -> None:
        # It may die before it reads: then the pipe is broken. If it never reads, only this thread waits.
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
        if exit_code - _SIGNAL_BASE in signal.valid_signals():  # how uv, like a shell, reports a signal
            exit_code = _SIGNAL_BASE - exit_code
        self._is_over.set()
        # Orphans in its group would keep the pipes open.
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


_CHUNK_BYTES = 65_536
"""The capacity of a pipe (pipe(7))."""
_MESSAGES_PER_S, _MESSAGE_BURST = 50, 5_000
"""A training loop sends about ten messages per second."""
_LINES_PER_S, _LINE_BURST = 200, 5_000
_LOG_BYTES_PER_S, _LOG_BYTE_BURST = 50_000, 2_000_000
_LINE_BYTES = 4_000
_LAST_LINES, _LAST_BYTES = 100, 16_384
"""How much of the omitted lines is still shown: the last ones, which say why something ended."""
_QUIET_S = 1.0
"""How often omitted lines are reported."""
_STATE_S = 0.5
"""How often the state of a progress bar, which overwrites itself with carriage returns, is logged."""
_FATAL = re.compile(r"F\d{4} .*?\] (.+)")
_MAX_FATAL_CHARS = 300
_ERROR = re.compile(
    r"(?:\[\w+\]:\s*)?((?!subprocess\.)(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Iteration|Exit)(?:: .+|$)"
    r"|(?!subprocess\.)(?:\w+\.)+[A-Z]\w*: .+|\S+: (?:error|can't open file|No module named|command not found)\b.*)"
)
"""An uncaught exception, preceded by torchrun's rank, or an error of argparse, Python or a shell; not the summaries by
torchrun and accelerate of their ranks."""


class Allowance:
    """A rate with a burst: a maximum at once, and an amount per second (a token bucket)."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._filled_s = time.monotonic()

    def missing_s(self, amount: float) -> float:
        """Return the seconds until the amount is available; 0 if it is now."""
        now_s = time.monotonic()
        self._left = min(self._burst, self._left + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        return max(0.0, (amount - self._left) / self._per_s)

    def take(self, amount: float) -> None:
        self._left -= amount


def message_lines(pipe: BinaryIO, wait: Callable[[float], object]) -> Iterator[bytes]:
    """Yield the lines of a message pipe, no faster than messages may come; overlong lines are cut.

    `wait` waits for that many seconds, less if the worker has ended and nothing more will come.
    """
    allowance = Allowance(_MESSAGES_PER_S, _MESSAGE_BURST)
    while line := pipe.readline(MOST_MESSAGE_BYTES):
        if missing_s := allowance.missing_s(1):
            wait(missing_s)
        allowance.take(1)
        yield line


def discard(pipe: BinaryIO) -> None:
    """Read a pipe to its end, so that its writer does not wait."""
    while os.read(pipe.fileno(), _CHUNK_BYTES):
        pass


def log_lines(pipe: BinaryIO) -> Iterator[str]:
    """Yield the lines of a log; one line that counts them replaces lines beyond the limits."""
    log, poll = BoundedLog(), select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        if poll.poll(log.due_ms):
            if not (data := os.read(pipe.fileno(), _CHUNK_BYTES)):
                break
            yield from log.feed(data)
        yield from log.due_lines()
    yield from log.end()


class BoundedLog:
    """Splits bytes into lines as they arrive, and holds back excess lines.

    A line ends with a newline. A carriage return ends a state of a progress bar, which the next state or the rest of
    the line overwrites. Lines that come faster than their limit are counted, and the last ones kept.
    """

    def __init__(self) -> None:
        self._lines = Allowance(_LINES_PER_S, _LINE_BURST)
        self._bytes = Allowance(_LOG_BYTES_PER_S, _LOG_BYTE_BURST)
        self._line = b""
        self._cut_bytes = 0
        self._state = b""
        self._is_state_shown = False
        self._left_out = 0
        self._last = b""
        self._due_s: float | None = None

    @property
    def due_ms(self) -> float | None:
        """Return the milliseconds until `due_lines` has something, None if nothing is held back."""
        return None if self._due_s is None else max(0.0, (self._due_s - time.monotonic()) * 1e3)

    def feed(self, data: bytes) -> Iterator[str]:
        """Take more bytes and yield the lines that they complete."""
        start = 0
        while not self._is_flooded and (end := data.find(b"\n", start)) >= 0:
            self._extend(data[start:end])
            if self._lines.missing_s(1) or self._bytes.missing_s(len(self._line)):
                self._leave_out(self._line + b"\n")
                self._line, self._cut_bytes, self._state, self._is_state_shown = b"", 0, b"", False
            else:
                is_shown = self._is_state_shown and not self._line
                line = self._take()
                if not is_shown:
                    yield line
            start = end + 1
        if self._is_flooded:
            self._leave_out(data[start:])
        else:
            self._extend(data[start:])

    def due_lines(self) -> Iterator[str]:
        """Yield what was held back long enough: the state of a progress bar, or the last excess lines."""
        if self._due_s is None or time.monotonic() < self._due_s:
            return
        if self._is_flooded:
            yield from self._resume()
        elif self._state and not self._is_state_shown:
            self._due_s, self._is_state_shown = None, True
            yield _text(self._state)

    def end(self) -> Iterator[str]:
        if self._is_flooded:
            yield from self._resume()
        if self._line or (self._state and not self._is_state_shown):
            yield self._take()

    @property
    def _is_flooded(self) -> bool:
        return bool(self._last)

    def _extend(self, data: bytes) -> None:
        """Add bytes without a newline to the current line."""
        overwritten, separator, newest = data.rpartition(b"\r")
        if separator:
            state = (self._line + overwritten).rpartition(b"\r")[2]
            if state:
                self._state, self._is_state_shown = state[:_LINE_BYTES], False
                self._due_s = self._due_s or time.monotonic() + _STATE_S
            self._line, self._cut_bytes = b"", 0
        room = _LINE_BYTES - len(self._line)
        self._line += newest[:room]
        self._cut_bytes += max(0, len(newest) - room)

    def _take(self) -> str:
        line, cut_bytes = self._line or self._state, self._cut_bytes
        self._lines.take(1)
        self._bytes.take(len(line))
        self._line, self._cut_bytes, self._state, self._is_state_shown, self._due_s = b"", 0, b"", False, None
        return f"{_text(line)} … ({cut_bytes:,} more bytes left out)" if cut_bytes else _text(line)

    def _leave_out(self, data: bytes) -> None:
        if not self._is_flooded:
            self._due_s = time.monotonic() + _QUIET_S
        self._left_out += data.count(b"\n")
        self._last = (self._last + data[-_LAST_BYTES:])[-_LAST_BYTES:]

    def _resume(self) -> Iterator[str]:
        """Report how many lines were omitted, yield the last of them, and continue with the unfinished line."""
        *lines, unfinished = self._last.split(b"\n")
        if len(self._last) == _LAST_BYTES:
            lines = lines[1:]  # the first one lost its beginning
        tail = lines[-min(_LAST_LINES, self._left_out) :]
        left_out = self._left_out - len(tail)
        self._left_out, self._last, self._due_s = 0, b"", None
        if left_out:
            yield f"(… {left_out:,} lines left out: more than {_LINES_PER_S} per second for long)"
        yield from (_text(line[-_LINE_BYTES:]) for line in tail)
        self._extend(unfinished)


def _text(line: bytes) -> str:
    text = line.rpartition(b"\r")[2].decode("utf-8", errors="replace").rstrip().rstrip("\b")
    while "\b" in text:  # what a progress bar has gone back over
        text = re.sub("^\b+|[^\b]\b", "", text)
    return text.replace("\0", "\ufffd")  # SQLite's functions end a text at a NUL


def fatal_message(line: str) -> str | None:
    """Return the text of the log line with which a library aborts (Abseil's `F0000 … file.cc:1] text`), else None."""
    match = _FATAL.match(line)
    return match.group(1)[:_MAX_FATAL_CHARS] if match else None


def error_message(line: str) -> str | None:
    """Return the error in a log line, if it is one with which a program ends, else None."""
    match = _ERROR.match(line)
    return match.group(1)[:_MAX_FATAL_CHARS] if match else None
