"""What the agent has to say: answers to orders first, then the events of workers, in bounded memory."""

import threading
from collections import deque

import msgspec

from app.telemetry.pipe import Output

_MOST_UNSAID_BYTES = 2**20
"""Of events that wait to be written: more of them wait in their worker's pipe."""
_WRITE_BYTES = 2**16
"""Written at once: a sample, or a pong, never waits for much more."""


class Outbox:
    """Writes reports on a thread of its own, so that orders are read also while nobody reads the reports.

    An answer never waits for events. Who says an event waits while too much is unsaid.

    Thread: any.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._encoder = msgspec.json.Encoder()
        self._changed = threading.Condition()
        self._answers: deque[bytes] = deque()
        self._events: deque[bytes] = deque()
        self._event_bytes = 0
        self._is_over = False
        threading.Thread(target=self._write, name="outbox", daemon=True).start()

    def answer(self, report: msgspec.Struct) -> None:
        """Say this next; returns at once."""
        line = self._encoder.encode(report) + b"\n"
        with self._changed:
            self._answers.append(line)
            self._changed.notify_all()

    def say(self, report: msgspec.Struct) -> None:
        """Say this after all that was said before; waits while much is unsaid."""
        line = self._encoder.encode(report) + b"\n"
        with self._changed:
            self._changed.wait_for(lambda: not self._events or self._event_bytes + len(line) <= _MOST_UNSAID_BYTES)
            self._events.append(line)
            self._event_bytes += len(line)
            self._changed.notify_all()

    def end(self) -> None:
        """Say nothing from now on: what ends now ends because the agent does."""
        with self._changed:
            self._is_over = True

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: (self._answers or self._events) and not self._is_over)
                lines = self._take()
            self._output.write_lines(lines)

    def _take(self) -> bytes:
        """Return what to write next: all from one queue, but not much more than is written at once."""
        if self._answers:
            return _first(self._answers)
        lines = _first(self._events)
        self._event_bytes -= len(lines)
        self._changed.notify_all()
        return lines


def _first(lines: deque[bytes]) -> bytes:
    found = bytearray()
    while lines and len(found) < _WRITE_BYTES:
        found += lines.popleft()
    return bytes(found)
