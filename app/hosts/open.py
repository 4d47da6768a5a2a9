"""Open the host that a word names: one of the user's, or an address. Each kind of address has its carrier here."""

import contextlib
from collections.abc import Callable

from app.grants import Consent, refuse
from app.hosts.address import Address
from app.hosts.book import HostEntry, find_host, split_hosts
from app.hosts.carriers import Carrier, docker_carrier, shell_carrier, ssh_carrier
from app.hosts.connection import HZ, HostConnection, connect
from app.hosts.pool import PoolConnection, pool_of


def carrier_of(address: Address) -> Carrier:
    """Return what carries an agent's lines from and to an address."""
    match address.kind:
        case "ssh":
            return ssh_carrier(address)
        case "ray":
            return ssh_carrier(address) if address.host else shell_carrier(address)
        case "slurm":
            from app.hosts.slurm import slurm_carrier

            return slurm_carrier(address)
        case "docker":
            return docker_carrier(address)
        case "sh":
            return shell_carrier(address)


def open_host(
    word: str,
    *,
    consent: Consent = refuse,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> HostConnection:
    """Connect to the host that a word of `--on` names, as `app.hosts.connection.connect` does.

    The word is the name of one of the user's hosts, or an address; several with commas between them are a pool.
    `consent` returns whether to connect to an address that was never allowed.

    Raises:
        UsageError: No host has that name, or it is no address.
        UserError: It cannot be reached, cannot serve, or is not allowed; with what to do.
    """
    entries = [find_host(part, consent) for part in split_hosts(word)]
    if len(entries) == 1:
        return open_entry(entries[0], hz=hz, notify=notify, is_cancelled=is_cancelled)
    with contextlib.ExitStack() as opened:
        connections = []
        for entry in entries:
            connections.append(open_entry(entry, hz=hz, notify=notify, is_cancelled=is_cancelled))
            opened.callback(connections[-1].close)
        pool = pool_of([connection.host for connection in connections], word)
        opened.pop_all()
    return PoolConnection(host=pool, members=tuple(connections))


def open_entry(
    entry: HostEntry,
    *,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> HostConnection:
    """Connect to a host of the user's, as `open_host` does.

    Raises:
        UserError: It cannot be reached, or cannot serve; with what to do.
    """
    carrier = carrier_of(entry.full_address)
    if carrier.address.kind == "ray":
        from app.hosts.ray import connect_cluster

        return connect_cluster(carrier, name=entry.name, notify=notify, is_cancelled=is_cancelled)
    return connect(carrier, name=entry.name, hz=hz, notify=notify, is_cancelled=is_cancelled)
