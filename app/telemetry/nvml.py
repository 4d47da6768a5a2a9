"""NVIDIA GPUs through NVML. Only the modules called nvml* import nvidia-ml-py (module `pynvml`)."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

import psutil
import pynvml

from app.errors import TelemetryError
from app.samples import Device, DeviceLost, FieldsSeen, GpuProcess, Processes, SlowSample
from app.telemetry.messages import Reading
from app.telemetry.nvml_card import GONE, Card
from workloads.catalog import Gpu

T = TypeVar("T")
P = ParamSpec("P")

_PROCESSES_EVERY_S = 2.0
_WATCH_S = 1.2
_WATCH_PAUSE_S = 0.002
_NO_NVML: Mapping[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated; restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not use the NVIDIA driver",
}


class NvmlSource:
    """All GPUs the NVIDIA driver shows. `start` raises `TelemetryError` with the reason when there is no driver.

    `read` and the slow readings may be called from two threads: NVML is thread-safe, and a dear reading must not hold
    up a cheap one.
    """

    def __init__(self) -> None:
        self._opened: tuple[Card, ...] = ()
        self._cards: tuple[Card, ...] = ()
        self._devices: tuple[Device, ...] = ()
        self._processes_due_s = 0.0
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
        self._opened = self._cards = tuple(_open_cards())
        self._devices = tuple(card.device() for card in self._cards)

    @property
    def devices(self) -> Sequence[Device]:
        """The GPUs by NVML's index (that of `nvidia-smi`), then the MIG instances."""
        return self._devices

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs and MIG instances a program can use, as variants are checked against them."""
        return tuple(card.gpu for card in self._cards if not card.in_mig_mode)

    def read(self) -> Sequence[Reading]:
        """One cheap sample of each GPU still there; one that is gone says so once and is left out from then on."""
        readings = [_read(card) for card in self._cards]
        gone = {reading.device for reading in readings if isinstance(reading, DeviceLost)}
        if gone:
            self._cards = tuple(card for card in self._cards if card.gpu.uuid not in gone)
        return readings

    def read_slow(self) -> Sequence[SlowSample | Processes]:
        """What is due of the slow fields of each GPU, and who uses it."""
        now_s = time.monotonic()
        samples = [_if_there(card.read_slow, now_s) for card in self._cards]
        found: list[SlowSample | Processes] = [sample for sample in samples if sample is not None]
        if self._processes_due_s <= now_s:
            self._processes_due_s = now_s + _PROCESSES_EVERY_S
            lists = (_if_there(_processes, card) for card in self._cards)
            found += [processes for processes in lists if processes is not None]
        return found

    def read_energy(self) -> Sequence[SlowSample]:
        """The energy counters now."""
        samples = (_if_there(card.read_energy) for card in self._cards)
        return [sample for sample in samples if sample is not None]

    def watch_energy(self, undisturbed: Callable[[], bool]) -> bool:
        """Learns how often the energy counters are renewed, for about a second; whether it came to its end."""
        end_s = time.monotonic() + _WATCH_S
        unknown = self._cards
        while time.monotonic() < end_s and (unknown := tuple(card for card in unknown if _if_there(card.watch_energy))):
            if not undisturbed():
                return False
            time.sleep(_WATCH_PAUSE_S)
        return True

    def fields_seen(self) -> Sequence[FieldsSeen]:
        """What is known of each GPU's fields by now."""
        return [FieldsSeen(device=card.gpu.uuid, fields=card.known_fields()) for card in self._cards]

    def close(self) -> None:
        """Closes NVML."""
        for card in self._opened:
            card.close()
        pynvml.nvmlShutdown()


def _open_cards() -> Iterator[Card]:
    """The GPUs still there, then the MIG instances, which are numbered on from the last GPU."""
    count = pynvml.nvmlDeviceGetCount()
    gpus = [card for index in range(count) if (card := _if_there(_gpu, index)) is not None]
    yield from gpus
    handles = itertools.chain.from_iterable(_mig_handles(gpu) for gpu in gpus)
    instances = (_if_there(_card, handle, index) for index, handle in enumerate(handles, count))
    yield from (card for card in instances if card is not None)


def _gpu(index: int) -> Card:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    mode = _or_none(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    return _card(handle, index, in_mig_mode=mode == pynvml.NVML_DEVICE_MIG_ENABLE)


def _mig_handles(gpu: Card) -> Iterator[Any]:
    """The instances of a GPU in MIG mode; their places may have holes."""
    if gpu.in_mig_mode:
        for place in range(_or_none(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)) or 0):
            handle = _or_none(partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, place))
            if handle is not None:
                yield handle


def _card(handle: Any, index: int, *, in_mig_mode: bool = False) -> Card:
    gpu = Gpu(
        index=index,
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        memory_total_bytes=_or_none(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)),
        compute_capability=_or_none(lambda: tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))),
    )
    card = Card(handle, gpu, in_mig_mode)
    card.probe()
    return card


def _read(card: Card) -> Reading:
    try:
        return card.read()
    except pynvml.NVMLError as error:
        reason = f"{card.gpu.name} stopped answering ({error})."
        return DeviceLost(t_ns=time.monotonic_ns(), device=card.gpu.uuid, reason=reason)


def _processes(card: Card) -> Processes | None:
    """Compute processes only: asking for graphics ones takes milliseconds on some cards."""
    running = _or_none(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(card.handle))
    if running is None:
        return None
    listed = tuple(
        GpuProcess(pid=entry.pid, name=_process_name(entry.pid), memory_bytes=entry.usedGpuMemory) for entry in running
    )
    return Processes(t_ns=time.monotonic_ns(), device=card.gpu.uuid, processes=listed)


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "unknown"


def _if_there(read: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
    """What a reading gives, None for a GPU that is gone: the cheap readings say so."""
    try:
        return read(*arguments, **named)
    except pynvml.NVMLError as error:
        if error.value in GONE:
            return None
        raise


def _or_none(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except pynvml.NVMLError:
        return None
