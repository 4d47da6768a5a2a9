"""Connect to a host: start its agent through a carrier, and make a `Host` of what the agent serves."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from app import environment_keys
from app.agent_protocol import (
    MOST_EVENTS,
    AgentHello,
    ChangeRate,
    DescribeHost,
    HostDescribed,
    KeepStandby,
    Leased,
    Refused,
    ReleaseLease,
    RunSaid,
    StartRun,
    StartTelemetry,
    StopRun,
    StopTelemetry,
    TakeLease,
    TelemetryEnded,
    Took,
)
from app.errors import TelemetryError, UserError
from app.events import Outcome, RunEnded, RunEvent, RunStarted
from app.hosts import bootstrap
from app.hosts.bootstrap import Prepared
from app.hosts.carriers import Carrier
from app.hosts.channel import Channel, ProcessChannel
from app.hosts.link import (
    FloodError,
    Link,
    LinkLimits,
    LinkLost,
    LinkLostError,
    LinkSilent,
    LinkStatus,
    RunReport,
    TelemetryReport,
)
from app.hosts.remote_jobs import RemoteJobs, ScratchFiles, with_host
from app.recording import decode_event
from app.runs.environment import inventory_info, program_info
from app.runs.host import Host, WorkerTimeouts
from app.runs.leases import DeviceLeases, Lease
from app.runs.supervisor import MessageOrder
from app.samples import Inventory, LogLine, Waiting
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerCommand, SamplerMessage, SetRate
from workloads.protocol import ProtocolError, Start

_STOP_S = 30.0
"""After so long a run that was stopped has ended: its worker was asked, then killed, and telemetry waited for."""
_TAKEN_AT_ONCE = 50
"""Events after which the agent hears that they were taken, at the latest."""
_MOST_READINGS_PER_S = 5_000
"""Messages of a sampler: a hundred times a second, the most that can be asked for, those of 32 GPUs and as many others.
The program stores twice as many on two busy processors."""
_MOST_READINGS_AT_ONCE = 25_000
"""After a silence that a link survives, what a sampler of 16 GPUs has said meanwhile."""
_END_S = 3.0


class RemoteSampler:
    """The telemetry of a host, which its agent reads, for the `TelemetryFeed` here.

    Thread: see `Sampler`.
    """

    def __init__(self, link: Link, hello: AgentHello, hz: float) -> None:
        """Have the agent say it; raises `TelemetryError` where the link is lost.

        `hello` says what the host had when it was reached. Telemetry has `hz` readings a second.
        """
        self._link = link
        self._hello = hello
        self._reports: queue.SimpleQueue[TelemetryReport] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._reason: str | None = None
        # Of the link's reader alone.
        self._room, self._heard_s = float(_MOST_READINGS_AT_ONCE), time.monotonic()
        try:
            link.routes.listen_telemetry(self._take)
        except LinkLostError as error:
            raise TelemetryError(str(error)) from error
        link.send(StartTelemetry(hz))

    def _take(self, report: TelemetryReport) -> None:
        now_s = time.monotonic()
        room = self._room + (now_s - self._heard_s) * _MOST_READINGS_PER_S
        self._room, self._heard_s = min(room, _MOST_READINGS_AT_ONCE) - 1, now_s
        if self._room < 0 and not isinstance(report, LinkLost):
            raise FloodError(f"more than {_MOST_READINGS_PER_S:,} readings a second")
        self._reports.put(report)

    def messages(self) -> Iterator[SamplerMessage]:
        """Yield what it says until it has ended, or the link is lost."""
        while True:
            report = self._reports.get()
            if isinstance(report, TelemetryEnded | LinkLost):
                self._reason = report.reason
                self._ended.set()
                return
            yield of_host(report, self._hello) if isinstance(report, Inventory) else report

    def exit_code(self) -> int:
        """Return 0 for one that was to end; raises `TelemetryError` for another, which no other can replace."""
        self._ended.wait()
        if self._reason is not None:
            raise TelemetryError(self._reason)
        return 0

    def send(self, command: SamplerCommand) -> None:
        """Have the agent change the rate; of workers and phases it knows itself."""
        if isinstance(command, SetRate):
            self._link.send(ChangeRate(command.hz))

    def end(self) -> None:
        """Have the agent say no more; one that does not stop is left, with what it says after this."""
        self._link.send(StopTelemetry())
        if not self._ended.wait(_END_S):
            self._reports.put(LinkLost(f"The telemetry of {self._link.name} did not end."))


def of_host(inventory: Inventory, hello: AgentHello) -> Inventory:
    """Return the inventory of a machine whose disk is not this one's."""
    replace = msgspec.structs.replace
    machine = replace(inventory.machine, local=False, frameworks=hello.frameworks)
    return replace(inventory, machine=machine)


class RemoteLeases(DeviceLeases):
    """The leases of a host; its agent holds them, so that they end with it.

    Thread: any.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    def take(self, candidates: Sequence[str], count: int) -> Lease | None:
        """Ask the agent."""
        order = TakeLease(number=self._link.number(), devices=tuple(candidates), count=count)
        devices = self._link.ask(order, Leased).devices
        return None if devices is None else Lease(devices, partial(self._link.send, ReleaseLease(order.number)))


class RemoteRun:
    """A run that a host makes: what its agent says, checked and emitted here.

    Thread: `run` blocks its thread, once; `stop` any.
    """

    def __init__(
        self,
        link: Link,
        files: ScratchFiles,
        start: Start,
        host: Host,
        emit: Callable[[RunEvent], None],
        timeouts: WorkerTimeouts,
    ) -> None:
        """Prepare a run; for the rest see `app.runs.maker.LocalRun`.

        `files` is the agent's folder. The weights are brought to the path in `start` before the run ends.
        """
        self._link = link
        self._files = files
        self._weights = None if start.weights_path is None else Path(start.weights_path)
        name = None if start.weights_path is None else files.new_name()
        self._start = msgspec.structs.replace(start, weights_path=name)
        self._timeouts = timeouts
        self._emit = emit
        self._order = MessageOrder.of_events(host.now(), host.now)
        self._number = link.number()
        self._reports: queue.SimpleQueue[RunReport | None] = queue.SimpleQueue()
        # Two references, which `stop` sets: why the run is to end, and since when. One that `run` sets.
        self._stop_reason = ""
        self._stopped_s: float | None = None
        self._is_ordered = False
        self._is_refused = False

    def stop(self, reason: str = "") -> None:
        """Have the agent end it, now or as soon as it is ordered."""
        self._stop_reason, self._stopped_s = reason, self._stopped_s or time.monotonic()
        if self._is_ordered:
            self._link.send(StopRun(run=self._number, reason=reason))
        self._reports.put(None)  # wakes `run`, which from now on waits for less long

    def run(self) -> None:
        """Have the agent make it, and emit what it says."""
        ended = self._make()
        if ended.outcome.name == "completed" and self._weights is not None and self._start.weights_path is not None:
            self._bring(self._start.weights_path, self._weights)
        self._emit(ended)

    def _make(self) -> RunEnded:
        try:
            self._link.routes.listen_run(self._number, self._take)
        except LinkLostError as error:
            return self._ended("crashed", str(error))
        try:
            self._link.send(
                StartRun(
                    number=self._number,
                    start=self._start,
                    hello_s=self._timeouts.hello_s,
                    message_gap_s=self._timeouts.message_gap_s,
                )
            )
            self._is_ordered = True
            if self._stopped_s is not None:
                self.stop(self._stop_reason)
            return self._follow()
        finally:
            self._link.routes.forget_run(self._number)

    def _take(self, report: RunReport) -> None:
        """Take what is said of it; returns at once. Raises `FloodError` for more than an agent may say untaken."""
        if self._reports.qsize() >= 2 * MOST_EVENTS and not isinstance(report, LinkSilent | LinkLost):
            raise FloodError("more of a run than this program has taken")
        self._reports.put(report)

    def _follow(self) -> RunEnded:
        untaken = 0
        while True:
            try:
                report = self._reports.get(timeout=self._wait_s())
            except queue.Empty:
                self.stop()
                return self._ended("crashed", f"The agent on {self._link.name} says nothing of the run any more.")
            if self._is_overdue():
                return self._ended("crashed", f"The agent on {self._link.name} did not end the run.")
            match report:
                case LinkSilent(reason=reason):
                    self._pass(Waiting(self._link.clock.now_ns(), reason))
                case LinkLost(reason=reason):
                    return self._ended("crashed", reason)
                case Refused(reason=reason):
                    return self._ended("failed", reason)
                case RunSaid(event=event):
                    try:
                        decoded = self._decode(bytes(event))
                    except ProtocolError as error:
                        self.stop()
                        return self._ended("failed", f"What the agent on {self._link.name} says of the run is {error}.")
                    if isinstance(decoded, RunEnded):
                        return decoded
                    self._pass(decoded)
                    untaken += 1
            if untaken >= _TAKEN_AT_ONCE or (untaken and self._reports.empty()):
                self._link.send(Took(run=self._number, events=untaken))
                untaken = 0

    def _wait_s(self) -> float:
        """Return for how long to wait for the next event: an agent ends a worker that says nothing, and one to end."""
        return _STOP_S if self._stopped_s is not None else self._timeouts.hello_s + self._timeouts.message_gap_s

    def _is_overdue(self) -> bool:
        return self._stopped_s is not None and time.monotonic() > self._stopped_s + _STOP_S

    def _decode(self, line: bytes) -> RunEvent:
        """Return an event; raises `ProtocolError`."""
        event = with_host(decode_event(line), self._link.name)
        if isinstance(event, RunStarted):
            raise ProtocolError("a begin, and it has begun")
        self._order.check_event(event)
        return event

    def _pass(self, event: RunEvent) -> None:
        try:
            self._emit(event)
        except UserError as error:
            if not self._is_refused:
                self._is_refused = True
                self.stop(str(error))

    def _ended(self, name: Literal["crashed", "failed"], reason: str) -> RunEnded:
        return RunEnded(t_ns=self._link.clock.now_ns(), outcome=Outcome(name=name, reason=reason))

    def _bring(self, name: str, path: Path) -> None:
        """Bring its weights here before the run ends: the agent's files end with the agent."""
        try:
            self._files.fetch(name, path)
            self._files.remove(name)
        except (UserError, OSError) as error:
            line = f"(the weights were not brought from {self._link.name}: {error})"
            self._pass(LogLine(self._link.clock.now_ns(), line))


_LOOK_S = 0.1
_QUIET_S = 5.0
"""Nobody is left waiting for longer without being told for what."""
HZ = 20.0


class HostConnection(Protocol):
    """What was connected to: a host that an agent serves, or a pool.

    Thread: any.
    """

    @property
    def host(self) -> Host:
        """Where runs are made."""

    def status(self) -> LinkStatus:
        """Return how the link is."""

    def close(self) -> None:
        """End everything of it on the host, and wait for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A host that an agent serves, until `close`.

    Attributes:
        host: Where runs are made; the same class as this machine, with other parts.
        prepared: What was found on the host, and sent there, before the agent started; None if it was there already.

    Thread: any.
    """

    host: Host
    hello: AgentHello
    prepared: Prepared | None
    link: Link

    def keep_standby(self, keep: bool) -> None:
        """Have standby workers there from now on, or none."""
        self.link.send(KeepStandby(keep))

    def status(self) -> LinkStatus:
        """Return how the link is: its round trip, for how long it is silent, why it is lost."""
        return self.link.status()

    def close(self) -> None:
        """End the agent and everything of it on the host, and wait for that."""
        self.host.telemetry.close()
        self.link.close()


def connect(
    carrier: Carrier,
    *,
    name: str,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    module: str = "app.agent",
    limits: LinkLimits | None = None,
) -> Connection:
    """Start the agent on a host, sending it there first if need be, and return once it and its clock are known.

    Its telemetry is started, too, with `hz` readings a second; the inventory may come later.

    `notify` gets a sentence for what is waited for, and later when the host falls silent, is heard again or is lost; on
    any thread. `is_cancelled` is called several times a second. `module` is the agent's with its arguments, as
    `python -m` takes them.

    Raises:
        UserError: It cannot be reached, or cannot serve; with what to do.
    """
    opened = open_channel(carrier, name=name, notify=notify, is_cancelled=is_cancelled, module=module)
    try:
        return serve(
            opened.channel,
            opened.lines,
            name=name,
            kind=carrier.kind,
            hz=hz,
            notify=notify,
            prepared=opened.prepared,
            limits=limits,
        )
    except BaseException:
        opened.channel.cut()
        raise


@dataclass(frozen=True, slots=True)
class Opened:
    """A channel whose next line is the first of what was started on the host."""

    channel: ProcessChannel
    lines: Iterator[bytes]
    prepared: Prepared


def open_channel(
    carrier: Carrier,
    *,
    name: str,
    notify: Callable[[str], None],
    is_cancelled: Callable[[], bool],
    module: str,
) -> Opened:
    """Start a module of the agent on a host, sending it there first if need be; for the rest see `connect`.

    Raises:
        UserError: It cannot be reached, or cannot run it; with what to do.
    """
    channel = ProcessChannel(carrier, bootstrap.script(carrier.address, module), notify)
    lines = channel.lines()
    try:
        prepared = _in_thread(
            lambda: bootstrap.prepare(channel, lines, name, notify),
            f"Waiting for {name} to answer …",
            notify,
            is_cancelled,
        )
    except BaseException:
        channel.cut()
        raise
    return Opened(channel, lines, prepared)


def serve(
    channel: Channel,
    lines: Iterator[bytes],
    *,
    name: str,
    kind: str,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    prepared: Prepared | None = None,
    limits: LinkLimits | None = None,
) -> Connection:
    """Make a connection of a channel whose next line is an agent's first.

    `lines` are what comes, from `channel.lines()`; `kind` is that of its carrier. `notify` gets a sentence when the
    host falls silent, is heard again or is lost; on any thread. `prepared` is what was found before the agent started.

    Raises:
        UserError: The agent does not begin as one.
    """
    link = Link(channel, name, notify=notify, limits=limits)
    hello = link.start(lines)
    files = ScratchFiles(link)
    telemetry = TelemetryFeed(hz, partial(RemoteSampler, link, hello), link.clock.now_ns)
    host = Host(
        telemetry=telemetry,
        leases=RemoteLeases(link),
        remote_run=partial(RemoteRun, link, files),
        run_job=RemoteJobs(link, files),
        now=link.clock.now,
        describe=lambda inventory: _environment(link, hello, kind, inventory),
        name=name,
    )
    telemetry.start()
    return Connection(host=host, hello=hello, prepared=prepared, link=link)


def _environment(link: Link, hello: AgentHello, kind: str, inventory: Inventory) -> dict[str, str]:
    """Return what is known of a run's environment on a host; raises `UserError` where the link is lost."""
    described = link.ask(DescribeHost(link.number()), HostDescribed).environment
    if keys := environment_keys.wrong_numbers(described):
        word = described[keys[0]][:40]
        raise UserError(f"{link.name} says {word!r} for {keys[0]}, where a number belongs; no run can be made there.")
    offset = link.clock.offset()
    of_link = {
        environment_keys.HOST_KEY: link.name,
        environment_keys.HOST_ID_KEY: hello.host_id,
        environment_keys.BOOT_ID_KEY: hello.boot_id,
        environment_keys.CARRIER_KEY: kind,
        environment_keys.LINK_ROUND_TRIP_KEY: f"{offset.round_trip_ns / 1e6:.3f}",
        environment_keys.CLOCK_OFFSET_KEY: str(offset.offset_ns),
        environment_keys.CLOCK_ERROR_KEY: str(offset.error_ns),
    }
    return inventory_info(inventory) | described | program_info() | of_link


def _in_thread(
    work: Callable[[], Prepared], waiting: str, notify: Callable[[str], None], is_cancelled: Callable[[], bool]
) -> Prepared:
    """Return the result of work that may wait for the host; `notify` gets the sentence `waiting` when it takes long.

    Raises:
        UserError: It failed, or was cancelled.
    """
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="connect")
    done = thread.submit(work)
    thread.shutdown(wait=False)
    waited_s = 0.0
    while not wait([done], _LOOK_S).done:
        if is_cancelled():
            raise UserError("Connecting was cancelled.")
        waited_s += _LOOK_S
        if waited_s - _LOOK_S < _QUIET_S <= waited_s:
            notify(waiting)
    return done.result()
