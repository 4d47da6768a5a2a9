"""Read a worker's two pipes in bounded memory: whole messages, and a log that says what was left out of it.

Nobody reads a message pipe faster than its limit, so that the worker has to wait where it sends more. A log is always
read, so that a print never waits for the program; what its limits have no room for is counted.
"""

import os
import re
import select
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from workloads.protocol import MOST_MESSAGE_BYTES

_CHUNK_BYTES = 65_536
"""What a pipe holds (pipe(7))."""
_MESSAGES_PER_S, _MESSAGE_BURST = 50, 5_000
"""A training loop sends about ten messages per second."""
_LINES_PER_S, _LINE_BURST = 200, 5_000
_LOG_BYTES_PER_S, _LOG_BYTE_BURST = 50_000, 2_000_000
_LINE_BYTES = 4_000
_LAST_LINES, _LAST_BYTES = 100, 16_384
"""What is shown of lines that were left out: the last ones, which say why something ended."""
_QUIET_S = 1.0
"""How often it is said what was left out."""
_STATE_S = 0.5
"""How often the state of a progress bar is shown, which overwrites itself with carriage returns."""
_FATAL = re.compile(r"F\d{4} .*?\] (.+)")
_MAX_FATAL_CHARS = 300


class Allowance:
    """A rate with a burst: so much at once, and so much per second (a token bucket)."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._filled_s = time.monotonic()

    def missing_s(self, amount: float) -> float:
        """Return after how many seconds there is so much; 0 if there is now."""
        now_s = time.monotonic()
        self._left = min(self._burst, self._left + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        return max(0.0, (amount - self._left) / self._per_s)

    def take(self, amount: float) -> None:
        self._left -= amount


def message_lines(pipe: BinaryIO, wait: Callable[[float], object]) -> Iterator[bytes]:
    """Yield the lines of a message pipe, as fast as messages may come; one that is too long for a message is cut.

    `wait` waits for so many seconds, or returns earlier where the worker is gone and nothing more will come.
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
    """Yield the lines of a log, and in place of those that are too many a line that counts them."""
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
    """Makes lines of bytes as they come, and holds back what is too much.

    A line ends with a newline. A carriage return ends a state of a progress bar: the next one, or the rest of the line,
    overwrites it. Where lines come faster than their limit they are counted, and the last ones are kept.
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
        """The milliseconds until `due_lines` has something, None if it holds back nothing."""
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
        """Yield what was held back long enough: the state of a progress bar, or the last lines of too many."""
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
        """Add bytes without a newline to the present line."""
        overwritten, separator, rest = data.rpartition(b"\r")
        if separator:
            state = (self._line + overwritten).rpartition(b"\r")[2]
            if state:
                self._state, self._is_state_shown = state[:_LINE_BYTES], False
                self._due_s = self._due_s or time.monotonic() + _STATE_S
            self._line, self._cut_bytes = b"", 0
        room = _LINE_BYTES - len(self._line)
        self._line += rest[:room]
        self._cut_bytes += max(0, len(rest) - room)

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
        """Say how many lines were left out, yield the last of them, and go on with the line that is not ended."""
        *lines, rest = self._last.split(b"\n")
        if len(self._last) == _LAST_BYTES:
            lines = lines[1:]  # the first one has lost its beginning
        tail = lines[-min(_LAST_LINES, self._left_out) :]
        left_out = self._left_out - len(tail)
        self._left_out, self._last, self._due_s = 0, b"", None
        if left_out:
            yield f"(… {left_out:,} lines left out: more than {_LINES_PER_S} per second for long)"
        yield from (_text(line[-_LINE_BYTES:]) for line in tail)
        self._extend(rest)


def _text(line: bytes) -> str:
    # SQLite's functions end a text at a NUL.
    return line.rpartition(b"\r")[2].decode("utf-8", errors="replace").rstrip().replace("\0", "\ufffd")


def fatal_message(line: str) -> str | None:
    """Return the text of a log line by which a library aborts (Abseil's `F0000 … file.cc:1] text`), else None."""
    match = _FATAL.match(line)
    return match.group(1)[:_MAX_FATAL_CHARS] if match else None
