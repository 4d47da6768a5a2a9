"""Every NVML call that telemetry makes, as data: which fields it gives, and what to try instead.

Cheap calls are read at every tick; slow ones on a schedule of their own, because they are dear (on an H200 the energy
counter takes 2 to 19 ms, the thermal counters 2.5 ms) or change slowly. `nvmlDeviceGetPcieThroughput` is never called:
it waits 20 ms each way. Fields and their meaning: NVML API reference (https://docs.nvidia.com/deploy/nvml-api).
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from app.telemetry import nvml_prepared
from app.telemetry.nvml_prepared import Number, Read


@dataclass(frozen=True, slots=True)
class Call:
    """One call and the fields it gives. `prepare(handle)` gives the call made ready for one device.

    That gives the fields' numbers in their order; both raise `pynvml.NVMLError`.
    """

    fields: tuple[str, ...]
    prepare: Callable[[Any], Read]


@dataclass(frozen=True, slots=True)
class SlowCall:
    """A call of the slow schedule: the ways to make it, best first, and the seconds between two readings.

    A `counter` counts up: its field is the difference to the reading before, a second.
    """

    ways: tuple[Call, ...]
    every_s: float
    counter: bool = False


def field_values(**ids: int) -> Call:
    """Several fields in one `nvmlDeviceGetFieldValues`; fails as a whole if one of them is not there."""
    return Call(tuple(ids), nvml_prepared.field_values(*ids.values()))


def one(name: str, read: Callable[[Any], Number]) -> Call:
    """A call of nvidia-ml-py that gives one field."""
    return Call((name,), lambda handle: lambda: (read(handle),))


def _memory(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)


def _memory_v2() -> Any:
    return pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)


def _memory_used(function: str, make: Callable[[], Any]) -> Call:
    return Call(("memory_bytes",), nvml_prepared.structure(function, make, f"{type(make()).used.offset}xQ"))


def _reasons(function: str) -> Call:
    return Call(("throttle_reasons",), nvml_prepared.number(function, kind=ctypes.c_ulonglong))


def _clock(name: str, which: int) -> Call:
    return Call((name,), nvml_prepared.number("nvmlDeviceGetClockInfo", which))


def _thermal(handle: Any) -> Read:
    read = _THERMAL.prepare(handle)
    return lambda: (sum(read()),)


_THERMAL = field_values(
    software=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
    hardware=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
)

CHEAP: tuple[tuple[Call, ...], ...] = (
    (
        field_values(power_mw=pynvml.NVML_FI_DEV_POWER_INSTANT, power_average_mw=pynvml.NVML_FI_DEV_POWER_AVERAGE),
        field_values(power_mw=pynvml.NVML_FI_DEV_POWER_INSTANT),
        Call(("power_mw",), nvml_prepared.number("nvmlDeviceGetPowerUsage")),
    ),
    (
        Call(
            ("load_pct", "memory_load_pct"),
            nvml_prepared.structure("nvmlDeviceGetUtilizationRates", pynvml.c_nvmlUtilization_t, "II"),
        ),
    ),
    (
        _memory_used("nvmlDeviceGetMemoryInfo_v2", _memory_v2),
        _memory_used("nvmlDeviceGetMemoryInfo", pynvml.c_nvmlMemory_t),
    ),
    (Call(("temperature_c",), nvml_prepared.number("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)),),
    (_clock("sm_clock_mhz", pynvml.NVML_CLOCK_SM),),
    (_clock("memory_clock_mhz", pynvml.NVML_CLOCK_MEM),),
    (
        _reasons("nvmlDeviceGetCurrentClocksEventReasons"),
        _reasons("nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
    (Call(("power_limit_mw",), nvml_prepared.number("nvmlDeviceGetEnforcedPowerLimit")),),
)
"""The calls of every tick: for each the ways to make it, best first."""

ENERGY = SlowCall((one("energy_mj", pynvml.nvmlDeviceGetTotalEnergyConsumption),), 4.0)

SLOW: tuple[SlowCall, ...] = (
    SlowCall((one("memory_reserved_bytes", lambda handle: _memory(handle).reserved),), 10.0),
    SlowCall((field_values(memory_temperature_c=pynvml.NVML_FI_DEV_MEMORY_TEMP),), 1.0),
    SlowCall((one("fan_pct", pynvml.nvmlDeviceGetFanSpeed),), 5.0),
    SlowCall((field_values(throttled_power_ns=pynvml.NVML_FI_DEV_PERF_POLICY_POWER),), 1.0),
    SlowCall(
        (
            Call(("throttled_thermal_ns",), _thermal),
            field_values(throttled_thermal_ns=pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL),
        ),
        5.0,
    ),
    SlowCall((field_values(throttled_brake_ns=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN),), 5.0),
    ENERGY,
)
"""The slow calls, the energy counter last because its time matters most: a sample is stamped when all are
read. GPM needs two samples (nvml_gpm.py) and comes with PCIe and NVLink where it is there."""

PCIE_COUNTERS = SlowCall(
    (
        field_values(
            pcie_tx_bytes_per_s=pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            pcie_rx_bytes_per_s=pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
        ),
    ),
    0.25,
    counter=True,
)
"""PCIe bytes where there is no GPM. The counters have 32 bits: read four times a second they tell up to 17 GB/s."""
