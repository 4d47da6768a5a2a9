"""Grants: only what this user allowed on this machine is executed or connected to, whatever a run names.

A run, a plan, a preset or a setting of a database may name a Python, packages, a host or a source text; each may come
from another user. It starts only if the user typed it on this machine, or agreed to a question that shows it in full.
Grants are in a private file in the user's config folder, outside any database.

Code that starts something asks first (`RunServices.admit`, `find_host`, `load_custom_workloads`). Where processes start
and get their orders (`app.runs.launcher`), anything not yet granted is refused without a question, so that no path to a
process can skip the question.
"""

import os
import shlex
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from app.errors import UserError, read_error, write_error
from app.paths import PROGRAM, config_path, read_file, rewrite_private
from app.values.plain import plain_text
from workloads.catalog import command_line, default_interpreter
from workloads.job_protocol import ComputeGradients, DescribeFile, JobRequest
from workloads.protocol import Source, Start, Variant

Entries = TypeVar("Entries", bound=tuple[msgspec.Struct, ...])
FILE_VARIABLE = "VARIANTSCOPE_GRANTS"
"""The environment variable that names another file."""

_REQUESTS = {
    "interpreter": "run {value} as Python{where}",
    "packages": "install and run the packages {value}{where}",
    "host": "connect to {value}",
    "source": "run the code of {path} (SHA-256 {value})",
    "script": "run {path} (with the files of SHA-256 {value})",
}
_COMMANDS = {
    "interpreter": "run dummy -s {setting}{on}",
    "packages": "run dummy -s {setting}{on}",
    "host": "hosts check {word}",
    "source": "list parameters {file}",
    "script": "run -- …",
}
"""By kind, a command whose arguments grant it."""

_MOST_AT_ONCE = 20
"""The most requests that a question shows in full on any screen."""
_MOST_NAMED = 8
"""How many characters of a request are displayed as its name."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the user allows.

    Attributes:
        kind: The kind of thing allowed.
        value: The path of a Python, the packages of a variant, the whole address of a host, or the SHA-256 of a source
            text, or of a command and its tree.
        host: The host of a Python or of packages, by the user's name; "" is this machine.
        path: Where a source text was read, because it may read data beside it. For a script, the command and folder.
    """

    kind: Literal["interpreter", "packages", "host", "source", "script"]
    value: str
    host: str = ""
    path: str = ""

    @property
    def request(self) -> str:
        where = f" on {self.host}" if self.host else ""
        words = _REQUESTS[self.kind].format(value=self.value, where=where, path=self.path)
        line = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode()
            for char in plain_text(words.replace("\n", "\\n").replace("\t", "\\t"))
        )
        others = list(dict.fromkeys(char for char in line if not char.isascii()))
        names = [f"{char} is {unicodedata.name(char, 'unnamed')}" for char in others[:_MOST_NAMED]]
        names += [f"{len(others) - _MOST_NAMED} more are not ASCII"] if len(others) > _MOST_NAMED else []
        return f"{line} ({', '.join(names)})" if names else line

    @property
    def command(self) -> str:
        words = _COMMANDS[self.kind].format(
            setting=shlex.quote(f"{self.kind}={self.value}"),
            on=f" --on {shlex.quote(self.host)}" if self.host else "",
            word=shlex.quote(self.value),
            file=shlex.quote(self.path),
        )
        return f"{PROGRAM} {words}"


Consent = Callable[[Sequence[Grant]], bool]
"""Returns whether the user allows all of these; it may ask, and wait."""


def typed(_grants: Sequence[Grant]) -> bool:
    """Allow what the user has just typed or chosen."""
    return True


def refuse(_grants: Sequence[Grant]) -> bool:
    """Allow nothing, without asking."""
    return False


def require(needed: Iterable[Grant], consent: Consent) -> None:
    """Accept what is granted, and grant what `consent` allows; raises `UserError` for the rest."""
    granted = read_grants()
    missing = list(dict.fromkeys(grant for grant in needed if grant not in granted))
    if not missing:
        return
    if consent is not typed and len(missing) > _MOST_AT_ONCE:
        raise UserError(
            f"Nothing was started: {len(missing)} Pythons, packages, hosts or files that were not typed here are more"
            " than one question can show; start the variants in smaller parts."
        )
    if not consent(missing):
        raise UserError(f"Nothing was started: nobody has allowed VariantScope to {describe(missing)}.")
    rewrite_list(grants_path(), lambda: (*read_grants(), *missing))


def describe(grants: Sequence[Grant]) -> str:
    return ", and to ".join(grant.request for grant in grants)


def interpreter_grant(python: object, host: str) -> Grant | None:
    """Return the grant that a value of `interpreter` needs on a host, "" for this machine.

    None for the program's own Python, for a version, and for the Python in the user's environment variable.
    """
    python = str(python)
    if os.sep not in python or (not host and python in (sys.executable, sys.prefix, default_interpreter())):
        return None
    return Grant(kind="interpreter", value=python, host=host)


def variant_grants(variant: Variant, host: str) -> list[Grant]:
    """Return the grants that a variant needs on a host, "" for this machine: for its Python and packages."""
    python, packages = interpreter_grant(variant.get("interpreter", ""), host), str(variant.get("packages", ""))
    # Installing a package may already run its code.
    return [
        *([python] if python else []),
        *([Grant(kind="packages", value=packages, host=host)] if packages else []),
    ]


def source_grant(source: Source, variant: Variant | None = None) -> Grant:
    """Return the grant for a custom workload's text, or for a command with a variant's values."""
    if source.command is not None:
        line = command_line(source.command, variant or {})
        return Grant(kind="script", value=source.sha256, path=f"{line} in {source.path}")
    return Grant(kind="source", value=source.sha256, path=source.path)


def ordered_variant(order: Start | JobRequest) -> Variant:
    """Return the variant that determines an order's Python and packages; empty for this machine's default."""
    return order.spec.variant if isinstance(order, Start | ComputeGradients) else {}


def order_grants(order: Start | JobRequest) -> list[Grant]:
    """Return the grants that an order on this machine needs: for its Python, packages and text."""
    source = order.source if isinstance(order, Start | ComputeGradients | DescribeFile) else None
    variant = ordered_variant(order)
    return [*variant_grants(variant, ""), *([source_grant(source, variant)] if source else [])]


def grants_path() -> Path:
    return config_path("grants.json", FILE_VARIABLE)


def read_grants() -> tuple[Grant, ...]:
    """Return what the user has allowed so far; raises `UserError` for a damaged file."""
    return read_list(grants_path(), tuple[Grant, ...], "grants", "delete it, and VariantScope asks again")


def read_list(path: Path, list_type: type[Entries], noun: str, remedy: str) -> Entries:
    """Return the entries of a user's file, empty without the file; raises `UserError`."""
    try:
        return msgspec.json.decode(read_file(path), type=list_type)
    except FileNotFoundError:
        return list_type()
    except OSError as error:
        raise read_error(path, error) from None
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is not a list of {noun} ({error}): {remedy}.") from None


def rewrite_list(path: Path, entries: Callable[[], Sequence[msgspec.Struct]]) -> None:
    """Replace the entries of a user's file, under a lock; raises `UserError`."""
    try:
        rewrite_private(path, lambda: msgspec.json.format(msgspec.json.encode(entries()), indent=2))
    except OSError as error:
        raise write_error(path, error) from None
