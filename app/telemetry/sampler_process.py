"""A sampler that was started: its messages, the orders that it takes, and its end. That of this machine is a child."""

import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from app.log import child_environment
from app.paths import ROOT, python_environment
from app.telemetry.messages import SamplerCommand, SamplerMessage
from app.telemetry.pipe import PipeLock

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
