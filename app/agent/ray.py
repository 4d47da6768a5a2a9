"""The program's driver on the head node of a Ray cluster: opens an agent for each run, and passes its lines on.

    python -m app.agent.ray SECONDS

reads the orders and writes the reports of `app.ray_protocol`, and ends when stdin closes, or when the cluster's head
does not answer for so many seconds. Only it and its parts, `ray_nodes` and `ray_actor`, import Ray, which is installed
on the cluster alone.
"""

import hashlib
import importlib.util
import io
import os
import platform
import re
import signal
import socket
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from app import units
from app.agent.ray_nodes import NODES_EVERY_S, Nodes, Output
from app.ray_protocol import (
    AgentClosed,
    AgentPlaced,
    AgentWaits,
    CloseAgent,
    DriverFailed,
    DriverHello,
    DriverOrder,
    OpenAgent,
)

if TYPE_CHECKING:
    from app.agent.ray_actor import Sources

LEAST_RAY = (2, 50)
"""The oldest Ray with labels of nodes and other choices for them; the newest one is below 3."""
_PENDING_S = 1.0
_CLOSE_S = 5.0
_PACKAGES = ("msgspec", "psutil", "pynvml")


class DriverError(Exception):
    """Why there is no driver, in one sentence for the user."""


def pack_sources() -> tuple[str, bytes]:
    """Return a name with the hash of the program's sources and packages, and the archive of them."""
    file, digest = io.BytesIO(), hashlib.sha256()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
        for path, name in sorted(_sources(), key=lambda each: each[1]):
            digest.update(f"{name}\0".encode() + path.read_bytes())
            archive.add(path, name)
    return f"ray-{digest.hexdigest()[:16]}", file.getvalue()


def _sources() -> Iterator[tuple[Path, str]]:
    """Yield each file that an agent needs, and its name: Ray's own Python is the same on all nodes of a cluster."""
    for package in ("app", "workloads", *_PACKAGES):
        spec = importlib.util.find_spec(package)
        assert spec is not None, "this process imports them too"
        origin = Path(spec.origin or "")
        if origin.name != "__init__.py":
            yield origin, origin.name
            continue
        for path in origin.parent.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and "tests" not in path.parts:
                yield path, str(path.relative_to(origin.parents[1]))


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
    try:
        ray.init(address="auto", log_to_driver=False, configure_logging=False, namespace="variantscope")
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


@dataclass(slots=True, eq=False)
class RayAgent:
    """One agent on a node, from its order to its end.

    Thread: one orders it (`start`), passes lines on and closes it; one watches it (`report_missing`,
    `kill_if_overdue`); one of its own follows it. Each attribute is written by one of them alone.
    """

    order: OpenAgent
    ray: Any
    nodes: Nodes
    output: Output
    sources: "Sources"
    actor: Any = None
    node: str | None = None
    last_missing: str = ""
    ordered_s: float = 0.0
    closed_s: float | None = None
    has_ended: bool = False

    def start(self) -> bool:
        """Order the actor, which may take seconds, and follow it; return False where no node can ever have it."""
        self.ordered_s = time.monotonic()
        if (reason := self.nodes.refusal(self.order)) is not None:
            self.output.report(AgentClosed(agent=self.order.number, reason=reason))
            return False
        from app.agent.ray_actor import AgentActor

        actor = self.ray.remote(
            num_gpus=self.order.gpus,
            num_cpus=self.order.cpus,
            max_restarts=0,
            max_task_retries=0,
            concurrency_groups={"lines": 1, "orders": 1},
            **self._placement(),
        )(AgentActor)
        self.actor = actor.remote(self.sources, self.order.gpus)
        threading.Thread(target=self._follow, name=f"agent {self.order.number}", daemon=True).start()
        return True

    def _placement(self) -> Mapping[str, Any]:
        """Return where Ray may place the actor: on the first wanted node with room now, else on any wanted node."""
        free = {each.node: each for each in self.nodes.current}
        anywhere = {"ray.io/node-id": f"in({','.join(node for node in self.order.nodes if node in free)})"}
        for node in self.order.nodes:
            if node in free and free[node].free_gpus >= self.order.gpus and free[node].free_cpus >= self.order.cpus:
                others = [{"label_selector": anywhere}]
                return {"label_selector": {"ray.io/node-id": node}, "fallback_strategy": others}
        return {"label_selector": anywhere}

    def report_missing(self) -> None:
        """Report what it waits for, if it waits and that has changed."""
        if self.node is None and self.closed_s is None and time.monotonic() - self.ordered_s > _PENDING_S:
            missing = self.nodes.missing(self.order)
            if missing != self.last_missing:
                self.last_missing = missing
                self.output.report(AgentWaits(agent=self.order.number, missing=missing))

    def send(self, line: bytes) -> None:
        """Pass a line on to the agent; one that has ended takes it, too."""
        if self.closed_s is None:
            self.actor.order.options(concurrency_group="orders").remote(line)

    def close(self) -> None:
        """Let the agent end; it is killed if it does not."""
        self.closed_s = time.monotonic()
        if self.node is None:
            self.ray.kill(self.actor)
        else:
            self.actor.close.options(concurrency_group="orders").remote()

    def kill_if_overdue(self) -> None:
        """Kill an actor that was to end some seconds ago."""
        if self.closed_s is not None and time.monotonic() - self.closed_s > _CLOSE_S:
            self.ray.kill(self.actor)

    def _follow(self) -> None:
        reason = "The agent was ended."
        lines = self.actor.lines.options(num_returns="streaming", concurrency_group="lines").remote()
        try:
            self.node, visible = self.ray.get(next(lines))
            devices = self._devices(visible)
            self.output.report(AgentPlaced(agent=self.order.number, node=self.node, devices=devices))
            prefix = b"%d " % self.order.number
            for ref in lines:
                said = self.ray.get(ref)
                if isinstance(said, bytes):
                    self.output.write(b"".join(prefix + line for line in said.splitlines(keepends=True)))
                else:
                    reason = f"The agent on {self._place} ended by itself ({': '.join(filter(None, said))})."
        except (self.ray.exceptions.RayError, StopIteration) as error:
            reason = self._why(error)
        self.ray.kill(self.actor)
        if self.closed_s is not None:
            reason = "It was closed."
        self.has_ended = True
        self.output.report(AgentClosed(agent=self.order.number, reason=reason))

    @property
    def _place(self) -> str:
        return self.nodes.name_of(self.node) if self.node is not None else "the Ray cluster"

    def _devices(self, visible: str) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs that Ray gave the actor: by index in NVML's order, or as they are."""
        node = next((each for each in self.nodes.current if each.node == self.node), None)
        inventory = node.inventory.devices if node is not None and node.inventory is not None else ()
        by_index = {str(device.index): device.device for device in inventory if device.kind == "gpu"}
        return tuple(by_index.get(each, each) for each in visible.split(",") if each not in ("", "-1"))

    def _why(self, error: Exception) -> str:
        """Return why an actor died, in one sentence."""
        if isinstance(error, self.ray.exceptions.ActorUnavailableError):
            # Its process or its node: Ray knows in a moment, and says it to the next call.
            try:
                self.ray.get(self.actor.close.options(concurrency_group="orders").remote(), timeout=_CLOSE_S)
            except self.ray.exceptions.RayError as known:
                error = known
        text = str(error)
        if getattr(error, "preempted", False):
            return f"The Ray node {self._place} was taken away by its provider (preempted)."
        if "low on memory" in text or isinstance(error, self.ray.exceptions.OutOfMemoryError):
            return f"Ray ended the run on {self._place}, for the memory of that node ran short."
        if isinstance(error, self.ray.exceptions.RayTaskError):
            return f"No agent could be started on {self._place}: {text.strip().splitlines()[-1]}"
        if "its node has died" in text or not isinstance(error, self.ray.exceptions.ActorDiedError):
            reason = f"The Ray node {self._place} was lost."
            if self.node is not None:
                self.nodes.lose(self.node)
            return reason
        return f"The Ray actor of the run on {self._place} died."


class Driver:
    """Follows the orders of the program.

    Thread: `run` reads the orders; two of its own watch the nodes and the head.
    """

    def __init__(self, ray: Any, output: Output, most_silent_s: float) -> None:
        from app.agent.ray_actor import Sources

        name, archive = pack_sources()
        self._ray = ray
        self._output = output
        self._sources = Sources(name, ray.put(archive))
        self._nodes = Nodes(ray, output, self._sources)
        self._agents: dict[int, RayAgent] = {}  # those that have started; under the lock
        self._lock = threading.Lock()
        self._most_silent_s = most_silent_s

    def run(self) -> None:
        """Follow the orders on stdin until it closes."""
        self._nodes.update()
        threading.Thread(target=self._watch_nodes, name="nodes", daemon=True).start()
        threading.Thread(target=self._watch_head, name="head", daemon=True).start()
        decoder: msgspec.json.Decoder[DriverOrder] = msgspec.json.Decoder(OpenAgent | CloseAgent)
        for line in sys.stdin.buffer:
            if line[:1].isdigit():
                number, _, rest = line.partition(b" ")
                if (agent := self._agent(int(number))) is not None:
                    agent.send(rest)
            elif isinstance(order := decoder.decode(line), OpenAgent):
                agent = RayAgent(order, self._ray, self._nodes, self._output, self._sources)
                if agent.start():
                    with self._lock:
                        self._agents[order.number] = agent
            elif (agent := self._agent(order.agent)) is not None:
                agent.close()

    def _agent(self, number: int) -> RayAgent | None:
        with self._lock:
            return self._agents.get(number)

    def _watch_nodes(self) -> None:
        while True:
            time.sleep(NODES_EVERY_S)
            self._nodes.update()
            with self._lock:
                self._agents = {number: agent for number, agent in self._agents.items() if not agent.has_ended}
                agents = tuple(self._agents.values())
            for agent in agents:
                agent.report_missing()
                agent.kill_if_overdue()

    def _watch_head(self) -> None:
        """End when the cluster's head does not answer: Ray itself would wait a minute, and abort."""
        while (silent_s := time.monotonic() - self._nodes.heard_s) < self._most_silent_s:
            time.sleep(NODES_EVERY_S)
        quiet = units.with_unit(silent_s, "s")
        self._output.report(DriverFailed(f"The head of the Ray cluster did not answer for {quiet}."))
        os._exit(1)


def main() -> None:
    """Connect to the cluster and follow orders until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = Output()
    try:
        ray = connect()
    except DriverError as error:
        output.report(DriverFailed(str(error)))
        sys.exit(1)
    from app.agent import ray_actor

    ray.cloudpickle.register_pickle_by_value(ray_actor)
    output.report(DriverHello(ray=ray.__version__, python=platform.python_version(), host=socket.gethostname()))
    Driver(ray, output, float(sys.argv[1])).run()
    os._exit(0)  # Ray kills the actors of a driver that is gone, and does not wait for its threads


if __name__ == "__main__":
    main()
