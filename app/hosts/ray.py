"""A Ray cluster, reached through its head node: a pool of nodes, and an agent for each run where Ray places it.

Nothing of Ray is here: `app.agent.ray` on the head node is Ray's driver, one for the nodes and one for each agent, and
`app.agent_protocol` what they say. As with Slurm, a driver is the end of a carrier's command.
"""

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import msgspec

from app import units
from app.agent_protocol import RAY_MARK, RayNode, RayNodes, RayPlaced
from app.environment_keys import CARRIER_KEY, HOST_KEY, RAY_KEY, RAY_REPORTER_KEY
from app.errors import TelemetryError, UserError
from app.hosts.carriers import Carrier, Failure
from app.hosts.channel import Channel, LineTooLongError
from app.hosts.connection import Connection, Opened, open_channel, serve
from app.hosts.link import LinkLostError, LinkStatus
from app.hosts.pool import Pool, PoolSampler, merged_inventory
from app.plain import one_line
from app.runs.host import HostLease
from app.runs.jobs import Notify
from app.runs.leases import CPU
from app.samples import Inventory
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import UsageError
from workloads.protocol import RunSpec

_PROBED_S = 90.0
_QUIET_S = 5.0
_PENDING_S = 1.0
_LOOK_S = 0.1
_AGENT_TRIES = 3
_WAITS = "The run waits for {what} of one node of the Ray cluster; free now: {free}."
RAY_FAILURES = (
    Failure(rf"^{RAY_MARK} failed (?P<reason>.*)$", "{label}: {reason}"),
    Failure(rf"^{RAY_MARK} ended (?P<reason>.*)$", "{reason}"),
)


class RayCluster:
    """The nodes of a cluster, as the driver on its head says them until it is closed or lost.

    Thread: any; one of its own reads.
    """

    def __init__(self, channel: Channel, lines: Iterator[bytes], name: str) -> None:
        """Take a channel whose next line is a driver's first."""
        self.name = name
        self._channel = channel
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        # References that are replaced whole, under the lock.
        self._nodes: tuple[RayNode, ...] = ()
        self._lost_nodes: frozenset[str] = frozenset()
        self.version = ""
        self.lost: str | None = None
        self._reader = threading.Thread(target=self._read, args=(lines,), name=f"ray {name}", daemon=True)
        self._reader.start()

    @property
    def nodes(self) -> tuple[RayNode, ...]:
        """The nodes that are alive, without those that a run was lost with: Ray takes up to a minute to notice."""
        return tuple(node for node in self._nodes if node.node not in self._lost_nodes)

    def wait_probed(self, notify: Notify, is_cancelled: Callable[[], bool]) -> None:
        """Wait until the driver is connected and knows the GPUs of all nodes.

        Raises:
            UserError: There is no cluster, or none that can be used; with what to do.
        """
        began_s, noted = time.monotonic(), False
        with self._changed:
            while not self._changed.wait_for(lambda: self._is_probed or self.lost is not None, _LOOK_S):
                waited_s = time.monotonic() - began_s
                if is_cancelled():
                    raise UserError("Connecting was cancelled.")
                if waited_s > _PROBED_S:
                    limit = units.with_unit(_PROBED_S, "s")
                    raise UserError(
                        f"{self.name} took more than {limit} to look at the nodes of the Ray cluster; look there with"
                        " `ray status`."
                    )
                if waited_s > _QUIET_S and not noted:
                    noted = True
                    notify(f"Waiting for {self.name} to look at the nodes of the Ray cluster …")
        if self.lost is not None:
            raise UserError(self.lost)

    @property
    def _is_probed(self) -> bool:
        return bool(self._nodes) and all(node.inventory or node.problem for node in self._nodes)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call this whenever nodes have changed, or the cluster is lost."""
        self._listeners.append(listener)

    def read_stderr(self, line: str) -> str | None:
        """Leave out a node that a driver says is lost; return None, for nothing is waited for."""
        if line.startswith(f"{RAY_MARK} lost "):
            with self._changed:
                self._lost_nodes |= {line.split()[2]}
            self._notify_changed()
        return None

    def close(self) -> None:
        """End the driver."""
        self._lose(f"The link to {self.name} was closed.")
        self._channel.close()
        self._reader.join()

    def _read(self, lines: Iterator[bytes]) -> None:
        decoder: msgspec.json.Decoder[RayNodes] = msgspec.json.Decoder(RayNodes)
        line = b""
        try:
            for line in lines:
                message = decoder.decode(line)
                with self._changed:
                    self._nodes, self.version = message.nodes, message.ray
                self._notify_changed()
        except (msgspec.DecodeError, LineTooLongError):
            excerpt = one_line(line[:200].decode(errors="replace"))
            self._lose(f"The Ray driver on {self.name} sent what no driver sends, so the link was closed: {excerpt}")
            self._channel.cut()
        else:
            self._lose(self._channel.why_ended())

    def _lose(self, reason: str) -> None:
        with self._changed:
            self.lost = self.lost or reason
        self._notify_changed()

    def _notify_changed(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for listener in self._listeners:
            listener()


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPool(Pool):
    """The nodes of a cluster with one kind of card. Each run has an agent of its own, on the node where Ray places it.

    Attributes:
        carrier: The way to its head.
        cpus: How many processors Ray counts for each run.
        head_silent_s: How long the head may leave a driver without an answer.
    """

    cluster: RayCluster
    carrier: Carrier
    cpus: float = 1.0
    head_silent_s: float = 15.0

    def balanced_unit(self, device: str) -> str:
        """Return the node of a GPU: which of its GPUs a run gets is Ray's choice."""
        return next((node.node for node in self.cluster.nodes if device in _uuids(node)), device)

    def refusal(self, spec: RunSpec) -> str | None:
        """Return why no node can make a run, in one sentence; None if one can."""
        gpus, most = int(spec.variant["gpus"]), max((node.gpus for node in self.cluster.nodes), default=0)
        if gpus > most:
            return f"No node of the Ray cluster {self.name} has {gpus} GPUs: the most are {most}."
        if gpus and spec.variant["devices"]:
            return f"Ray chooses the GPUs on {self.name}: leave the parameter devices empty."
        if self.cpus > max((node.cpus for node in self.cluster.nodes), default=0):
            return f"No node of the Ray cluster {self.name} has {self.cpus:g} processors for Ray."
        return Pool.refusal(self, spec)

    def lease_for_run(
        self,
        spec: RunSpec,
        *,
        notify: Notify,
        wait_for_stop: Callable[[float], bool],
        runs_anyway: Callable[[], bool] = lambda: False,  # noqa: ARG002 - Ray shares no devices
        devices: Sequence[str] = (),
    ) -> HostLease | None:
        """Lease the devices of a run on a node, and start its agent there; waits until Ray has placed it.

        Raises:
            UserError: No node can have it, the cluster is lost, or no agent can be started.
        """
        for attempt in itertools.count(1):
            try:
                return self._lease(spec, self._nodes_for(spec, devices), notify, wait_for_stop)
            except (LinkLostError, TelemetryError) as error:  # the node was lost meanwhile: another may do
                if attempt == _AGENT_TRIES or self.cluster.lost:
                    raise
                notify(str(error))
        raise AssertionError("it counts on")

    def _nodes_for(self, spec: RunSpec, devices: Sequence[str]) -> list[str]:
        """Return the nodes that a run may be on: as their GPUs are preferred, or the least busy one first."""
        if not int(spec.variant["gpus"]):
            return [node.node for node in sorted(self.cluster.nodes, key=lambda node: -node.free_cpus)]
        preferred = [*devices, *(gpu.uuid for gpu in self.machine.gpus)]
        return list(dict.fromkeys(map(self.balanced_unit, preferred)))

    def _lease(
        self, spec: RunSpec, nodes: Sequence[str], notify: Notify, wait_for_stop: Callable[[float], bool]
    ) -> HostLease | None:
        if self.cluster.lost:
            raise UserError(self.cluster.lost)
        if not nodes:
            raise UserError("None of the nodes that this run may use is in the Ray cluster now.")
        gpus = int(spec.variant["gpus"])
        opened = open_channel(
            replace(self.carrier, waiting=self.cluster.read_stderr),
            name=self.name,
            notify=notify,
            is_cancelled=lambda: wait_for_stop(0.0),
            module=f"app.agent.ray {self.head_silent_s:g} carry {gpus} {self.cpus:g} {','.join(nodes)}",
        )
        try:
            placed = self._wait_placed(opened, gpus, nodes, notify, wait_for_stop)
            if placed is None:
                opened.channel.cut()
                return None
            connection, devices = self._connect(opened, placed, notify)
        except BaseException:
            opened.channel.cut()
            raise
        lease = connection.host.leases.wait(
            devices or (CPU,),
            gpus or 1,
            on_wait=lambda: notify(
                f"Another program than Ray uses this device of {connection.host.name}; the run waits."
            ),
            wait_for_stop=wait_for_stop,
        )
        if lease is None:
            connection.close()
            return None
        return HostLease(lease.devices, connection.close, host=connection.host)

    def _wait_placed(
        self,
        opened: Opened,
        gpus: int,
        nodes: Sequence[str],
        notify: Notify,
        wait_for_stop: Callable[[float], bool],
    ) -> RayPlaced | None:
        """Return where Ray has placed the agent, None if the wait was given up; raises `UserError`."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray") as thread:
            line, began_s, missing = thread.submit(next, opened.lines, b""), time.monotonic(), ""
            while not wait([line], _LOOK_S).done:
                if time.monotonic() - began_s > _PENDING_S and (still_missing := self._missing(gpus, nodes)) != missing:
                    missing = still_missing
                    notify(missing)
                if wait_for_stop(0.0):
                    opened.channel.cut()
                    return None
            if not line.result():
                raise UserError(opened.channel.why_ended())
            return msgspec.json.decode(line.result(), type=RayPlaced)

    def _missing(self, gpus: int, nodes: Sequence[str]) -> str:
        """Return what an agent waits for, in one sentence."""
        candidates = [node for node in self.cluster.nodes if node.node in nodes]
        if gpus:
            free = ", ".join(f"{node.name} {node.free_gpus:g} of {node.gpus}" for node in candidates if node.gpus)
            return _WAITS.format(what="1 GPU" if gpus == 1 else f"{gpus} GPUs", free=free or "none")
        free = ", ".join(f"{node.name} {node.free_cpus:g} of {node.cpus:g}" for node in candidates)
        return _WAITS.format(what=f"{self.cpus:g} processors", free=free or "none")

    def _connect(self, opened: Opened, placed: RayPlaced, notify: Notify) -> tuple[Connection, tuple[str, ...]]:
        """Return the connection to an agent, and its GPUs."""
        node = next((node for node in self.cluster.nodes if node.node == placed.node), None)
        name = f"{self.name}/{node.name}" if node is not None else self.name
        connection = serve(opened.channel, opened.lines, name=name, kind="ray", notify=notify)
        extra = {RAY_KEY: self.cluster.version}
        if node is not None and node.has_reporter:
            extra[RAY_REPORTER_KEY] = "yes"
        describe = connection.host.describe
        host = replace(connection.host, describe=lambda inventory: {**describe(inventory), **extra})
        gpus = node.inventory.devices if node is not None and node.inventory is not None else ()
        by_index = {str(device.index): device.device for device in gpus if device.kind == "gpu"}
        visible = [word for word in placed.visible.split(",") if word not in ("", "-1")]
        return replace(connection, host=host), tuple(by_index.get(word, word) for word in visible)


def _uuids(node: RayNode) -> frozenset[str]:
    """Return the GPUs of a node."""
    return frozenset(gpu.uuid for gpu in node.inventory.machine.gpus) if node.inventory is not None else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """A cluster that a driver on its head serves, until `close`."""

    host: RayPool

    def status(self) -> LinkStatus:
        """Return how the link to the head is; each run has one of its own to its node."""
        return LinkStatus(round_trip_ms=None, silent_s=0.0, lost=self.host.cluster.lost)

    def close(self) -> None:
        """End the driver and all agents, and wait for that."""
        self.host.cluster.close()
        self.host.telemetry.close()


def connect_cluster(
    carrier: Carrier,
    *,
    name: str,
    notify: Notify = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    head_silent_s: float = 15.0,
) -> ClusterConnection:
    """Start the driver on a cluster's head node, and return its nodes as a pool once their GPUs are known.

    `notify` gets a sentence for what is waited for, on any thread; `is_cancelled` is called several times a second.
    `head_silent_s` is how long the head may leave its driver without an answer.

    Raises:
        UserError: It cannot be reached, or has no cluster that can be used; with what to do.
    """
    options = dict(carrier.address.options)
    cpus, card = _processors(options.get("cpus", "1")), options.get("gpu", "")
    carrier = replace(carrier, failures=(*RAY_FAILURES, *carrier.failures))
    module = f"app.agent.ray {head_silent_s:g} nodes"
    opened = open_channel(carrier, name=name, notify=notify, is_cancelled=is_cancelled, module=module)
    cluster = RayCluster(opened.channel, opened.lines, name)

    def merged() -> Inventory:
        inventories = [node.inventory for node in cluster.nodes if node.inventory is not None]
        return merged_inventory(inventories, name, card)

    try:
        cluster.wait_probed(notify, is_cancelled)
        merged()
    except BaseException:
        cluster.close()
        raise
    sampler = PoolSampler(merged)
    cluster.subscribe(lambda: sampler.lose(cluster.lost) if cluster.lost else sampler.changed())
    pool = RayPool(
        telemetry=TelemetryFeed(start_sampler=lambda _: sampler),
        describe=lambda _: {HOST_KEY: name, CARRIER_KEY: carrier.kind},
        name=name,
        cluster=cluster,
        carrier=carrier,
        cpus=cpus,
        head_silent_s=head_silent_s,
    )
    pool.telemetry.start()
    return ClusterConnection(host=pool)


def _processors(word: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4})?", word):
        raise UsageError(f"cpus= takes a number of processors for each run, such as 4, not {word!r}.")
    return float(word)
