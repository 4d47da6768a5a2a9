"""Telemetry values: devices, their fields, samples and processes, as immutable messages between processes."""

from typing import Literal

import msgspec

from workloads.catalog import Machine

HOST = "host"
"""The device id of the host itself; a GPU's is its UUID."""


class FieldInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How one field of a device is read: its unit, what one read costs, and how often the value is renewed.

    `cost_us` is the median of a few reads at the start (of a whole call where one call gives several fields);
    `period_ms` is found by watching the value change, None until it was seen to.
    """

    unit: str
    cost_us: float | None = None
    period_ms: float | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One thing telemetry can read: a GPU (`device` is its UUID) or the host (`device` is `HOST`, `index` is -1).

    `fields` are those it gives; `absent` those it does not, with the reason (`not supported`, `no permission`, `lost`).
    """

    device: str
    kind: Literal["gpu", "host"]
    index: int
    name: str
    memory_total_bytes: int | None = None
    fields: dict[str, FieldInfo] = {}
    absent: dict[str, str] = {}


class Sample(msgspec.Struct, frozen=True, kw_only=True, tag="sample", tag_field="type"):
    """Cheap telemetry of one device at one time, stamped at the source; None is "this device does not say".

    On a GPU `power_mw` is instantaneous where the driver has that, `power_average_mw` the driver's one-second average,
    `memory_load_pct` the share of time memory was read or written, `memory_bytes` what programs hold (the driver's own
    reserve is in `SlowSample`), `throttle_reasons` NVML's bit mask of clock event reasons.
    On the host `load_pct` is CPU load over all processors, `power_mw` the processor packages' (RAPL), `memory_bytes`
    memory in use, and `worker_load_pct` (100 is one whole processor) and `worker_memory_bytes` (resident) are the
    worker's own.
    """

    t_ns: int
    device: str
    power_mw: int | None = None
    load_pct: float | None = None
    memory_bytes: int | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    power_limit_mw: int | None = None
    worker_load_pct: float | None = None
    worker_memory_bytes: int | None = None
    power_average_mw: int | None = None
    memory_load_pct: float | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: int | None = None


class SlowSample(msgspec.Struct, frozen=True, kw_only=True, tag="slow_sample", tag_field="type"):
    """Dear or slowly changing telemetry of one device at one time; None is "not said" or "not read this time".

    `energy_mj` and the `throttled_*_ns` are counters since the driver was loaded; `pcie_*` and `nvlink_*` are bytes a
    second over the time since the reading before; the percentages from `sm_active_pct` on are GPM metrics (Hopper and
    newer) over that time. On the host `sampler_cpu_s` is the processor time the sampler itself has used.
    """

    t_ns: int
    device: str
    energy_mj: int | None = None
    memory_reserved_bytes: int | None = None
    memory_temperature_c: int | None = None
    fan_pct: int | None = None
    throttled_power_ns: int | None = None
    throttled_thermal_ns: int | None = None
    throttled_brake_ns: int | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    fp32_active_pct: float | None = None
    fp16_active_pct: float | None = None
    dram_active_pct: float | None = None
    sampler_cpu_s: float | None = None


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that uses a GPU; its memory is None where the driver does not tell this user."""

    pid: int
    name: str
    memory_bytes: int | None = None


class Processes(msgspec.Struct, frozen=True, kw_only=True, tag="processes", tag_field="type"):
    """Who uses a GPU now."""

    t_ns: int
    device: str
    processes: tuple[GpuProcess, ...]


class FieldsUpdated(msgspec.Struct, frozen=True, kw_only=True, tag="fields_seen", tag_field="type"):
    """What watching has taught about a device's fields since the inventory: mostly how often they are renewed."""

    device: str
    fields: dict[str, FieldInfo]


class Inventory(msgspec.Struct, frozen=True, kw_only=True, tag="inventory", tag_field="type"):
    """What is here: the machine variants are checked against, every device, the driver, or why there is no GPU."""

    machine: Machine
    devices: tuple[Device, ...]
    driver: str | None = None
    cuda_driver: str | None = None
    no_gpu_reason: str | None = None


class DeviceLost(msgspec.Struct, frozen=True, kw_only=True, tag="device_lost", tag_field="type"):
    """A device stopped answering; its samples end here."""

    t_ns: int
    device: str
    reason: str


SAMPLE_FIELDS: tuple[str, ...] = tuple(name for name in Sample.__struct_fields__ if name not in ("t_ns", "device"))
SLOW_FIELDS: tuple[str, ...] = tuple(name for name in SlowSample.__struct_fields__ if name not in ("t_ns", "device"))


_UNIT_BY_SUFFIX = (
    ("_bytes_per_s", "bytes/s"),
    ("_bytes", "bytes"),
    ("_mw", "mW"),
    ("_mj", "mJ"),
    ("_pct", "%"),
    ("_mhz", "MHz"),
    ("_ns", "ns"),
    ("_c", "°C"),
    ("_s", "s"),
)


def field_unit(name: str) -> str:
    """The unit that the name of a field of `Sample` or `SlowSample` carries; "bits" for a mask."""
    return next((unit for suffix, unit in _UNIT_BY_SUFFIX if name.endswith(suffix)), "bits")
