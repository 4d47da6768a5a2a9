"""The two pipes to an agent, however they are carried: a child process whose stdin and stdout are the agent's."""

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO, Protocol

from app.errors import UserError
from app.hosts.carriers import Carrier
from app.plain import plain_text

_MAX_LINE_BYTES = 64_000_000
"""A longer line is no agent's: evidence of a large model has a few megabytes."""
_READ_BYTES = 1 << 16
_MAX_STDERR_LINES = 50
_MAX_STDERR_LINE_BYTES = 2_000
_END_S, _CUT_S = 5.0, 2.0
"""How long the carrier may take to end when its stdin is closed, while the agent ends its workers; and by SIGTERM."""


class Channel(Protocol):
    """The agent's stdin and stdout.

    Thread: `lines` one; the others any.
    """

    def write(self, lines: bytes) -> None:
        """Write to the agent's stdin; raises `OSError` when it is closed. It waits while the carrier takes no more."""

    def lines(self) -> Iterator[bytes]:
        """Yield what comes, line by line, each with its line feed; ends when the other side is gone."""

    def close(self) -> None:
        """Close the agent's stdin, which ends everything on the host, and wait some seconds for that."""

    def cut(self) -> None:
        """Give the other side up: end the carrier within moments."""

    def why_ended(self, output: str = "") -> str:
        """Return why there are no more lines, in one sentence; `output` came on stdout and was no message."""


class LineTooLongError(Exception):
    """What came is no agent's: a line without an end."""


class ProcessChannel:
    """The channel through a carrier's command, in a session of its own: Ctrl-C in a terminal does not reach it.

    Thread: see `Channel`; one of its own reads stderr.
    """

    def __init__(self, carrier: Carrier, script: str, notify: Callable[[str], None] = lambda _: None) -> None:
        """Start the command.

        `notify` gets a sentence when the carrier says what it waits for, on the thread that reads stderr.

        Raises:
            UserError: The command cannot be started.
        """
        self._carrier = carrier
        self._notify = notify
        self._stderr: deque[str] = deque(maxlen=_MAX_STDERR_LINES)
        try:
            self._process = subprocess.Popen(
                carrier.command(script),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **carrier.environment},
                start_new_session=True,
                # Unbuffered: what a full pipe does not take must not be written when it is closed.
                bufsize=0,
            )
        except OSError as error:
            raise UserError(carrier.explain_start(error)) from error
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read_stderr, name="carrier stderr", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id of the carrier's command."""
        return self._process.pid

    def write(self, lines: bytes) -> None:
        """Write all of it."""
        assert self._process.stdin is not None, "it was started with pipes"
        with self._writing:
            view = memoryview(lines)
            while view:
                try:
                    view = view[self._process.stdin.write(view) or 0 :]
                except ValueError as error:  # closed by `close`
                    raise BrokenPipeError(str(error)) from error

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of its stdout; one that it did not end is dropped. Raises `LineTooLongError`."""
        assert self._process.stdout is not None, "it was started with pipes"
        parts: list[bytes] = []
        with self._process.stdout as stdout:
            while read := stdout.read(_READ_BYTES):
                *lines, rest = read.split(b"\n")
                for line in lines:
                    yield b"".join((*parts, line, b"\n"))
                    parts.clear()
                parts.append(rest)
                if sum(map(len, parts)) > _MAX_LINE_BYTES:
                    raise LineTooLongError

    def close(self) -> None:
        """Close its stdin; a carrier that does not end then is ended."""
        self._close_stdin()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self.cut()

    def cut(self) -> None:
        """End the command by its stdin and SIGTERM, then all that it started in its process group by SIGKILL."""
        self._close_stdin()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # What left its session may hold the pipes still: nothing waits for that.
        self._reader.join(_CUT_S)

    def why_ended(self, output: str = "") -> str:
        """Return what the carrier makes of its exit status, what it said last on stderr, and `output` on stdout."""
        try:
            exit_status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return f"The agent on {self._carrier.label} closed its stdout; try again."
        self._reader.join(_END_S)
        return self._carrier.explain(exit_status, "\n".join((output, *self._stderr)))

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None, "it was started with pipes"
        if self._writing.acquire(blocking=False):  # else it is full, and whoever writes will meet its end
            self._process.stdin.close()
            self._writing.release()

    def _read_stderr(self) -> None:
        """Keep the last lines, the beginning of each, and pass on once what the carrier waits for."""
        assert self._process.stderr is not None, "it was started with pipes"
        waited_for = ""
        with self._process.stderr as stderr:
            for line in bounded_lines(stderr, _MAX_STDERR_LINE_BYTES):
                text = plain_text(line.decode(errors="replace").rstrip())
                waits_for = self._carrier.on_stderr(text)
                if waits_for is None:
                    self._stderr.append(text)
                elif waits_for != waited_for:
                    self._notify(waits_for)
                    waited_for = waits_for


def bounded_lines(pipe: IO[bytes], limit: int) -> Iterator[bytes]:
    """Yield a pipe's lines without their line feed; of a longer one the first `limit` bytes."""
    line = b""
    while read := pipe.read(_READ_BYTES):
        first, *further = read.split(b"\n")
        line = (line + first)[:limit]
        for other in further:
            yield line
            line = other[:limit]
    if line:
        yield line
