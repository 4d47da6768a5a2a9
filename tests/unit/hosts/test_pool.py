"""Pools: one inventory and kind of card of several hosts, leases that name their host, and a Ray driver's reports."""

import queue
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from app.errors import UserError
from app.hosts.pool import PoolSampler, merged_inventory, pool_of
from app.hosts.ray_cluster import RayCluster
from app.ray_protocol import AgentClosed, AgentPlaced, AgentWaits, DriverFailed, DriverHello, DriverReport
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
        self.written: list[bytes] = []

    def say(self, report: DriverReport) -> None:
        self._lines.put(msgspec.json.encode(report) + b"\n")

    def write(self, lines: bytes) -> None:
        self.written.append(lines)

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


def start(driver: PlayedDriver) -> RayCluster:
    cluster = RayCluster(driver, driver.lines(), "lab")
    cluster._reader.start()
    return cluster


def test_lines_of_agents_go_their_own_ways(driver: PlayedDriver) -> None:
    cluster = start(driver)
    first, second = (cluster.open(1, 1.0, ["n"]) for _ in range(2))
    driver.say(AgentWaits(agent=0, missing="waits"))
    driver.say(AgentPlaced(agent=0, node="n", devices=("GPU-a0",)))
    driver.put(b"1 two\n")
    driver.put(b"0 one\n")
    placed = first.wait_placed(60.0)
    assert placed is not None
    assert (first.missing, placed.devices) == ("waits", ("GPU-a0",))
    assert next(first.lines()) == b"one\n"
    assert next(second.lines()) == b"two\n"
    first.write(b"a\nb\n")
    assert driver.written[-1] == b"0 a\n0 b\n"
    driver.say(AgentClosed(agent=0, reason="The Ray node n was lost."))
    assert list(first.lines()) == []
    assert first.why_ended() == "The Ray node n was lost."
    cluster.close()
    assert second.why_ended() == "The link to lab was closed."


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (msgspec.json.encode(DriverFailed("No Ray cluster runs on this host.")) + b"\n", "lab: No Ray cluster runs"),
        (b"Traceback (most recent call last):\n", "The Ray driver on lab sent what no driver sends"),
        (b"7up\n", "The Ray driver on lab sent what no driver sends"),
        (None, "The link to lab was lost."),
    ],
)
def test_a_driver_that_fails_is_one_sentence_for_all(driver: PlayedDriver, said: bytes | None, reason: str) -> None:
    cluster = start(driver)
    agent = cluster.open(1, 1.0, ["n"])
    driver.say(DriverHello(ray="2.60.0", python="3.11", host="head"))
    driver.put(said)
    driver.put(None)
    cluster._reader.join(60.0)
    with pytest.raises(UserError, match=reason):
        agent.wait_placed(60.0)
    with pytest.raises(UserError, match=reason):
        cluster.open(1, 1.0, ["n"])
