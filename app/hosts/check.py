"""Check hosts: whether they answer, and what they have for runs; all at once, and never for long."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from app import units
from app.agent_protocol import HostInspected, InspectedFramework, InspectHost
from app.errors import UserError
from app.hosts.book import HostEntry
from app.hosts.connection import Connection
from app.hosts.open import open_entry
from app.samples import GpuProcess, Inventory, Processes
from workloads.catalog import FRAMEWORKS

CHECK_S = 15.0
"""After so many seconds a host that has not answered everything counts as one that does not answer."""
_END_S = 2.0
"""How long before that a connection is given up, so that it can still be closed."""
_PROCESSES_S = 3.0
"""How long the driver may take to list the processes on all GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """What was found of one host.

    Attributes:
        problem: Why it cannot make runs, in one sentence; "" if it can. With one, what follows may be absent.
        round_trip_ms: Of its link; None if it was not reached.
        python: Version and path of the Python that runs the agent.
        processes: The processes on each GPU, by its UUID; one is missing if the driver did not tell in time.
        inspected: Users of those processes, space at home, and the framework; None of a cluster, whose nodes differ.
        cache: The folder of the agent's files there, and the space in it in bytes.
        clock_offset_s: Its wall clock minus this machine's.
        clock_error_s: How far that may be off.
    """

    entry: HostEntry
    problem: str = ""
    round_trip_ms: float | None = None
    python: tuple[str, str] = ("", "")
    inventory: Inventory | None = None
    processes: dict[str, Processes] = field(default_factory=dict)
    inspected: HostInspected | None = None
    cache: tuple[str, int | None] = ("", None)
    clock_offset_s: float | None = None
    clock_error_s: float | None = None

    def user_of(self, process: GpuProcess) -> str:
        """Return the user of a process: "" for the one that the agent runs as, `another user` if it is not known."""
        assert self.inspected is not None, "processes are only known of a host that was inspected"
        user = process.user or "another user"
        return "" if user == self.inspected.user else user


def check_hosts(entries: Sequence[HostEntry]) -> Iterator[HostCheck]:
    """Check hosts, all at the same time and within `CHECK_S`, and yield what was found in their order."""
    end_s = time.monotonic() + CHECK_S
    for entry, attempt in [(entry, _start(entry, end_s)) for entry in entries]:
        try:
            yield attempt.check.result(max(0.0, end_s - time.monotonic()))
        except TimeoutError:
            waits = f" ({attempt.waits_for.rstrip(' …')})" if attempt.waits_for else ""
            yield HostCheck(entry=entry, problem=f"It did not answer within {units.exactly(CHECK_S, 's')}{waits}.")


@dataclass(slots=True)
class _Pending:
    check: "Future[HostCheck]" = field(default_factory=Future)
    waits_for: str = ""

    def notify(self, sentence: str) -> None:
        self.waits_for = sentence


def _start(entry: HostEntry, end_s: float) -> _Pending:
    """Check a host in a thread of its own, which nobody waits for when it is late."""
    pending = _Pending()

    def check() -> None:
        try:
            pending.check.set_result(_check(entry, pending, end_s - _END_S))
        except UserError as error:
            if time.monotonic() < end_s - _END_S:  # else it was cancelled
                pending.check.set_result(HostCheck(entry=entry, problem=str(error)))
        except BaseException as error:  # noqa: BLE001 - the one who waits gets it
            pending.check.set_exception(error)

    threading.Thread(target=check, name=f"check {entry.name}", daemon=True).start()
    return pending


def _check(entry: HostEntry, pending: _Pending, end_s: float) -> HostCheck:
    """Connect to a host and look at it; raises `UserError`."""
    connection = open_entry(entry, notify=pending.notify, is_cancelled=lambda: time.monotonic() > end_s)
    try:
        if not isinstance(connection, Connection):  # a Ray cluster: what its nodes lack is said by their runs
            return HostCheck(entry=entry, inventory=connection.host.inventory())
        return _look(entry, connection, end_s)
    finally:
        connection.close()


def _look(entry: HostEntry, connection: Connection, end_s: float) -> HostCheck:
    telemetry = connection.host.telemetry
    listed: dict[str, Processes] = {}
    all_listed = threading.Condition()

    def take(message: object) -> None:
        if isinstance(message, Processes):
            with all_listed:
                listed[message.device] = message
                all_listed.notify_all()

    unsubscribe = telemetry.subscribe(take)
    inventory = telemetry.wait_inventory(max(0.0, end_s - time.monotonic()))
    gpus = {gpu.uuid for gpu in inventory.machine.gpus}
    with all_listed:
        all_listed.wait_for(lambda: gpus <= listed.keys(), min(_PROCESSES_S, max(0.0, end_s - time.monotonic())))
        processes = dict(listed)
    unsubscribe()
    order = InspectHost(number=connection.link.number())
    answer = connection.link.order(order).result(end_s - time.monotonic())
    assert isinstance(answer, HostInspected), "nothing else answers that order"
    lacks_all = not any(framework.version for framework in answer.frameworks)
    offset_s, error_s = _wall_clock_offset_s(connection)
    facts = connection.prepared.facts if connection.prepared else None
    return HostCheck(
        entry=entry,
        problem=no_framework(entry, answer.frameworks) if lacks_all else "",
        round_trip_ms=connection.status().round_trip_ms,
        python=(connection.hello.python, facts.executable if facts else ""),
        inventory=inventory,
        processes=processes,
        inspected=answer,
        cache=(facts.folder, facts.free_bytes) if facts else ("", None),
        clock_offset_s=offset_s,
        clock_error_s=error_s,
    )


def no_framework(entry: HostEntry, missing: Sequence[InspectedFramework]) -> str:
    """Return in one sentence which frameworks a host lacks, and what runs there do about it."""
    frameworks = [FRAMEWORKS[inspected.name] for inspected in missing]
    pythons = " and ".join(dict.fromkeys(inspected.interpreter for inspected in missing))
    names = " and no ".join(framework.name for framework in frameworks)
    packages = " or ".join(f"packages={framework.distributions[0]}" for framework in frameworks)
    return f"{pythons} has no {names} on {entry.name}: use {packages} for runs there."


def _wall_clock_offset_s(connection: Connection) -> tuple[float, float]:
    """Return the host's wall clock minus this machine's, and how far that may be off."""
    now, hello = connection.host.now(), connection.hello
    there_ns = hello.utc_ns + now.t_ns - hello.t_ns
    return (there_ns - now.utc_ns) / 1e9, now.error_ns / 1e9
