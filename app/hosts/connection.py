"""Connect to a host: start its agent through a carrier, and make a `Host` of what the agent serves."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from app.agent_protocol import (
    MOST_EVENTS,
    AgentHello,
    DescribeHost,
    EndWorker,
    HostDescribed,
    KeepStandby,
    LaunchWorker,
    Leased,
    OrderSampler,
    ReleaseLease,
    SamplerEnded,
    StartSampler,
    StopSampler,
    TakeLease,
    Took,
    WorkerBroke,
    WorkerExited,
    WorkerLaunched,
    WorkerLogged,
    WorkerSaid,
)
from app.environment_keys import (
    BOOT_ID_KEY,
    CARRIER_KEY,
    CLOCK_ERROR_KEY,
    CLOCK_OFFSET_KEY,
    HOST_ID_KEY,
    HOST_KEY,
    LINK_ROUND_TRIP_KEY,
)
from app.errors import TelemetryError, UserError
from app.hosts import bootstrap
from app.hosts.bootstrap import Prepared
from app.hosts.carriers import Carrier
from app.hosts.channel import Channel, ProcessChannel
from app.hosts.link import Link, LinkLimits, LinkStatus
from app.hosts.remote_jobs import RemoteJobs, ScratchFiles, with_host
from app.hosts.routes import FloodError, LinkLost, LinkLostError, LinkSilent, SamplerReport, WorkerReport
from app.runs.environment import inventory_info, program_info
from app.runs.host import Host
from app.runs.launcher import BrokenMessage, Exited, Post, Worker, WorkerEvent
from app.runs.leases import DeviceLeases, Lease
from app.samples import Inventory, LogLine, Waiting
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerCommand, SamplerMessage
from workloads.protocol import Finished, ProtocolError, Start, decode_message

_TAKEN_AT_ONCE = 50
"""Events after which the agent hears that they were taken, at the latest."""
_MOST_READINGS_PER_S = 5_000
"""Messages of a sampler: a hundred times a second, the most that can be asked for, those of 32 GPUs and as many others.
The program stores twice as many on two busy processors."""
_MOST_READINGS_AT_ONCE = 25_000
"""After a silence that a link survives, what a sampler of 16 GPUs has said meanwhile."""
_END_S = 3.0
_MAX_BROKEN_BYTES = 4_000


class RemoteSampler:
    """The sampler of a host, for its `TelemetryFeed`.

    Thread: see `Sampler`.
    """

    def __init__(self, link: Link, environments: tuple[str, ...], hz: float) -> None:
        """Have the agent start it; raises `TelemetryError` where the link is lost.

        Args:
            link: The link.
            environments: Names of those that the host had when it was reached.
            hz: Readings a second.
        """
        self._link = link
        self._environments = environments
        self._said: queue.SimpleQueue[SamplerReport] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._end: SamplerEnded | LinkLost | None = None
        # Of the link's reader alone.
        self._room, self._heard_s = float(_MOST_READINGS_AT_ONCE), time.monotonic()
        try:
            link.routes.listen_sampler(self._take)
        except LinkLostError as error:
            raise TelemetryError(str(error)) from error
        link.send(StartSampler(hz))

    def _take(self, said: SamplerReport) -> None:
        now_s = time.monotonic()
        room = self._room + (now_s - self._heard_s) * _MOST_READINGS_PER_S
        self._room, self._heard_s = min(room, _MOST_READINGS_AT_ONCE) - 1, now_s
        if self._room < 0 and not isinstance(said, LinkLost):
            raise FloodError(f"more than {_MOST_READINGS_PER_S:,} readings a second")
        self._said.put(said)

    def messages(self) -> Iterator[SamplerMessage]:
        """Yield what it says until it has ended, or the link is lost."""
        while True:
            said = self._said.get()
            if isinstance(said, SamplerEnded | LinkLost):
                self._end = said
                self._ended.set()
                return
            yield of_host(said, self._environments) if isinstance(said, Inventory) else said

    def exit_code(self) -> int:
        """Return its exit code; raises `TelemetryError` where the link is lost."""
        self._ended.wait()
        if isinstance(self._end, LinkLost):
            raise TelemetryError(self._end.reason)
        assert self._end is not None, "it has ended"
        return self._end.exit_code

    def send(self, command: SamplerCommand) -> None:
        """Have the agent pass an order on."""
        self._link.send(OrderSampler(msgspec.Raw(msgspec.json.encode(command))))

    def end(self) -> None:
        """Have the agent end it; one that does not is left, with what it says after this."""
        self._link.send(StopSampler())
        if not self._ended.wait(_END_S):
            self._said.put(LinkLost(f"The sampler on {self._link.name} did not end."))


def of_host(inventory: Inventory, environments: tuple[str, ...] = ()) -> Inventory:
    """Return the inventory of a machine whose disk is not this one's."""
    structs = msgspec.structs
    return structs.replace(
        inventory, machine=structs.replace(inventory.machine, local=False, environments=environments)
    )


class RemoteLeases(DeviceLeases):
    """The leases of a host; its agent holds them, so that they end with it.

    Thread: any.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    def take(self, candidates: Sequence[str], count: int) -> Lease | None:
        """Ask the agent."""
        number = self._link.number()
        order = TakeLease(number=number, devices=tuple(candidates), count=count)
        devices = self._link.ask(number, order, Leased).devices
        return None if devices is None else Lease(devices, partial(self._link.send, ReleaseLease(number)))


class RemoteLauncher:
    """Starts workers on a host.

    Thread: any.
    """

    def __init__(self, link: Link, files: ScratchFiles) -> None:
        self._link = link
        self._files = files

    def launch(self, start: Start, post: Post) -> Worker:
        """Have the agent start a worker; raises `OSError`, and `LinkLostError`."""
        number = self._link.number()
        fetch = None
        if start.weights_path is not None:
            name = self._files.new_name()
            fetch = partial(self._bring, name, Path(start.weights_path))
            start = msgspec.structs.replace(start, weights_path=name)
        worker = RemoteWorker(self._link, number, post, fetch)
        self._link.routes.listen_worker(number, worker.take)
        try:
            launched = self._link.ask(number, LaunchWorker(number=number, start=start), WorkerLaunched)
        except BaseException:
            self._link.routes.forget_worker(number)
            raise
        worker.listen(launched.pid)
        return worker

    def _bring(self, name: str, path: Path) -> None:
        self._files.fetch(name, path)
        self._files.remove(name)

    def keep_standby(self, wanted: bool) -> None:
        """Have standby workers there from now on, or none."""
        self._link.send(KeepStandby(wanted))


class RemoteWorker:
    """A worker of a host. One thread of its own posts its events, so that a slow run does not hold up the link.

    Thread: any.
    """

    def __init__(self, link: Link, number: int, post: Post, fetch: Callable[[], None] | None) -> None:
        """Take what the launcher knows before it is started.

        Args:
            link: The link to its host.
            number: Its number on the link.
            post: Gets its events.
            fetch: Brings what it wrote over here, once it says that it completed; None if it writes nothing.
        """
        self._link = link
        self._number = number
        self._post = post
        self._fetch = fetch
        self._pid = 0
        self._said: queue.SimpleQueue[WorkerReport] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name=f"worker {number} of {link.name}", daemon=True)

    @property
    def pid(self) -> int:
        """Process id of the worker on its host."""
        return self._pid

    def take(self, said: WorkerReport) -> None:
        """Take what it says; returns at once. Raises `FloodError` for more than an agent sends before it is taken."""
        if self._said.qsize() >= 2 * MOST_EVENTS and not isinstance(said, LinkSilent | LinkLost):
            raise FloodError("more of a worker than this program has taken")
        self._said.put(said)

    def listen(self, pid: int) -> None:
        """Begin to post its events."""
        self._pid = pid
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Have its stdin closed."""
        self._link.send(EndWorker(worker=self._number, method="close stdin"))

    def terminate(self) -> None:
        """Have it sent SIGTERM."""
        self._link.send(EndWorker(worker=self._number, method="terminate"))

    def kill(self) -> None:
        """Have its process group killed."""
        self._link.send(EndWorker(worker=self._number, method="kill"))

    def _deliver(self) -> None:
        taken = 0
        while True:
            said = self._said.get()
            event = self._event(said)
            if isinstance(event, Finished) and event.outcome == "completed" and self._fetch is not None:
                self._bring(self._fetch)
            self._post(event)
            if isinstance(event, Exited):
                return
            if not isinstance(said, LinkSilent):
                taken += 1
            if taken >= _TAKEN_AT_ONCE or (taken and self._said.empty()):
                self._link.send(Took(worker=self._number, events=taken))
                taken = 0

    def _event(self, said: WorkerReport) -> WorkerEvent:
        match said:
            case LinkSilent(reason=reason):
                return Waiting(self._link.clock.now_ns(), reason)
            case LinkLost(reason=reason):
                return Exited(None, reason)
            case _:
                return worker_event(said, self._link.name)

    def _bring(self, fetch: Callable[[], None]) -> None:
        """Bring its file here before the run hears that it completed: the agent's files end with the agent."""
        try:
            fetch()
        except (UserError, OSError) as error:
            self._post(
                LogLine(self._link.clock.now_ns(), f"(the weights were not brought from {self._link.name}: {error})")
            )


def worker_event(said: WorkerSaid | WorkerLogged | WorkerBroke | WorkerExited, host: str) -> WorkerEvent:
    """Return what the agent of a host reports of a worker, as the event that a worker of this machine posts."""
    match said:
        case WorkerSaid(message=message):
            try:
                return with_host(decode_message(bytes(message)), host)
            except ProtocolError as error:
                return BrokenMessage(str(error), bytes(message)[:_MAX_BROKEN_BYTES].decode(errors="replace"))
        case WorkerLogged(t_ns=t_ns, text=text):
            return LogLine(t_ns, text)
        case WorkerBroke(reason=reason, line=line):
            return BrokenMessage(reason, line)
        case WorkerExited(exit_code=exit_code, reason=reason):
            return Exited(exit_code, reason)


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
        hello: What the agent said of itself.
        prepared: What was found on the host, and sent there, before the agent started; None if it was there already.

    Thread: any.
    """

    host: Host
    hello: AgentHello
    prepared: Prepared | None
    link: Link
    launcher: RemoteLauncher

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

    Its telemetry is started, too; the inventory may come later.

    Args:
        carrier: The way to the host.
        name: The host as the user calls it.
        hz: Readings a second.
        notify: Gets a sentence for what is waited for, and later when the host falls silent, is heard again or is lost;
            on any thread.
        is_cancelled: Returns whether to connect no longer; called several times a second.
        module: The agent's module and arguments, as `python -m` takes them.
        limits: How long the host may be silent.

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

    Args:
        carrier: The way to the host.
        name: The host as the user calls it.
        notify: Gets a sentence for what is waited for; on any thread.
        is_cancelled: Returns whether to connect no longer; called several times a second.
        module: The module and its arguments, as `python -m` takes them.

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

    Args:
        channel: The agent's stdin and stdout.
        lines: What comes, from `channel.lines()`.
        name: The host as the user calls it.
        kind: The kind of its carrier.
        hz: Readings a second.
        notify: Gets a sentence when the host falls silent, is heard again or is lost; on any thread.
        prepared: What was found before the agent started.
        limits: How long the host may be silent.

    Raises:
        UserError: The agent does not begin as one.
    """
    link = Link(channel, name, notify=notify, limits=limits)
    hello = link.start(lines)
    files = ScratchFiles(link)
    telemetry = TelemetryFeed(hz, partial(RemoteSampler, link, hello.environments), link.clock.now_ns)
    launcher = RemoteLauncher(link, files)
    host = Host(
        telemetry=telemetry,
        launcher=launcher,
        leases=RemoteLeases(link),
        run_job=RemoteJobs(link, files),
        now=link.clock.now,
        describe=lambda inventory: _environment(link, hello, kind, inventory),
        name=name,
    )
    telemetry.start()
    return Connection(host=host, hello=hello, prepared=prepared, link=link, launcher=launcher)


def _environment(link: Link, hello: AgentHello, kind: str, inventory: Inventory) -> dict[str, str]:
    """Return what is known of a run's environment on a host; raises `UserError` where the link is lost."""
    number = link.number()
    described = link.ask(number, DescribeHost(number), HostDescribed).environment
    offset = link.clock.offset()
    of_link = {
        HOST_KEY: link.name,
        HOST_ID_KEY: hello.host_id,
        BOOT_ID_KEY: hello.boot_id,
        CARRIER_KEY: kind,
        LINK_ROUND_TRIP_KEY: f"{offset.round_trip_ns / 1e6:.3f}",
        CLOCK_OFFSET_KEY: str(offset.offset_ns),
        CLOCK_ERROR_KEY: str(offset.error_ns),
    }
    return inventory_info(inventory) | described | program_info() | of_link


def _in_thread(
    work: Callable[[], Prepared], waiting: str, notify: Callable[[str], None], is_cancelled: Callable[[], bool]
) -> Prepared:
    """Return the result of work that may wait for the host.

    Args:
        work: What waits.
        waiting: Told when it takes long.
        notify: Gets that.
        is_cancelled: Returns whether to wait no longer.

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
