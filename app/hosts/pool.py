"""A pool: several hosts that take the runs of one experiment together, each run on one of them."""

import contextlib
import queue
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from app.environment_keys import HOST_KEY
from app.errors import TelemetryError, UserError
from app.hosts.connection import HostConnection
from app.hosts.link import LinkLostError, LinkStatus
from app.runs.host import Host, HostLease, describe_wait
from app.runs.jobs import Notify, RunJob
from app.runs.launcher import Launcher
from app.runs.leases import CPU, DeviceLeases, candidate_devices
from app.samples import HOST, Device, Inventory
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerCommand, SamplerMessage
from workloads.catalog import Machine
from workloads.protocol import RunSpec

_RETRY_S = 0.2


def merged_inventory(inventories: Sequence[Inventory], name: str, card: str = "") -> Inventory:
    """Return the inventory of a pool: the devices of all members, and for runs the cards of one kind.

    Runs that are compared are so on one kind of card. `card` is a part of its name; "" is the kind of which there are
    most.

    Raises:
        UserError: No member has such a card.
    """
    gpus = [gpu for inventory in inventories for gpu in inventory.machine.gpus]
    names = Counter(gpu.name for gpu in gpus if card.lower() in gpu.name.lower())
    if card and not names:
        gpu_names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus)) or "none"
        raise UserError(f"{name} has no GPU whose name has {card!r} in it; its GPUs are: {gpu_names}.")
    kind = next(iter(sorted(names, key=lambda name: (-names[name], name))), "")
    indices = {gpu.uuid: index for index, gpu in enumerate(gpus)}
    devices = [device for inventory in inventories for device in inventory.devices if device.device != HOST]
    machines = [inventory.machine for inventory in inventories]
    return Inventory(
        machine=Machine(
            gpus=tuple(msgspec.structs.replace(gpu, index=indices[gpu.uuid]) for gpu in gpus if gpu.name == kind),
            cpu_count=min((machine.cpu_count for machine in machines), default=1),
            platform=machines[0].platform if machines else "linux",
            local=False,
        ),
        devices=(
            Device(device=HOST, kind="host", index=-1, name=name),
            *(msgspec.structs.replace(device, index=indices.get(device.device, device.index)) for device in devices),
        ),
        driver=next((inventory.driver for inventory in inventories if inventory.driver), None),
        no_gpu_reason=None if gpus else f"No host of {name} has a GPU.",
    )


class PoolSampler:
    """The sampler of a pool: it says the inventory whenever that changes. Each member has a sampler for its samples.

    Thread: see `Sampler`; `changed` and `lose` any.
    """

    def __init__(self, inventory: Callable[[], Inventory]) -> None:
        self._inventory = inventory
        self._changes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._lost: str | None = None
        self._changes.put(True)

    def changed(self) -> None:
        """Say the inventory once more if it has changed."""
        self._changes.put(True)

    def lose(self, reason: str) -> None:
        """End, because the pool is lost."""
        self._lost = reason
        self._changes.put(False)

    def messages(self) -> Iterator[SamplerMessage]:
        """Yield each inventory."""
        former = None
        while self._changes.get():
            if (inventory := self._inventory()) != former:
                former = inventory
                yield inventory

    def exit_code(self) -> int:
        """Return 0; raises `TelemetryError` where the pool is lost."""
        if self._lost is not None:
            raise TelemetryError(self._lost)
        return 0

    def send(self, command: SamplerCommand) -> None:
        """Ignore the order: it is for the sampler of a member."""

    def end(self) -> None:
        """End it."""
        self._changes.put(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Host):
    """Several hosts as one: `inventory` has the devices of all, and a lease takes a run to one of them.

    It has no launcher, leases and jobs: what needs those is done on one host.
    """

    launcher: Launcher = field(init=False, repr=False, compare=False)
    leases: DeviceLeases = field(init=False, repr=False, compare=False)
    run_job: RunJob = field(init=False, repr=False, compare=False)

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what a pool does not have."""
        if name not in ("launcher", "leases", "run_job"):
            raise AttributeError(name)
        raise UserError(f"This is done on one host: name one by --on in place of {self.name}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPool(Pool):
    """Hosts that the user named together, each with an agent of its own."""

    hosts: tuple[Host, ...]

    def lease_for_run(
        self,
        spec: RunSpec,
        *,
        notify: Notify,
        wait_for_stop: Callable[[float], bool],
        runs_anyway: Callable[[], bool] = lambda: False,
        devices: Sequence[str] = (),
    ) -> HostLease | None:
        """Lease the devices of a run on the first host that has enough of them free, as they are preferred.

        Raises:
            UserError: All hosts are lost.
        """
        count, noted = int(spec.variant["gpus"]) or 1, False
        while True:
            usable = candidate_devices(spec, self.machine)
            candidates = [device for device in devices if device in usable] or usable
            for host, its_devices in self._by_host(candidates):
                with contextlib.suppress(LinkLostError):
                    if (lease := host.leases.take(its_devices, count)) is not None:
                        return HostLease(lease.devices, lease.release, host=host)
            if not noted:
                noted = True
                notify(describe_wait())
            if runs_anyway() and (shared := next(self._by_host(candidates), None)) is not None:
                return HostLease(tuple(shared[1][:count]), host=shared[0])
            if wait_for_stop(_RETRY_S):
                return None

    def _by_host(self, devices: Sequence[str]) -> Iterator[tuple[Host, list[str]]]:
        """Yield each host with those of these devices that it has, in the order in which they are wanted."""
        ranked = []
        for host, inventory in _inventories(self.hosts):
            own = {gpu.uuid for gpu in inventory.machine.gpus} | {CPU}
            if own_devices := [device for device in devices if device in own]:
                ranked.append((devices.index(own_devices[0]), host, own_devices))
        for _, host, own_devices in sorted(ranked, key=lambda member: member[0]):
            yield host, own_devices


def _inventories(hosts: Sequence[Host]) -> list[tuple[Host, Inventory]]:
    """Return each host that is not lost with its inventory; raises `TelemetryError` where all are."""
    inventories, lost = [], ""
    for host in hosts:
        try:
            inventories.append((host, host.inventory()))
        except TelemetryError as error:
            lost = str(error)
    if not inventories:
        raise TelemetryError(lost)
    return inventories


def pool_of(hosts: Sequence[Host], name: str) -> HostPool:
    """Return the pool of several hosts; its telemetry is started, and closed by the caller."""

    def merged() -> Inventory:
        return merged_inventory([inventory for _, inventory in _inventories(hosts)], name)

    sampler = PoolSampler(merged)
    for host in hosts:
        host.telemetry.subscribe(lambda message: sampler.changed() if isinstance(message, Inventory) else None)
    pool = HostPool(
        telemetry=TelemetryFeed(start_sampler=lambda _: sampler),
        describe=lambda _: {HOST_KEY: name},
        name=name,
        hosts=tuple(hosts),
    )
    pool.telemetry.start()
    return pool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConnection:
    """The hosts of a pool, until `close`."""

    host: HostPool
    members: tuple[HostConnection, ...]

    def status(self) -> LinkStatus:
        """Return how the link to the member is that is worst off; lost only when all are."""
        statuses = [member.status() for member in self.members]
        alive = [status for status in statuses if status.lost is None]
        return max(alive or statuses, key=lambda status: status.silent_s)

    def close(self) -> None:
        """Close all members."""
        for member in self.members:
            member.close()
        self.host.telemetry.close()
