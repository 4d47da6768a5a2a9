"""Open the host that a word names: one of the user's, or an address. Each kind of address has its carrier here."""

from collections.abc import Callable

from app.hosts.address import Address
from app.hosts.book import HostEntry, find_host
from app.hosts.carriers import Carrier, docker_carrier, shell_carrier, ssh_carrier
from app.hosts.connection import HZ, Connection, connect


def carrier_of(address: Address) -> Carrier:
    """Return what carries an agent's lines from and to an address."""
    match address.kind:
        case "ssh" | "ray":
            return ssh_carrier(address)
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
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Connection:
    """Connect to the host that a word of `--on` names, as `app.hosts.connection.connect` does.

    Args:
        word: The name of one of the user's hosts, or an address.
        hz: Readings a second.
        notify: Gets a sentence for what is waited for, and when the host falls silent or is lost; on any thread.
        is_cancelled: Returns whether to connect no longer.

    Raises:
        UsageError: No host has that name, or it is no address.
        UserError: It cannot be reached, or cannot serve; with what to do.
    """
    return open_entry(find_host(word), hz=hz, notify=notify, is_cancelled=is_cancelled)


def open_entry(
    entry: HostEntry,
    *,
    hz: float = HZ,
    notify: Callable[[str], None] = lambda _: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Connection:
    """Connect to a host of the user's, as `open_host` does.

    Args:
        entry: The host.
        hz: Readings a second.
        notify: Gets a sentence for what is waited for, and when the host falls silent or is lost.
        is_cancelled: Returns whether to connect no longer.

    Raises:
        UserError: It cannot be reached, or cannot serve; with what to do.
    """
    return connect(carrier_of(entry.place), name=entry.name, hz=hz, notify=notify, is_cancelled=is_cancelled)
