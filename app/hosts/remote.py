"""The parts of a `Host` for another machine: telemetry, leases, runs and jobs of the program there."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from app.errors import TelemetryError, UserError
from app.grants import Consent, refuse
from app.hosts import messages
from app.hosts.book import HostEntry, find_host
from app.hosts.process import HostProcess, LinkLostError
from app.hosts.serve import READ_FILES, WRITTEN_FILE
from app.hosts.wheel import Start
from app.runs.environment import inventory_info, program_info
from app.runs.host import ClockAnchor, Host, RunOrder, RunWishes, calibrated_device
from app.runs.jobs import JobCrashedError, JobError, Kind
from app.runs.leases import Leases
from app.runs.script import pack_tree
from app.runs.supervisor import MessageOrder
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerCommand, SamplerMessage, SetRate
from app.values.environment_keys import CARRIER_KEY, HOST_ID_KEY, HOST_KEY
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted
from app.values.samples import Inventory, Waiting
from workloads.job_protocol import ExportModel, JobRequest
from workloads.protocol import Calibration, Message, ProtocolError

HZ = 20.0
_ERRORS = {error_type.__name__: error_type for error_type in (TimeoutError, JobError, JobCrashedError)}
"""The errors of a job that are told apart here."""
_LOOK_S = 0.2
_ANSWER_S = 3.0
"""How long a stopped run may take to report its end, even on a slow link: Ctrl-C ends within 5 s."""


class RemoteSampler:
    """The telemetry of a host, as the sampler of a `TelemetryFeed`. Thread: see `Sampler`."""

    def __init__(self, process: HostProcess, hello: messages.HostHello, hz: float) -> None:
        self._process, self._schedules = process, process.address.schedules
        self._frameworks = tuple(framework.name for framework in hello.frameworks if framework.version is not None)
        self._is_ended = threading.Event()
        process.send(SetRate(hz))

    def messages(self) -> Iterator[SamplerMessage]:
        """Yield the host's messages until it is lost or this sampler is ended; with a scheduler, only one inventory."""
        while not self._is_ended.is_set():
            try:
                report = self._process.next(_LOOK_S)
            except LinkLostError:
                return
            if isinstance(report, messages.Refused):
                self._process.cut(report.reason)
            elif isinstance(report, Inventory):
                # The host has another disk.
                machine = msgspec.structs.replace(
                    report.machine, local=False, scheduled=self._schedules, frameworks=self._frameworks
                )
                yield msgspec.structs.replace(report, machine=machine)
                if self._schedules and not report.pending:
                    self._process.close()
                    self._is_ended.wait()
            elif isinstance(report, SamplerMessage):
                yield report

    def exit_code(self) -> int:
        """Return 0 if it was asked to end; otherwise raises `TelemetryError`, because no other can replace it."""
        if not self._is_ended.is_set() and self._process.lost is not None:
            raise TelemetryError(self._process.lost)
        return 0

    def send(self, _command: SamplerCommand) -> None:
        """Ignore it: runs' own telemetry covers workers and phases."""

    def end(self) -> None:
        """Stop listening; the connection ends the process."""
        self._is_ended.set()


def reports_of(
    process: HostProcess, files: Mapping[str, Path], stop_reason: Callable[[], str | None]
) -> Iterator[messages.Report | None]:
    """Yield what a host's program answers to an order, and None from time to time; write the files that it sends.

    Once `stop_reason` returns a reason, the program is asked to end.

    Raises:
        TimeoutError: It was stopped, or did not confirm that in time, and the link was closed.
        UserError: The host was lost, it refused the order, or a file cannot be written.
    """
    stop_s: float | None = None
    while True:
        match report := process.next(_LOOK_S):
            case messages.Piece(name=name) if name in files:
                messages.add_piece(files[name], report)
            case messages.Refused():
                raise _ERRORS.get(report.kind, UserError)(report.reason)
            case _:
                yield report
        if stop_s is not None and time.monotonic() > stop_s + _ANSWER_S:
            process.cut()
            raise TimeoutError(f"Stopped; {process.name} did not confirm the end in time.")
        if stop_s is None and (wish := stop_reason()) is not None:
            stop_s = time.monotonic()
            process.send(messages.Stop(wish))


def follow_run(
    process: HostProcess, order: RunOrder | messages.DetachedOrder, files: Mapping[str, Path], wishes: RunWishes
) -> Iterator[RunEvent | None]:
    """Order a run or the recording of one, and yield its events, checked, up to its end, and None from time to time.

    Raises `ProtocolError` for a report that cannot come now, and what `reports_of` raises.
    """
    source = order.start.source if isinstance(order, RunOrder) else None
    checks: MessageOrder | None = None
    is_over, warning = False, ""

    def now() -> ClockAnchor:
        # The time of a recording's last event is unknown here.
        return ClockAnchor(process.now_ns() if isinstance(order, RunOrder) else 2**63 - 1, 0)

    process.send(order)
    for report in reports_of(process, files, lambda: wishes.stop_reason):
        match report:
            case messages.DetachedEnd() if isinstance(order, messages.DetachedOrder):
                return
            case messages.TreeWanted() if source is not None and checks is None:
                for piece in messages.pieces(pack_tree(source), messages.TREE):
                    process.send(piece)
                process.send(order)
                source = None
            case None | Waiting():
                yield report
            case RunStarted() if checks is None:
                checks = MessageOrder(ClockAnchor(report.t_ns, 0), now, of_events=True)
                yield report
            case _ if checks is None or is_over or isinstance(report, RunStarted) or not isinstance(report, RunEvent):
                raise ProtocolError(f"`{type(report).__name__}`, which cannot come now")
            case _:
                if isinstance(report, Message):
                    checks.check(report)
                is_over = isinstance(report, RunEnded)
                yield report
        if wishes.begins_anyway:
            wishes.begins_anyway = False
            process.send(messages.RunAnyway())
        # Once when it falls silent, and once when it is heard again; the text counts the seconds.
        if bool(silent := process.silent_warning()) != bool(warning):
            warning = silent
            yield Waiting(process.now_ns(), warning)


def run_there(connection: "Connection", order: RunOrder, wishes: RunWishes, emit: Callable[[RunEvent], None]) -> None:
    """Have a host's program execute a run, and emit what it reports; weights are copied to the order's path.

    Raises `UserError` if the host is unreachable.
    """
    start, process = order.start, connection.process

    def tell(event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            event = msgspec.structs.replace(
                event,
                uid=order.uid,
                spec=start.spec,
                purpose=order.purpose,
                utc_ns=time.time_ns(),
                environment={**event.environment, **order.environment, **connection.link_info()},
            )
        try:
            emit(event)
        except UserError as error:
            if wishes.stop_reason is None:
                wishes.stop_reason = str(error)

    def end(name: Literal["crashed", "failed", "stopped"], reason: str) -> RunEnded:
        return RunEnded(t_ns=process.now_ns(), outcome=Outcome(name=name, reason=reason))

    try:
        process = connection.take(
            int(start.spec.variant["gpus"]),
            lambda reason: tell(Waiting(process.now_ns(), reason)),
            lambda: wishes.stop_reason is not None,
        )
    except UserError:
        if wishes.stop_reason is None:
            raise
        emit(end("stopped", wishes.stop_reason or "Stopped by the user before it began."))
        return
    files = {} if start.weights_path is None else {messages.WEIGHTS: Path(start.weights_path)}
    sent = msgspec.structs.replace(
        order,
        utc_ns=time.time_ns(),
        hz=connection.host.telemetry.hz,
        standby=connection.standby.is_set(),
    )
    try:
        for event in follow_run(process, sent, files, wishes):
            if isinstance(event, RunEnded):
                ended = event
                break
            if event is not None:
                tell(event)
    except LinkLostError as error:
        ended = end("crashed", str(error))
    except TimeoutError as error:
        ended = end("stopped", str(error))
    except (ProtocolError, UserError) as error:  # the latter if it was refused, or weights cannot be stored
        is_lie = isinstance(error, ProtocolError)
        reason = f"What the program on {process.name} says of the run is {error}." if is_lie else str(error)
        ended = end("failed", reason)
        process.cut(reason)
    connection.give(process)
    emit(ended)


class Connection:
    """A connected host, until `close`.

    Attributes:
        entry: The user's name for it, and its address.
        hello: Its self-description.
        process: Sends its telemetry.
        standby: Set if a worker should be kept ready there.
        host: The host of runs, of the same class as this machine, with other parts.

    Thread: any.
    """

    def __init__(self, entry: HostEntry, process: HostProcess, hello: messages.HostHello, hz: float) -> None:
        self.entry, self.process, self.hello = entry, process, hello
        self.standby = threading.Event()
        self._schedules = process.address.schedules
        self._lock = threading.Lock()
        # The programs that execute runs and jobs: an idle one takes the next.
        self._runners: list[HostProcess] = []
        self._idle: list[HostProcess] = []
        self._is_closed = False
        self.host = Host(
            telemetry=TelemetryFeed(hz, partial(RemoteSampler, process, hello), process.now_ns),
            leases=Leases(host_id=hello.environment.get(HOST_ID_KEY, entry.name), schedules=self._schedules),
            remote_run=partial(run_there, self),
            run_job=self.run_job,
            now=self.now,
            describe=lambda inventory: inventory_info(inventory) | hello.environment | self.link_info(),
            name=entry.name,
        )

    @property
    def silent_s(self) -> float:
        """Return for how long it has been silent; 0 with a scheduler, which was only asked once."""
        return 0.0 if self._schedules else self.process.silent_s

    @property
    def lost(self) -> str | None:
        """Return why it is lost, in one sentence; None while it is not."""
        return None if self._schedules else self.process.lost

    def now(self) -> ClockAnchor:
        """Return the current time on its monotonic clock, and on this machine's wall clock."""
        return ClockAnchor(self.process.now_ns(), time.time_ns())

    def link_info(self) -> dict[str, str]:
        """Return this side's knowledge of a run's environment."""
        return program_info() | {HOST_KEY: self.entry.name, CARRIER_KEY: self.process.address.kind}

    def take(self, gpus: int, notify: Callable[[str], None], is_cancelled: Callable[[], bool]) -> HostProcess:
        """Return an idle program, or start one on a node with that many GPUs; raises `UserError`."""
        with self._lock:
            # Nobody read what an idle one sent: one look says whether it has ended. A lost host has none.
            while self._idle and self.lost is None:
                process = self._idle.pop()
                with contextlib.suppress(LinkLostError):
                    process.next(0.0)
                    return process
        process = HostProcess(Start(address=self.process.address, gpus=gpus), self.entry.name, notify)
        with self._lock:
            self._runners = [*(other for other in self._runners if other.lost is None), process]
        if self._is_closed:
            process.cut()
        process.wait_hello(is_cancelled)
        return process

    def give(self, process: HostProcess) -> None:
        """Return a program; a scheduler's job ends with its run."""
        if self._schedules or self._is_closed:
            process.close()
        else:
            with self._lock:
                self._idle.append(process)

    def run_job(
        self, request: JobRequest, result_type: type[Kind], is_overdue: Callable[[], bool] | None = None, /
    ) -> Kind:
        """Run a job there as `app.runs.jobs.run_job` does here, copying the files that it reads and writes.

        The request's paths are on this machine.

        Raises:
            JobError: The job failed.
            TimeoutError: It was overdue; its process has ended.
            UserError: The host is lost, or a file cannot be copied.
        """
        overdue = is_overdue or (lambda: False)
        if isinstance(request, ExportModel):
            raise UserError("Models are exported on this machine only; leave the host out.")
        process = self.take(len(getattr(request, "gpu_uuids", ())), lambda _: None, overdue)
        try:
            for name in READ_FILES:
                if path := getattr(request, name, None):
                    for piece in messages.pieces(Path(path), name):
                        process.send(piece)
            process.send(request)
            written = getattr(request, WRITTEN_FILE, None)
            files = {WRITTEN_FILE: Path(written)} if written else {}
            reports = reports_of(process, files, lambda: "" if overdue() else None)
            result = next(report for report in reports if report is not None)
        except ProtocolError as error:
            process.cut()
            raise UserError(f"What {self.entry.name} says is {error}; the link was closed.") from None
        finally:
            self.give(process)
        if isinstance(result, Calibration):
            result = msgspec.structs.replace(result, device=calibrated_device(result.device, self.entry.name))
        if not isinstance(result, result_type):
            raise JobCrashedError("The process that did this broke the protocol: it answered something else.")
        return result

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        with ThreadPoolExecutor(1 + len(self._runners)) as pool:
            pool.map(HostProcess.close, (self.process, *self._runners))
            self.host.telemetry.close()


def connect(
    entry: HostEntry,
    *,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Connection:
    """Start a host's telemetry, first sending the program there if necessary; return after its hello.

    `notify` gets a sentence on each wait, on any thread. `is_cancelled` is called several times a second. Raises
    `UserError` if it cannot be reached, or cannot serve, with what to do.
    """
    process = HostProcess(Start(address=entry.full_address), entry.name, notify)
    connection = Connection(entry, process, process.wait_hello(is_cancelled), hz)
    connection.host.telemetry.start()
    return connection


def open_host(word: str, *, consent: Consent = refuse, **how: Any) -> Connection:
    """Connect as `connect` does to one of the user's hosts, or to an address that `consent` allows."""
    return connect(find_host(word, consent), **how)
