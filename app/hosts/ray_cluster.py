"""The driver on a Ray cluster's head node: its reports, and the channels of the agents that it opens."""

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from app import units
from app.errors import UserError
from app.hosts.channel import Channel, LineTooLongError
from app.plain import one_line
from app.ray_protocol import (
    AgentClosed,
    AgentPlaced,
    AgentWaits,
    CloseAgent,
    DriverFailed,
    DriverHello,
    DriverOrder,
    DriverReport,
    OpenAgent,
    RayNode,
    RayNodes,
)
from app.runs.jobs import Notify

_HELLO_S = 30.0
_QUIET_S = 5.0
_PROBED_S = 90.0
_LOOK_S = 0.1
_END_S = 10.0


class RayChannel:
    """The channel to an agent on a node: numbered lines of the driver's channel.

    Thread: see `Channel`.
    """

    def __init__(self, cluster: "RayCluster", number: int) -> None:
        self._cluster = cluster
        self.number = number
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._closed: str | None = None
        self.placed: AgentPlaced | None = None
        self.missing = ""

    def write(self, lines: bytes) -> None:
        """Write to the agent's stdin."""
        if self._closed is not None:
            raise BrokenPipeError(self._closed)
        prefix = b"%d " % self.number
        self._cluster.write(b"".join(prefix + line for line in lines.splitlines(keepends=True)))

    def lines(self) -> Iterator[bytes]:
        """Yield what the agent says."""
        while (line := self._lines.get()) is not None:
            yield line

    def close(self) -> None:
        """Close the agent's stdin, and wait some seconds until it has ended."""
        self.cut()
        with self._changed:
            self._changed.wait_for(lambda: self._closed is not None, _END_S)

    def cut(self) -> None:
        """Have the agent closed; returns at once."""
        if self._closed is None:
            with contextlib.suppress(OSError):  # the cluster is lost, and with it the agent
                self._cluster.order(CloseAgent(self.number))
        self._lines.put(None)

    def why_ended(self, said: str = "") -> str:
        """Return why it ended."""
        del said  # its stdout is the driver's
        return self._closed or "The agent was closed."

    def wait_placed(self, seconds: float) -> AgentPlaced | None:
        """Wait so long until the agent runs on a node, and return where; raises `UserError` if it never will."""
        with self._changed:
            self._changed.wait_for(lambda: self.placed or self._closed, seconds)
            if self.placed is None and self._closed is not None:
                raise UserError(self._closed)
            return self.placed

    def take_line(self, line: bytes) -> None:
        """Take a line of the agent."""
        self._lines.put(line)

    def take(self, report: AgentWaits | AgentPlaced | AgentClosed) -> None:
        """Take a report on the agent."""
        with self._changed:
            match report:
                case AgentWaits(missing=missing):
                    self.missing = missing
                case AgentPlaced():
                    self.placed = report
                case AgentClosed(reason=reason):
                    self._closed = reason
                    self._lines.put(None)
            self._changed.notify_all()


class RayCluster:
    """The driver on a cluster's head node, until it is closed or lost. One thread reads what it says.

    Thread: any.
    """

    def __init__(self, channel: Channel, lines: Iterator[bytes], name: str) -> None:
        """Take a channel whose next line is a driver's first."""
        self.name = name
        self._channel = channel
        self._changed = threading.Condition()
        self._agents: dict[int, RayChannel] = {}
        self._numbers = itertools.count()
        self._listeners: list[Callable[[], None]] = []
        self._lost: str | None = None
        self.hello: DriverHello | None = None
        self.nodes: tuple[RayNode, ...] = ()
        self._reader = threading.Thread(target=self._read, args=(lines,), name=f"ray {name}", daemon=True)

    def start(self, notify: Notify, is_cancelled: Callable[[], bool]) -> None:
        """Wait until the driver is connected and knows the GPUs of all nodes.

        Args:
            notify: Gets a sentence for what is waited for.
            is_cancelled: Returns whether to wait no longer.

        Raises:
            UserError: There is no cluster, or none that can be used; with what to do.
        """
        self._reader.start()
        self._wait(lambda: self.hello is not None, _HELLO_S, "to connect to the Ray cluster", notify, is_cancelled)
        self._wait(lambda: self._is_probed, _PROBED_S, "to look at the nodes of the Ray cluster", notify, is_cancelled)

    @property
    def _is_probed(self) -> bool:
        return bool(self.nodes) and all(node.inventory or node.problem for node in self.nodes)

    def _wait(
        self,
        is_done: Callable[[], bool],
        limit_s: float,
        purpose: str,
        notify: Notify,
        is_cancelled: Callable[[], bool],
    ) -> None:
        began_s, noted = time.monotonic(), False
        with self._changed:
            while not self._changed.wait_for(lambda: is_done() or self._lost is not None, _LOOK_S):
                waited_s = time.monotonic() - began_s
                if is_cancelled():
                    raise UserError("Connecting was cancelled.")
                if waited_s > limit_s:
                    raise UserError(
                        f"{self.name} took more than {units.with_unit(limit_s, 's')} {purpose}; "
                        "look there with `ray status`."
                    )
                if waited_s > _QUIET_S and not noted:
                    noted = True
                    notify(f"Waiting for {self.name} {purpose} …")
        if not is_done():
            raise UserError(self._lost or "")

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call this whenever nodes have changed, or the cluster is lost."""
        self._listeners.append(listener)

    @property
    def lost(self) -> str | None:
        """Why the cluster is lost, in one sentence; None while it is not."""
        return self._lost

    def open(self, gpus: int, cpus: float, nodes: Sequence[str]) -> RayChannel:
        """Order an agent.

        Args:
            gpus: How many GPUs it gets, all on one node.
            cpus: How many processors Ray counts for it.
            nodes: Ids of the nodes it may be on, the preferred one first.

        Raises:
            UserError: The cluster is lost.
        """
        with self._changed:
            channel = RayChannel(self, next(self._numbers))
            self._agents[channel.number] = channel
        try:
            self.order(OpenAgent(number=channel.number, gpus=gpus, cpus=cpus, nodes=tuple(nodes)))
        except OSError as error:
            raise UserError(self._lost or str(error)) from error
        return channel

    def order(self, order: DriverOrder) -> None:
        """Send the driver an order; raises `OSError` when it is gone."""
        self.write(msgspec.json.encode(order) + b"\n")

    def write(self, lines: bytes) -> None:
        """Write whole lines; raises `OSError` when the driver is gone."""
        if self._lost is not None:
            raise BrokenPipeError(self._lost)
        self._channel.write(lines)

    def close(self) -> None:
        """End the driver, and with it all agents."""
        self._lose(f"The link to {self.name} was closed.")
        self._channel.close()
        self._reader.join()

    def _read(self, lines: Iterator[bytes]) -> None:
        decoder: msgspec.json.Decoder[DriverReport] = msgspec.json.Decoder(DriverReport)
        said = ""
        try:
            for line in lines:
                if line[:1].isdigit():
                    number, _, rest = line.partition(b" ")
                    if (agent := self._agents.get(int(number))) is not None:
                        agent.take_line(rest)
                else:
                    self._take(decoder.decode(line))
        except (msgspec.DecodeError, LineTooLongError, ValueError):
            said = one_line(line[:200].decode(errors="replace"))
            self._lose(f"The Ray driver on {self.name} sent what no driver sends, so the link was closed: {said}")
            self._channel.cut()
        else:
            self._lose(self._channel.why_ended())

    def _take(self, report: DriverReport) -> None:
        match report:
            case DriverHello():
                self.hello = report
            case DriverFailed(reason=reason):
                self._lose(f"{self.name}: {reason}")
            case RayNodes(nodes=nodes):
                self.nodes = nodes
            case AgentClosed(agent=number):
                if (agent := self._agents.pop(number, None)) is not None:
                    agent.take(report)
            case _:
                if (agent := self._agents.get(report.agent)) is not None:
                    agent.take(report)
        self._notify_changed()

    def _lose(self, reason: str) -> None:
        with self._changed:
            self._lost = self._lost or reason
            agents, self._agents = tuple(self._agents.values()), {}
        for agent in agents:
            agent.take(AgentClosed(agent=agent.number, reason=self._lost))
        self._notify_changed()

    def _notify_changed(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for listener in self._listeners:
            listener()
