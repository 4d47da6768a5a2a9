"""The nodes of a Ray cluster, as the driver reports them to the program: alive, free, and with which GPUs."""

import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from app.ray_protocol import DriverReport, OpenAgent, RayNode, RayNodes
from app.samples import Inventory

if TYPE_CHECKING:
    from app.agent.ray_actor import Sources

NODES_EVERY_S = 1.0
"""How often the state of the cluster is read."""

_WAITS = "The run waits for {what} of one node of the Ray cluster; free now: {free}."


class Output:
    """The pipe to the program. Ray prints on stdout by itself: that goes to stderr.

    Thread: any.
    """

    def __init__(self) -> None:
        self._pipe = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def report(self, message: DriverReport) -> None:
        """Write a message."""
        self.write(msgspec.json.encode(message) + b"\n")

    def write(self, lines: bytes) -> None:
        """Write whole lines; nobody at the other end ends this process, and with it all agents."""
        with self._lock:
            try:
                self._pipe.write(lines)
                self._pipe.flush()
            except OSError:
                os._exit(0)


class Nodes:
    """Watches the nodes of the cluster: which are alive, what is free, and what a probe finds on each.

    Thread: `update` one, the others any; `current` is replaced whole, under the lock.
    """

    def __init__(self, ray: Any, output: Output, sources: "Sources") -> None:
        self._ray = ray
        self._output = output
        self._sources = sources
        self._probes: dict[str, Any] = {}
        self._probed: dict[str, tuple[str, Inventory | None, str | None, bool]] = {}
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self.current: tuple[RayNode, ...] = ()
        self._reported: tuple[RayNode, ...] = ()  # of `update` alone
        self.heard_s = time.monotonic()

    def update(self) -> None:
        """Read the state of the cluster, and report it if it has changed."""
        alive = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        alive = {key: node for key, node in alive.items() if key not in self._lost}
        free = self._ray._private.state.available_resources_per_node()  # noqa: SLF001 - the only way to it
        self.heard_s = time.monotonic()
        for node in alive.keys() - self._probes.keys():
            self._probes[node] = self._start_probe(node)
        self._take_probes()
        names = [self._name(node) for node in alive.values()]
        nodes = [self._node(node, free.get(key, {}), names) for key, node in alive.items()]
        with self._lock:
            # Without those that were lost since Ray was asked.
            current = tuple(sorted((node for node in nodes if node.node not in self._lost), key=lambda node: node.name))
            self.current = current
        if current != self._reported:
            self._reported = current
            self._output.report(RayNodes(current))

    def _name(self, node: Mapping[str, Any]) -> str:
        probed = self._probed.get(node["NodeID"])
        return probed[0] if probed else str(node["NodeManagerHostname"])

    def _node(self, node: Mapping[str, Any], free: Mapping[str, float], names: list[str]) -> RayNode:
        key, name = node["NodeID"], self._name(node)
        _, inventory, problem, has_reporter = self._probed.get(key, ("", None, None, False))
        return RayNode(
            node=key,
            name=name if names.count(name) == 1 else f"{name} ({key[:6]})",
            gpus=int(node["Resources"].get("GPU", 0)),
            free_gpus=free.get("GPU", 0.0),
            cpus=node["Resources"].get("CPU", 0.0),
            free_cpus=free.get("CPU", 0.0),
            inventory=inventory,
            problem=problem,
            has_reporter=has_reporter,
        )

    def _start_probe(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from app.agent.ray_actor import probe_node

        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        probe = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(probe_node)
        return probe.remote(self._sources)

    def _take_probes(self) -> None:
        by_ref = {ref: node for node, ref in self._probes.items() if node not in self._probed}
        if not by_ref:
            return
        ready, _ = self._ray.wait(list(by_ref), num_returns=len(by_ref), timeout=NODES_EVERY_S / 4)
        for ref in ready:
            try:
                name, inventory, problem, has_reporter = self._ray.get(ref)
                known = None if problem else msgspec.json.decode(inventory, type=Inventory)
            except (self._ray.exceptions.RayError, msgspec.MsgspecError) as error:
                name, known, has_reporter, problem = by_ref[ref][:6], None, False, str(error).strip().splitlines()[-1]
            self._probed[by_ref[ref]] = (name, known, problem or None, has_reporter)

    def lose(self, node: str) -> None:
        """Leave out a node that an agent was lost with: Ray itself takes up to a minute to notice."""
        with self._lock:
            self._lost.add(node)
            self.current = tuple(each for each in self.current if each.node != node)

    def name_of(self, node: str) -> str:
        """Return a node's name."""
        return next((each.name for each in self.current if each.node == node), node[:6])

    def missing(self, order: OpenAgent) -> str:
        """Return what an agent waits for, in one sentence."""
        wanted = [each for each in self.current if each.node in order.nodes]
        if order.gpus:
            free = ", ".join(f"{each.name} {each.free_gpus:g} of {each.gpus}" for each in wanted if each.gpus)
            return _WAITS.format(what=_gpus(order.gpus), free=free or "none")
        free = ", ".join(f"{each.name} {each.free_cpus:g} of {each.cpus:g}" for each in wanted)
        return _WAITS.format(what=f"{order.cpus:g} processors", free=free or "none")

    def refusal(self, order: OpenAgent) -> str | None:
        """Return why no node can ever have this agent, None if one can."""
        wanted = [each for each in self.current if each.node in order.nodes]
        if not wanted:
            return "None of the nodes that this run may use is in the Ray cluster now."
        if order.gpus > max(each.gpus for each in wanted):
            most = max(wanted, key=lambda each: each.gpus)
            return f"No node of the Ray cluster has {_gpus(order.gpus)}: the most are {most.gpus}, on {most.name}."
        if order.cpus > max(each.cpus for each in wanted):
            return f"No node of the Ray cluster has {order.cpus:g} processors for Ray."
        return None


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
