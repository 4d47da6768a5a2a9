"""What an agent has by number: the host's telemetry, which it says, the runs that it makes, and their files."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from app.agent_protocol import (
    FILE_PIECE_BYTES,
    MOST_EVENTS,
    FilePart,
    ReadFile,
    RunSaid,
    StartRun,
    TelemetryEnded,
    WriteFile,
)
from app.errors import TelemetryError, UserError
from app.events import RunEvent
from app.fields import Sample, SlowSample
from app.grants import order_grants, require, typed
from app.runs.host import Host, WorkerTimeouts
from app.runs.maker import LocalRun
from app.samples import Processes
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.telemetry.sampler_process import Output
from workloads.job_protocol import ComputeGradients, JobRequest, TryWeights
from workloads.protocol import encode


class Scratch:
    """Files of the program in a folder of the agent's own, which the guard removes.

    Thread: any.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def path(self, name: str) -> str:
        """Return the path of a file, whose folder is there then; raises `UserError` for a name that leads elsewhere."""
        path = self._find(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    def with_paths(self, request: JobRequest) -> JobRequest:
        """Return a job with paths in place of names; raises `UserError`."""
        match request:
            case TryWeights(weights_path=name):
                return msgspec.structs.replace(request, weights_path=self.path(name))
            case ComputeGradients(path=name, start_path=start):
                start_path = None if start is None else self.path(start)
                return msgspec.structs.replace(request, path=self.path(name), start_path=start_path)
            case _:
                return request

    def read(self, order: ReadFile) -> FilePart:
        """Return a piece of a file; raises `UserError`."""
        try:
            with self._find(order.name).open("rb") as file:
                file.seek(order.offset)
                data = file.read(FILE_PIECE_BYTES)
                return FilePart(number=order.number, data=data, size=os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise _file_error(order.name, error) from error

    def write(self, order: WriteFile) -> FilePart:
        """Write a piece of a file; raises `UserError`."""
        path = self.path(order.name)
        try:
            with Path(path).open("r+b" if order.offset else "wb") as file:
                file.seek(order.offset)
                file.write(order.data)
                file.flush()
                return FilePart(number=order.number, size=os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise _file_error(order.name, error) from error

    def remove(self, name: str) -> None:
        """Remove a file, if it is there; raises `UserError`."""
        try:
            self._find(name).unlink(missing_ok=True)
        except OSError as error:
            raise _file_error(name, error) from error

    def _find(self, name: str) -> Path:
        try:
            path = (self._folder / name).resolve()
            is_inside = path != self._folder and path.is_relative_to(self._folder)
            with contextlib.suppress(FileNotFoundError):
                path.stat()  # of a loop of links `resolve` says nothing from Python 3.13 on
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
            is_inside = False
        if not is_inside:
            raise UserError(f"{name[:200]!r} is no name of a file in the agent's folder.")
        return path


def _file_error(name: str, error: OSError) -> UserError:
    return UserError(f"{name} in the agent's folder cannot be used on the host ({error.strerror}).")


_MOST_UNSAID_BYTES = 2**20
"""Of events that wait to be written, and of answers beside which no reading is taken."""
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
        self._event_bytes = self._answer_bytes = 0
        self._is_over = False
        threading.Thread(target=self._write, name="outbox", daemon=True).start()

    def answer(self, report: msgspec.Struct) -> None:
        """Say this next; returns at once."""
        line = self._encoder.encode(report) + b"\n"
        with self._changed:
            self._answers.append(line)
            self._answer_bytes += len(line)
            self._changed.notify_all()

    def offer(self, reading: msgspec.Struct) -> None:
        """Say this next, unless too much is unsaid; returns at once."""
        if self._answer_bytes < _MOST_UNSAID_BYTES:
            self.answer(reading)

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
            lines = _first(self._answers)
            self._answer_bytes -= len(lines)
            return lines
        lines = _first(self._events)
        self._event_bytes -= len(lines)
        self._changed.notify_all()
        return lines


def _first(lines: deque[bytes]) -> bytes:
    first = bytearray()
    while lines and len(first) < _WRITE_BYTES:
        first += lines.popleft()
    return bytes(first)


class AgentTelemetry:
    """Reads the host's telemetry, for the runs that are made here and for the program.

    Readings of which too many are unsaid are left out: the program gets those of its runs with their events.

    Thread: of the orders alone.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._unsubscribe: Callable[[], None] = lambda: None
        self.feed = TelemetryFeed()

    def start(self, hz: float) -> None:
        """Say all messages from now on, the inventory first."""
        self.feed.set_rate(hz)
        try:
            self.feed.start()
        except OSError as error:
            self._outbox.answer(TelemetryEnded(f"The sampler could not be started ({error})."))
            return
        self._unsubscribe()
        self._unsubscribe = self.feed.subscribe(self._say)
        threading.Thread(target=self._say_end, name="telemetry end", daemon=True).start()

    def stop(self) -> None:
        """Say none from now on."""
        self._unsubscribe()
        self._outbox.answer(TelemetryEnded())

    def _say(self, message: SamplerMessage) -> None:
        if isinstance(message, Sample | SlowSample | Processes):
            self._outbox.offer(message)
        else:
            self._outbox.answer(message)

    def _say_end(self) -> None:
        """Say why there is no inventory, if there never is one; of later ends the devices' loss tells."""
        try:
            self.feed.wait_inventory(timeout_s=None)
        except TelemetryError as error:
            self._outbox.answer(TelemetryEnded(str(error)))


class AgentRun:
    """A run that was ordered: says its events, at most `MOST_EVENTS` more than the program has taken.

    `local` is the run itself, which is made on a thread of its own.

    Thread: any.
    """

    def __init__(self, order: StartRun, host: Host, outbox: Outbox, scratch: Scratch) -> None:
        """Start nothing yet; its files are in the scratch folder. Raises `UserError` for one that would not be."""
        start = order.start
        require(order_grants(start), typed)
        if start.weights_path is not None:
            start = msgspec.structs.replace(start, weights_path=scratch.path(start.weights_path))
        timeouts = WorkerTimeouts(hello_s=order.hello_s, message_gap_s=order.message_gap_s)
        self._number = order.number
        self._outbox = outbox
        self.local = LocalRun(start, host, self._emit, timeouts)
        # Guards what follows.
        self._changed = threading.Condition()
        self._may_say = MOST_EVENTS

    def take(self, events: int) -> None:
        """Allow so many more events."""
        with self._changed:
            self._may_say += events
            self._changed.notify_all()

    def _emit(self, event: RunEvent) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._may_say > 0)
            self._may_say -= 1
        self._outbox.say(RunSaid(run=self._number, event=msgspec.Raw(encode(event).rstrip())))
