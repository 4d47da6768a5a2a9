"""Pools: one inventory and kind of card of several hosts, leases that name their host, and a Ray driver's reports."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from app.agent_protocol import RAY_MARK, RayNode, RayNodes
from app.errors import UserError
from app.hosts.address import parse_address
from app.hosts.carriers import Carrier
from app.hosts.pool import PoolSampler, merged_inventory, pool_of
from app.hosts.ray import RAY_FAILURES, RayCluster
from app.runs.experiment.schedule import DeviceBalancer
from app.runs.host import Host, HostLease
from app.runs.leases import Leases
from app.samples import HOST, Device, Inventory
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import Gpu, Machine, complete


def inventory(host: str, *cards: str, platform: str = "linux") -> Inventory:
    gpus = tuple(Gpu(index=index, uuid=f"GPU-{host}{index}", name=card) for index, card in enumerate(cards))
    devices = [Device(device=gpu.uuid, kind="gpu", index=gpu.index, name=gpu.name) for gpu in gpus]
    return Inventory(
        machine=Machine(gpus=gpus, cpu_count=4, platform=platform),
        devices=(Device(device=HOST, kind="host", index=-1, name=host), *devices),
    )


def uuids(found: Inventory) -> list[str]:
    return [gpu.uuid for gpu in found.machine.gpus]


def test_runs_of_a_pool_get_one_kind_of_card() -> None:
    members = [inventory("a", "H200", "A100"), inventory("b", "H200", "H200"), inventory("c", "A100")]
    most = merged_inventory(members, "lab")
    assert uuids(most) == ["GPU-a0", "GPU-b0", "GPU-b1"]
    assert [gpu.index for gpu in most.machine.gpus] == [0, 2, 3]
    assert [device.index for device in most.devices] == [-1, 0, 1, 2, 3, 4]
    assert uuids(merged_inventory(members, "lab", "a100")) == ["GPU-a1", "GPU-c0"]
    with pytest.raises(UserError, match=r"lab has no GPU whose name has 'B300' in it; its GPUs are: H200, A100\."):
        merged_inventory(members, "lab", "B300")


@pytest.mark.parametrize(
    ("platforms", "platform"), [((), "linux"), (("linux", "darwin"), "linux"), (("darwin", "linux"), "darwin")]
)
def test_a_pool_is_of_the_platform_of_its_first_host(platforms: tuple[str, ...], platform: str) -> None:
    members = [inventory(f"host{n}", "H200", platform=each) for n, each in enumerate(platforms)]
    assert merged_inventory(members, "lab").machine.platform == platform


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    feeds = [
        TelemetryFeed(start_sampler=lambda _, found=found: PoolSampler(lambda: found))  # type: ignore[misc]
        for found in (inventory("a", "H200", "H200"), inventory("b", "H200"))
    ]
    for feed in feeds:
        feed.start()
    yield [Host(telemetry=feed, leases=Leases(tmp_path), name=name) for feed, name in zip(feeds, "ab", strict=True)]
    for feed in feeds:
        feed.close()


def test_a_lease_of_a_pool_takes_the_run_to_the_host_of_the_preferred_card(hosts: list[Host]) -> None:
    pool = pool_of(hosts, "a,b")
    try:
        spec = complete("dummy", {"gpus": 1}, pool.machine)
        notes: list[str] = []
        leases = [
            pool.lease_for_run(spec, notify=notes.append, wait_for_stop=lambda _: True, devices=["GPU-b0", "GPU-a1"])
            for _ in range(3)
        ]
        assert [(lease.devices, lease.host.name) for lease in leases if isinstance(lease, HostLease)] == [
            (("GPU-b0",), "b"),
            (("GPU-a1",), "a"),
        ]
        assert leases[2] is None
        assert len(notes) == 1
        for lease in leases[:2]:
            assert lease is not None
            lease.release()
        with pytest.raises(UserError, match="This is done on one host"):
            _ = pool.launcher
    finally:
        pool.telemetry.close()


def test_runs_are_balanced_over_nodes_where_their_cards_cannot_be_chosen() -> None:
    machine = merged_inventory([inventory("a", "H200", "H200"), inventory("b", "H200", "H200")], "lab").machine
    one, other = (complete("dummy", {"gpus": 1, "step_ms": ms}, machine) for ms in (1.0, 2.0))
    balancer = DeviceBalancer(2, machine, lambda device: device[4])
    for spec in (one, other):
        balancer.add(spec, ["GPU-a0"])
    balancer.add(one, ["GPU-a0"])
    assert balancer.ranked_devices(one)[:2] == ["GPU-b0", "GPU-b1"]
    assert balancer.ranked_devices(other)[:2] == ["GPU-a0", "GPU-a1"]


class PlayedDriver:
    """A channel on which a test says what the driver says."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def say(self, report: RayNodes) -> None:
        self._lines.put(msgspec.json.encode(report) + b"\n")

    def write(self, lines: bytes) -> None:
        raise AssertionError("it takes no orders")

    def lines(self) -> Iterator[bytes]:
        while (line := self._lines.get()) is not None:
            yield line

    def put(self, line: bytes | None) -> None:
        self._lines.put(line)

    def close(self) -> None:
        self._lines.put(None)

    def cut(self) -> None:
        self._lines.put(None)

    def why_ended(self, said: str = "") -> str:
        return "The link to lab was lost."


@pytest.fixture
def driver() -> PlayedDriver:
    return PlayedDriver()


NODES = RayNodes(
    tuple(RayNode(node=node, name=node, gpus=0, free_gpus=0, cpus=1, free_cpus=1) for node in ("n1", "n2")), "2.60.0"
)


def test_the_nodes_are_those_that_the_driver_says_without_lost_ones(driver: PlayedDriver) -> None:
    cluster = RayCluster(driver, driver.lines(), "lab")
    changed = threading.Event()
    cluster.subscribe(changed.set)
    driver.say(NODES)
    assert changed.wait(60.0)
    assert ([node.node for node in cluster.nodes], cluster.version) == (["n1", "n2"], "2.60.0")
    changed.clear()
    assert cluster.read_stderr(f"{RAY_MARK} lost n1") is None
    assert changed.is_set()
    assert [node.node for node in cluster.nodes] == ["n2"]
    cluster.close()
    assert cluster.lost == "The link to lab was closed."


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"Traceback (most recent call last):\n", "The Ray driver on lab sent what no driver sends"),
        (b"7up\n", "The Ray driver on lab sent what no driver sends"),
        (None, "The link to lab was lost."),
    ],
)
def test_a_driver_that_fails_is_one_sentence(driver: PlayedDriver, said: bytes | None, reason: str) -> None:
    cluster = RayCluster(driver, driver.lines(), "lab")
    driver.put(said)
    driver.put(None)
    with pytest.raises(UserError, match=reason):
        cluster.wait_probed(lambda _: None, lambda: False)


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (f"{RAY_MARK} failed No Ray cluster runs on this host.", "ray:: No Ray cluster runs on this host."),
        (f"noise\n{RAY_MARK} ended The Ray node n was lost.\n", "The Ray node n was lost."),
    ],
)
def test_what_a_driver_says_at_its_end_is_the_reason(stderr: str, reason: str) -> None:
    carrier = Carrier(address=parse_address("ray:"), prefix=("sh", "-c"), failures=RAY_FAILURES)
    assert carrier.explain(1, stderr) == reason
