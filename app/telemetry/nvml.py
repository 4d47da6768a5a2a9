"""NVIDIA GPUs through NVML. Only the modules called nvml* import nvidia-ml-py (module `pynvml`)."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

import psutil
import pynvml

from app.errors import TelemetryError
from app.fields import SlowSample
from app.samples import Device, DeviceLost, FieldsUpdated, GpuProcess, Processes
from app.telemetry.messages import Reading
from app.telemetry.nvml_gpu import GONE_ERRORS, GpuReader
from workloads.catalog import Gpu

T = TypeVar("T")
P = ParamSpec("P")

_PROCESSES_EVERY_S = 2.0
_OBSERVE_S = 1.2
_OBSERVE_PAUSE_S = 0.002
_NVML_ABSENCE_REASONS: Mapping[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated; restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not use the NVIDIA driver",
}


class NvmlSource:
    """All GPUs the NVIDIA driver shows. `start` raises `TelemetryError` with the reason when there is no driver.

    `read` and the slow readings may be called from two threads: NVML is thread-safe, and a slow reading must not hold
    up a fast one.
    """

    def __init__(self) -> None:
        self._opened_readers: tuple[GpuReader, ...] = ()
        self._readers: tuple[GpuReader, ...] = ()
        self._devices: tuple[Device, ...] = ()
        self._processes_due_s = 0.0
        self.driver: str | None = None
        self.cuda_driver: str | None = None

    def start(self) -> None:
        """Open NVML and probe which fields each GPU has."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise TelemetryError(
                _NVML_ABSENCE_REASONS.get(error.value, f"the NVIDIA driver does not answer ({error})")
            ) from error
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        self.cuda_driver = f"{version // 1000}.{version % 1000 // 10}"
        self._opened_readers = self._readers = tuple(_open_readers())
        self._devices = tuple(reader.device() for reader in self._readers)

    @property
    def devices(self) -> Sequence[Device]:
        """The GPUs by NVML's index (that of `nvidia-smi`), then the MIG instances."""
        return self._devices

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs and MIG instances a program can use, as variants are checked against them."""
        return tuple(reader.gpu for reader in self._readers if not reader.in_mig_mode)

    def read(self) -> Sequence[Reading]:
        """Return a fast sample of each GPU still there; report one that is gone once and leave it out from then on."""
        readings = [_read_or_lost(reader) for reader in self._readers]
        gone = {reading.device for reading in readings if isinstance(reading, DeviceLost)}
        if gone:
            self._readers = tuple(card for card in self._readers if card.gpu.uuid not in gone)
        return readings

    def read_slow(self) -> Sequence[SlowSample | Processes]:
        """Return the slow fields of each GPU that are due, and the processes on it."""
        now_s = time.monotonic()
        samples = [_call_unless_gone(reader.read_slow, now_s) for reader in self._readers]
        found: list[SlowSample | Processes] = [sample for sample in samples if sample is not None]
        if self._processes_due_s <= now_s:
            self._processes_due_s = now_s + _PROCESSES_EVERY_S
            lists = (_call_unless_gone(_list_processes, card) for card in self._readers)
            found += [processes for processes in lists if processes is not None]
        return found

    def read_energy(self) -> Sequence[SlowSample]:
        """Return the energy counters now."""
        samples = (_call_unless_gone(reader.read_energy) for reader in self._readers)
        return [sample for sample in samples if sample is not None]

    def observe_energy_periods(self, undisturbed: Callable[[], bool]) -> bool:
        """Learn for about a second how often the energy counters are renewed; return whether that was learnt."""
        end_s = time.monotonic() + _OBSERVE_S
        unknown = self._readers
        while time.monotonic() < end_s and (
            unknown := tuple(reader for reader in unknown if _call_unless_gone(reader.observe_energy_period))
        ):
            if not undisturbed():
                return False
            time.sleep(_OBSERVE_PAUSE_S)
        return True

    def fields_seen(self) -> Sequence[FieldsUpdated]:
        """Return what is known of each GPU's fields by now."""
        return [
            FieldsUpdated(device=reader.gpu.uuid, fields=reader.known_fields(), absent=dict(reader.absent))
            for reader in self._readers
        ]

    def close(self) -> None:
        """Close NVML."""
        for reader in self._opened_readers:
            reader.close()
        pynvml.nvmlShutdown()


def _open_readers() -> Iterator[GpuReader]:
    """Return the GPUs still there, then the MIG instances, numbered on from the last GPU."""
    count = pynvml.nvmlDeviceGetCount()
    readers = [reader for index in range(count) if (reader := _call_unless_gone(_open_gpu, index)) is not None]
    yield from readers
    handles = itertools.chain.from_iterable(_mig_handles(gpu) for gpu in readers)
    instances = (_call_unless_gone(_open_reader, handle, index) for index, handle in enumerate(handles, count))
    yield from (card for card in instances if card is not None)


def _open_gpu(index: int) -> GpuReader:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    mode = _call_or_none(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    return _open_reader(handle, index, in_mig_mode=mode == pynvml.NVML_DEVICE_MIG_ENABLE)


def _mig_handles(reader: GpuReader) -> Iterator[Any]:
    """Return the instances of a GPU in MIG mode; their indices may have holes."""
    if reader.in_mig_mode:
        for slot in range(_call_or_none(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(reader.handle)) or 0):
            handle = _call_or_none(partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, reader.handle, slot))
            if handle is not None:
                yield handle


def _open_reader(handle: Any, index: int, *, in_mig_mode: bool = False) -> GpuReader:
    gpu = Gpu(
        index=index,
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        memory_total_bytes=_call_or_none(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)),
        compute_capability=_call_or_none(lambda: tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))),
    )
    reader = GpuReader(handle, gpu, in_mig_mode)
    reader.probe()
    return reader


def _read_or_lost(reader: GpuReader) -> Reading:
    try:
        return reader.read()
    except pynvml.NVMLError as error:
        reason = f"{reader.gpu.name} stopped answering ({error})."
        return DeviceLost(t_ns=time.monotonic_ns(), device=reader.gpu.uuid, reason=reason)


def _list_processes(reader: GpuReader) -> Processes | None:
    """Return compute processes only: listing graphics ones takes milliseconds on some GPUs."""
    running = _call_or_none(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(reader.handle))
    if running is None:
        return None
    listed = tuple(
        GpuProcess(pid=entry.pid, name=_process_name(entry.pid), memory_bytes=entry.usedGpuMemory) for entry in running
    )
    return Processes(t_ns=time.monotonic_ns(), device=reader.gpu.uuid, processes=listed)


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "unknown"


def _call_unless_gone(read: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T | None:
    """Return what a reading gives, None for a GPU that is gone: the fast readings report that."""
    try:
        return read(*arguments, **keywords)
    except pynvml.NVMLError as error:
        if error.value in GONE_ERRORS:
            return None
        raise


def _call_or_none(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except pynvml.NVMLError:
        return None
