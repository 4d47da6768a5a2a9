"""The user's hosts: names for addresses, in one JSON file of the user's config folder."""

import dataclasses
import difflib
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from app.grants import Consent, Grant, read_list, refuse, require, rewrite_list
from app.hosts.address import Address, checked_value, is_address, parse_address
from app.paths import PROGRAM, config_path
from workloads.catalog import UsageError

FILE_VARIABLE = "VARIANTSCOPE_HOSTS"
"""The environment variable that names another file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class HostEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host that the user has named.

    Attributes:
        address: Where it is, as `parse_address` reads it.
        python: A Python there that has what the program needs; "" for that of the address, or for uv.
        interpreter: The Python or environment of runs that name none; as `python`.
    """

    name: str
    address: str
    python: str = ""
    interpreter: str = ""

    @property
    def full_address(self) -> Address:
        """Return the whole address; raises `UsageError`."""
        address = parse_address(self.address)
        return dataclasses.replace(
            address,
            python=checked_value("python", self.python) if self.python else address.python,
            interpreter=checked_value("interpreter", self.interpreter) if self.interpreter else address.interpreter,
        )


def book_path() -> Path:
    """Return the file of the user's hosts."""
    return config_path("hosts.json", FILE_VARIABLE)


def read_hosts() -> tuple[HostEntry, ...]:
    """Return the user's hosts in the order in which they were added; raises `UserError` for a file that is damaged."""
    return read_list(book_path(), tuple[HostEntry, ...], "hosts", "correct it, or delete it")


def find_host(word: str, consent: Consent = refuse) -> HostEntry:
    """Return the host that a word names: one of the user's, or an address that `consent` allows; raises `UserError`."""
    if not is_address(word):
        return _named(word)
    address = parse_address(word)
    require([Grant(kind="host", value=str(address))], consent)
    return HostEntry(name=address.label, address=word)


def _named(word: str) -> HostEntry:
    entries = {entry.name: entry for entry in read_hosts()}
    if word in entries:
        return entries[word]
    near = difflib.get_close_matches(word, entries, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"There is no host {word!r}.{meant} `{PROGRAM} hosts list` shows yours; an address such as ssh://gpu1 works"
        " without adding."
    )


def add_host(entry: HostEntry) -> None:
    """Add a host; raises `UsageError` for a name that is taken or cannot be one, or an address that is none."""
    if not _NAME.fullmatch(entry.name):
        raise UsageError(
            f"{entry.name!r} cannot name a host: letters, digits, and . _ - behind them, 63 at most; the address comes "
            "second."
        )
    _ = entry.full_address

    def with_entry(hosts: tuple[HostEntry, ...]) -> tuple[HostEntry, ...]:
        if any(host.name == entry.name for host in hosts):
            raise UsageError(f"There is a host {entry.name} already: remove it first, or take another name.")
        return (*hosts, entry)

    _change(with_entry)


def remove_host(name: str) -> HostEntry:
    """Remove a host of the user's, and return it; raises `UserError`. Nothing changes on the host itself."""
    removed = _named(name)
    _change(lambda hosts: tuple(entry for entry in hosts if entry.name != removed.name))
    return removed


def _change(change: Callable[[tuple[HostEntry, ...]], tuple[HostEntry, ...]]) -> None:
    rewrite_list(book_path(), lambda: change(read_hosts()))
