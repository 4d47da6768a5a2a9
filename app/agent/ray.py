"""The program's drivers on the head node of a Ray cluster (`app.agent_protocol`).

    python -m app.agent.ray SECONDS nodes                  says which nodes there are, until stdin closes
    python -m app.agent.ray SECONDS carry GPUS CPUS NODES  places an agent on a node, and is its stdin and stdout

Both end when the cluster's head does not answer for so many seconds. Ray is installed on the cluster alone. It brings
this program's sources and packages to its nodes by itself, and kills an actor whose driver is gone.
"""

import importlib
import os
import platform
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import IO, Any

import msgspec

from app import units
from app.agent_protocol import RAY_MARK, RayNode, RayNodes, RayPlaced
from app.paths import ROOT
from app.samples import Inventory

LEAST_RAY = (2, 50)
"""The oldest Ray with labels of nodes and other choices for them; the newest one is below 3."""
_LOOK_S = 1.0
"""How often the state of the cluster is read."""
_CLOSE_S = 5.0
_READ_BYTES = 1 << 16
_PACKAGES = ("msgspec", "psutil", "pynvml")


class DriverError(Exception):
    """Why there is no driver, in one sentence for the user."""


def connect() -> Any:
    """Connect to the cluster that runs on this host, or that RAY_ADDRESS names, and return the module `ray`.

    Raises:
        DriverError: There is no Ray, no cluster, or one of another version.
    """
    try:
        import ray
    except ImportError:
        hint = "install VariantScope's extra `ray` there, or name the cluster's Python with ?python=…"
        raise DriverError(f"{sys.executable} has no Ray: {hint}.") from None
    if not LEAST_RAY <= tuple(map(int, ray.__version__.split(".")[:2])) < (3, 0):
        needed = f"VariantScope needs {'.'.join(map(str, LEAST_RAY))} or later, below 3"
        raise DriverError(f"This cluster's Python has Ray {ray.__version__}; {needed}.")
    sources = {"working_dir": str(ROOT), "py_modules": [importlib.import_module(name) for name in _PACKAGES]}
    try:
        ray.init(
            address="auto",
            log_to_driver=False,
            configure_logging=False,
            namespace="variantscope",
            runtime_env=sources,
        )
    except ConnectionError as error:
        several = "Several Ray clusters run on this host; name one by RAY_ADDRESS there."
        none = "No Ray cluster runs on this host; start one with `ray start --head`, or name the cluster's head."
        raise DriverError(several if "multiple" in str(error) else none) from error
    except RuntimeError as error:
        raise DriverError(_version_error(str(error), ray.__version__)) from error
    return ray


def _version_error(text: str, own: str) -> str:
    """Return a sentence on an error of `ray.init`."""
    if "Version mismatch" not in text:
        return f"Ray cannot be used: {text.strip().splitlines()[0].rstrip('.')}."
    versions = re.findall(r"(?:Ray|Python): (\S+)", text)
    return (
        f"The cluster runs Ray {versions[0]} with Python {versions[1]}, and {sys.executable} has Ray {own} with Python"
        f" {platform.python_version()}; name the cluster's own Python with ?python=…"
    )


class ClusterState:
    """The state of the cluster as its head says it, read every second.

    Thread: one of its own reads; the others any.
    """

    def __init__(self, ray: Any, most_silent_s: float) -> None:
        """Read it once, and begin to watch: this process ends when the head is silent for so long."""
        self._ray = ray
        self._most_silent_s = most_silent_s
        # Replaced whole; read by other threads.
        self.nodes: tuple[Mapping[str, Any], ...] = ()
        self.free: Mapping[str, Mapping[str, float]] = {}
        self._read()
        for work in (self._read_again, self._watch_head):
            threading.Thread(target=work, daemon=True).start()

    def name(self, node: str) -> str:
        """Return a node's name, with a part of its id where several have it."""
        names = {record["NodeID"]: str(record["NodeManagerHostname"]) for record in self.nodes}
        name = names.get(node, node[:6])
        return name if list(names.values()).count(name) <= 1 else f"{name} ({node[:6]})"

    def _read(self) -> None:
        self.nodes = tuple(node for node in self._ray.nodes() if node["Alive"])
        self.free = self._ray._private.state.available_resources_per_node()  # noqa: SLF001 - the only way to it
        self._heard_s = time.monotonic()

    def _read_again(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            self._read()

    def _watch_head(self) -> None:
        """End when the head does not answer: Ray itself would wait a minute, and abort."""
        while (silent_s := time.monotonic() - self._heard_s) < self._most_silent_s:
            time.sleep(_LOOK_S)
        quiet = units.with_unit(silent_s, "s")
        _end("ended", f"The head of the Ray cluster did not answer for {quiet}.")


class NodeProbes:
    """What a probe finds on each node, once."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._refs: dict[str, Any] = {}
        self._results: dict[str, tuple[Inventory | None, str | None, bool]] = {}

    def update(self, nodes: Sequence[str]) -> None:
        """Start probes of new nodes, and take the results that have come."""
        for node in nodes:
            if node not in self._refs:
                self._refs[node] = self._start(node)
        by_ref = {ref: node for node, ref in self._refs.items() if node not in self._results}
        ready = self._ray.wait(list(by_ref), num_returns=len(by_ref), timeout=_LOOK_S / 4)[0] if by_ref else ()
        for ref in ready:
            try:
                inventory, has_reporter = self._ray.get(ref)
                self._results[by_ref[ref]] = msgspec.json.decode(inventory, type=Inventory), None, has_reporter
            except (self._ray.exceptions.RayError, msgspec.MsgspecError) as error:
                self._results[by_ref[ref]] = None, str(error).strip().splitlines()[-1], False

    def result(self, node: str) -> tuple[Inventory | None, str | None, bool]:
        """Return a node's inventory or why there is none, and whether Ray's reporter runs there."""
        return self._results.get(node, (None, None, False))

    def _start(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from app.agent.ray_actor import probe_node

        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        return self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(probe_node).remote()


def say_nodes(ray: Any, state: ClusterState, output: IO[bytes]) -> None:
    """Say the nodes, again whenever anything changes, for ever."""
    probes, former = NodeProbes(ray), None
    while True:
        nodes = state.nodes
        probes.update([node["NodeID"] for node in nodes])
        now = RayNodes(
            tuple(sorted((_node(node, state, probes) for node in nodes), key=attrgetter("name"))), ray.__version__
        )
        if now != former:
            former = now
            output.write(msgspec.json.encode(now) + b"\n")
        time.sleep(_LOOK_S)


def _node(node: Mapping[str, Any], state: ClusterState, probes: NodeProbes) -> RayNode:
    key, free = node["NodeID"], state.free.get(node["NodeID"], {})
    inventory, problem, has_reporter = probes.result(key)
    return RayNode(
        node=key,
        name=state.name(key),
        gpus=int(node["Resources"].get("GPU", 0)),
        free_gpus=free.get("GPU", 0.0),
        cpus=node["Resources"].get("CPU", 0.0),
        free_cpus=free.get("CPU", 0.0),
        inventory=inventory,
        problem=problem,
        has_reporter=has_reporter,
    )


class AgentDriver:
    """One agent on a node, whose lines this process passes on.

    Thread: `run` the main one; one of its own passes stdin on.
    """

    def __init__(self, ray: Any, state: ClusterState, output: IO[bytes]) -> None:
        self._ray = ray
        self._state = state
        self._output = output
        self._node: str | None = None

    def run(self, gpus: int, cpus: float, nodes: Sequence[str]) -> None:
        """Place an agent, and pass its lines on until it ends; then end this process.

        Its GPUs are of one node; with 0 it sees none. Ray counts `cpus` processors as used by it. `nodes` are ids of
        those it may be on, the preferred one first.
        """
        from app.agent.ray_actor import AgentActor

        actor = self._ray.remote(
            num_gpus=gpus,
            num_cpus=cpus,
            max_restarts=0,
            max_task_retries=0,
            concurrency_groups={"lines": 1, "orders": 1},
            **self._placement(gpus, cpus, nodes),
        )(AgentActor).remote(gpus)
        threading.Thread(target=self._pass_orders, args=(actor,), daemon=True).start()
        lines = actor.lines.options(num_returns="streaming", concurrency_group="lines").remote()
        reason = "The agent was ended."
        try:
            self._node, visible = self._ray.get(next(lines))
            self._output.write(msgspec.json.encode(RayPlaced(node=self._node or "", visible=visible)) + b"\n")
            for ref in lines:
                message = self._ray.get(ref)
                if isinstance(message, bytes):
                    self._output.write(message)
                else:
                    reason = f"The agent on {self._location} ended by itself ({', '.join(filter(None, message))})."
        except (self._ray.exceptions.RayError, StopIteration) as error:
            reason = self._why(error, actor)
        except BrokenPipeError:
            pass
        _end("ended", reason)

    def _placement(self, gpus: int, cpus: float, nodes: Sequence[str]) -> Mapping[str, Any]:
        """Return where Ray may place it: on the first of these nodes that has room now, else on any of them."""
        anywhere = {"ray.io/node-id": f"in({','.join(nodes)})"}
        for node in nodes:
            free = self._state.free.get(node, {})
            if free.get("GPU", 0.0) >= gpus and free.get("CPU", 0.0) >= cpus:
                fallback = [{"label_selector": anywhere}]
                return {"label_selector": {"ray.io/node-id": node}, "fallback_strategy": fallback}
        return {"label_selector": anywhere}

    def _pass_orders(self, actor: Any) -> None:
        while data := os.read(0, _READ_BYTES):
            actor.order.options(concurrency_group="orders").remote(data)
        if self._node is not None:
            actor.close.options(concurrency_group="orders").remote()
            time.sleep(_CLOSE_S)  # its last line ends this process meanwhile
        self._ray.kill(actor)
        _end("ended", "It was closed.")

    @property
    def _location(self) -> str:
        return self._state.name(self._node) if self._node is not None else "the Ray cluster"

    def _why(self, error: Exception, actor: Any) -> str:
        """Return why an actor died, in one sentence."""
        exceptions = self._ray.exceptions
        if isinstance(error, exceptions.ActorUnavailableError):
            # Its process or its node: Ray knows in a moment, and says it to the next call.
            try:
                self._ray.get(actor.close.options(concurrency_group="orders").remote(), timeout=_CLOSE_S)
            except exceptions.RayError as ray_error:
                error = ray_error
        text = str(error)
        if getattr(error, "preempted", False):
            return f"The Ray node {self._location} was taken away by its provider (preempted)."
        if "low on memory" in text or isinstance(error, exceptions.OutOfMemoryError):
            return f"Ray ended the run on {self._location}, for the memory of that node ran short."
        if isinstance(error, exceptions.RayTaskError):
            return f"No agent could be started on {self._location}: {text.strip().splitlines()[-1]}"
        if "its node has died" in text or not isinstance(error, exceptions.ActorDiedError):
            if self._node is not None:
                _say("lost", self._node)
            return f"The Ray node {self._location} was lost."
        return f"The Ray actor of the run on {self._location} died."


def _say(word: str, text: str) -> None:
    os.write(2, f"\n{RAY_MARK} {word} {text}\n".encode(errors="replace"))  # Ray's own lines may lack their end


def _end(word: str, sentence: str) -> None:
    """Say why, and end at once: Ray kills the actors of a driver that is gone, and does not wait for its threads."""
    _say(word, sentence)
    os._exit(1)


def main() -> None:
    """Connect to the cluster, and be the driver that the words of the command line want."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # Ray prints on stdout by itself
    silent_s, kind, *words = sys.argv[1:]
    try:
        ray = connect()
    except DriverError as error:
        _end("failed", str(error))
        return
    state = ClusterState(ray, float(silent_s))
    if kind == "carry":
        gpus, cpus, nodes = words
        AgentDriver(ray, state, output).run(int(gpus), float(cpus), nodes.split(","))
        return
    threading.Thread(target=say_nodes, args=(ray, state, output), daemon=True).start()
    while os.read(0, _READ_BYTES):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
