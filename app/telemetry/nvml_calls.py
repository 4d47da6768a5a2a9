"""Every NVML call that telemetry makes, as data, prepared once; and the GPM metrics of Hopper and newer.

nvidia-ml-py looks its function up and makes arguments and buffers anew at every call. Twenty times a second, from cold
caches, that costs more than the answers do (docs/measurements/2026-11-21-telemetry.md). Library, structures and errors
here are nvidia-ml-py's own. What is prepared belongs to one thread: every reading uses the same buffers.

Fast calls are read at every tick; slow ones on a schedule of their own, because they cost much (on an H200 the energy
counter takes 2 to 19 ms, the thermal counters 2.5 ms) or change slowly. `nvmlDeviceGetPcieThroughput` is never called:
it waits 20 ms each way. Fields and their meaning: NVML API reference (https://docs.nvidia.com/deploy/nvml-api).

NVML API reference, "GPM functions": two samples at least 100 ms apart, then one call for all metrics.
"""

import contextlib
import ctypes
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pynvml

Number = int | float
PreparedRead = Callable[[], Sequence[Number]]

_VALUE_FORMATS: Mapping[int, str] = {1: "I4x", 2: "Q", 3: "Q", 4: "q", 5: "i4x", 6: "H6x"}
"""How the eight bytes of an `nvmlValue_t` are read, by `nvmlValueType_t`; no field of ours is a double (0)."""


@dataclass(frozen=True, slots=True)
class BufferedRead:
    """A call made ready for one device, whose answer comes into a buffer; calling it gives the numbers there.

    Attributes:
        arguments: Its arguments, the buffer among them.
        memory: The buffer.
        numbers: Where in it the numbers are.
        statuses: Where in it the outcome of each number is; None where the function's own is all there is.
    """

    function: Any
    arguments: tuple[Any, ...]
    memory: memoryview
    numbers: struct.Struct
    statuses: struct.Struct | None = None

    def __call__(self) -> Sequence[Number]:
        """Return the numbers; raise `pynvml.NVMLError` where the device does not give all."""
        _raise_on_error(self.function(*self.arguments))
        if self.statuses is not None and any(codes := self.statuses.unpack_from(self.memory)):
            _raise_on_error(next(filter(None, codes)))
        return self.numbers.unpack_from(self.memory)


def prepare_number(name: str, *arguments: int, kind: type[Any] = ctypes.c_uint) -> Callable[[Any], PreparedRead]:
    """Return a function of a device that prepares a call with these numbers, which gives one number of a C type."""

    def prepare(handle: Any) -> PreparedRead:
        return _buffered_read(name, handle, arguments, kind(), "Q" if ctypes.sizeof(kind) == 8 else "I")

    return prepare


def prepare_structure(name: str, make: Callable[[], Any], layout: str) -> Callable[[Any], PreparedRead]:
    """Return a function of a device that prepares a call of an NVML function which fills a structure.

    `layout` is what to read of the structure, in the notation of `struct`; `x` skips a byte.
    """

    def prepare(handle: Any) -> PreparedRead:
        return _buffered_read(name, handle, (), make(), layout)

    return prepare


def prepare_field_values(*ids: int) -> Callable[[Any], PreparedRead]:
    """Return a function of a device that prepares one `nvmlDeviceGetFieldValues` of several fields.

    A field's type is the driver's and stays the same: it is learnt by a first call. `nvmlFieldValue_t` has 40 bytes,
    its outcome at 28 and its value at 32.
    """

    def prepare(handle: Any) -> PreparedRead:
        function, values = _library_function("nvmlDeviceGetFieldValues"), (pynvml.c_nvmlFieldValue_t * len(ids))()
        for value, field_id in zip(values, ids, strict=True):
            value.fieldId = field_id
        arguments = (handle, ctypes.c_int(len(ids)), ctypes.byref(values))
        memory, statuses = memoryview(values).cast("B"), struct.Struct("28xi8x" * len(ids))
        BufferedRead(function, arguments, memory, struct.Struct(""), statuses)()
        if not all(value.valueType in _VALUE_FORMATS for value in values):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        numbers = struct.Struct("".join(f"32x{_VALUE_FORMATS[value.valueType]}" for value in values))
        return BufferedRead(function, arguments, memory, numbers, statuses)

    return prepare


def _buffered_read(name: str, handle: Any, arguments: Sequence[int], buffer: Any, layout: str) -> PreparedRead:
    call_arguments = (handle, *map(ctypes.c_uint, arguments), ctypes.byref(buffer))
    return BufferedRead(_library_function(name), call_arguments, memoryview(buffer).cast("B"), struct.Struct(layout))


def _library_function(name: str) -> Any:
    """Return a function of the loaded library; raise `pynvml.NVMLError` where this driver has none of that name."""
    try:
        return getattr(pynvml.nvmlLib, name)
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def _raise_on_error(code: int) -> None:
    if code:
        raise pynvml.NVMLError(code)


def read_text(function: Any, *arguments: Any) -> str:
    """Return the text that a function of nvidia-ml-py gives; bytes that are no UTF-8 are escaped instead of refused."""
    text: bytes = function.__wrapped__(*arguments)
    return text.decode("utf-8", "backslashreplace")


class _ProcessV1(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


_PROCESS_LISTS: tuple[tuple[str, Any], ...] = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", pynvml.c_nvmlProcessInfo_v3_t),
    ("nvmlDeviceGetComputeRunningProcesses_v2", pynvml.c_nvmlProcessInfo_v2_t),
    ("nvmlDeviceGetComputeRunningProcesses", _ProcessV1),
)
_PROCESS_ROOM = (64, 16_384)
"""For how many processes there is room in the first call, and in another where these are more."""


def compute_processes(handle: Any) -> list[tuple[int, int | None]]:
    """Return id and memory of each compute process: listing graphics ones takes milliseconds on some GPUs.

    Raises:
        pynvml.NVMLError: They are not listed.
    """
    name, kind = next((pair for pair in _PROCESS_LISTS if hasattr(pynvml.nvmlLib, pair[0])), _PROCESS_LISTS[-1])
    code = 0
    for room in _PROCESS_ROOM:
        processes, count = (kind * room)(), ctypes.c_uint(room)
        code = _library_function(name)(handle, ctypes.byref(count), processes)
        if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            break
    _raise_on_error(code)
    unknown = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
    memory = ((entry.pid, entry.usedGpuMemory) for entry in processes[: count.value])
    return [(pid, used_bytes if used_bytes != unknown else None) for pid, used_bytes in memory]


@dataclass(frozen=True, slots=True)
class NvmlCall:
    """One call and the fields it gives. `prepare(handle)` gives the call made ready for one device.

    That gives the fields' numbers in their order; both raise `pynvml.NVMLError`. As a fast call it is made every
    `every_ms` at most, however often samples are made.
    """

    fields: tuple[str, ...]
    prepare: Callable[[Any], PreparedRead]
    every_ms: int = 50


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """A call of the slow schedule: the ways to make it, best first, and the seconds between two readings.

    A `counter` counts up: its field is the difference to the reading before, a second.
    """

    alternatives: tuple[NvmlCall, ...]
    interval_s: float
    counter: bool = False


def field_values_call(every_ms: int = 50, **ids: int) -> NvmlCall:
    """Return a call of several fields in one `nvmlDeviceGetFieldValues`; it fails if one of them is not there."""
    return NvmlCall(tuple(ids), prepare_field_values(*ids.values()), every_ms)


def single_field_call(name: str, read: Callable[[Any], Number]) -> NvmlCall:
    """Return a call of nvidia-ml-py that gives one field."""
    return NvmlCall((name,), lambda handle: lambda: (read(handle),))


def _memory_info(handle: Any, *version: int) -> Any:
    """Return what a GPU has; raise `pynvml.NVMLError` for 0 of 0 bytes, as some drivers say of memory of the host's."""
    info = pynvml.nvmlDeviceGetMemoryInfo(handle, *version)
    _raise_on_error(0 if info.total else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return info


def _memory_info_v2() -> Any:
    return pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)


def _memory_used_call(function: str, make: Callable[[], Any]) -> NvmlCall:
    read = prepare_structure(function, make, f"{type(make()).used.offset}xQ")

    def prepare(handle: Any) -> PreparedRead:
        _memory_info(handle)
        return read(handle)

    return NvmlCall(("memory_bytes",), prepare, every_ms=100)


def _throttle_reasons_call(function: str) -> NvmlCall:
    return NvmlCall(("throttle_reasons",), prepare_number(function, kind=ctypes.c_ulonglong))


def _clock_call(name: str, domain: int) -> NvmlCall:
    return NvmlCall((name,), prepare_number("nvmlDeviceGetClockInfo", domain))


def _prepare_thermal(handle: Any) -> PreparedRead:
    read = _THERMAL_CALL.prepare(handle)
    return lambda: (sum(read()),)


_THERMAL_CALL = field_values_call(
    software=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
    hardware=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
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
        NvmlCall(("power_mw",), prepare_number("nvmlDeviceGetPowerUsage"), _POWER_EVERY_MS),
    ),
    (
        NvmlCall(
            ("load_pct", "memory_load_pct"),
            prepare_structure("nvmlDeviceGetUtilizationRates", pynvml.c_nvmlUtilization_t, "II"),
        ),
    ),
    (
        _memory_used_call("nvmlDeviceGetMemoryInfo_v2", _memory_info_v2),
        _memory_used_call("nvmlDeviceGetMemoryInfo", pynvml.c_nvmlMemory_t),
    ),
    (NvmlCall(("temperature_c",), prepare_number("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)),),
    (_clock_call("sm_clock_mhz", pynvml.NVML_CLOCK_SM),),
    (_clock_call("memory_clock_mhz", pynvml.NVML_CLOCK_MEM),),
    (
        _throttle_reasons_call("nvmlDeviceGetCurrentClocksEventReasons"),
        _throttle_reasons_call("nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
    (NvmlCall(("power_limit_mw",), prepare_number("nvmlDeviceGetEnforcedPowerLimit")),),
)
"""The fast calls: for each the ways to make it, best first. Power is read at every tick, which may be 10 ms; memory, on
an H200 the only one of them that enters the kernel, ten times a second."""

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
            NvmlCall(("throttled_thermal_ns",), _prepare_thermal),
            field_values_call(throttled_thermal_ns=pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL),
        ),
        5.0,
    ),
    ScheduledCall(
        (field_values_call(throttled_brake_ns=pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN),), 5.0
    ),
    ENERGY_CALL,
)
"""The slow calls, the energy counter last because its time matters most: a sample is stamped when all are
read. GPM needs two samples (nvml_gpm.py) and comes with PCIe and NVLink where it is there."""

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
"""PCIe bytes where there is no GPM. The counters have 32 bits: read four times a second they tell up to 17 GB/s."""


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
"""NVML's number of each metric, and what it is multiplied with to have our unit."""

FIELDS: tuple[str, ...] = tuple(_METRICS)
INTERVAL_S = 1.0
FIRST_INTERVAL_S = 0.13
_MIN_INTERVAL_NS = 120_000_000
"""Samples less than 100 ms apart give zeros on an H200, which nothing marks as wrong."""


class GpmMetric(NamedTuple):
    """One metric of a reading: NVML's status of it, and its value, NaN or meaningless where that is an error."""

    name: str
    status: int
    value: float


class Gpm:
    """The metrics of one card over the time since the reading before. `start` raises `pynvml.NVMLError` without GPM."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._samples: list[Any] = []
        self._sample_count = 0
        self._newest_ns = 0

    def start(self) -> None:
        """Make room for two samples and take the first."""
        if not pynvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        for _ in range(2):
            self._samples.append(pynvml.nvmlGpmSampleAlloc())
        self._take_sample()

    def read(self) -> Sequence[GpmMetric]:
        """Return every metric over the time since the last reading; nothing where that was too short ago."""
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
        """Free the samples; a driver that is away has none."""
        for sample in self._samples:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _take_sample(self) -> None:
        pynvml.nvmlGpmSampleGet(self._handle, self._samples[self._sample_count % 2])
        self._sample_count += 1
        self._newest_ns = time.monotonic_ns()
