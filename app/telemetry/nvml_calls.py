"""Every NVML call that telemetry makes, as data: which fields it gives, in which unit, and what to try instead.

Cheap calls are read at every tick, or ten times a second where more would say nothing new; slow ones on a schedule of
their own, because they are dear (on an H200 the energy counter takes 2 to 19 ms, the thermal counters 2.5 ms) or change
slowly. `nvmlDeviceGetPcieThroughput` is never called: it waits 20 ms each way.
Fields and their meaning: NVML API reference (https://docs.nvidia.com/deploy/nvml-api).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

Number = int | float
Read = Callable[[Any], Sequence[Number]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call and the fields it gives, in the order of the numbers `read` returns; raises `pynvml.NVMLError`."""

    fields: tuple[str, ...]
    read: Read


@dataclass(frozen=True, slots=True)
class SlowCall:
    """A call of the slow schedule: the ways to make it, best first, and the seconds between two readings.

    A `counter` counts up in `units`: its field is the difference to the reading before, a second.
    """

    ways: tuple[Call, ...]
    every_s: float
    counter: bool = False


def field_values(**ids: int) -> Call:
    """Several fields in one `nvmlDeviceGetFieldValues`; fails as a whole if one of them is not there."""
    numbers = list(ids.values())

    def read(handle: Any) -> Sequence[Number]:
        return [_value(value) for value in pynvml.nvmlDeviceGetFieldValues(handle, numbers)]

    return Call(tuple(ids), read)


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _value(value: Any) -> Number:
    """The number of an `nvmlFieldValue_t`, from the union's member that its type names."""
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    number: Number = getattr(value.value, _MEMBERS[value.valueType])
    return number


def one(name: str, read: Callable[[Any], Number]) -> Call:
    """A call that gives one field."""
    return Call((name,), lambda handle: (read(handle),))


def _utilisation(handle: Any) -> Sequence[Number]:
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _memory(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)


def _thermal_ns(handle: Any) -> Number:
    software, hardware = _THERMAL.read(handle)
    return software + hardware


_THERMAL = field_values(
    software=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
    hardware=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
)

EVERY_TICK: tuple[tuple[Call, ...], ...] = (
    (
        field_values(power_mw=pynvml.NVML_FI_DEV_POWER_INSTANT, power_average_mw=pynvml.NVML_FI_DEV_POWER_AVERAGE),
        field_values(power_mw=pynvml.NVML_FI_DEV_POWER_INSTANT),
        one("power_mw", pynvml.nvmlDeviceGetPowerUsage),
    ),
    (one("sm_clock_mhz", lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),),
    (
        one("throttle_reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons),
        one("throttle_reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons),
    ),
)
"""The calls of every tick, what moves within tenths of a second: for each the ways to make it, best first."""

STEADY: tuple[tuple[Call, ...], ...] = (
    (Call(("load_pct", "memory_load_pct"), _utilisation),),
    (
        one("memory_bytes", lambda handle: _memory(handle).used),
        one("memory_bytes", lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle).used),
    ),
    (one("temperature_c", lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),),
    (one("memory_clock_mhz", lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),),
    (one("power_limit_mw", pynvml.nvmlDeviceGetEnforcedPowerLimit),),
)
"""Cheap calls of what moves slowly, or is renewed no faster (utilisation every 200 ms on an H200)."""

STEADY_EVERY_S = 0.1
"""Twice as often as the fastest of them is renewed; samples in between repeat the reading."""

ENERGY = SlowCall((one("energy_mj", pynvml.nvmlDeviceGetTotalEnergyConsumption),), 4.0)

SLOW: tuple[SlowCall, ...] = (
    SlowCall((one("memory_reserved_bytes", lambda handle: _memory(handle).reserved),), 10.0),
    SlowCall((field_values(memory_temperature_c=pynvml.NVML_FI_DEV_MEMORY_TEMP),), 1.0),
    SlowCall((one("fan_pct", pynvml.nvmlDeviceGetFanSpeed),), 5.0),
    SlowCall((field_values(throttled_power_ns=pynvml.NVML_FI_DEV_PERF_POLICY_POWER),), 1.0),
    SlowCall(
        (
            one("throttled_thermal_ns", _thermal_ns),
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

UNITS: dict[str, str] = {
    "power_mw": "mW",
    "power_average_mw": "mW",
    "power_limit_mw": "mW",
    "load_pct": "%",
    "memory_load_pct": "%",
    "memory_bytes": "bytes",
    "memory_reserved_bytes": "bytes",
    "temperature_c": "°C",
    "memory_temperature_c": "°C",
    "sm_clock_mhz": "MHz",
    "memory_clock_mhz": "MHz",
    "throttle_reasons": "bits",
    "energy_mj": "mJ",
    "fan_pct": "%",
    "throttled_power_ns": "ns",
    "throttled_thermal_ns": "ns",
    "throttled_brake_ns": "ns",
    "pcie_tx_bytes_per_s": "bytes/s",
    "pcie_rx_bytes_per_s": "bytes/s",
    "nvlink_tx_bytes_per_s": "bytes/s",
    "nvlink_rx_bytes_per_s": "bytes/s",
    "sm_active_pct": "%",
    "sm_occupancy_pct": "%",
    "tensor_active_pct": "%",
    "fp32_active_pct": "%",
    "fp16_active_pct": "%",
    "dram_active_pct": "%",
    "worker_load_pct": "%",
    "worker_memory_bytes": "bytes",
    "sampler_cpu_s": "s",
}
"""The unit of every field of `Sample` and `SlowSample`."""
