"""Watches one worker from start to end, ends it in steps if necessary, and determines the outcome."""

import contextlib
import logging
import queue
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from app.errors import UserError
from app.runs.host import ClockAnchor, WorkerTimeouts, now_here
from app.runs.launcher import BrokenMessage, Exited, Worker, WorkerEvent, error_message, fatal_message
from app.values import units
from app.values.environment_keys import STOOD_STILL_KEY
from app.values.events import Outcome, RunEvent, TelemetryEvent
from app.values.fields import Sample, SlowSample
from app.values.samples import Device, DeviceLost, FieldsUpdated, LogLine, TelemetryGap
from workloads.catalog import FRAMEWORK, Framework, is_custom
from workloads.protocol import (
    PROTOCOL_VERSION,
    STYLES,
    Block,
    Calibration,
    DataReady,
    EnvironmentInfo,
    Epoch,
    Evidence,
    Finished,
    Flops,
    Hello,
    Message,
    PhaseName,
    PhaseStarted,
    Progress,
    ProtocolError,
    WorkerOutcome,
    sentence,
)

_PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
_NO_FILE = re.compile("FileNotFoundError|No such file|[Dd]ownload|URLError|[Dd]ata(set)? not found")
_CLOCK_ERROR_NS = 1_000_000_000
"""How far a message's time may lie outside the run."""
_MOST_ENVIRONMENT_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class _PhaseSpan:
    """The first and last phase in which a message may come, and whether it may come only once."""

    first: PhaseName
    last: PhaseName
    once: bool = False


_SPANS: dict[type[Message], _PhaseSpan] = {
    EnvironmentInfo: _PhaseSpan("import", "finish"),
    Flops: _PhaseSpan("build", "build", once=True),
    Progress: _PhaseSpan("compile", "measure"),
    Block: _PhaseSpan("compile", "measure"),
    Epoch: _PhaseSpan("measure", "measure"),
    DataReady: _PhaseSpan("measure", "measure", once=True),
    Evidence: _PhaseSpan("compile", "finish", once=True),
    Calibration: _PhaseSpan("finish", "finish", once=True),
}
"""In addition, `Hello` comes first and `Finished` last; each phase begins at most once, in the order of `PhaseName`."""


class MessageOrder:
    """Checks the order of one run's messages. Thread: one."""

    def __init__(
        self, start: ClockAnchor, now: Callable[[], ClockAnchor] = now_here, *, of_events: bool = False
    ) -> None:
        """Expect `Hello` of a worker started at `start`, on the clocks of its host, which `now` reads.

        With `of_events` it checks the events of a run, which do not include `Hello` and `Finished`.
        """
        self._now = now
        self._last_ns = self._start_ns = start.t_ns - _CLOCK_ERROR_NS
        self._seen: set[type[Message]] = {Hello} if of_events else set()
        self._phase: PhaseName | None = None
        self._steps = 0
        self._measured = False
        self._epochs = 0
        self._epoch_ns = 0
        self._environment_chars = 0

    def check(self, message: Message) -> None:
        """Take the next message; raises `ProtocolError` if it cannot come now."""
        kind, name = type(message), str(message.__struct_config__.tag)
        if Finished in self._seen:
            raise ProtocolError(f"`{name}` came after `finished`")
        if kind is Hello and Hello in self._seen:
            raise ProtocolError("`hello` came twice")
        # A worker that is stopped during its import ends without `Hello`.
        if Hello not in self._seen and kind not in (Hello, Finished):
            raise ProtocolError(f"`{name}` came before `hello`")
        if kind in _SPANS:
            span = _SPANS[kind]
            if span.once and kind in self._seen:
                raise ProtocolError(f"`{name}` came twice")
            present = -1 if self._phase is None else _PHASES.index(self._phase)
            if not _PHASES.index(span.first) <= present <= _PHASES.index(span.last):
                raise ProtocolError(f"`{name}` came {_when(self._phase)}")
        self._seen.add(kind)
        self._check_content(message)

    def _check_content(self, message: Message) -> None:
        match message:
            case PhaseStarted():
                if self._phase is not None and _PHASES.index(message.phase) <= _PHASES.index(self._phase):
                    raise ProtocolError(f"the phase {message.phase} came {_when(self._phase)}")
                # The next phase begins later even if the clock is coarse: the database distinguishes phases by time.
                self._pass(message.t_ns, later_by_ns=0 if self._phase is None else 1)
                self._phase, self._epoch_ns = message.phase, message.t_ns
            case Block():
                self._check_phase_name("block", message.phase)
                if message.first_step != self._steps:
                    raise ProtocolError(f"a block begins with step {message.first_step} instead of step {self._steps}")
                self._pass(message.start_ns)
                self._pass(message.end_ns, later_by_ns=1)
                self._steps += message.steps
                self._measured |= message.phase == "measure"
            case Epoch():
                if message.epoch != self._epochs + 1:
                    raise ProtocolError(f"epoch {message.epoch} came instead of epoch {self._epochs + 1}")
                if not self._epoch_ns <= message.start_ns < message.end_ns <= message.tested_ns:
                    raise ProtocolError(f"the times of epoch {message.epoch} go back")
                self._pass(message.tested_ns)
                self._epochs, self._epoch_ns = message.epoch, message.tested_ns
            case Progress():
                self._check_phase_name("progress", message.phase)
                self._pass(message.t_ns)
            case Evidence():
                self._check_timeline(message)
            case Finished():
                # No later than the last block's end: another thread sends it if a step does not end.
                self._check_range(message.t_ns)
                if message.outcome == "completed" and not (self._phase == "finish" and self._measured):
                    raise ProtocolError(
                        "it completed without a measured block" if self._phase else "it completed at once"
                    )
            case EnvironmentInfo():
                self._environment_chars += sum(map(len, (*message.environment, *message.environment.values())))
                if self._environment_chars > _MOST_ENVIRONMENT_CHARS:
                    raise ProtocolError(f"`facts` have more than {_MOST_ENVIRONMENT_CHARS:,} characters")

    def _check_timeline(self, evidence: Evidence) -> None:
        step = evidence.timeline
        if step is None:
            return
        self._check_range(step.start_ns)
        limits = len(step.streams), len(evidence.kernels)
        if not all(kernel.stream < limits[0] and kernel.rank < limits[1] for kernel in step.kernels):
            raise ProtocolError("the timeline of a step has a kernel without a name or a stream")

    def _check_phase_name(self, what: str, phase: PhaseName) -> None:
        if phase != self._phase:
            raise ProtocolError(f"a `{what}` of the phase {phase} came {_when(self._phase)}")

    def _pass(self, t_ns: int, later_by_ns: int = 0) -> None:
        """Advance the time to `t_ns`; raises `ProtocolError` if it goes back."""
        self._check_range(t_ns)
        if t_ns < self._last_ns + later_by_ns:
            raise ProtocolError("times go back, or stand still")
        self._last_ns = t_ns

    def _check_range(self, t_ns: int) -> None:
        if not self._start_ns <= t_ns <= self._now().t_ns + _CLOCK_ERROR_NS:
            raise ProtocolError("a time is outside the run")


def _when(phase: PhaseName | None) -> str:
    return f"in the phase {phase}" if phase else "before any phase"


BROKEN_PYTHON = "The Python of this run cannot run workloads, or is broken:"
"""Begins the reason if the process never sent `Hello`."""

EndMethod = Literal["itself", "closed stdin", "terminated", "killed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """What is known after the worker's process has ended.

    Attributes:
        finished: Its last message; None if it sent none.
        exit_code: Its exit status; a negative one is the signal that ended it.
        started: It sent `Hello`.
        fault: Why the program ended the worker: no progress, a broken protocol, a full disk.
        gpu_lost: A sentence about a GPU that stopped answering during the run.
        fatal_message: Text of the log's fatal line.
        error_message: The last error in the log.
        last_line: The log's last line that has a word.
        ended_by: The last step that was needed to end it.
    """

    finished: Finished | None
    exit_code: int
    started: bool
    stop_requested: bool
    fault: str | None
    gpu_lost: str | None
    fatal_message: str | None = None
    error_message: str | None = None
    last_line: str = ""
    ended_by: EndMethod


def form_outcome(ending: WorkerExit, framework: Framework = FRAMEWORK, *, of_script: bool = False) -> Outcome:
    """Return the outcome: by the fault that the program found, else the worker's last message, else its exit code.

    A run that reported completion is completed, however its process ended; an abnormal end becomes its reason.
    """
    outcome = _derive_outcome(ending, framework)
    if ending.gpu_lost is not None and outcome.name in ("failed", "crashed"):
        return replace(outcome, reason=f"{ending.gpu_lost} {outcome.reason or ''}".strip())
    # sys.exit("no data") is no error.
    last = f"Its log ends with “{ending.last_line}”." if of_script and ending.last_line else ""
    message = f"It says “{ending.error_message}”." if ending.error_message else last
    is_explained = outcome.detail or ending.fault or ending.fatal_message or not message
    if outcome.name in ("failed", "crashed") and not is_explained:
        remedy = " If git ignores the file, link it (--link; in the window, Link)."
        also = remedy if of_script and _NO_FILE.search(message) else ""
        return replace(outcome, reason=f"{outcome.reason} {message}{also}")
    return outcome


def with_memory_size(outcome: Outcome, devices: Sequence[Device]) -> Outcome:
    """Return the outcome; for `out_of_memory`, name the memory of the smallest GPU, else of the machine."""
    if outcome.name != "out_of_memory":
        return outcome
    gpus = [device for device in devices if device.kind == "gpu"]
    sizes = [device.memory_total_bytes for device in gpus or devices if device.memory_total_bytes]
    if not sizes:
        return outcome
    name = gpus[0].name if gpus else "This machine"
    return replace(outcome, reason=f"{outcome.reason or ''} {name} has {units.byte_size(min(sizes))}.".strip())


def with_file_name(outcome: Outcome, workload: str) -> Outcome:
    """Return the outcome; for a crash of a custom workload, name its file, whose code may have caused it."""
    if outcome.name != "crashed" or not is_custom(workload):
        return outcome
    return replace(outcome, reason=f"{workload.partition(':')[0]}: {outcome.reason}")


def with_host(outcome: Outcome, host: str) -> Outcome:
    """Return the outcome with the host's name in the reason: the host itself calls it this machine."""
    reason = (outcome.reason or "").replace("on this machine", f"on {host}" if host else "on this machine")
    return replace(outcome, reason=sentence(reason) or None)


def _derive_outcome(ending: WorkerExit, framework: Framework) -> Outcome:
    finished = ending.finished
    if ending.fault is not None:
        return _outcome(ending, "failed", ending.fault)
    if finished is not None:
        return Outcome(
            name=finished.outcome,
            reason=finished.reason or _reason_of(finished.outcome, ending),
            detail=finished.traceback,
            exit_code=ending.exit_code,
            ended_by=ending.ended_by,
        )
    if ending.stop_requested:
        return _outcome(ending, "stopped", "Stopped by the user.")
    return _outcome(ending, "crashed", _crash_reason(ending, framework))


def _reason_of(name: WorkerOutcome, ending: WorkerExit) -> str | None:
    """Return the reason if the worker gave none: measurements count even if the process then fails."""
    if name == "stopped":
        return "Stopped by the user."
    if ending.exit_code == 0 or ending.ended_by != "itself":
        return None
    end = f"exit status {ending.exit_code}" if ending.exit_code > 0 else _signal_name(-ending.exit_code)
    return f"Everything was measured; then its process ended with {end}, see its log."


def _outcome(ending: WorkerExit, name: Literal["failed", "stopped", "crashed"], reason: str) -> Outcome:
    return Outcome(name=name, reason=reason, exit_code=ending.exit_code, ended_by=ending.ended_by)


def _crash_reason(ending: WorkerExit, framework: Framework) -> str:
    exit_code = ending.exit_code
    if ending.fatal_message is not None:
        return f"{framework.name} gave up: {ending.fatal_message}"
    if exit_code == -signal.SIGKILL:
        return "The worker was killed (SIGKILL), often because the machine ran out of memory; see the end of its log."
    if exit_code < 0:
        return f"The worker died of {_signal_name(-exit_code)}; see the end of its log."
    if not ending.started:
        return f"{BROKEN_PYTHON} it ended with exit status {exit_code} before the run began; see the end of its log."
    return f"The worker ended with exit status {exit_code} without reporting a result; see the end of its log."


def _signal_name(number: int) -> str:
    """Return the name of a signal, or its number if it has none (real-time signals)."""
    names = {member.value: member.name for member in signal.Signals}
    return names.get(number, f"signal {number}")


_END_METHODS: tuple[EndMethod, ...] = ("itself", "closed stdin", "terminated", "killed")
_MAX_SHOWN_CHARS = 200
_DRAIN_S = 2.0
_MAX_CLOCK_ERROR_NS = 1_000_000_000
_LOOK_S = 1.0
_STOOD_STILL_S = 5.0
"""If a wait of a second takes this much longer, the program was suspended, or the machine is extremely busy."""

_log = logging.getLogger("variantscope.worker")


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A request to end the run: by the user, or with a reason, in one sentence, by something else."""

    reason: str = ""


InboxItem = WorkerEvent | TelemetryEvent | StopRequested

_MOST_MESSAGES, _MOST_LINES = 4, 2_000
"""The most messages and log lines that may wait: a message can have megabytes, and the pipe holds hundreds of others.
"""


class Inbox:
    """The queue of a run's supervisor. Thread: `get` on the session's; the others any."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[tuple[InboxItem, threading.Semaphore | None]] = queue.SimpleQueue()
        self._message_room = threading.Semaphore(_MOST_MESSAGES)
        self._line_room = threading.Semaphore(_MOST_LINES)
        self._closed = False

    def put(self, item: InboxItem) -> None:
        """Add an item immediately; signal handlers may call this."""
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
        return self._items.qsize()

    def close(self) -> None:
        """Release a worker's readers that wait for room: nobody reads any more."""
        self._closed = True
        for room in (self._message_room, self._line_room):
            room.release(_READERS)


_READERS = 3
"""Threads of a worker that post."""


class Supervisor:
    """The only reader of a run's inbox: forwards its events, and ends the worker on request or when something is wrong.

    It ends a worker in steps: close stdin, terminate, kill. Each has its time, and the last one needed is recorded.

    Thread: the session's. All others only put into the inbox.
    """

    def __init__(
        self,
        worker: Worker,
        inbox: Inbox,
        limits: WorkerTimeouts,
        emit: Callable[[RunEvent], None],
        clock: ClockAnchor,
        now: Callable[[], ClockAnchor] = now_here,
        on_hello: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        """Prepare to watch a worker just launched.

        The inbox receives the worker's events, telemetry and stop requests. `emit` gets every event of the run, in
        order. `clock` is the host's clocks before the worker's start, with which the worker's must agree; `now` reads
        them. `on_hello` gets the worker's own process id, which may be a child of the launched process.
        """
        self._worker = worker
        self._on_hello = on_hello
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
        self._error_rank, self._error_message = "", ""
        self._last_line = ""
        self._started = False
        self._deadline_s = time.monotonic() + limits.hello_s
        self._stood_still_s = 0.0

    def watch(self) -> WorkerExit:
        """Read the inbox until the worker's process has ended."""
        while True:
            # A worker that keeps sending is heard for what is waiting; then its time is over.
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
        """Return the next item; raises `queue.Empty` when the worker's time is over.

        If everything was suspended (SIGSTOP, a frozen container), the worker stood still too, so its time is extended.
        """
        while True:
            # Time only the wait: a sink, such as a host whose program is slow, may take its time.
            began_s = time.monotonic()
            wait_s = min(_LOOK_S, max(0.0, self._deadline_s - began_s))
            item = None
            with contextlib.suppress(queue.Empty):
                item = self._inbox.get(timeout=wait_s)
            stood_still_s = time.monotonic() - began_s - wait_s
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
            started=self._started,
            stop_requested=self._stop_requested,
            fault=self._fault,
            gpu_lost=self._gpu_lost,
            fatal_message=self._fatal_message,
            error_message=self._error_message or None,
            last_line=self._last_line,
            ended_by=self._end_method,
        )

    def drain(self, is_awaited: Callable[[], bool]) -> None:
        """Forward telemetry that is still under way when the worker has ended, for two seconds at most.

        `is_awaited` returns whether telemetry is still missing; it is called before each item.

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
                self._give_up(f"{BROKEN_PYTHON} instead of starting the run it printed “{line[:_MAX_SHOWN_CHARS]}”.")
            case BrokenMessage(reason=reason):
                self._give_up(f"The worker broke the protocol: {reason}")
            case DeviceLost(reason=reason):
                self._gpu_lost = reason
                self._forward(item)
            case Sample() | SlowSample() | FieldsUpdated() | TelemetryGap():
                self._forward(item)
            case LogLine(text=text):
                _log.debug("%s", text)
                text = STYLES.sub("", text)
                self._fatal_message = fatal_message(text) or self._fatal_message
                rank = text.partition(":")[0] if text.startswith("[rank") else ""  # others fail by the first
                if self._error_rank in ("", rank) and (message := error_message(text)):
                    self._error_rank, self._error_message = rank, message
                self._last_line = text[:_MAX_SHOWN_CHARS] if any(map(str.isalnum, text)) else self._last_line
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
                self._on_hello(message.pid)
                # Log it if the worker's clocks differ from the host's: its blocks and the telemetry would not match.
                error_ns = self._clock.utc_at(message.t_ns) - message.utc_ns
                _log.info("worker %d says hello", message.pid)
                if abs(error_ns) > _MAX_CLOCK_ERROR_NS:
                    _log.warning("the clocks of worker %d and its host differ by %.1f s", message.pid, error_ns / 1e9)
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

    def _extend_deadline(self) -> None:
        if self._started and self._end_method == "itself" and self._finished is None:
            self._deadline_s = time.monotonic() + self._limits.message_gap_s

    def _forward(self, event: RunEvent) -> None:
        """Emit one event; a sink that cannot store it (full disk) ends the run."""
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
