"""Connect to a host: start its agent through a carrier, and make a `Host` of what the agent serves."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from app.agent_protocol import AgentHello, DescribeHost, HostDescribed
from app.environment_keys import (
    BOOT_ID_KEY,
    CARRIER_KEY,
    CLOCK_ERROR_KEY,
    CLOCK_OFFSET_KEY,
    HOST_ID_KEY,
    HOST_KEY,
    LINK_ROUND_TRIP_KEY,
)
from app.errors import UserError
from app.hosts import bootstrap
from app.hosts.bootstrap import Prepared
from app.hosts.carriers import Carrier
from app.hosts.channel import Channel, ProcessChannel
from app.hosts.link import Link, LinkLimits, LinkStatus
from app.hosts.remote import RemoteLauncher, RemoteLeases, RemoteSampler
from app.hosts.remote_jobs import RemoteJobs, ScratchFiles
from app.runs.environment import inventory_info, program_info
from app.runs.host import Host
from app.samples import Inventory
from app.telemetry.feed import TelemetryFeed

_LOOK_S = 0.1
_QUIET_S = 5.0
"""Nobody is left waiting for longer without being told for what."""
HZ = 20.0


class HostConnection(Protocol):
    """What was connected to: a host that an agent serves, or a pool.

    Thread: any.
    """

    @property
    def host(self) -> Host:
        """Where runs are made."""

    def status(self) -> LinkStatus:
        """Return how the link is."""

    def close(self) -> None:
        """End everything of it on the host, and wait for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A host that an agent serves, until `close`.

    Attributes:
        host: Where runs are made; the same class as this machine, with other parts.
        hello: What the agent said of itself.
        prepared: What was found on the host, and sent there, before the agent started; None if it was there already.

    Thread: any.
    """

    host: Host
    hello: AgentHello
    prepared: Prepared | None
    link: Link
    launcher: RemoteLauncher

    def status(self) -> LinkStatus:
        """Return how the link is: its round trip, for how long it is silent, why it is lost."""
        return self.link.status()

    def close(self) -> None:
        """End the agent and everything of it on the host, and wait for that."""
        self.host.telemetry.close()
        self.link.close()


def connect(
    carrier: Carrier,
    *,
    name: str,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    module: str = "app.agent",
    limits: LinkLimits | None = None,
) -> Connection:
    """Start the agent on a host, sending it there first if need be, and return once it and its clock are known.

    Its telemetry is started, too; the inventory may come later.

    Args:
        carrier: The way to the host.
        name: The host as the user calls it.
        hz: Readings a second.
        notify: Gets a sentence for what is waited for, and later when the host falls silent, is heard again or is lost;
            on any thread.
        is_cancelled: Returns whether to connect no longer; called several times a second.
        module: The agent's module and arguments, as `python -m` takes them.
        limits: How long the host may be silent.

    Raises:
        UserError: It cannot be reached, or cannot serve; with what to do.
    """
    opened = open_channel(carrier, name=name, notify=notify, is_cancelled=is_cancelled, module=module)
    try:
        return serve(
            opened.channel,
            opened.lines,
            name=name,
            kind=carrier.kind,
            hz=hz,
            notify=notify,
            prepared=opened.prepared,
            limits=limits,
        )
    except BaseException:
        opened.channel.cut()
        raise


@dataclass(frozen=True, slots=True)
class Opened:
    """A channel whose next line is the first of what was started on the host."""

    channel: ProcessChannel
    lines: Iterator[bytes]
    prepared: Prepared


def open_channel(
    carrier: Carrier,
    *,
    name: str,
    notify: Callable[[str], None],
    is_cancelled: Callable[[], bool],
    module: str,
) -> Opened:
    """Start a module of the agent on a host, sending it there first if need be; for the rest see `connect`.

    Args:
        carrier: The way to the host.
        name: The host as the user calls it.
        notify: Gets a sentence for what is waited for; on any thread.
        is_cancelled: Returns whether to connect no longer; called several times a second.
        module: The module and its arguments, as `python -m` takes them.

    Raises:
        UserError: It cannot be reached, or cannot run it; with what to do.
    """
    channel = ProcessChannel(carrier, bootstrap.script(carrier.address, module), notify)
    lines = channel.lines()
    try:
        prepared = _in_thread(
            lambda: bootstrap.prepare(channel, lines, name, notify),
            f"Waiting for {name} to answer …",
            notify,
            is_cancelled,
        )
    except BaseException:
        channel.cut()
        raise
    return Opened(channel, lines, prepared)


def serve(
    channel: Channel,
    lines: Iterator[bytes],
    *,
    name: str,
    kind: str,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    prepared: Prepared | None = None,
    limits: LinkLimits | None = None,
) -> Connection:
    """Make a connection of a channel whose next line is an agent's first.

    Args:
        channel: The agent's stdin and stdout.
        lines: What comes, from `channel.lines()`.
        name: The host as the user calls it.
        kind: The kind of its carrier.
        hz: Readings a second.
        notify: Gets a sentence when the host falls silent, is heard again or is lost; on any thread.
        prepared: What was found before the agent started.
        limits: How long the host may be silent.

    Raises:
        UserError: The agent does not begin as one.
    """
    link = Link(channel, name, notify=notify, limits=limits)
    hello = link.start(lines)
    files = ScratchFiles(link)
    telemetry = TelemetryFeed(hz, partial(RemoteSampler, link, hello.environments), link.clock.now_ns)
    launcher = RemoteLauncher(link, files)
    host = Host(
        telemetry=telemetry,
        launcher=launcher,
        leases=RemoteLeases(link),
        run_job=RemoteJobs(link, files),
        now=link.clock.now,
        describe=lambda inventory: _environment(link, hello, kind, inventory),
        name=name,
    )
    telemetry.start()
    return Connection(host=host, hello=hello, prepared=prepared, link=link, launcher=launcher)


def _environment(link: Link, hello: AgentHello, kind: str, inventory: Inventory) -> dict[str, str]:
    """Return what is known of a run's environment on a host; raises `UserError` where the link is lost."""
    number = link.number()
    described = link.ask(number, DescribeHost(number), HostDescribed).environment
    offset = link.clock.offset()
    of_link = {
        HOST_KEY: link.name,
        HOST_ID_KEY: hello.host_id,
        BOOT_ID_KEY: hello.boot_id,
        CARRIER_KEY: kind,
        LINK_ROUND_TRIP_KEY: f"{offset.round_trip_ns / 1e6:.3f}",
        CLOCK_OFFSET_KEY: str(offset.offset_ns),
        CLOCK_ERROR_KEY: str(offset.error_ns),
    }
    return inventory_info(inventory) | described | program_info() | of_link


def _in_thread(
    work: Callable[[], Prepared], waiting: str, notify: Callable[[str], None], is_cancelled: Callable[[], bool]
) -> Prepared:
    """Return the result of work that may wait for the host.

    Args:
        work: What waits.
        waiting: Told when it takes long.
        notify: Gets that.
        is_cancelled: Returns whether to wait no longer.

    Raises:
        UserError: It failed, or was cancelled.
    """
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="connect")
    done = thread.submit(work)
    thread.shutdown(wait=False)
    waited_s = 0.0
    while not wait([done], _LOOK_S).done:
        if is_cancelled():
            raise UserError("Connecting was cancelled.")
        waited_s += _LOOK_S
        if waited_s - _LOOK_S < _QUIET_S <= waited_s:
            notify(waiting)
    return done.result()
