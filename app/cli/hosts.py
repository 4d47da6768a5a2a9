"""`hosts`: the machines that the user has named."""

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from app.cli.candidates import complete_hosts
from app.cli.options import OneOf, command
from app.cli.terminal import print_json, print_table, print_text
from app.grants import typed
from app.hosts.book import HostEntry, add_host, find_host, read_hosts, remove_host
from app.hosts.check import HostCheck, check_hosts
from app.hosts.check_lines import check_lines
from app.paths import PROGRAM
from app.samples import HOST, Device
from workloads.catalog import UsageError

_ACTIONS = ("list", "add", "check", "remove")
_USE = "hosts add takes a name and an address: `hosts add gpu1 ssh://me@gpu1`."


@command("hosts", "hosts add gpu1 ssh://me@gpu1", "hosts check", uses_database=False)
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
    help="With add: the virtual environment there of runs that name none (default: the agent's Python).",
)
def hosts(as_json: bool, action: str, names: Sequence[str], python: str, interpreter: str) -> int:
    """Change the list, and print it, or check hosts; the status of a check is 0 if all of them can make runs."""
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
        case "check":
            return _check(names, as_json=as_json)
        case "list" if names:
            raise UsageError("hosts list shows all there is; names go with add, check and remove.")
    return _print_hosts(as_json=as_json)


def _print_hosts(*, as_json: bool) -> int:
    entries = read_hosts()
    if as_json:
        print_json({"hosts": [msgspec.structs.asdict(entry) for entry in entries]})
    elif entries:
        more = [column for column in ("python", "interpreter") if any(getattr(entry, column) for entry in entries)]
        print_table(
            ("name", "address", *more),
            [(entry.name, entry.address, *(getattr(entry, column) for column in more)) for entry in entries],
        )
    else:
        print(f"No host is named yet: `{PROGRAM} hosts add gpu1 ssh://me@gpu1` does it.")
    return 0


def _check(names: Sequence[str], *, as_json: bool) -> int:
    """Check these hosts, or all; print what was found of each as it is known."""
    entries = [find_host(name, typed) for name in names] or read_hosts()
    if not entries and not as_json:
        return _print_hosts(as_json=False)
    checks: list[HostCheck] = []
    for check in check_hosts(entries):
        checks.append(check)
        if not as_json:
            _print_check(check)
    if as_json:
        print_json({"hosts": [_check_document(check) for check in checks]})
    return int(any(check.problem for check in checks))


def _print_check(check: HostCheck) -> None:
    print("  ".join(dict.fromkeys((check.entry.name, check.entry.address))))
    if check.inventory is None:
        print_text(f"  {check.problem}")
    print_table(("", ""), [(f"  {label}", text) for label, text in check_lines(check)])
    sys.stdout.flush()


def _check_document(check: HostCheck) -> dict[str, Any]:
    inventory, inspected = check.inventory, check.inspected
    document: dict[str, Any] = {
        "name": check.entry.name,
        "address": check.entry.address,
        "can_run": not check.problem,
        "problem": check.problem or None,
    }
    if inventory is not None:
        document |= {
            "round_trip_ms": check.round_trip_ms,
            "python": dict(zip(("version", "path"), check.python, strict=True)),
            "driver": inventory.driver,
            "cuda_driver": inventory.cuda_driver,
            "no_gpu_reason": inventory.no_gpu_reason,
            "gpus": [_gpu_document(check, device) for device in inventory.devices if device.device != HOST],
            "cache": dict(zip(("path", "free_bytes"), check.cache, strict=True)),
            "clock_offset_s": check.clock_offset_s,
            "clock_error_s": check.clock_error_s,
        }
    if inspected is not None:
        frameworks = {
            framework.name: {"version": framework.version, "interpreter": framework.interpreter}
            for framework in inspected.frameworks
        }
        document |= {
            "framework": frameworks["tensorflow"],
            "frameworks": frameworks,
            "home": {"path": inspected.home, "free_bytes": inspected.home_free_bytes},
        }
    return document


def _gpu_document(check: HostCheck, device: Device) -> dict[str, Any]:
    listed = check.processes.get(device.device)
    return {
        "index": device.index,
        "uuid": device.device,
        "name": device.name,
        "memory_total_bytes": device.memory_total_bytes,
        "lost": device.lost,
        "processes": None
        if listed is None or listed.reason is not None
        else [
            {"pid": user.pid, "name": user.name, "memory_bytes": user.memory_bytes, "user": check.user_of(user) or None}
            for user in listed.processes
        ],
    }
