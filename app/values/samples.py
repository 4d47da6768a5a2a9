"""Telemetry messages: devices and their fields, processes on a GPU, lost devices and gaps; and a line of a log."""

from typing import Literal

import msgspec

from app.values.limits import Integer, Nanoseconds
from workloads.machine import Machine

HOST = "host"
"""The device id of the host itself; a GPU's is its UUID."""
SAMPLE_MS = 50.0
"""Milliseconds between two telemetry readings unless requested otherwise."""


class LogLine(msgspec.Struct, frozen=True, tag="log_line", tag_field="type"):
    """One line of the worker's stderr, to which its prints go, too."""

    t_ns: Nanoseconds
    text: str


class Waiting(msgspec.Struct, frozen=True, tag="waiting", tag_field="type"):
    """The run waits for a leased GPU, a locked database or a silent host: one sentence, "" when that is over."""

    t_ns: Nanoseconds
    reason: str


class FieldInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A field of one device: its unit, what one read costs, and how often the driver renews its value.

    `cost_us` is the median of a few reads at the start (of a whole call where one call gives several fields);
    `period_ms` is found by watching the value change, None until it was seen to.
    """

    unit: str
    cost_us: float | None = None
    period_ms: float | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One thing telemetry can read: a GPU (`device` is its UUID) or the host (`device` is `HOST`, `index` is -1).

    `fields` are those it gives; `absent` those it does not, with the reason (`not supported`, `no permission`, `lost`).
    A field in neither is not known yet. `lost` is the reason why the device does not answer; no run can use it then.
    Of a stored run, `implausible` counts the readings of each field that were left out because they cannot be true.
    """

    device: str
    kind: Literal["gpu", "host"]
    index: Integer
    name: str
    memory_total_bytes: Integer | None = None
    fields: dict[str, FieldInfo] = {}
    absent: dict[str, str] = {}
    lost: str | None = None
    implausible: dict[str, Integer] = {}


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that uses a GPU.

    Its memory is None if the driver does not tell this user; its name, `user`, and for how long it has been running,
    where the system does not, as of a process outside of this container.
    """

    pid: Integer
    name: str | None = None
    memory_bytes: Integer | None = None
    user: str | None = None
    running_s: float | None = None

    @property
    def title(self) -> str:
        """`python3 (4242)`, or `process (4242)` where its name is not known."""
        return f"{self.name or 'process'} ({self.pid})"


class Processes(msgspec.Struct, frozen=True, kw_only=True, tag="processes", tag_field="type"):
    """The processes that use a GPU now; with a `reason` the driver does not list them, and nobody knows who uses it."""

    t_ns: Nanoseconds
    device: str
    processes: tuple[GpuProcess, ...] = ()
    reason: str | None = None


class FieldsUpdated(msgspec.Struct, frozen=True, kw_only=True, tag="fields_seen", tag_field="type"):
    """All that is known of a device's fields by now: those it gives, and those it does not, with the reason."""

    device: str
    fields: dict[str, FieldInfo]
    absent: dict[str, str] = {}


class Inventory(msgspec.Struct, frozen=True, kw_only=True, tag="inventory", tag_field="type"):
    """The machine that variants are checked against, every device, the driver, or why there is no GPU.

    It is `pending` as long as the driver has not answered for every GPU; then another follows. It also comes again when
    a GPU is lost or comes back, or a driver is loaded: the last one counts.
    """

    machine: Machine
    devices: tuple[Device, ...]
    driver: str | None = None
    cuda_driver: str | None = None
    no_gpu_reason: str | None = None
    pending: bool = False


class DeviceLost(msgspec.Struct, frozen=True, kw_only=True, tag="device_lost", tag_field="type"):
    """A device stopped answering; its samples end here."""

    t_ns: Nanoseconds
    device: str
    reason: str


class TelemetryGap(msgspec.Struct, frozen=True, kw_only=True, tag="telemetry_gap", tag_field="type"):
    """The sampler ended by itself; nothing is read until the inventory of another one comes."""

    t_ns: Nanoseconds
    reason: str


def lost_device(device: Device, reason: str) -> Device:
    absent = {**device.absent, **dict.fromkeys(device.fields, "lost")}
    return msgspec.structs.replace(device, fields={}, absent=absent, lost=reason)
