"""A running sampler: its messages, the orders that it takes, and its end. This machine's is a child process."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Protocol

import msgspec

from app.log import child_environment, log_file
from app.paths import ROOT, open_private, python_environment
from app.telemetry.messages import SamplerCommand, SamplerMessage


class Output:
    """The pipe to the program, shared by all threads; each write is whole lines."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def write(self, messages: Sequence[msgspec.Struct]) -> None:
        self.write_lines(self._encoder.encode_lines(messages))

    def write_lines(self, lines: bytes) -> None:
        """Write encoded messages; if nobody reads any more, this process ends."""
        with self._lock:
            try:
                self._pipe.write(lines)
                self._pipe.flush()
            except BrokenPipeError:
                os._exit(0)


def claim_output() -> Output:
    """Reserve stdout for messages; whatever prints, in Python or below, goes to stderr from now on."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    return Output(os.fdopen(pipe, "wb"))


_log = logging.getLogger("variantscope.telemetry")

_EXIT_S = 2.0
_SINGLE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The sampler computes nothing with numpy: its threads would only take processors from the runs."""


class Sampler(Protocol):
    """A running sampler, on this machine or another. Thread: `messages` and `exit_code` one; the others any."""

    def messages(self) -> Iterator[SamplerMessage]:
        """Yield its messages until it has ended."""

    def exit_code(self) -> int:
        """Wait for its end and return its exit code; a negative one is the signal that ended it.

        Raises:
            TelemetryError: It has ended, and no other can start.
        """

    def send(self, command: SamplerCommand) -> None:
        """Give it an order; one that has ended ignores it."""

    def end(self) -> None:
        """End it, and wait for its end."""


StartSampler = Callable[[float], Sampler]
"""Starts a sampler with that many readings per second.

It raises `OSError` if none can start now, and `TelemetryError` if none ever can.
"""


class SamplerProcess:
    """A sampler on this machine. Thread: see `Sampler`."""

    def __init__(self, hz: float) -> None:
        """Start the process, which ends when its stdin closes; raises `OSError`."""
        with contextlib.ExitStack() as files:
            stderr = None  # the program's, where the log cannot be written
            if log := log_file():
                with contextlib.suppress(OSError):
                    stderr = files.enter_context(open(log, "ab", opener=open_private))
            self.process = subprocess.Popen(
                # A driver has crashed it before it could open a log: the stacks are written from the start on.
                [sys.executable, "-X", "faulthandler", "-m", "app.telemetry.sampler", str(hz)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env={**python_environment(), **_SINGLE_THREAD, **child_environment()},
                start_new_session=True,
            )
        _log.info("sampler %d started at %g Hz", self.process.pid, hz)

    def messages(self) -> Iterator[SamplerMessage]:
        decoder: msgspec.json.Decoder[SamplerMessage] = msgspec.json.Decoder(SamplerMessage)
        assert self.process.stdout is not None, "it was started with pipes"
        with self.process.stdout as stdout:
            for line in stdout:
                if line.endswith(b"\n"):  # otherwise it was killed while writing
                    yield decoder.decode(line)

    def exit_code(self) -> int:
        exit_code = self.process.wait()
        _log.info("sampler %d ended", self.process.pid)
        return exit_code

    def send(self, command: SamplerCommand) -> None:
        assert self.process.stdin is not None, "it was started with pipes"
        # ValueError: it is already closed.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.write(msgspec.json.encode(command) + b"\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Close its stdin, and kill it if necessary."""
        assert self.process.stdin is not None, "it was started with pipes"
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # returns what an ended sampler did not read
        try:
            self.process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
