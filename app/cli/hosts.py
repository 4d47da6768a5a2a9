"""`hosts`: the machines that the user has named."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from app import units
from app.agent_protocol import HostInspected
from app.cli.candidates import complete_hosts
from app.cli.options import OneOf, command
from app.cli.terminal import print_json, print_table, print_text
from app.hosts.book import HostEntry, add_host, find_host, read_hosts, remove_host
from app.hosts.check import HostCheck, check_hosts
from app.paths import PROGRAM
from app.samples import HOST, Device
from workloads.catalog import FRAMEWORK, UsageError

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
    help="With add: the environment there, by name or path, of runs that name none (default: it is found).",
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


def _check(names: Sequence[str], *, as_json: bool) -> int:
    """Check these hosts, or all; print what was found of each as it is known."""
    entries = [find_host(name) for name in names] or read_hosts()
    if not entries and not as_json:
        return _print_hosts(as_json=False)
    found: list[HostCheck] = []
    for check in check_hosts(entries):
        found.append(check)
        if not as_json:
            _print_check(check)
    if as_json:
        print_json({"hosts": [_check_document(check) for check in found]})
    return int(any(check.problem for check in found))


def _print_check(check: HostCheck) -> None:
    print("  ".join(dict.fromkeys((check.entry.name, check.entry.address))))
    if check.inventory is None:
        print_text(f"  {check.problem}")
    print_table(("", ""), [(f"  {label}", text) for label, text in _check_rows(check)])
    sys.stdout.flush()


def _check_rows(check: HostCheck) -> Iterator[tuple[str, str]]:
    """Yield a label and a sentence for each thing that was looked at."""
    inventory, inspected = check.inventory, check.inspected
    if inventory is None:
        return
    round_trip = f", round trip {units.milliseconds(check.round_trip_ms)}" if check.round_trip_ms is not None else ""
    yield "reachable", f"yes{round_trip}"
    if check.python[0]:
        yield "Python", "  ".join(filter(None, check.python))
    driver = f"{inventory.driver or 'unknown'}, CUDA up to {inventory.cuda_driver or 'unknown'}"
    yield "driver", f"none: {inventory.no_gpu_reason}; runs use the CPU" if inventory.no_gpu_reason else driver
    for device in inventory.devices:
        if device.device != HOST:
            yield f"GPU {device.index}", _describe_gpu(check, device)
    if inspected is not None:
        yield from _inspected_rows(check, inspected)
    if check.clock_offset_s is not None:
        yield "clock", _describe_clock(check.clock_offset_s, check.clock_error_s or 0.0)


def _inspected_rows(check: HostCheck, inspected: HostInspected) -> Iterator[tuple[str, str]]:
    version = inspected.framework_version
    yield FRAMEWORK.name, f"{version}  {inspected.interpreter}" if version else f"none: {check.problem}"
    if inspected.environments:
        yield "environments", ", ".join(inspected.environments)
    # On one disk they are the same.
    known = (check.cache, (inspected.home, inspected.home_free_bytes))
    spaces = {units.byte_size(space): path for path, space in known if space is not None}
    yield "free space", ", ".join(f"{space} in {path}" for space, path in spaces.items())


def _describe_gpu(check: HostCheck, device: Device) -> str:
    name = f"{device.name}, {units.byte_size(device.memory_total_bytes)}"
    if device.lost is not None:
        return f"{name}; lost: {device.lost}"
    if check.inspected is None:
        return name
    listed = check.processes.get(device.device)
    if listed is None or listed.reason is not None:
        return f"{name}; who uses it is not known ({listed.reason if listed else 'the driver did not say in time'})"
    users = [
        f"{check.user_of(each) or 'you'} ({each.name}, {units.byte_size(each.memory_bytes)})"
        for each in listed.processes
    ]
    return f"{name}; used by {', '.join(users)}" if users else f"{name}; free"


def _describe_clock(offset_s: float, error_s: float) -> str:
    error = f"± {units.milliseconds(1e3 * error_s)}"
    if abs(offset_s) <= error_s:
        return f"as this machine's, {error}"
    return f"{units.seconds(abs(offset_s))} {'ahead of' if offset_s > 0 else 'behind'} this machine's, {error}"


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
        document |= {
            "framework": {"version": inspected.framework_version, "interpreter": inspected.interpreter},
            "environments": list(inspected.environments),
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
            {"pid": each.pid, "name": each.name, "memory_bytes": each.memory_bytes, "user": check.user_of(each) or None}
            for each in listed.processes
        ],
    }
