"""The driver of a Ray cluster without one: what it needs of Ray, and the environment of the agents that it starts."""

import io
import os
import queue
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, cast

import msgspec
import pytest

from app.agent.ray import Driver, DriverError, connect, pack_sources
from app.agent.ray_actor import agent_environment
from app.agent.ray_nodes import Nodes
from app.ray_protocol import CloseAgent, OpenAgent, RayNodes

MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.41.0
    Python: 3.12.1
This process on 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


def fake_ray(version: str, error: Exception | None = None) -> ModuleType:
    """A module `ray` of this version whose `init` fails so."""
    module = ModuleType("ray")

    def init(**_given: object) -> NoReturn:
        raise error or AssertionError("it is not called")

    module.__dict__.update(__version__=version, init=init)
    return module


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (None, r"has no Ray: install VariantScope's extra `ray` there, or name the cluster's Python with \?python="),
        (fake_ray("2.9.3"), r"This cluster's Python has Ray 2\.9\.3; VariantScope needs 2\.50 or later, below 3\."),
        (fake_ray("3.0.0"), r"has Ray 3\.0\.0"),
        (fake_ray("2.60.0", ConnectionError("Could not find any running Ray instance.")), "No Ray cluster runs on"),
        (fake_ray("2.60.0", ConnectionError("Found multiple active Ray instances")), "Several Ray clusters run on"),
        (
            fake_ray("2.60.0", RuntimeError(MISMATCH)),
            r"The cluster runs Ray 2\.41\.0 with Python 3\.12\.1, and .* 2\.60",
        ),
        (fake_ray("2.60.0", RuntimeError("Out of luck.\nmore")), r"Ray cannot be used: Out of luck\."),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None, sentence: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", module)
    with pytest.raises(DriverError, match=sentence):
        connect()


def test_an_agent_gets_the_environment_of_its_node_and_not_that_of_rays_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    monkeypatch.setenv("RAY_RAYLET_PID", str(os.getpid()))  # a process that was started without OMP_NUM_THREADS=1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with_gpus = agent_environment(Path("/sources"), 2)
    started_with = dict(
        line.split("=", 1) for line in Path("/proc/self/environ").read_text().split("\0") if "=" in line
    )
    assert with_gpus.get("OMP_NUM_THREADS") == started_with.get("OMP_NUM_THREADS")
    assert "RAY_JOB_ID" not in with_gpus
    assert (with_gpus["CUDA_VISIBLE_DEVICES"], with_gpus["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
    assert with_gpus["PYTHONPATH"].split(os.pathsep)[0] == "/sources"
    assert agent_environment(Path("/sources"), 0)["CUDA_VISIBLE_DEVICES"] == "-1"


def test_the_sources_hold_all_that_an_agent_imports_and_have_one_name() -> None:
    name, archive = pack_sources()
    assert pack_sources()[0] == name
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        names = set(found.getnames())
    assert {"app/agent/__main__.py", "app/telemetry/sampler.py", "workloads/worker.py", "pynvml.py"} <= names
    assert {"msgspec/__init__.py", "psutil/__init__.py"} <= names


class Call:
    """A method of an actor as a caller has it."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def options(self, **_how: object) -> "Call":
        return self

    def remote(self, *values: object) -> object:
        return self._call(*values)


class OneNodeRay:
    """A cluster of one node that creates an actor only after its state was asked for twice more."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.state_reads = threading.Semaphore(0)
        resources = {"n1": {"CPU": 8.0}}
        self._private = SimpleNamespace(state=SimpleNamespace(available_resources_per_node=lambda: resources))
        endless = threading.Event()
        self.actor = SimpleNamespace(
            order=Call(self.lines.put), close=Call(lambda: None), lines=Call(lambda: iter(endless.wait, None))
        )

    def put(self, value: object) -> object:
        return value

    def nodes(self) -> list[dict[str, object]]:
        self.state_reads.release()
        return [{"NodeID": "n1", "Alive": True, "NodeManagerHostname": "h", "Resources": {"CPU": 8.0}}]

    def remote(self, **_how: object) -> Callable[[object], Call]:
        return lambda _class: Call(self._create)

    def _create(self, *_values: object) -> object:
        while self.state_reads.acquire(blocking=False):
            pass
        for _ in range(2):
            assert self.state_reads.acquire(timeout=60)
        return self.actor

    def wait(self, refs: list[object], **_how: object) -> tuple[list[object], list[object]]:
        return [], refs

    def get(self, ref: object) -> object:
        return ref

    def kill(self, _actor: object) -> None:
        self.lines.put("killed")


def test_an_agent_gets_its_orders_however_long_ray_takes_to_create_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.agent.ray.NODES_EVERY_S", 0.001)
    monkeypatch.setattr("app.agent.ray_nodes.NODES_EVERY_S", 0.001)
    monkeypatch.setattr("app.agent.ray_nodes.Nodes._start_probe", lambda self, node: "probe")
    ray = OneNodeRay()
    order = msgspec.json.encode(OpenAgent(number=1, gpus=0, cpus=1.0, nodes=("n1",)))
    lines = [order + b"\n", b"1 {an order}\n", msgspec.json.encode(CloseAgent(1)) + b"\n"]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=lines))
    output: Any = SimpleNamespace(report=lambda message: None, write=lambda data: None)
    Driver(ray, output, 60.0).run()
    assert [ray.lines.get(timeout=60) for _ in range(2)] == [b"{an order}\n", "killed"]


def test_a_node_that_was_lost_while_ray_state_reads_stays_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.agent.ray_nodes.Nodes._start_probe", lambda self, node: "probe")
    reports: list[RayNodes] = []
    output, ray, sources = cast("Any", (SimpleNamespace(report=reports.append), OneNodeRay(), None))
    nodes = Nodes(ray, output, sources)
    nodes.update()

    def lose(refs: list[object], **_how: object) -> tuple[list[object], list[object]]:
        nodes.lose("n1")
        return [], refs

    monkeypatch.setattr(ray, "wait", lose)
    nodes.update()
    assert nodes.current == ()
    assert [len(report.nodes) for report in reports] == [1, 0]
