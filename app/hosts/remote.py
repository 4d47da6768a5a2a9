"""The parts of a `Host` for another machine: telemetry, leases, runs and jobs of the program there."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from app.errors import TelemetryError, UserError, read_error
from app.grants import Consent, refuse
from app.hosts.book import HostEntry, find_host
from app.hosts.launchers import LAUNCHERS, option_arguments
from app.hosts.messages import TREE, Drained, HostHello, JobDone, JobOrder, Piece, Refused, RunAnyway, Stop, TreeWanted
from app.hosts.process import HostProcess, LinkLimits, LinkLostError
from app.hosts.serve import READ_FILES, WEIGHTS, WRITTEN_FILE, add_piece, pieces
from app.hosts.wheel import Start
from app.runs.environment import inventory_info, program_info
from app.runs.host import ClockAnchor, Host, RunOrder, RunWishes, calibrated_device
from app.runs.jobs import JobCrashedError, JobError, Kind
from app.runs.leases import DeviceLeases, Lease, Leases
from app.runs.script import pack_tree
from app.runs.supervisor import MessageOrder
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerCommand, SamplerMessage, SetRate
from app.values.environment_keys import CARRIER_KEY, HOST_ID_KEY, HOST_KEY, wrong_numbers
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted
from app.values.samples import Inventory, Waiting
from workloads.job_protocol import ExportModel, JobFailed, JobRequest
from workloads.protocol import Calibration, Message, ProtocolError, Source

HZ = 20.0
_LOOK_S = 0.2
_ANSWER_S = 3.0
"""How long a stopped run may take to report its end, even on a slow link: Ctrl-C ends within 5 s."""
_RUN, _TELEMETRY = ("run", "--events"), ("watch", "--events")


class Runners:
    """The programs on a host that execute its runs and jobs: an idle one takes the next. Thread: any."""

    def __init__(self, entry: HostEntry, limits: LinkLimits | None = None) -> None:
        self._entry, self._limits = entry, limits
        self._schedules = LAUNCHERS[entry.full_address.kind].schedules
        self._lock = threading.Lock()
        self._idle: list[HostProcess] = []
        self._all: list[HostProcess] = []
        self._is_closed = False

    def take(self, gpus: int, notify: Callable[[str], None], is_cancelled: Callable[[], bool]) -> HostProcess:
        """Return an idle one, or start one on a node with that many GPUs; raises `UserError`."""
        with self._lock:
            while self._idle:
                if (process := self._idle.pop()).lost is None:
                    return process
        address = self._entry.full_address
        words: tuple[str, ...] = _RUN
        module = "app"
        if address.kind == "ray":
            words, module = (str(gpus), *option_arguments(address), *_RUN), "app.hosts.ray_driver"
        process = HostProcess(
            Start(address=address, words=words, module=module), self._entry.name, notify, self._limits
        )
        with self._lock:
            self._all = [*(other for other in self._all if other.lost is None), process]
        try:
            if self._is_closed:
                raise LinkLostError(f"The link to {self._entry.name} was closed.")
            process.wait_hello(is_cancelled)
        except BaseException:
            process.cut()
            raise
        return process

    def give(self, process: HostProcess) -> None:
        """Return a process; a scheduler's job ends with its run."""
        if self._schedules or self._is_closed:
            process.close()
        else:
            with self._lock:
                self._idle.append(process)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            processes, self._all = self._all, []
        enders = [threading.Thread(target=process.close, daemon=True) for process in processes]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()


class HostLeases(DeviceLeases):
    """Leases, for this machine's runs, of a host's devices; the program there leases them among all its users."""

    def __init__(self, host_id: str, *, schedules: bool) -> None:
        self._host_id, self._schedules = host_id, schedules
        self._leases = Leases()

    def take(self, candidates: Sequence[str], count: int) -> Lease | None:
        """Lease them under the host's name; a scheduler's run leases none, because its node is still unknown."""
        if self._schedules:
            return Lease()
        names = {f"{self._host_id[:16]}:{device}": device for device in candidates}
        if (lease := self._leases.take(list(names), count)) is None:
            return None
        return Lease(tuple(names[name] for name in lease.devices), lease.release)


class RemoteSampler:
    """The telemetry of a host, as the sampler of a `TelemetryFeed`. Thread: see `Sampler`."""

    def __init__(self, process: HostProcess, hello: HostHello, _hz: float) -> None:
        self._process, self._schedules = process, LAUNCHERS[process.address.kind].schedules
        self._frameworks = tuple(framework.name for framework in hello.frameworks if framework.version is not None)
        self._is_ended = threading.Event()
        self._has_inventory = False

    def messages(self) -> Iterator[SamplerMessage]:
        """Yield the host's messages until it is lost or this sampler is ended; with a scheduler, only one inventory."""
        while not self._is_ended.is_set():
            try:
                report = self._process.next(_LOOK_S)
            except LinkLostError:
                if self._has_inventory and self._schedules:
                    self._is_ended.wait()
                return
            if isinstance(report, Refused):
                self._process.cut(report.reason)
            elif isinstance(report, Inventory):
                self._has_inventory = self._has_inventory or not report.pending
                # The host has another disk.
                machine = msgspec.structs.replace(
                    report.machine, local=False, scheduled=self._schedules, frameworks=self._frameworks
                )
                yield msgspec.structs.replace(report, machine=machine)
            elif isinstance(report, SamplerMessage):
                yield report

    def exit_code(self) -> int:
        """Return 0 if it was asked to end; otherwise raises `TelemetryError`, because no other can replace it."""
        if not self._is_ended.is_set() and self._process.lost is not None:
            raise TelemetryError(self._process.lost)
        return 0

    def send(self, command: SamplerCommand) -> None:
        """Change the rate; runs' own telemetry covers workers and phases."""
        if isinstance(command, SetRate):
            self._process.send(command)

    def end(self) -> None:
        """Stop listening; the connection ends the process."""
        self._is_ended.set()


def play(
    process: HostProcess,
    weights: Path | None,
    handle: Callable[[RunEvent], None],
    is_over: Callable[[], bool],
    now: Callable[[], ClockAnchor] = lambda: ClockAnchor(2**63 - 1, 0),
    source: Source | None = None,
) -> RunEnded | Refused | Drained | None:
    """Check a host program's messages about a run, and forward its events up to its end.

    Weights are written to `weights`; None if none are expected. `now` reads the host's clocks; without it the time of
    the last event is unknown here. `source` is the run's, whose tree may be requested once.

    Returns:
        The run's end, which is not forwarded, or why there is none; None if `is_over` returned true first.

    Raises:
        LinkLostError: The host was lost.
        ProtocolError: A message came that cannot come now; the text ends a sentence.
        UserError: The weights cannot be written, the tree cannot be packed, or `handle` raised it.
    """
    order: MessageOrder | None = None
    while not is_over():
        match report := process.next(_LOOK_S):
            case None | HostHello():
                pass
            case Piece() if weights is not None:
                add_piece(weights, report)
            case TreeWanted() if source is not None and source.command is not None and order is None:
                for piece in pieces(pack_tree(source), TREE):
                    process.send(piece)
                source = None
            case Refused() | Drained():
                return report
            case RunStarted() if order is None:
                order = MessageOrder(ClockAnchor(report.t_ns, report.utc_ns), now, of_events=True)
                handle(report)
            case RunEnded() if order is not None:
                return report
            case Waiting():
                handle(report)
            case _ if isinstance(report, RunEvent) and order is not None and not isinstance(report, RunStarted):
                if isinstance(report, Message):
                    order.check(report)
                handle(report)
            case _:
                raise ProtocolError(f"`{type(report).__name__}`, which cannot come now")
    return None


class RemoteRun:
    """A run on a host: checks and emits its program's messages. Thread: that of the run."""

    def __init__(
        self, connection: "Connection", order: RunOrder, wishes: RunWishes, emit: Callable[[RunEvent], None]
    ) -> None:
        """Prepare a run; its weights are copied to the order's path before it ends."""
        self._connection, self._order, self._wishes, self._emit = connection, order, wishes, emit
        self._stop_sent_s: float | None = None
        self._is_anyway_sent = False
        self._warning = ""

    def run(self) -> None:
        """Execute it there, and emit what it reports; raises `UserError` if the host is unreachable."""
        connection, wishes, order, start = self._connection, self._wishes, self._order, self._order.start
        gpus = int(start.spec.variant["gpus"])
        try:
            process = connection.runners.take(gpus, self._wait, lambda: wishes.stop_reason is not None)
        except UserError:
            if wishes.stop_reason is None:
                raise
            self._emit(self._ended("stopped", wishes.stop_reason or "Stopped by the user before it began."))
            return
        weights = None if start.weights_path is None else Path(start.weights_path)
        process.send(
            msgspec.structs.replace(
                order,
                start=msgspec.structs.replace(start, weights_path=weights and WEIGHTS),
                utc_ns=time.time_ns(),
                hz=connection.host.telemetry.hz,
                standby=connection.standby.is_set(),
            )
        )
        try:
            match play(process, weights, self._pass, lambda: self._is_left(process), connection.now, start.source):
                case RunEnded() as ended:
                    pass
                case None:
                    reason = f"Stopped; {process.name} did not confirm the end in time."
                    ended = self._ended("stopped", reason)
                case Refused(kind=kind, reason=reason):
                    ended = self._ended("stopped" if kind == "cancelled" else "failed", reason)
                case report:
                    raise ProtocolError(f"`{type(report).__name__}`, which cannot come now")
        except LinkLostError as error:
            ended = self._ended("crashed", str(error))
        except (ProtocolError, UserError) as error:  # the latter if weights cannot be stored
            is_lie = isinstance(error, ProtocolError)
            reason = f"What the program on {process.name} says of the run is {error}." if is_lie else str(error)
            ended = self._ended("failed", reason)
            process.cut(reason)
        if process.lost is None:
            connection.runners.give(process)
        self._emit(ended)

    def _is_left(self, process: HostProcess) -> bool:
        """Forward the user's requests, and report a silent host; return whether the run can no longer end."""
        if self._stop_sent_s is not None and time.monotonic() > self._stop_sent_s + _ANSWER_S:
            process.cut()
            return True
        if self._stop_sent_s is None and self._wishes.stop_reason is not None:
            self._stop_sent_s = time.monotonic()
            process.send(Stop(self._wishes.stop_reason))
        if not self._is_anyway_sent and self._wishes.begins_anyway:
            self._is_anyway_sent = True
            process.send(RunAnyway())
        if bool(warning := process.silent_warning()) != bool(self._warning):
            self._warning = warning
            self._wait(warning)
        return False

    def _wait(self, reason: str) -> None:
        self._pass(Waiting(self._connection.now().t_ns, reason))

    def _pass(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            event = msgspec.structs.replace(
                event,
                uid=self._order.uid,
                spec=self._order.start.spec,
                purpose=self._order.purpose,
                utc_ns=time.time_ns(),
                environment={**event.environment, **self._order.environment, **self._connection.link_info()},
            )
        try:
            self._emit(event)
        except UserError as error:
            if self._wishes.stop_reason is None:
                self._wishes.stop_reason = str(error)

    def _ended(self, name: Literal["crashed", "failed", "stopped"], reason: str) -> RunEnded:
        return RunEnded(t_ns=self._connection.now().t_ns, outcome=Outcome(name=name, reason=reason))


@dataclass(frozen=True, slots=True)
class RemoteJobs:
    """Runs jobs in processes of a host, as `app.runs.jobs.run_job` does on this machine.

    Thread: any; a call blocks its thread.
    """

    runners: Runners
    name: str

    def __call__(
        self, request: JobRequest, result_type: type[Kind], is_overdue: Callable[[], bool] | None = None, /
    ) -> Kind:
        """Run a job there, copying the files that it reads there, and those that it writes here.

        The request's paths are on this machine. `is_overdue` is called several times a second; None for no limit.

        Raises:
            JobError: The job failed.
            TimeoutError: It was overdue; its process has ended.
            UserError: The host is lost, or a file cannot be copied.
        """
        overdue = is_overdue or (lambda: False)
        gpus = len(getattr(request, "gpu_uuids", ()))
        if isinstance(request, ExportModel):
            raise UserError("Models are exported on this machine only; leave the host out.")
        process = self.runners.take(gpus, lambda _: None, overdue)
        try:
            for name in READ_FILES:
                if path := getattr(request, name, None):
                    try:
                        for piece in pieces(Path(path), name):
                            process.send(piece)
                    except OSError as error:
                        raise read_error(path, error) from error
            process.send(JobOrder(request))
            return self._await(process, result_type, getattr(request, WRITTEN_FILE, None), overdue)
        except ProtocolError as error:
            process.cut()
            raise UserError(f"What {self.name} says is {error}; the link was closed.") from None
        finally:
            if process.lost is None:
                self.runners.give(process)

    def _await(
        self, process: HostProcess, result_type: type[Kind], written: str | None, is_overdue: Callable[[], bool]
    ) -> Kind:
        stopped_s = None
        while True:
            match process.next(_LOOK_S):
                case JobDone(result=result):
                    break
                case Refused(kind="cancelled"):
                    raise TimeoutError
                case Refused(kind=kind, reason=reason):
                    errors = {"job error": JobError, "job crashed": JobCrashedError}
                    raise errors.get(kind, UserError)(reason)
                case Piece() as piece if written is not None:
                    add_piece(Path(written), piece)
            if stopped_s is None and is_overdue():
                stopped_s = time.monotonic()
                process.send(Stop())
            if stopped_s is not None and time.monotonic() > stopped_s + _ANSWER_S:
                process.cut()
                raise TimeoutError
        if isinstance(result, Calibration):
            result = msgspec.structs.replace(result, device=calibrated_device(result.device, self.name))
        if isinstance(result, JobFailed):
            raise JobError(result.reason)
        if not isinstance(result, result_type):
            raise JobCrashedError("The process that did this broke the protocol: it answered something else.")
        return result


class Connection:
    """A connected host, until `close`.

    Attributes:
        entry: The user's name for it, and its address.
        hello: Its self-description.
        process: Sends its telemetry.
        runners: Execute its runs.
        standby: Set if a worker should be kept ready there.
        host: The host of runs, of the same class as this machine, with other parts.

    Thread: any.
    """

    def __init__(
        self, entry: HostEntry, process: HostProcess, hello: HostHello, hz: float, limits: LinkLimits | None
    ) -> None:
        self.entry, self.process, self.hello = entry, process, hello
        self.runners = Runners(entry, limits)
        self.standby = threading.Event()
        self._schedules = LAUNCHERS[process.address.kind].schedules
        self.host = Host(
            telemetry=TelemetryFeed(hz, partial(RemoteSampler, process, hello), process.now_ns),
            leases=HostLeases(hello.environment.get(HOST_ID_KEY, entry.name), schedules=self._schedules),
            remote_run=lambda order, wishes, emit: RemoteRun(self, order, wishes, emit).run(),
            run_job=RemoteJobs(self.runners, entry.name),
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

    def close(self) -> None:
        ender = threading.Thread(target=self.runners.close, daemon=True)
        ender.start()
        self.host.telemetry.close()
        self.process.close()
        ender.join()


def connect(
    entry: HostEntry,
    *,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    limits: LinkLimits | None = None,
) -> Connection:
    """Start a host's telemetry, first sending the program there if necessary; return after its hello.

    `notify` gets a sentence on each wait, on any thread. `is_cancelled` is called several times a second.

    Raises:
        UserError: It cannot be reached, or cannot serve; the text says what to do.
    """
    address = entry.full_address
    schedules = LAUNCHERS[address.kind].schedules
    words, module = (*_TELEMETRY, "--every", f"{1 / hz:.3f}", *(("--seconds", "1") if schedules else ())), "app"
    if address.kind == "ray":
        words, module = ("look", *option_arguments(address), *words), "app.hosts.ray_driver"
    process = HostProcess(Start(address=address, words=words, module=module), entry.name, notify, limits)
    try:
        hello = process.wait_hello(is_cancelled)
        if keys := wrong_numbers(hello.environment):
            word = hello.environment[keys[0]][:40]
            raise UserError(f"{entry.name} says {word!r} for {keys[0]}, instead of a number; nothing can run there.")
    except BaseException:
        process.cut()
        raise
    connection = Connection(entry, process, hello, hz, limits)
    connection.host.telemetry.start()
    return connection


def open_host(
    word: str,
    *,
    consent: Consent = refuse,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Connection:
    """Connect to the host that `--on` names: one of the user's, or an address that `consent` allows.

    Raises:
        UsageError: No host has that name, or the address is invalid.
        UserError: It cannot be reached, cannot serve, or is not allowed; the text says what to do.
    """
    return connect(find_host(word, consent), hz=hz, notify=notify, is_cancelled=is_cancelled)
