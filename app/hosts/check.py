"""Checks hosts: whether they answer, and what they can run; all concurrently, within a time limit."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import msgspec

from app.errors import UserError
from app.hosts.book import HostEntry
from app.hosts.messages import HostFramework, HostHello
from app.hosts.remote import connect
from app.values import units
from app.values.samples import HOST, Inventory
from workloads.catalog import FRAMEWORKS

CHECK_S = 15.0
"""After this many seconds a host without a complete answer counts as not answering."""
_END_S = 2.0
"""How long before that a connection is given up, so that it can still be closed."""
_LOOK_S = 0.1
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


def check_hosts(entries: Sequence[HostEntry], is_cancelled: Callable[[], bool] = lambda: False) -> Iterator[HostCheck]:
    """Check hosts concurrently within `CHECK_S`, and yield the results in order."""
    end_s, is_left = time.monotonic() + CHECK_S - _END_S, threading.Event()

    def is_late() -> bool:
        return time.monotonic() > end_s or is_left.is_set() or is_cancelled()

    with ThreadPoolExecutor(max_workers=max(1, len(entries))) as pool:
        try:
            yield from pool.map(lambda entry: _check(entry, is_late), entries)
        finally:
            is_left.set()


def _check(entry: HostEntry, is_late: Callable[[], bool]) -> HostCheck:
    waits_for = ""

    def note(text: str) -> None:
        nonlocal waits_for
        waits_for = f" ({text.rstrip(' …')})"

    try:
        with closing(connect(entry, notify=note, is_cancelled=is_late)) as connection:
            telemetry, hello, came = connection.host.telemetry, connection.hello, threading.Event()
            telemetry.subscribe(
                lambda message: came.set() if isinstance(message, Inventory) and not message.pending else None
            )
            while not (came.wait(_LOOK_S) or is_late() or connection.process.lost):
                pass
            inventory, now = telemetry.wait_inventory(_END_S / 2), connection.now()
            lacks_all = not any(framework.version for framework in hello.frameworks)
            return HostCheck(
                entry=entry,
                problem=no_framework(entry, hello.frameworks) if lacks_all else "",
                hello=hello,
                inventory=inventory,
                clock_offset_s=(hello.utc_ns + now.t_ns - hello.t_ns - now.utc_ns) / 1e9,
            )
    except UserError as error:
        late = f"It did not answer within {units.exactly(CHECK_S, 's')}{waits_for}."
        return HostCheck(entry=entry, problem=late if is_late() else str(error))


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
