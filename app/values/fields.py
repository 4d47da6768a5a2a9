"""The telemetry fields: one row for each quantity that a device reports, from which everything else follows.

A row is an attribute of `Sample` (fast fields) or `SlowSample` (slow fields) with its `Field` as annotation. Screens,
documents, exports and the database loop over `FIELDS` or are tested against it; only the reader (`app/telemetry`) and
the column, which a migration adds, are elsewhere. A name contains the unit of the stored value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Literal, get_args, get_type_hints

import msgspec

from app.values import limits
from app.values.limits import Limits, Nanoseconds

DeviceKind = Literal["gpu", "host"]
Screen = Literal["run", "compare"]
"""Where a field is plotted: over one run (live or stored), or over several compared runs."""
Topic = Literal[
    "power",
    "load",
    "memory",
    "clock",
    "temperature",
    "fan",
    "throttling",
    "throttled",
    "activity",
    "pcie",
    "nvlink",
    "worker",
    "sampler",
]

TOPICS: Mapping[Topic, str] = MappingProxyType(
    {
        **dict.fromkeys(get_args(Topic), ""),
        "throttled": "throttled time",
        "activity": "GPM metrics",
        "pcie": "PCIe bytes",
        "nvlink": "NVLink bytes",
    }
)
"""Topics in the order of the screens, with a name for all of a topic's fields when they are absent together."""

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
_DISPLAY_UNITS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {"mW": ("W", 1e3), "mJ": ("J", 1e3), "ns": ("s", 1e9)}
)
"""For stored units that are not displayed: the displayed unit, and the divisor."""


@dataclass(frozen=True, slots=True)
class Field:
    """One telemetry field.

    Attributes:
        label: Its name on every screen.
        topic: Its group on screens.
        meaning: One line for docs/telemetry.md.
        source: The NVML call or the reading of the host.
        limits: Its plausible values (`app/values/limits.py`).
        absent: When a device lacks it.
        kind: A gauge is a current value, a share a percentage, a counter only rises, so that its mean is meaningless.
        devices: The kinds of device that can report it.
        host_label: Its name on the host, if different.
        gpu_plots: The screens that plot it for GPUs.
        host_plots: The screens that plot it for the host.
        panel: The field in whose plot it is drawn; by default its own.
        combination: How the values of a run's GPUs become one curve of Compare.
        name: The attribute of the sample, the column and the JSON key; filled in from the struct.
        speed: Fast fields are read at every tick, slow ones on a separate schedule; filled in from the struct.
        is_integer: Whether it is a whole number; filled in from the struct.
    """

    label: str
    topic: Topic
    meaning: str
    source: str
    limits: Limits
    absent: str = "not supported by the GPU"
    kind: Literal["gauge", "share", "counter"] = "gauge"
    devices: tuple[DeviceKind, ...] = ("gpu",)
    host_label: str = ""
    gpu_plots: tuple[Screen, ...] = ()
    host_plots: tuple[Screen, ...] = ()
    panel: str = ""
    combination: Literal["sum", "mean", "max"] = "sum"
    name: str = ""
    speed: Literal["fast", "slow"] = "fast"
    is_integer: bool = False

    @property
    def unit(self) -> str:
        """Return the unit in which it is stored and exported, from its name; "bits" for a mask."""
        return next((unit for suffix, unit in _UNIT_BY_SUFFIX if self.name.endswith(suffix)), "bits")

    @property
    def display_unit(self) -> str:
        """Return the unit on screens; for bytes, they choose the best power of 1024."""
        return _DISPLAY_UNITS.get(self.unit, (self.unit, 1.0))[0]

    @property
    def scale(self) -> float:
        """Return the divisor that converts a stored value to `display_unit`."""
        return _DISPLAY_UNITS.get(self.unit, (self.unit, 1.0))[1]

    def label_on(self, kind: DeviceKind) -> str:
        return self.host_label if kind == "host" and self.host_label else self.label

    def plots_on(self, kind: DeviceKind) -> tuple[Screen, ...]:
        return self.gpu_plots if kind == "gpu" else self.host_plots


_BOTH: tuple[DeviceKind, ...] = ("gpu", "host")
_EVERYWHERE: tuple[Screen, ...] = ("run", "compare")
_NO_RUN = "no run is active"


class Sample(msgspec.Struct, frozen=True, kw_only=True, tag="sample", tag_field="type"):
    """The fast fields of one device at one time, stamped at the source; None means "not reported".

    `implausible` lists fields that are None because their reading was implausible.
    """

    t_ns: Nanoseconds
    device: str
    power_mw: Annotated[
        int | None,
        Field(
            "Power",
            "power",
            "power now; on the host of the processor packages",
            "field 186, or `nvmlDeviceGetPowerUsage` (a 1 s average on Ampere and newer, except GA100); RAPL",
            limits.POWER,
            devices=_BOTH,
            absent="this user may not read RAPL",
            gpu_plots=_EVERYWHERE,
        ),
    ] = None
    load_pct: Annotated[
        float | None,
        Field(
            "Load",
            "load",
            "share of the last period in which a kernel ran; on the host, over all processors",
            "`nvmlDeviceGetUtilizationRates`; psutil",
            limits.SHARE,
            host_label="CPU load",
            kind="share",
            devices=_BOTH,
            combination="mean",
            gpu_plots=_EVERYWHERE,
            host_plots=_EVERYWHERE,
        ),
    ] = None
    memory_bytes: Annotated[
        int | None,
        Field(
            "Memory",
            "memory",
            "memory in use; on the host, memory not available to new programs",
            "`nvmlDeviceGetMemoryInfo` v2, `used`; psutil",
            limits.MEMORY,
            devices=_BOTH,
            gpu_plots=_EVERYWHERE,
            host_plots=("run",),
        ),
    ] = None
    temperature_c: Annotated[
        int | None,
        Field(
            "Temperature",
            "temperature",
            "the core",
            "`nvmlDeviceGetTemperature`",
            limits.TEMPERATURE,
            gpu_plots=("compare",),
            combination="max",
        ),
    ] = None
    sm_clock_mhz: Annotated[
        int | None,
        Field(
            "SM clock",
            "clock",
            "clock of the streaming multiprocessors now",
            "`nvmlDeviceGetClockInfo`",
            limits.CLOCK,
            combination="mean",
            gpu_plots=("compare",),
        ),
    ] = None
    power_limit_mw: Annotated[
        int | None,
        Field("Power limit", "power", "the limit in force", "`nvmlDeviceGetEnforcedPowerLimit`", limits.POWER_LIMIT),
    ] = None
    worker_load_pct: Annotated[
        float | None,
        Field(
            "Worker load",
            "worker",
            "load of the run's own process; 100 is one processor",
            "psutil",
            limits.PROCESSORS,
            devices=("host",),
            absent=_NO_RUN,
            panel="load_pct",
            host_plots=("run",),
        ),
    ] = None
    worker_memory_bytes: Annotated[
        int | None,
        Field(
            "Worker memory",
            "worker",
            "resident memory of the run's own process",
            "psutil",
            limits.MEMORY,
            devices=("host",),
            absent=_NO_RUN,
            panel="memory_bytes",
            host_plots=_EVERYWHERE,
        ),
    ] = None
    power_average_mw: Annotated[
        int | None,
        Field("Power, 1 s mean", "power", "the driver's mean of 1 s", "field 185, read with 186", limits.POWER),
    ] = None
    memory_load_pct: Annotated[
        float | None,
        Field(
            "Memory load",
            "load",
            "share of the last period in which memory was read or written",
            "`nvmlDeviceGetUtilizationRates`",
            limits.SHARE,
            kind="share",
        ),
    ] = None
    memory_clock_mhz: Annotated[
        int | None,
        Field("Memory clock", "clock", "clock of the memory now", "`nvmlDeviceGetClockInfo`", limits.MEMORY_CLOCK),
    ] = None
    throttle_reasons: Annotated[
        int | None,
        Field(
            "Clock limit",
            "throttling",
            "NVML's mask of clock event reasons: why the clocks are not higher; screens show it in words",
            "`nvmlDeviceGetCurrentClocksEventReasons`",
            limits.REASONS,
        ),
    ] = None
    implausible: tuple[str, ...] = ()


def _throttled(cause: str, reason: str, source: str) -> Field:
    meaning = f"time throttled by {reason} since the driver was loaded"
    return Field(f"Throttled by {cause}", "throttled", meaning, source, limits.DURATION, kind="counter")


def _rate(label: str, link: Literal["pcie", "nvlink"], way: str, source: str) -> Field:
    meaning = f"{way} over {'PCIe' if link == 'pcie' else 'all NVLinks'}, since the previous reading"
    absent = "not supported by the GPU" if link == "pcie" else "before Hopper, or without NVLink"
    fastest = limits.PCIE if link == "pcie" else limits.NVLINK
    return Field(label, link, meaning, source, fastest, absent=absent, gpu_plots=("run",))


def _activity(label: str, meaning: str, plots: tuple[Screen, ...] = ()) -> Field:
    return Field(label, "activity", meaning, "GPM", limits.SHARE, absent="before Hopper", kind="share", gpu_plots=plots)


class SlowSample(msgspec.Struct, frozen=True, kw_only=True, tag="slow_sample", tag_field="type"):
    """The slow fields of one device at one time; None means "not reported" or "not read this time"; see `Sample`."""

    t_ns: Nanoseconds
    device: str
    energy_mj: Annotated[
        int | None,
        Field(
            "Energy counter",
            "power",
            "energy since the driver was loaded; also read at every edge of a phase",
            "`nvmlDeviceGetTotalEnergyConsumption`",
            limits.ENERGY,
            kind="counter",
            absent="before Volta",
        ),
    ] = None
    memory_reserved_bytes: Annotated[
        int | None,
        Field(
            "Memory reserved",
            "memory",
            "what the driver keeps for itself; not in `memory_bytes`",
            "`nvmlDeviceGetMemoryInfo` v2, `reserved`",
            limits.MEMORY,
        ),
    ] = None
    memory_temperature_c: Annotated[
        int | None,
        Field(
            "Memory temperature",
            "temperature",
            "the memory",
            "field 82",
            limits.TEMPERATURE,
            "no sensor",
            gpu_plots=("run",),
        ),
    ] = None
    fan_pct: Annotated[
        int | None,
        Field(
            "Fan", "fan", "share of its highest speed", "`nvmlDeviceGetFanSpeed`", limits.FAN, "no fan", kind="share"
        ),
    ] = None
    throttled_power_ns: Annotated[int | None, _throttled("power", "the power limit", "field 74")] = None
    throttled_thermal_ns: Annotated[int | None, _throttled("heat", "temperature", "fields 269 + 270, else 75")] = None
    throttled_brake_ns: Annotated[int | None, _throttled("power brake", "the power brake", "field 271")] = None
    pcie_tx_bytes_per_s: Annotated[float | None, _rate("PCIe out", "pcie", "out of the GPU", "GPM, else field 197")] = (
        None
    )
    pcie_rx_bytes_per_s: Annotated[float | None, _rate("PCIe in", "pcie", "into the GPU", "GPM, else field 198")] = None
    nvlink_tx_bytes_per_s: Annotated[float | None, _rate("NVLink out", "nvlink", "out of the GPU", "GPM")] = None
    nvlink_rx_bytes_per_s: Annotated[float | None, _rate("NVLink in", "nvlink", "into the GPU", "GPM")] = None
    sm_active_pct: Annotated[
        float | None, _activity("SM active", "share of time an SM had a warp, mean over SMs", ("run",))
    ] = None
    sm_occupancy_pct: Annotated[float | None, _activity("SM occupancy", "share of the maximum of resident warps")] = (
        None
    )
    tensor_active_pct: Annotated[
        float | None, _activity("Tensor cores active", "share of time the tensor cores were active", ("run",))
    ] = None
    fp32_active_pct: Annotated[float | None, _activity("FP32 active", "share of time the FP32 pipe was active")] = None
    fp16_active_pct: Annotated[float | None, _activity("FP16 active", "share of time the FP16 pipe was active")] = None
    dram_active_pct: Annotated[
        float | None, _activity("DRAM bandwidth", "share of the memory bandwidth used", ("run",))
    ] = None
    sampler_cpu_s: Annotated[
        float | None,
        Field(
            "Sampler CPU time",
            "sampler",
            "processor time that the sampler itself has used",
            "`time.process_time`",
            limits.CPU_TIME,
            kind="counter",
            devices=("host",),
            absent="never",
        ),
    ] = None
    implausible: tuple[str, ...] = ()


def _rows(struct: type[Sample | SlowSample], speed: Literal["fast", "slow"]) -> Iterator[Field]:
    for name, hint in get_type_hints(struct, include_extras=True).items():
        for row in getattr(hint, "__metadata__", ()):
            if isinstance(row, Field):
                is_integer = hint.__origin__ == int | None
                yield replace(row, name=name, speed=speed, is_integer=is_integer, panel=row.panel or name)


FIELDS: Mapping[str, Field] = MappingProxyType(
    {field.name: field for field in (*_rows(Sample, "fast"), *_rows(SlowSample, "slow"))}
)
"""Every field by its name, in the order of the samples."""

FAST_FIELDS: tuple[str, ...] = tuple(name for name, field in FIELDS.items() if field.speed == "fast")
SLOW_FIELDS: tuple[str, ...] = tuple(name for name, field in FIELDS.items() if field.speed == "slow")


def fields_of(kind: DeviceKind) -> tuple[Field, ...]:
    """Return every field that a device of this kind can report, in the order of the samples."""
    return tuple(field for field in FIELDS.values() if kind in field.devices)


def plotted_fields(screen: Screen, kind: DeviceKind) -> tuple[Field, ...]:
    plotted = [field for field in fields_of(kind) if screen in field.plots_on(kind)]
    return tuple(sorted(plotted, key=lambda field: tuple(TOPICS).index(field.topic)))
