"""A Ray cluster, reached through its head node: a pool of nodes, and an agent for each run where Ray places it.

Nothing of Ray is here: `app.agent.ray` on the head node is Ray's driver, and `app.ray_protocol` what it says.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.environment_keys import CARRIER_KEY, HOST_KEY, RAY_KEY, RAY_REPORTER_KEY
from app.errors import TelemetryError
from app.hosts.carriers import Carrier
from app.hosts.connection import Connection, open_channel, serve
from app.hosts.link import LinkStatus
from app.hosts.pool import Pool, PoolSampler, merged_inventory
from app.hosts.ray_cluster import RayChannel, RayCluster
from app.hosts.routes import LinkLostError
from app.ray_protocol import AgentPlaced, RayNode
from app.runs.host import HostLease
from app.runs.jobs import Notify
from app.runs.leases import CPU
from app.samples import Inventory
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import UsageError
from workloads.protocol import RunSpec

_LOOK_S = 0.1
_AGENT_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPool(Pool):
    """The nodes of a cluster with one kind of card. Each run has an agent of its own, on the node where Ray places it.

    Attributes:
        cluster: The driver on its head.
        cpus: How many processors Ray counts for each run.
    """

    cluster: RayCluster
    cpus: float = 1.0

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
        return Pool.refusal(self, spec)

    def lease_for_run(
        self,
        spec: RunSpec,
        *,
        notify: Notify,
        wait_for_stop: Callable[[float], bool],
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
        gpus = int(spec.variant["gpus"])
        channel = self.cluster.open(gpus, self.cpus, nodes)
        missing = ""
        try:
            while (placed := channel.wait_placed(_LOOK_S)) is None:
                if channel.missing != missing:
                    missing = channel.missing
                    notify(missing)
                if wait_for_stop(0.0):
                    channel.cut()
                    return None
            connection = self._connect(channel, placed, notify)
        except BaseException:
            channel.cut()
            raise
        lease = connection.host.leases.wait(
            placed.devices or (CPU,),
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

    def _connect(self, channel: RayChannel, placed: AgentPlaced, notify: Notify) -> Connection:
        node = next((each for each in self.cluster.nodes if each.node == placed.node), None)
        name = f"{self.name}/{node.name}" if node is not None else self.name
        connection = serve(channel, channel.lines(), name=name, kind="ray", notify=notify)
        assert self.cluster.hello is not None, "it has begun"
        extra = {RAY_KEY: self.cluster.hello.ray}
        if node is not None and node.has_reporter:
            extra[RAY_REPORTER_KEY] = "yes"
        describe = connection.host.describe
        host = replace(connection.host, describe=lambda inventory: {**describe(inventory), **extra})
        return replace(connection, host=host)


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

    Args:
        carrier: The way to the head node.
        name: The cluster as the user calls it.
        notify: Gets a sentence for what is waited for; on any thread.
        is_cancelled: Returns whether to connect no longer; called several times a second.
        head_silent_s: How long the head may leave its driver without an answer.

    Raises:
        UserError: It cannot be reached, or has no cluster that can be used; with what to do.
    """
    options = dict(carrier.address.options)
    cpus = _processors(options.get("cpus", "1"))
    module = f"app.agent.ray {head_silent_s:g}"
    opened = open_channel(carrier, name=name, notify=notify, is_cancelled=is_cancelled, module=module)
    cluster = RayCluster(opened.channel, opened.lines, name)
    card = options.get("gpu", "")

    def merged() -> Inventory:
        found = [node.inventory for node in cluster.nodes if node.inventory is not None]
        return merged_inventory(found, name, card)

    try:
        cluster.start(notify, is_cancelled)
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
        cpus=cpus,
    )
    pool.telemetry.start()
    return ClusterConnection(host=pool)


def _processors(word: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4})?", word):
        raise UsageError(f"cpus= takes a number of processors for each run, such as 4, not {word!r}.")
    return float(word)
