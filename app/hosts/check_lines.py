"""What was found of a host, in lines for people: the terminal and the window say the same."""

from collections.abc import Iterator

from app import units
from app.agent_protocol import HostInspected
from app.hosts.check import HostCheck, no_framework
from app.samples import HOST, Device
from workloads.catalog import FRAMEWORKS


def check_lines(check: HostCheck) -> Iterator[tuple[str, str]]:
    """Yield a label and a sentence for each thing that was looked at."""
    inventory, inspected = check.inventory, check.inspected
    if inventory is None:
        return
    round_trip = f", round trip {units.milliseconds(check.round_trip_ms)}" if check.round_trip_ms is not None else ""
    yield "reachable", f"yes{round_trip}"
    if check.python[0]:
        yield "Python", "  ".join(filter(None, check.python))
    driver = f"{inventory.driver or 'unknown'}, CUDA up to {inventory.cuda_driver or 'unknown'}"
    hidden = inventory.machine.hidden_by
    reason = f"{driver if hidden else 'none'}: {inventory.no_gpu_reason}; runs use the CPU"
    yield "driver", reason if inventory.no_gpu_reason else driver
    for device in inventory.devices:
        if device.device != HOST:
            yield f"GPU {device.index}", _describe_gpu(check, device)
    if inspected is not None:
        yield from _inspected_rows(check, inspected)
    if check.clock_offset_s is not None:
        yield "clock", _describe_clock(check.clock_offset_s, check.clock_error_s or 0.0)


def _inspected_rows(check: HostCheck, inspected: HostInspected) -> Iterator[tuple[str, str]]:
    for framework in inspected.frameworks:
        text = f"{framework.version}  {framework.interpreter}"
        missing = f"none: {no_framework(check.entry, [framework])}"
        yield FRAMEWORKS[framework.name].name, text if framework.version else missing
    # On one disk they are the same.
    folders = (check.cache, (inspected.home, inspected.home_free_bytes))
    spaces = {units.byte_size(space): path for path, space in folders if space is not None}
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
        f"{check.user_of(process) or 'you'} ({process.name}, {units.byte_size(process.memory_bytes)})"
        for process in listed.processes
    ]
    return f"{name}; used by {', '.join(users)}" if users else f"{name}; free"


def _describe_clock(offset_s: float, error_s: float) -> str:
    error = units.plus_minus(units.milliseconds(1e3 * error_s))
    if abs(offset_s) <= error_s:
        return f"as this machine's, {error}"
    return f"{units.seconds(abs(offset_s))} {'ahead of' if offset_s > 0 else 'behind'} this machine's, {error}"
