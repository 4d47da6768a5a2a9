"""A sampler that was started: its messages, the orders that it takes, and its end. That of this machine is a child."""

import contextlib
import fcntl
import logging
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import BinaryIO, Protocol

import msgspec

from app.log import child_environment
from app.paths import ROOT, python_environment
from app.telemetry.messages import SamplerCommand, SamplerMessage

_LOCK_WORD = "lock="
"""Before the number of the open file, on a sampler's command line."""


class PipeLock:
    """Excludes processes that write to one pipe from each other, and knows of one that was killed while it wrote.

    Only so few bytes as PIPE_BUF go into a pipe at once (pipe(7)), so longer lines of two processes would mix. The lock
    is a record lock (fcntl(2)): it belongs to a process, and the kernel releases it when that ends, however it ends. A
    byte in shared memory is 1 while somebody writes.

    Thread: one at a time in each process.
    """

    def __init__(self, file: int) -> None:
        """Take an open file of one byte, shared by those processes."""
        self.file = file
        self._writing = mmap.mmap(file, 1)

    @classmethod
    def create(cls) -> "PipeLock":
        """Return the lock of a new pipe."""
        if sys.platform == "linux":
            file = os.memfd_create("pipe lock")  # never on a disk
        else:
            import tempfile  # here, for a sampler starts faster without

            with tempfile.TemporaryFile() as unnamed:
                file = os.dup(unnamed.fileno())
        os.ftruncate(file, 1)
        return cls(file)

    @property
    def word(self) -> str:
        """What tells a sampler of this lock on its command line."""
        return f"{_LOCK_WORD}{self.file}"

    def __enter__(self) -> bool:
        """Wait for the lock; return whether the last writer was killed in the middle of its lines."""
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        was_cut = self._writing[0] != 0
        self._writing[0] = 1
        return was_cut

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        self._writing[0] = 0
        fcntl.lockf(self.file, fcntl.LOCK_UN)


class Output:
    """The pipe to the program, shared by all threads; each write is whole lines."""

    def __init__(self, pipe: BinaryIO, pipe_lock: PipeLock | None = None) -> None:
        """Take the pipe, and its lock where another process writes to it, too."""
        self._pipe = pipe
        self._lock = threading.Lock()
        self._pipe_lock: AbstractContextManager[bool] = pipe_lock or nullcontext(False)
        self._encoder = msgspec.json.Encoder()

    def write(self, messages: Sequence[msgspec.Struct]) -> None:
        """Write the messages at once."""
        self.write_lines(self._encoder.encode_lines(messages))

    def write_lines(self, lines: bytes) -> None:
        """Write messages that are encoded; nobody at the other end ends this process."""
        with self._lock:
            try:
                with self._pipe_lock as was_cut:
                    if was_cut:
                        from app.agent_protocol import CUT  # here, for the sampler of this machine imports no orders

                        self._pipe.write(CUT)
                    self._pipe.write(lines)
                    self._pipe.flush()
            except BrokenPipeError:
                os._exit(0)


def sampler_output(words: Sequence[str]) -> Output:
    """Take stdout for messages alone, in a sampler that was started with these words; prints go to stderr."""
    files = [int(word.removeprefix(_LOCK_WORD)) for word in words if word.startswith(_LOCK_WORD)]
    return claim_output(PipeLock(files[0]) if files else None)


def claim_output(pipe_lock: PipeLock | None) -> Output:
    """Take stdout for messages alone; what prints, in Python or below, goes to stderr from now on."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    return Output(os.fdopen(pipe, "wb"), pipe_lock)


_log = logging.getLogger("variantscope.telemetry")

_EXIT_S = 2.0
_SINGLE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The sampler computes nothing with numpy: its threads would only take processors from what is measured."""


class Sampler(Protocol):
    """A sampler that was started, on this machine or on another.

    Thread: `messages` and `exit_code` one; the others any.
    """

    def messages(self) -> Iterator[SamplerMessage]:
        """Yield what it says until it has ended."""

    def exit_code(self) -> int:
        """Wait until it is gone and return its exit code; a negative one is the signal that ended it.

        Raises:
            TelemetryError: It is gone for good, and no other can be started.
        """

    def send(self, command: SamplerCommand) -> None:
        """Give it an order; one that has ended takes none."""

    def end(self) -> None:
        """End it, and wait until it is gone."""


StartSampler = Callable[[float], Sampler]
"""Starts a sampler with so many readings a second.

It raises `OSError` if none can be started now, and `TelemetryError` if none can be started any more.
"""


def start_sampler(
    hz: float, stdout: int = subprocess.PIPE, pipe_lock: PipeLock | None = None
) -> "subprocess.Popen[bytes]":
    """Start a sampler, which ends when its stdin closes.

    Args:
        hz: Its rate.
        stdout: The pipe that it writes to.
        pipe_lock: The lock of that pipe, where another process writes to it, too.

    Raises:
        OSError: It cannot be started.
    """
    words = [] if pipe_lock is None else [pipe_lock.word]
    return subprocess.Popen(
        [sys.executable, "-m", "app.telemetry.sampler", str(hz), *words],
        stdin=subprocess.PIPE,
        stdout=stdout,
        cwd=ROOT,
        env={**python_environment(), **_SINGLE_THREAD, **child_environment()},
        start_new_session=True,
        pass_fds=() if pipe_lock is None else (pipe_lock.file,),
    )


class SamplerProcess:
    """A sampler on this machine.

    Thread: see `Sampler`.
    """

    def __init__(self, hz: float) -> None:
        """Start it; raises `OSError`."""
        self.process = start_sampler(hz)
        _log.info("sampler %d started at %g Hz", self.process.pid, hz)

    def messages(self) -> Iterator[SamplerMessage]:
        """Yield what it says until its stdout closes."""
        decoder: msgspec.json.Decoder[SamplerMessage] = msgspec.json.Decoder(SamplerMessage)
        assert self.process.stdout is not None, "it was started with pipes"
        with self.process.stdout as stdout:
            for line in stdout:
                if line.endswith(b"\n"):  # else it was killed while it wrote
                    yield decoder.decode(line)

    def exit_code(self) -> int:
        """Wait for its process."""
        exit_code = self.process.wait()
        _log.info("sampler %d ended", self.process.pid)
        return exit_code

    def send(self, command: SamplerCommand) -> None:
        """Write a line to its stdin."""
        assert self.process.stdin is not None, "it was started with pipes"
        # ValueError: it is closed already.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.write(msgspec.json.encode(command) + b"\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Close its stdin, and kill it if that is not enough."""
        assert self.process.stdin is not None, "it was started with pipes"
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # hands on what a sampler that has ended did not take
        try:
            self.process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
