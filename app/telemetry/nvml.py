"""NVIDIA GPUs through NVML; the only module that imports nvidia-ml-py (module `pynvml`).

Power is field 186, instantaneous, where the driver has it: `nvmlDeviceGetPowerUsage` is a one-second average on Ampere
and newer (NVML API reference, nvmlDeviceGetPowerUsage and NVML_FI_DEV_POWER_INSTANT).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pynvml

from app.errors import TelemetryError
from app.records import Device, DeviceLost, Sample
from app.telemetry.source import Reading
from workloads.catalog import Gpu

T = TypeVar("T")
Reader = Callable[[Any], int | float]

_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_UNINITIALIZED)
_REASONS: Mapping[int, str] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not supported by this driver",
}
_NO_NVML: Mapping[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated; restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not use the NVIDIA driver",
}


def _field_value(field_id: int) -> Reader:
    def read(handle: Any) -> int | float:
        (value,) = pynvml.nvmlDeviceGetFieldValues(handle, [field_id])
        if value.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(value.nvmlReturn)
        return int(value.value.uiVal)

    return read


_READERS: Mapping[str, tuple[Reader, ...]] = {
    "power_mw": (_field_value(pynvml.NVML_FI_DEV_POWER_INSTANT), pynvml.nvmlDeviceGetPowerUsage),
    "load_pct": (lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,),
    "memory_bytes": (lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle).used,),
    "temperature_c": (lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),),
    "sm_clock_mhz": (lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),),
    "power_limit_mw": (pynvml.nvmlDeviceGetEnforcedPowerLimit,),
}
"""Ways to read each field, best first; the first that a device supports is used for it."""


@dataclass(slots=True)
class _Card:
    """One GPU: its NVML handle, what it is, and the way each supported field is read."""

    handle: Any
    gpu: Gpu
    readers: dict[str, Reader] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


class NvmlSource:
    """All GPUs the NVIDIA driver shows. `start` raises `TelemetryError` with the reason when there is no driver."""

    def __init__(self) -> None:
        self._cards: list[_Card] = []
        self._devices: tuple[Device, ...] = ()
        self.driver: str | None = None
        self.cuda_driver: str | None = None

    def start(self) -> None:
        """Opens NVML and probes which fields each GPU has."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise TelemetryError(_NO_NVML.get(error.value, f"the NVIDIA driver does not answer ({error})")) from error
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        self.cuda_driver = f"{version // 1000}.{version % 1000 // 10}"
        found = (_probe(index) for index in range(pynvml.nvmlDeviceGetCount()))
        self._cards = [card for card in found if card is not None]
        self._devices = tuple(map(_device, self._cards))

    @property
    def devices(self) -> Sequence[Device]:
        """The GPUs by NVML's index (that of `nvidia-smi`)."""
        return self._devices

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs as variants are checked against them."""
        return tuple(card.gpu for card in self._cards)

    def read(self) -> Sequence[Reading]:
        """One sample of each GPU still there."""
        readings = [_read(card) for card in self._cards]
        gone = {reading.device for reading in readings if isinstance(reading, DeviceLost)}
        self._cards = [card for card in self._cards if card.gpu.uuid not in gone]
        return readings

    def close(self) -> None:
        """Closes NVML."""
        pynvml.nvmlShutdown()


def _probe(index: int) -> _Card | None:
    """The GPU of that index and what it can tell; None where it has fallen off the bus."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError as error:
        if error.value not in _GONE:
            raise
        return None
    gpu = Gpu(
        index=index,
        uuid=str(uuid),
        name=str(name),
        memory_total_bytes=_or_none(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)),
        compute_capability=_or_none(lambda: tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))),
    )
    card = _Card(handle, gpu)
    for name, ways in _READERS.items():
        _choose_reader(card, name, ways)
    return card


def _choose_reader(card: _Card, name: str, ways: Sequence[Reader]) -> None:
    for way in ways:
        try:
            way(card.handle)
        except pynvml.NVMLError as error:
            card.absent[name] = _REASONS.get(error.value, str(error))
        else:
            card.readers[name] = way
            card.absent.pop(name, None)
            return


def _read(card: _Card) -> Reading:
    t_ns = time.monotonic_ns()
    values: dict[str, Any] = {}
    for name, reader in card.readers.items():
        try:
            values[name] = reader(card.handle)
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                return DeviceLost(
                    t_ns=t_ns, device=card.gpu.uuid, reason=f"{card.gpu.name} stopped answering ({error})."
                )
    return Sample(t_ns=t_ns, device=card.gpu.uuid, **values)


def _device(card: _Card) -> Device:
    gpu = card.gpu
    return Device(
        device=gpu.uuid,
        kind="gpu",
        index=gpu.index,
        name=gpu.name,
        memory_total_bytes=gpu.memory_total_bytes,
        absent=dict(card.absent),
    )


def _or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except pynvml.NVMLError:
        return None
