"""The user's hosts: names for addresses, in a JSON file in the user's config folder.

Addresses are `ssh://me@gpu1:22`, `slurm+ssh://login?gres=gpu:2`, `ray+ssh://head`, `docker://name`; `sh:`, `slurm:` and
`ray:` are this machine, directly or through its Slurm or Ray. An address is untrusted text that becomes words of a
command: no part may begin with `-` or contain a shell's special characters.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
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
"""How a host is reached; `sh` is this machine, treated like any other."""

_HERE: tuple[Kind, ...] = ("sh", "slurm", "ray")
"""Kinds whose name is its own scheme, for this machine."""
_SCHEMES: Mapping[Kind, str] = {"ssh": "ssh", "slurm": "slurm+ssh", "ray": "ray+ssh", "docker": "docker"}
_KINDS: Mapping[str, Kind] = {scheme: kind for kind, scheme in _SCHEMES.items()} | {kind: kind for kind in _HERE}
_FOR_ALL = ("python", "interpreter")
_RESOURCES = ("gres", "gpus", "mem", "cpus-per-task", "time")
_PLACEMENT = ("partition", "account", "qos", "constraint", "reservation", "nodelist")
OPTIONS: Mapping[Kind, tuple[str, ...]] = {"ray": ("gpu", "cpus"), "slurm": (*_RESOURCES, *_PLACEMENT)}
"""The options that may follow `?` besides `python` and `interpreter`: those of srun, or of a run on Ray."""

_AUTHORITY = re.compile(
    r"((?P<user>[A-Za-z0-9_.+~@\\][A-Za-z0-9_.+~@\\-]*\$?)@)?"
    r"(?P<host>[A-Za-z0-9_.][A-Za-z0-9_.-]*|\[(?P<ipv6>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9_.-]+)?)\])"
    r"(:(?P<port>[0-9]{1,5}))?"
)
_PASSWORD = re.compile(r"//[^/]*:[^/]*@")
_VALUE = re.compile(r"[A-Za-z0-9_./~+@:=,*\[\]%& |-]+")
_FORMS = "ssh://me@gpu1, slurm+ssh://login?gres=gpu:1, ray+ssh://head or docker://container"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a host is and how it is reached.

    Attributes:
        host: Its name, its address, or its name in the user's ssh config; the container of docker; "" for this machine.
        user: The user there, "" for the one in the ssh config.
        port: The port, None for the one in the ssh config.
        python: A Python there with the program's requirements, as a command or a path; "" for uv.
        interpreter: The Python or environment of runs that name none; "" to search for one.
        options: Other options after `?`, by name, such as srun's.
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
        """Return the address without its options."""
        if not self.host:
            return f"{self.kind}:"
        user = f"{quote(self.user)}@" if self.user else ""
        host = f"[{self.host.replace('%', '%25')}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port is not None else ""
        return f"{_SCHEMES[self.kind]}://{user}{host}{port}"

    @property
    def option_arguments(self) -> list[str]:
        return [f"--{name}={value}" for name, value in self.options]

    @property
    def schedules(self) -> bool:
        """Return whether a scheduler places each run on a node as a separate job."""
        return self.kind in ("slurm", "ray")


def is_address(word: str) -> bool:
    """Return whether a word is meant as an address, valid or not, rather than a host's name."""
    return "://" in word or word.startswith(tuple(f"{kind}:" for kind in _HERE)) or "?" in word


def parse_address(word: str) -> Address:
    """Parse an address; raises `UsageError` with what to write instead."""
    quoted = repr(one_line(_PASSWORD.sub("//…@", word)))
    scheme, colon, target = word.partition(":")
    authority, _, query = target.removeprefix("//").partition("?")
    kind = _KINDS.get(scheme) if colon else None
    if scheme == "ray" and target.startswith("//"):
        problem = "Ray deprecates ray://, the Ray Client: write ray+ssh:// and the head node's name, which ssh reaches."
    elif kind is None or (scheme not in _HERE and not target.startswith("//")):
        problem = f"{quoted} is not an address of a host: write {_FORMS}."
    elif scheme in _HERE:
        problem = authority and f"{quoted} is not an address: `{scheme}:` is this machine, and no name follows it."
    elif ":" in authority.rpartition("@")[0]:
        problem = "An address holds no password, and none is ever stored: use a key, which ssh-copy-id puts there."
    elif (host_port := authority.rpartition("@")[2]).count(":") > 1 and "[" not in host_port:
        problem = f"{quoted} has an IPv6 address without brackets: write ssh://[{host_port}]."
    else:
        problem = ""
    if problem or kind is None:
        raise UsageError(problem)
    values = _parse_query(kind, query, quoted)
    python, interpreter = values.pop("python", ""), values.pop("interpreter", "")
    host, user, port = "", "", None
    if scheme not in _HERE:
        match = _AUTHORITY.fullmatch(unquote(authority.removesuffix("/")))
        port = int(match["port"]) if match and match["port"] else None
        if match is None or (port is not None and not 0 < port < 2**16):
            raise UsageError(f"{quoted} names no host, or more than user, host and port: write {_FORMS}.")
        if kind == "docker" and match["host"] != authority:
            raise UsageError(f"{quoted} has more than the container's name: write docker://container.")
        host, user = match["ipv6"] or match["host"], match["user"] or ""
    options = tuple(values.items())
    return Address(kind=kind, host=host, user=user, port=port, python=python, interpreter=interpreter, options=options)


def _parse_query(kind: Kind, query: str, quoted: str) -> dict[str, str]:
    option_names = (*_FOR_ALL, *OPTIONS.get(kind, ()))
    values: dict[str, str] = {}
    # A plus sign is literal: no address contains a space written as one.
    for name, value in parse_qsl(query.replace("+", "%2B"), keep_blank_values=True):
        if name not in option_names:
            names = ", ".join(option_names)
            raise UsageError(f"{quoted} has the unknown option {name!r}; after ? you can write {names}.")
        if name in values:
            raise UsageError(f"{quoted} names {name} twice.")
        if value.startswith("-") or not _VALUE.fullmatch(value):
            raise UsageError(f"{name} takes a name, a path or a number, not {one_line(value)!r}.")
        values[name] = value
    return values


FILE_VARIABLE = "VARIANTSCOPE_HOSTS"
"""The environment variable that names another file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class HostEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A host named by the user. `parse_address` reads `address`."""

    name: str
    address: str

    @property
    def full_address(self) -> Address:
        return parse_address(self.address)


def book_path() -> Path:
    return config_path("hosts.json", FILE_VARIABLE)


def read_hosts() -> tuple[HostEntry, ...]:
    """Return the user's hosts in the order in which they were added; raises `UserError` for a damaged file."""
    return read_list(book_path(), tuple[HostEntry, ...], "hosts", "correct it, or delete it")


def find_host(word: str, consent: Consent = refuse) -> HostEntry:
    """Return the host that a word names: one of the user's, or an address that `consent` allows; raises `UserError`."""
    if not is_address(word):
        return _named(word)
    address = parse_address(word)
    require([Grant(kind="host", value=word)], consent)
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
    """Add a host; raises `UsageError` for a name that is taken or invalid, or for an invalid address."""
    if not _NAME.fullmatch(entry.name):
        raise UsageError(
            f"{entry.name!r} is not a host name: use up to 63 letters and digits, and . _ - after the first; the "
            f"address comes second."
        )
    _ = entry.full_address

    def with_entry() -> tuple[HostEntry, ...]:
        hosts = read_hosts()
        if any(host.name == entry.name for host in hosts):
            raise UsageError(f"Host {entry.name} already exists: remove it first, or choose another name.")
        return (*hosts, entry)

    rewrite_list(book_path(), with_entry)


def remove_hosts(names: Iterable[str]) -> None:
    """Remove some of the user's hosts, all or none; raises `UserError`. Nothing changes on the hosts themselves."""
    removed = [_named(name) for name in names]
    rewrite_list(book_path(), lambda: [entry for entry in read_hosts() if entry not in removed])
