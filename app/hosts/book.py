"""The user's hosts: names for addresses, in one JSON file of the user's config folder.

Addresses are `ssh://me@gpu1:22`, `slurm+ssh://login?gres=gpu:2`, `ray+ssh://head`, `docker://name`; `sh:`, `slurm:` and
`ray:` are this machine, by itself or through its Slurm or Ray. An address is untrusted text that becomes words of a
command: no part of it can begin with `-`, nor hold a character that a shell would read.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from app.grants import Consent, Grant, read_list, refuse, require, rewrite_list
from app.paths import PROGRAM, config_path
from app.values.plain import one_line
from workloads.catalog import UsageError

Kind = Literal["ssh", "slurm", "ray", "docker", "sh"]
"""How a host is reached; `sh` is this machine, as any other."""

_HERE: tuple[Kind, ...] = ("sh", "slurm", "ray")
"""Kinds whose name is a scheme of its own, for this machine."""
_SCHEMES: Mapping[Kind, str] = {"ssh": "ssh", "slurm": "slurm+ssh", "ray": "ray+ssh", "docker": "docker"}
_KINDS: Mapping[str, Kind] = {scheme: kind for kind, scheme in _SCHEMES.items()} | {kind: kind for kind in _HERE}
_FOR_ALL = ("python", "interpreter")
OPTIONS: Mapping[Kind, tuple[str, ...]] = {
    "ray": ("gpu", "cpus"),
    "slurm": (
        "gres",
        "gpus",
        "time",
        "partition",
        "account",
        "qos",
        "constraint",
        "reservation",
        "nodelist",
        "mem",
        "cpus-per-task",
    ),
}
"""What may stand behind `?` next to `python` and `interpreter`: options of srun, or of a run on Ray."""

_USER = re.compile(r"[A-Za-z0-9_.+~@\\][A-Za-z0-9_.+~@\\-]*\$?")
_HOST = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?")
_PORT = re.compile(r"[0-9]{1,5}")
_PASSWORD = re.compile(r"//[^/]*:[^/]*@")
_VALUE = re.compile(r"[A-Za-z0-9_./~+@:=,*\[\]%& |-]*")
_MAX_PORT = 65_535
_FORMS = "ssh://me@gpu1, slurm+ssh://login?gres=gpu:1, ray+ssh://head or docker://container"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a host is and how it is reached.

    Attributes:
        host: Its name, its address, or its name in the user's ssh config; the container of docker; "" for this machine.
        user: The user there, "" for that of the user's ssh config.
        port: None for that of the user's ssh config.
        python: A Python there that has what the program needs, as a command or a path; "" for uv.
        interpreter: The Python or environment of runs that name none; "" for one that is found.
        options: Others behind `?`, by name; those of srun.
    """

    kind: Kind
    host: str = ""
    user: str = ""
    port: int | None = None
    python: str = ""
    interpreter: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def target(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host

    @property
    def label(self) -> str:
        """Return the address without what stands behind `?`."""
        if not self.host:
            return f"{self.kind}:"
        user = f"{quote(self.user)}@" if self.user else ""
        host = f"[{self.host.replace('%', '%25')}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port is not None else ""
        return f"{_SCHEMES[self.kind]}://{user}{host}{port}"

    def __str__(self) -> str:
        """Return the whole address, which `parse_address` reads."""
        named = (("python", self.python), ("interpreter", self.interpreter), *self.options)
        query = "&".join(f"{name}={quote(value, safe='/:,=+~')}" for name, value in named if value)
        return f"{self.label}?{query}" if query else self.label


def is_address(word: str) -> bool:
    """Return whether a word is meant as an address, right or wrong; else it is a host's name."""
    return "://" in word or word.startswith(tuple(f"{kind}:" for kind in _HERE)) or "?" in word


def parse_address(word: str) -> Address:
    """Return what an address says; raises `UsageError` with what to write instead."""
    scheme, colon, rest = word.partition(":")
    if word.startswith("ray://"):
        raise UsageError(
            "Ray deprecates ray://, the Ray Client: write ray+ssh:// and the head node's name, which ssh reaches."
        )
    kind = _KINDS.get(scheme) if colon else None
    if kind is None or (scheme not in _HERE and not rest.startswith("//")):
        raise UsageError(f"{_quoted(word)} is no address of a host: write {_FORMS}.")
    authority, _, query = rest.removeprefix("//").partition("?")
    values = _parse_query(kind, query, word)
    options = tuple((name, value) for name, value in values.items() if name not in _FOR_ALL)
    user, host, port = _parse_authority(scheme, authority.removesuffix("/"), word)
    return Address(
        kind=kind,
        host=host,
        user=user,
        port=port,
        python=values.get("python", ""),
        interpreter=values.get("interpreter", ""),
        options=options,
    )


def _parse_authority(scheme: str, authority: str, word: str) -> tuple[str, str, int | None]:
    """Return user, host and port of `me@gpu1:22`."""
    if scheme in _HERE:
        if authority:
            raise UsageError(f"{_quoted(word)} is no address: {scheme}: is this machine and takes no name.")
        return "", "", None
    if "/" in authority or "#" in authority:
        raise UsageError(f"{_quoted(word)} goes on behind the host: leave out what follows its name.")
    quoted_user, at, host_port = authority.rpartition("@")
    if ":" in quoted_user:
        raise UsageError(
            "An address holds no password, and none is ever stored: use a key, which ssh-copy-id puts there."
        )
    user = unquote(quoted_user)
    if at and not _USER.fullmatch(user):
        raise UsageError(f"{_quoted(word)} has a user that no host can have: write ssh://me@gpu1.")
    host, port = _parse_host(host_port, word)
    if scheme == "docker" and (at or port is not None):
        raise UsageError(f"{_quoted(word)} has more than the container's name: write docker://container.")
    return user, host, port


def _parse_host(text: str, word: str) -> tuple[str, int | None]:
    """Return the host and the port of `gpu1:22` or `[::1]:22`."""
    if text.startswith("["):
        host, bracket, behind = text[1:].partition("]")
        host = unquote(host)
        is_host = bool(bracket and _IPV6.fullmatch(host)) and (not behind or behind.startswith(":"))
        colon, digits = behind[:1], behind[1:]
    else:
        host, colon, digits = text.partition(":")
        if ":" in digits:
            raise UsageError(f"{_quoted(word)} has an IPv6 address without brackets: write ssh://[{text}].")
        is_host = bool(_HOST.fullmatch(host))
    if not is_host:
        raise UsageError(f"{_quoted(word)} names no host: write {_FORMS}.")
    if not colon:
        return host, None
    if not _PORT.fullmatch(digits) or not 0 < int(digits) <= _MAX_PORT:
        raise UsageError(f"{_quoted(word)} has no port from 1 to {_MAX_PORT} behind the colon.")
    return host, int(digits)


def _parse_query(kind: Kind, query: str, word: str) -> dict[str, str]:
    option_names = (*_FOR_ALL, *OPTIONS.get(kind, ()))
    values: dict[str, str] = {}
    # A plus sign is one: no address has a space written so.
    for name, value in parse_qsl(query.replace("+", "%2B"), keep_blank_values=True):
        if name not in option_names:
            raise UsageError(
                f"{_quoted(word)} has the unknown option {_quoted(name)}; behind ? may stand {', '.join(option_names)}."
            )
        if name in values:
            raise UsageError(f"{_quoted(word)} names {name} twice.")
        values[name] = checked_value(name, value)
    return values


def checked_value(name: str, value: str) -> str:
    """Return the value of an option of a host; raises `UsageError` for one that could be read as something else."""
    if not value or value.startswith("-") or not _VALUE.fullmatch(value):
        raise UsageError(f"{name} takes a name, a path or a number, not {_quoted(value)}.")
    return value


def _quoted(word: str) -> str:
    """Return an address as a sentence shows it, without what may be a password."""
    return repr(one_line(_PASSWORD.sub("//…@", word)))


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
