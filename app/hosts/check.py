"""Checks hosts: whether they answer, and what they can run; all concurrently, within a time limit."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing

import msgspec

from app.errors import UserError
from app.hosts.book import HostEntry
from app.hosts.messages import HostFramework, HostHello
from app.hosts.remote import Connection, connect
from app.values import units
from app.values.samples import HOST, Inventory
from workloads.catalog import FRAMEWORKS

CHECK_S = 15.0
"""After this many seconds a host without a complete answer counts as not answering."""
_END_S = 2.0
"""How long before that a connection is given up, so that it can still be closed."""
_SAME_CLOCK_S = 1.0
"""A smaller difference of wall clocks counts as none: it includes the answer's travel time."""


class HostCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one host; `hosts check --json` prints it.

    Attributes:
        problem: Why it cannot execute runs, in one sentence; "" if it can. With a problem, the other values may be
            absent.
        clock_offset_s: Its wall clock minus this machine's.
    """

    entry: HostEntry
    problem: str = ""
    hello: HostHello | None = None
    inventory: Inventory | None = None
    clock_offset_s: float = 0.0


def check_hosts(entries: Sequence[HostEntry]) -> Iterator[HostCheck]:
    """Check hosts concurrently within `CHECK_S`, and yield the results in order."""
    end_s = time.monotonic() + CHECK_S
    for entry, pending, waits_for in [(entry, *_start(entry, end_s)) for entry in entries]:
        try:
            yield pending.result(max(0.0, end_s - time.monotonic()))
        except TimeoutError:
            waits = f" ({waits_for[-1].rstrip(' …')})" if waits_for else ""
            yield HostCheck(entry=entry, problem=f"It did not answer within {units.exactly(CHECK_S, 's')}{waits}.")


def _start(entry: HostEntry, end_s: float) -> "tuple[Future[HostCheck], list[str]]":
    """Check a host in a thread that is abandoned when late; the list receives what it waits for."""
    pending: Future[HostCheck] = Future()
    waits_for: list[str] = []

    def is_late() -> bool:
        return time.monotonic() > end_s - _END_S

    def check() -> None:
        try:
            with closing(connect(entry, notify=waits_for.append, is_cancelled=is_late)) as connection:
                pending.set_result(_look(entry, connection, end_s - _END_S))
        except UserError as error:
            if not is_late():
                pending.set_result(HostCheck(entry=entry, problem=str(error)))
        except BaseException as error:  # noqa: BLE001 - the one who waits gets it
            pending.set_exception(error)

    threading.Thread(target=check, name=f"check {entry.name}", daemon=True).start()
    return pending, waits_for


def _look(entry: HostEntry, connection: Connection, end_s: float) -> HostCheck:
    telemetry, hello = connection.host.telemetry, connection.hello
    inventory = telemetry.wait_inventory(max(0.0, end_s - time.monotonic()))
    lacks_all = not any(framework.version for framework in hello.frameworks)
    now = connection.now()
    return HostCheck(
        entry=entry,
        problem=no_framework(entry, hello.frameworks) if lacks_all else "",
        hello=hello,
        inventory=inventory,
        clock_offset_s=(hello.utc_ns + now.t_ns - hello.t_ns - now.utc_ns) / 1e9,
    )


def no_framework(entry: HostEntry, missing: Sequence[HostFramework]) -> str:
    frameworks = [FRAMEWORKS[framework.name] for framework in missing]
    pythons = " and ".join(dict.fromkeys(framework.interpreter for framework in missing))
    names = " and no ".join(framework.name for framework in frameworks)
    packages = " or ".join(f"packages={framework.distributions[0]}" for framework in frameworks)
    return f"{pythons} has no {names} on {entry.name}; use {packages} for runs there."


def check_lines(check: HostCheck) -> Iterator[tuple[str, str]]:
    """Yield a label and a sentence for each result, the same for terminal and window."""
    inventory, hello = check.inventory, check.hello
    if inventory is None or hello is None:
        return
    yield "Python", "  ".join(hello.python)
    driver = f"{inventory.driver or 'unknown'}, CUDA up to {inventory.cuda_driver or 'unknown'}"
    reason = f"{driver if inventory.machine.hidden_by else 'none'}: {inventory.no_gpu_reason}; runs use the CPU"
    yield "driver", reason if inventory.no_gpu_reason else driver
    for device in inventory.devices:
        if device.device != HOST:
            lost = f"; lost: {device.lost}" if device.lost is not None else ""
            yield f"GPU {device.index}", f"{device.name}, {units.byte_size(device.memory_total_bytes)}{lost}"
    for framework in hello.frameworks:
        text = f"{framework.version}  {framework.interpreter}"
        missing = f"none: {no_framework(check.entry, [framework])}"
        yield FRAMEWORKS[framework.name].name, text if framework.version else missing
    yield "free space", f"{units.byte_size(hello.home_free_bytes)} in {hello.home}"
    side = "ahead of" if check.clock_offset_s > 0 else "behind"
    apart = f"{units.seconds(abs(check.clock_offset_s))} {side} this machine's"
    yield "clock", apart if abs(check.clock_offset_s) > _SAME_CLOCK_S else "as this machine's"
