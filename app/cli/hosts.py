"""`hosts`: the machines that the user has named."""

from collections.abc import Sequence
from typing import Any

import click

from app.cli.candidates import complete_hosts
from app.cli.options import OneOf, command
from app.cli.terminal import print_json, print_table
from app.hosts.book import HostEntry, add_host, read_hosts, remove_host
from app.paths import PROGRAM
from workloads.catalog import UsageError

_ACTIONS = ("list", "add", "remove")
_USE = "hosts add takes a name and an address: `hosts add gpu1 ssh://me@gpu1`."


@command("hosts", "hosts add gpu1 ssh://me@gpu1", "hosts list --json", uses_database=False)
@click.argument(
    "action", type=OneOf(_ACTIONS), default="list", metavar="[ACTION]", help=f"{', '.join(_ACTIONS)} (default: list)."
)
@click.argument(
    "names",
    nargs=-1,
    metavar="[NAME]... [ADDRESS]",
    shell_complete=complete_hosts,
    help="Hosts; with add a name and an address, such as ssh://me@gpu1.",
)
@click.option(
    "--python", default="", metavar="PYTHON", help="With add: the Python there for the agent (default: it is found)."
)
@click.option(
    "--interpreter",
    default="",
    metavar="ENV",
    help="With add: the environment there, by name or path, of runs that name none (default: it is found).",
)
def hosts(as_json: bool, action: str, names: Sequence[str], python: str, interpreter: str) -> int:
    """Change the list, and print it."""
    if action != "add" and (python or interpreter):
        raise UsageError(f"{'--python' if python else '--interpreter'} goes with `hosts add`.")
    match action:
        case "add":
            if len(names) != 2:
                raise UsageError(_USE)
            add_host(HostEntry(name=names[0], address=names[1], python=python, interpreter=interpreter))
        case "remove":
            if not names:
                raise UsageError("hosts remove needs the name of a host; `hosts list` shows them.")
            for name in names:
                remove_host(name)
        case "list" if names:
            raise UsageError("hosts list shows all there is; names go with add and remove.")
    return _print_hosts(as_json=as_json)


def _print_hosts(*, as_json: bool) -> int:
    entries = read_hosts()
    if as_json:
        print_json({"hosts": [_document(entry) for entry in entries]})
    elif entries:
        more = [each for each in ("python", "interpreter") if any(getattr(entry, each) for entry in entries)]
        print_table(
            ("name", "address", *more),
            [(entry.name, entry.address, *(getattr(entry, each) for each in more)) for entry in entries],
        )
    else:
        print(f"No host is named yet: `{PROGRAM} hosts add gpu1 ssh://me@gpu1` does it.")
    return 0


def _document(entry: HostEntry) -> dict[str, Any]:
    return {field: getattr(entry, field) for field in HostEntry.__struct_fields__}
