"""Watching one worker from its start to its end, and ending it by a ladder when it has to be ended."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from app import units
from app.environment_keys import STOOD_STILL_KEY
from app.errors import UserError
from app.events import RunEvent, TelemetryEvent
from app.fields import Sample, SlowSample
from app.runs.host import ClockAnchor, now_here
from app.runs.launcher import BrokenMessage, Exited, Worker, WorkerEvent
from app.runs.message_order import MessageOrder
from app.runs.outcome import BROKEN_PYTHON, EndMethod, WorkerExit
from app.runs.pipes import fatal_message
from app.samples import DeviceLost, FieldsUpdated, LogLine, TelemetryGap, Waiting
from workloads.protocol import PROTOCOL_VERSION, EnvironmentInfo, Finished, Hello, Message, PhaseStarted, ProtocolError

_END_METHODS: tuple[EndMethod, ...] = ("itself", "closed stdin", "terminated", "killed")
_MAX_SHOWN_CHARS = 200
_DRAIN_S = 2.0
_MAX_CLOCK_ERROR_NS = 1_000_000_000
_LOOK_S = 1.0
_STOOD_STILL_S = 5.0
"""A wait of a second that takes so much longer: the program was suspended, or an extremely busy machine forgot it."""

_log = logging.getLogger("variantscope.worker")


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The user asks the run to end; with a reason, in one sentence, somebody else does."""

    reason: str = ""


InboxItem = WorkerEvent | TelemetryEvent | StopRequested

_MOST_MESSAGES, _MOST_LINES = 4, 2_000
"""Messages and lines of the log that may wait: a message can have megabytes, and the pipe holds hundreds of others."""


class Inbox:
    """What waits for a run's supervisor.

    Thread: `get` the session's; the others any.
    """

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[tuple[InboxItem, threading.Semaphore | None]] = queue.SimpleQueue()
        self._message_room = threading.Semaphore(_MOST_MESSAGES)
        self._line_room = threading.Semaphore(_MOST_LINES)
        self._closed = False

    def put(self, item: InboxItem) -> None:
        """Add an item at once; handlers of signals may call this, too."""
        self._items.put((item, None))

    def post(self, event: WorkerEvent) -> None:
        """Add a worker's event as soon as there is room; after the end it is dropped."""
        room = self._line_room if isinstance(event, LogLine) else self._message_room
        if not self._closed:
            room.acquire()
        if not self._closed:
            self._items.put((event, room))

    def get(self, timeout: float) -> InboxItem:
        """Return the next item; raises `queue.Empty` if none comes within `timeout` seconds."""
        item, room = self._items.get(timeout=timeout)
        if room is not None:
            room.release()
        return item

    def qsize(self) -> int:
        """Return how many items wait."""
        return self._items.qsize()

    def close(self) -> None:
        """Let a worker's readers go on that wait for room: nobody reads any more."""
        self._closed = True
        for room in (self._message_room, self._line_room):
            room.release(_READERS)


_READERS = 3
"""Threads of a worker that post."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTimeouts:
    """How long a worker may take, in seconds.

    Attributes:
        hello_s: To say hello. A standby worker may still import when it gets its order, and says hello after that.
        message_gap_s: Between two messages.
        closed_stdin_s: To end after its stdin was closed.
        terminated_s: To end after SIGTERM.
        finished_s: To end after its last message.
    """

    hello_s: float = 120.0
    message_gap_s: float = 300.0
    closed_stdin_s: float = 5.0
    terminated_s: float = 3.0
    finished_s: float = 5.0


class Supervisor:
    """The only reader of a run's inbox: forwards its events, and ends the worker on request or when something is wrong.

    It ends a worker in steps: close stdin, terminate, kill. Each has its time, and the last one needed is recorded.

    Thread: the session's own. All others only put into the inbox.
    """

    def __init__(
        self,
        worker: Worker,
        inbox: Inbox,
        limits: WorkerTimeouts,
        emit: Callable[[RunEvent], None],
        clock: ClockAnchor,
        now: Callable[[], ClockAnchor] = now_here,
    ) -> None:
        """Prepare to watch a worker.

        Args:
            worker: The worker, just launched.
            inbox: What it and the telemetry say, and requests to stop.
            limits: How long it may take for what.
            emit: Gets every event of the run, in order.
            clock: The clocks of the host before the worker's start, which the worker's have to agree with.
            now: Returns this moment on the host's clocks.
        """
        self._worker = worker
        self._clock, self._now = clock, now
        self._inbox = inbox
        self._limits = limits
        self._emit = emit
        self._end_method: EndMethod = "itself"
        self._finished: Finished | None = None
        self._stop_requested = False
        self._fault: str | None = None
        self._order = MessageOrder(clock, now)
        self._gpu_lost: str | None = None
        self._fatal_message: str | None = None
        self._started = False
        self._deadline_s = time.monotonic() + limits.hello_s
        self._looked_s = time.monotonic()
        self._stood_still_s = 0.0

    def watch(self) -> WorkerExit:
        """Read the inbox until the worker's process is gone."""
        while True:
            # Of one that says more and more, what waits is heard, and then its time is over.
            deadline_s, overdue = self._deadline_s, time.monotonic() >= self._deadline_s
            for _ in range(max(1, self._inbox.qsize())):
                try:
                    item = self._next_item()
                except queue.Empty:
                    self._on_timeout()
                    break
                if isinstance(item, Exited):
                    return self._ending(item)
                self._handle(item)
            else:
                if overdue and self._deadline_s == deadline_s:
                    self._on_timeout()

    def _next_item(self) -> InboxItem:
        """Return what comes next; raises `queue.Empty` when the worker's time is over.

        When everything was suspended (SIGSTOP, a frozen container), the worker stood still as well: its time goes on
        from there.
        """
        while True:
            wait_s = min(_LOOK_S, max(0.0, self._deadline_s - time.monotonic()))
            item = None
            with contextlib.suppress(queue.Empty):
                item = self._inbox.get(timeout=wait_s)
            stood_still_s = time.monotonic() - self._looked_s - wait_s
            self._looked_s = time.monotonic()
            if stood_still_s > _STOOD_STILL_S:
                self._deadline_s += stood_still_s
                reason = f"This program was suspended for {units.with_unit(stood_still_s, 's')}, and so was the run."
                _log.warning("%s", reason)
                self._forward(TelemetryGap(t_ns=self._now().t_ns, reason=reason))
                self._stood_still_s += stood_still_s
                self._forward(EnvironmentInfo(environment={STOOD_STILL_KEY: f"{self._stood_still_s:.0f}"}))
            if item is not None:
                return item
            if time.monotonic() >= self._deadline_s:
                raise queue.Empty

    def _ending(self, exited: Exited) -> WorkerExit:
        return WorkerExit(
            finished=self._finished,
            exit_code=exited.exit_code,
            lost=exited.reason,
            started=self._started,
            stop_requested=self._stop_requested,
            fault=self._fault,
            gpu_lost=self._gpu_lost,
            fatal_message=self._fatal_message,
            ended_by=self._end_method,
        )

    def drain(self, is_awaited: Callable[[], bool]) -> None:
        """Forward telemetry that is still under way when the worker is gone, two seconds at most.

        Args:
            is_awaited: Returns whether telemetry is missing still; called before each item.

        Raises:
            UserError: A sink cannot store an event.
        """
        end_s = time.monotonic() + _DRAIN_S
        while is_awaited() and (left_s := end_s - time.monotonic()) > 0:
            try:
                item = self._inbox.get(timeout=left_s)
            except queue.Empty:
                return
            if isinstance(item, TelemetryEvent):
                self._emit(item)

    def _handle(self, item: InboxItem) -> None:
        match item:
            case StopRequested(reason=reason) if reason:
                self._give_up(reason)
            case StopRequested():
                self._stop_requested = True
                self._escalate_to("closed stdin")
            case BrokenMessage(line=line) if not self._started:
                self._give_up(f"{BROKEN_PYTHON} instead of beginning the run it said “{line[:_MAX_SHOWN_CHARS]}”.")
            case BrokenMessage(reason=reason):
                self._give_up(f"The worker broke the protocol: {reason}")
            case DeviceLost(reason=reason):
                self._gpu_lost = reason
                self._forward(item)
            case Sample() | SlowSample() | FieldsUpdated() | TelemetryGap() | Waiting():
                self._forward(item)
            case LogLine(text=text):
                _log.debug("%s", text)
                self._fatal_message = fatal_message(text) or self._fatal_message
                self._extend_deadline()
                self._forward(item)
            case Exited():
                pass
            case _:
                if self._fault is None:
                    self._handle_message(item)

    def _handle_message(self, message: Message) -> None:
        try:
            self._order.check(message)
        except ProtocolError as error:
            self._give_up(f"The worker broke the protocol: {error}.")
            return
        match message:
            case Hello(protocol=protocol) if protocol != PROTOCOL_VERSION:
                self._give_up(f"The worker speaks protocol {protocol}, this program {PROTOCOL_VERSION}.")
            case Hello():
                self._started = True
                self._check_clock(message)
                self._extend_deadline()
            case Finished():
                _log.info("worker finished: %s", message.outcome)
                self._finished = message
                self._deadline_s = time.monotonic() + self._limits.finished_s
            case _:
                if isinstance(message, PhaseStarted):
                    _log.info("phase %s", message.phase)
                self._extend_deadline()
                self._forward(message)

    def _check_clock(self, hello: Hello) -> None:
        """Log it if the worker's clocks are not those of the host: its blocks and the telemetry would not match."""
        error_ns = self._clock.utc_at(hello.t_ns) - hello.utc_ns
        _log.info("worker %d says hello", hello.pid)
        if abs(error_ns) > _MAX_CLOCK_ERROR_NS:
            _log.warning("the clocks of worker %d and its host differ by %.1f s", hello.pid, error_ns / 1e9)

    def _extend_deadline(self) -> None:
        if self._started and self._end_method == "itself" and self._finished is None:
            self._deadline_s = time.monotonic() + self._limits.message_gap_s

    def _forward(self, event: RunEvent) -> None:
        """Emit one event; a sink that cannot store it (a full disk) ends the run."""
        try:
            self._emit(event)
        except UserError as error:
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        if self._fault is None:
            _log.warning("ending the worker: %s", reason)
            self._fault = reason
            self._escalate_to("terminated")

    def _on_timeout(self) -> None:
        if self._end_method != "itself" or self._finished is not None:
            self._escalate_to(_END_METHODS[min(_END_METHODS.index(self._end_method) + 1, len(_END_METHODS) - 1)])
        elif self._started:
            quiet = units.with_unit(self._limits.message_gap_s, "s")
            self._give_up(f"The worker sent nothing for {quiet} and was ended; see its log.")
        else:
            limit = units.with_unit(self._limits.hello_s, "s")
            self._give_up(f"{BROKEN_PYTHON} it did not begin the run within {limit}; see its log.")

    def _escalate_to(self, method: EndMethod) -> None:
        if _END_METHODS.index(method) <= _END_METHODS.index(self._end_method) and method != "killed":
            return
        _log.info("worker %d: %s", self._worker.pid, method)
        self._end_method = method
        if method == "closed stdin":
            self._worker.ask_to_stop()
            wait_s = self._limits.closed_stdin_s
        elif method == "terminated":
            self._worker.terminate()
            wait_s = self._limits.terminated_s
        else:
            self._worker.kill()
            wait_s = self._limits.terminated_s
        self._deadline_s = time.monotonic() + wait_s
