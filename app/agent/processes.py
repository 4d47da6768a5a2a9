"""The processes of an agent that the program orders by number: its sampler, and its workers."""

import contextlib
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from typing import IO

import msgspec

from app.agent.guard import print_error
from app.agent.scratch import Scratch
from app.agent_protocol import (
    MOST_EVENTS,
    EndWorker,
    LaunchWorker,
    Report,
    SamplerEnded,
    WorkerBroke,
    WorkerExited,
    WorkerLaunched,
    WorkerLogged,
    WorkerSaid,
)
from app.runs.launcher import BrokenMessage, Exited, Launcher, Worker, WorkerEvent
from app.samples import LogLine, Waiting
from app.telemetry.sampler_process import Output, PipeLock, start_sampler
from workloads.protocol import encode

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


_KILLED_S = 2.0
_NOT_STARTED = 127
"""The exit code of a command that could not be started, in shells."""


class AgentSampler:
    """The sampler, which writes to the agent's own stdout: a sample costs the agent nothing.

    Thread: of the orders alone.
    """

    def __init__(self, outbox: Outbox, stdout: int, pipe_lock: PipeLock) -> None:
        self._outbox = outbox
        self._stdout = stdout
        self._pipe_lock = pipe_lock
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = threading.Thread()

    def start(self, hz: float) -> None:
        """Start a sampler, in place of one that runs, whose end is said before."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._watcher.join(_KILLED_S)
        try:
            self._process = start_sampler(hz, self._stdout, self._pipe_lock)
        except OSError as error:
            print_error(f"The sampler could not be started ({error}).")
            self._outbox.answer(SamplerEnded(_NOT_STARTED))
            return
        # One that reads no orders must not hold up those of others.
        os.set_blocking(self._stdin(self._process).fileno(), False)
        self._watcher = threading.Thread(target=self._watch, args=(self._process,), name="sampler end", daemon=True)
        self._watcher.start()

    def order(self, command: bytes) -> None:
        """Pass an order on, if there is a sampler that takes it."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError, BlockingIOError, ValueError):
                os.write(self._stdin(self._process).fileno(), command + b"\n")

    def end(self) -> None:
        """Ask the sampler to end."""
        if self._process is not None:
            self._stdin(self._process).close()

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        self._outbox.answer(SamplerEnded(process.wait()))

    @staticmethod
    def _stdin(process: "subprocess.Popen[bytes]") -> IO[bytes]:
        assert process.stdin is not None, "started with a pipe"
        return process.stdin


class AgentWorker:
    """A worker that was ordered: says its events, at most `MOST_EVENTS` more than the program has taken.

    It can be ended before it is launched.

    Thread: any.
    """

    def __init__(self, order: LaunchWorker, outbox: Outbox, on_exit: Callable[[], object]) -> None:
        """Launch nothing yet.

        Args:
            order: The order.
            outbox: Takes its events.
            on_exit: Called when its last event is said.
        """
        self._number = order.number
        self._start = order.start
        self._outbox = outbox
        self._on_exit = on_exit
        # Guards what follows.
        self._changed = threading.Condition()
        self._may_say = MOST_EVENTS
        self._worker: Worker | None = None
        self._orders: list[EndWorker] = []

    def launch(self, launcher: Launcher, scratch: Scratch) -> None:
        """Start it, with its files in the scratch folder; raises `OSError` and `UserError`."""
        start = self._start
        if start.weights_path is not None:
            start = msgspec.structs.replace(start, weights_path=scratch.path(start.weights_path))
        worker = launcher.launch(start, self._post)
        with self._changed:
            self._outbox.answer(WorkerLaunched(worker=self._number, pid=worker.pid))
            self._worker = worker
            self._changed.notify_all()
        for order in self._orders:
            _end(worker, order)

    def end(self, order: EndWorker) -> None:
        """End it by one step."""
        with self._changed:
            if self._worker is None:
                self._orders.append(order)
                return
        _end(self._worker, order)

    def take(self, events: int) -> None:
        """Allow so many more events."""
        with self._changed:
            self._may_say += events
            self._changed.notify_all()

    def _post(self, event: WorkerEvent) -> None:
        with self._changed:
            # The first one may come before `launch` has returned.
            self._changed.wait_for(lambda: self._worker is not None and self._may_say > 0)
            self._may_say -= 1
        self._outbox.say(self._report(event))
        if isinstance(event, Exited):
            self._on_exit()

    def _report(self, event: WorkerEvent) -> Report:
        match event:
            case LogLine(t_ns=t_ns, text=text) | Waiting(t_ns=t_ns, reason=text):
                return WorkerLogged(worker=self._number, t_ns=t_ns, text=text)
            case BrokenMessage(reason=reason, line=line):
                return WorkerBroke(worker=self._number, reason=reason, line=line)
            case Exited(exit_code=exit_code, reason=reason):
                return WorkerExited(worker=self._number, exit_code=exit_code, reason=reason)
            case _:
                return WorkerSaid(worker=self._number, message=msgspec.Raw(encode(event).rstrip()))


def _end(worker: Worker, order: EndWorker) -> None:
    match order.method:
        case "close stdin":
            worker.ask_to_stop()
        case "terminate":
            worker.terminate()
        case "kill":
            worker.kill()
