"""Every NVML call of telemetry, as data; and the GPM metrics of Hopper and newer GPUs.

Fast calls are made at every tick; slow ones on a separate schedule, because they are expensive (on an H200 the energy
counter takes 2 to 19 ms, the thermal counters 2.5 ms) or change slowly. `nvmlDeviceGetPcieThroughput` is never called:
it waits 20 ms each way. Fields and their meaning: NVML API reference (https://docs.nvidia.com/deploy/nvml-api).

NVML API reference, "GPM functions": two samples at least 100 ms apart, then one call for all metrics.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pynvml

Number = int | float

_VALUE_MEMBERS: Mapping[int, str] = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""The member of an `nvmlValue_t`, by `nvmlValueType_t`; none of our fields is a double (0)."""


def _raise_on_error(code: int) -> None:
    if code:
        raise pynvml.NVMLError(code)


def read_text(function: Any, *arguments: Any) -> str:
    """Return the text that a function of nvidia-ml-py returns; invalid UTF-8 is escaped instead of refused."""
    text: bytes = function.__wrapped__(*arguments)
    return text.decode("utf-8", "backslashreplace")


def compute_processes(handle: Any) -> list[tuple[int, int | None]]:
    """Return id and memory of each compute process: listing graphics ones takes milliseconds on some GPUs.

    Raises:
        pynvml.NVMLError: The driver does not list them.
    """
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except pynvml.NVMLError_FunctionNotFound:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return [(process.pid, process.usedGpuMemory) for process in processes]


@dataclass(frozen=True, slots=True)
class NvmlCall:
    """One call and its fields: `read(handle)` returns their numbers, or raises `pynvml.NVMLError`.

    A fast call is made at most every `every_ms`, however often samples are taken.
    """

    fields: tuple[str, ...]
    read: Callable[[Any], Sequence[Number]]
    every_ms: int = 50


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """A call of the slow schedule: the ways to make it, best first, and the seconds between two readings.

    A `counter` only rises: its field is the rate per second since the previous reading.
    """

    alternatives: tuple[NvmlCall, ...]
    interval_s: float
    counter: bool = False


def field_values_call(every_ms: int = 50, **ids: int) -> NvmlCall:
    """Return a call of several fields in one `nvmlDeviceGetFieldValues`; it fails if one of them is missing."""
    return NvmlCall(tuple(ids), lambda handle: _field_values(handle, tuple(ids.values())), every_ms)


def _field_values(handle: Any, ids: Sequence[int]) -> list[Number]:
    values = pynvml.nvmlDeviceGetFieldValues(handle, ids)
    _raise_on_error(next((value.nvmlReturn for value in values if value.nvmlReturn), 0))
    if not all(value.valueType in _VALUE_MEMBERS for value in values):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    return [getattr(value.value, _VALUE_MEMBERS[value.valueType]) for value in values]


def single_field_call(name: str, read: Callable[[Any], Number], every_ms: int = 50) -> NvmlCall:
    return NvmlCall((name,), lambda handle: (read(handle),), every_ms)


def _memory_info(handle: Any, *version: int) -> Any:
    """Return a GPU's memory; raise `pynvml.NVMLError` for 0 of 0 bytes, as some drivers report for host memory."""
    info = pynvml.nvmlDeviceGetMemoryInfo(handle, *version)
    _raise_on_error(0 if info.total else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return info


def _memory_used_call(*version: int) -> NvmlCall:
    return single_field_call("memory_bytes", lambda handle: _memory_info(handle, *version).used, every_ms=100)


def _utilization(handle: Any) -> tuple[int, int]:
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _clock_call(name: str, domain: int) -> NvmlCall:
    return single_field_call(name, lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, domain))


_THERMAL_FIELDS = (
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
)

_POWER_EVERY_MS = 0

FAST_CALLS: tuple[tuple[NvmlCall, ...], ...] = (
    (
        field_values_call(
            _POWER_EVERY_MS,
            power_mw=pynvml.NVML_FI_DEV_POWER_INSTANT,
            power_average_mw=pynvml.NVML_FI_DEV_POWER_AVERAGE,
        ),
        field_values_call(_POWER_EVERY_MS, power_mw=pynvml.NVML_FI_DEV_POWER_INSTANT),
        single_field_call("power_mw", pynvml.nvmlDeviceGetPowerUsage, _POWER_EVERY_MS),
    ),
    (NvmlCall(("load_pct", "memory_load_pct"), _utilization),),
    (_memory_used_call(pynvml.nvmlMemory_v2), _memory_used_call()),
    (
        single_field_call(
            "temperature_c", lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
        ),
    ),
    (_clock_call("sm_clock_mhz", pynvml.NVML_CLOCK_SM),),
    (_clock_call("memory_clock_mhz", pynvml.NVML_CLOCK_MEM),),
    (
        single_field_call("throttle_reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons),
        single_field_call("throttle_reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons),
    ),
    (single_field_call("power_limit_mw", pynvml.nvmlDeviceGetEnforcedPowerLimit),),
)
"""The fast calls: for each the ways to make it, best first. Power is read at every tick, which may be 10 ms; memory, on
an H200 the only call that enters the kernel, ten times a second."""

ENERGY_CALL = ScheduledCall((single_field_call("energy_mj", pynvml.nvmlDeviceGetTotalEnergyConsumption),), 4.0)

SLOW_CALLS: tuple[ScheduledCall, ...] = (
    ScheduledCall(
        (
            single_field_call(
                "memory_reserved_bytes", lambda handle: _memory_info(handle, pynvml.nvmlMemory_v2).reserved
            ),
        ),
        10.0,
    ),
    ScheduledCall((field_values_call(memory_temperature_c=pynvml.NVML_FI_DEV_MEMORY_TEMP),), 1.0),
    ScheduledCall((single_field_call("fan_pct", pynvml.nvmlDeviceGetFanSpeed),), 5.0),
    ScheduledCall((field_values_call(throttled_power_ns=pynvml.NVML_FI_DEV_PERF_POLICY_POWER),), 1.0),
    ScheduledCall(
        (
            single_field_call("throttled_thermal_ns", lambda handle: sum(_field_values(handle, _THERMAL_FIELDS))),
            field_values_call(throttled_thermal_ns=pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL),
        ),
        5.0,
    ),
    ScheduledCall(
        (field_values_call(throttled_brake_ns=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN),), 5.0
    ),
    ENERGY_CALL,
)
"""The slow calls, the energy counter last because its time matters most: a sample gets the time of its end. GPM needs
two samples; where available, it includes PCIe and NVLink."""

PCIE_COUNTER_CALL = ScheduledCall(
    (
        field_values_call(
            pcie_tx_bytes_per_s=pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
            pcie_rx_bytes_per_s=pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
        ),
    ),
    0.25,
    counter=True,
)
"""PCIe bytes without GPM. The counters have 32 bits: read four times a second they cover up to 17 GB/s."""


_MIB = 1024 * 1024

_METRICS: Mapping[str, tuple[int, float]] = {
    "sm_active_pct": (pynvml.NVML_GPM_METRIC_SM_UTIL, 1),
    "sm_occupancy_pct": (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, 1),
    "tensor_active_pct": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, 1),
    "dram_active_pct": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, 1),
    "fp32_active_pct": (pynvml.NVML_GPM_METRIC_FP32_UTIL, 1),
    "fp16_active_pct": (pynvml.NVML_GPM_METRIC_FP16_UTIL, 1),
    "pcie_tx_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, _MIB),
    "pcie_rx_bytes_per_s": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, _MIB),
    "nvlink_tx_bytes_per_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, _MIB),
    "nvlink_rx_bytes_per_s": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, _MIB),
}
"""NVML's number of each metric, and the factor that converts it to our unit."""

FIELDS: tuple[str, ...] = tuple(_METRICS)
INTERVAL_S = 1.0
FIRST_INTERVAL_S = 0.13
_MIN_INTERVAL_NS = 120_000_000
"""On an H200, samples less than 100 ms apart silently give zeros."""


class GpmMetric(NamedTuple):
    """One metric of a reading: NVML's status, and its value, NaN or meaningless after an error."""

    name: str
    status: int
    value: float


class Gpm:
    """The metrics of one card since the previous reading. `start` raises `pynvml.NVMLError` without GPM."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._samples: list[Any] = []
        self._sample_count = 0
        self._newest_ns = 0

    def start(self) -> None:
        """Allocate two samples and take the first."""
        if not pynvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        for _ in range(2):
            self._samples.append(pynvml.nvmlGpmSampleAlloc())
        self._take_sample()

    def read(self) -> Sequence[GpmMetric]:
        """Return every metric over the time since the last reading; nothing if that was too recent."""
        if time.monotonic_ns() - self._newest_ns < _MIN_INTERVAL_NS:
            return ()
        self._take_sample()
        newest, previous = self._samples[(self._sample_count - 1) % 2], self._samples[self._sample_count % 2]
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = previous, newest
        for index, (number, _) in enumerate(_METRICS.values()):
            request.metrics[index].metricId = number
        pynvml.nvmlGpmMetricsGet(request)
        pairs = zip(_METRICS.items(), request.metrics, strict=False)
        return [GpmMetric(name, metric.nvmlReturn, metric.value * factor) for (name, (_, factor)), metric in pairs]

    def close(self) -> None:
        """Free the samples; a driver that has gone has none."""
        for sample in self._samples:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _take_sample(self) -> None:
        pynvml.nvmlGpmSampleGet(self._handle, self._samples[self._sample_count % 2])
        self._sample_count += 1
        self._newest_ns = time.monotonic_ns()
