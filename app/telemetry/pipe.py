"""The pipe on which a sampler says its messages, alone or beside another process of the program."""

import fcntl
import mmap
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import BinaryIO

import msgspec

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
