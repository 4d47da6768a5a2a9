"""Telemetry as JSON, one object a line: what `watch --json` prints and `replay FILE` plays (docs/telemetry.md)."""

from typing import Any

import msgspec

from app.samples import HOST, Device, DeviceLost, Inventory, Processes, Sample, SlowSample

Told = Sample | SlowSample | Processes | DeviceLost


def telemetry_line(message: Told, *, utc: str, source: str) -> dict[str, Any]:
    """One message with its wall-clock time; all but samples say their `kind`."""
    fields = msgspec.to_builtins(message)
    kind = fields.pop("type")
    head = {"t_ns": fields.pop("t_ns"), "utc": utc, "source": source, "device": fields.pop("device")}
    return {**head, **fields} if kind == "sample" else {**head, "kind": kind, **fields}


def device_lines(inventory: Inventory, *, t_ns: int, utc: str, source: str) -> list[dict[str, Any]]:
    """What every device is: lines that come before all others."""
    return [
        {
            "t_ns": t_ns,
            "utc": utc,
            "source": source,
            "device": device.device,
            "kind": "device",
            "index": device.index,
            "name": device.name,
            "memory_total_bytes": device.memory_total_bytes,
            "absent": device.absent,
            **_of_host(device, inventory),
        }
        for device in inventory.devices
    ]


def _of_host(device: Device, inventory: Inventory) -> dict[str, int]:
    return {"cpu_count": inventory.machine.cpu_count} if device.device == HOST else {}
