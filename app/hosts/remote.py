"""The parts of a `Host` that an agent serves: workers, sampler and leases over one link."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from app.agent_protocol import (
    MOST_EVENTS,
    EndWorker,
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
from app.errors import TelemetryError, UserError
from app.hosts.link import Link
from app.hosts.remote_jobs import ScratchFiles, with_host
from app.hosts.routes import FloodError, LinkLost, LinkLostError, LinkSilent, SamplerReport, WorkerReport
from app.runs.launcher import BrokenMessage, Exited, Post, Worker, WorkerEvent
from app.runs.leases import DeviceLeases, Lease
from app.samples import Inventory, LogLine, Waiting
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
