"""The GPUs of this machine as they come, are lost and come back; every change is written at once."""

import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import psutil
import pynvml

from app.samples import Device, DeviceLost, Inventory, lost_device
from app.telemetry.messages import SamplerMessage
from app.telemetry.nvml_gpu import GpuReader
from workloads.machine import Gpu, Machine

_NAMELESS = "NVIDIA GPU"


class GpuList:
    """The GPUs that are read, those that are lost, and those that the driver refuses; and why there is none.

    A GPU's UUID is its identity; one that is refused has only its index. `write` takes what is to be said, which is
    nothing before `begin`. `readers` are those whose inventory was written: no sample of a GPU may come before it.

    Thread: any.
    """

    def __init__(self, write: Callable[[Sequence[SamplerMessage]], None], host: Iterable[Device]) -> None:
        self.write = write
        self.readers: tuple[GpuReader, ...] = ()
        self._host = tuple(host)
        self._changed = threading.Condition(threading.RLock())
        self._served: tuple[GpuReader, ...] = ()
        self._lost: dict[str, Device] = {}
        self._versions: tuple[str | None, str | None] | None = None
        self._absence: str | None = None
        self._count = 0
        self._opened: set[int] = set()
        self._probed: set[int] = set()
        self._written: Inventory | None = None

    def begin(self) -> None:
        """Write the inventory, and from now on what changes in it."""
        with self._changed:
            self._written = self.inventory()
            self.write([self._written])
            self.readers = self._served

    def set_driver(self, driver: str | None, cuda_driver: str | None) -> None:
        """Note the versions of the driver and of CUDA."""
        with self._changed:
            self._versions = driver, cuda_driver
            self._update_if_complete()

    def set_count(self, count: int, absence: str | None = None) -> None:
        """Note how many GPUs the driver has, or why it has none."""
        with self._changed:
            self._count, self._absence = count, absence
            self._update_if_complete()

    def note_opened(self, index: int, *, probed: bool = False) -> None:
        """Note that a GPU was opened or refused, and whether each of its fields was looked for."""
        indices = {index}
        if indices <= (self._probed if probed else self._opened):
            return
        with self._changed:
            self._opened |= indices
            self._probed |= indices if probed else set()
            self._update_if_complete()

    def wait(self, timeout_s: float, *, probed: bool) -> None:
        """Wait until every GPU was opened or refused, or until each of its fields was looked for."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_complete(self._probed if probed else self._opened), timeout_s)

    def stop_waiting(self) -> None:
        """List the GPUs that have not answered so far as such."""
        with self._changed:
            if self._versions is None and self._absence is None:
                self._absence = "the NVIDIA driver does not answer"
            for index in set(range(self._count)) - self._opened:
                self._opened.add(index)
                self.refuse(index, "no answer yet")
            self._update()

    def serves(self, reader: GpuReader) -> bool:
        """Return whether a GPU is still there."""
        return reader in self._served

    def inventory(self) -> Inventory:
        """Return the machine as it is known now: the GPUs by NVML's index, MIG instances after them, then the host."""
        with self._changed:
            readers = [reader for reader in self._served if not reader.in_mig_mode]
            gpus = {reader.gpu.uuid: reader.gpu for reader in readers}
            counted = [msgspec.structs.replace(reader.gpu, index=reader.position[0]) for reader in readers]
            counted += (Gpu(index=lost.index, uuid=lost.device, name=lost.name) for lost in self._lost.values())
            visible_uuids, hidden_by = visible_gpus(counted, os.environ)
            usable = tuple(gpus[uuid] for uuid in visible_uuids if uuid in gpus)
            listed = [*(reader.device() for reader in self._served), *self._lost.values()]
            driver, cuda_driver = self._versions or (None, None)
            return Inventory(
                machine=Machine(
                    gpus=usable, hidden_by=hidden_by, cpu_count=psutil.cpu_count() or 1, platform=sys.platform
                ),
                devices=(*sorted(listed, key=lambda device: device.index), *self._host),
                driver=driver,
                cuda_driver=cuda_driver,
                no_gpu_reason=None if usable else self._no_gpu_reason(hidden_by if gpus else ""),
                pending=not self._is_complete(self._opened),
            )

    def adopt(self, reader: GpuReader) -> None:
        """Add a GPU that was opened; one that was lost comes back only with an answer.

        Raises:
            pynvml.NVMLError: It is lost still.
        """
        if reader.gpu.uuid in self._lost:
            while not reader.probe.fields:
                if not reader.probe.step(time.monotonic()):
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        with self._changed:
            twins = [other for other in self._served if other.gpu.uuid == reader.gpu.uuid]
            *_, last = sorted((*twins, reader), key=lambda twin: twin.position)
            refused = last if twins else None
            self._served = _numbered((gpu for gpu in (*self._served, reader) if gpu is not refused), self._count)
            self._lost.pop(reader.gpu.uuid, None)
            if refused is not reader:
                self._lost.pop(_refused_id(reader.position[0]), None)
            if refused is not None:
                self.refuse(refused.position[0], "another GPU has the same UUID")
            self._update()

    def lose(self, reader: GpuReader, error: str) -> None:
        """Take a GPU out that does not answer, and say so; another thread may have done that."""
        with self._changed:
            if not self.serves(reader):
                return
            self._served = tuple(other for other in self._served if other is not reader)
            reason = f"{reader.gpu.name} stopped answering ({error})."
            self._lost[reader.gpu.uuid] = lost_device(reader.device(), reason)
            if self._written is not None:
                self.write([DeviceLost(t_ns=time.monotonic_ns(), device=reader.gpu.uuid, reason=reason)])
            self._update()

    def refuse(self, index: int, error: str) -> None:
        """List a GPU that cannot be opened by its index, unless it is listed as lost."""
        with self._changed:
            if not any(device.index == index and device.device != _refused_id(index) for device in self._lost.values()):
                reason = f"The driver does not open this GPU ({error})."
                device = Device(device=_refused_id(index), kind="gpu", index=index, name=_NAMELESS, lost=reason)
                self._lost[device.device] = device
            self._update()

    def _update_if_complete(self) -> None:
        if self._is_complete(self._opened):
            self._update()

    def _update(self) -> None:
        """Write the inventory if its devices have changed; what is learnt of their fields is written elsewhere."""
        self._changed.notify_all()
        if self._written is None:
            return
        before, self._written = self._written, self.inventory()
        if _without_fields(self._written) != _without_fields(before):
            self.write([self._written])
        self.readers = self._served

    def _is_complete(self, noted: set[int]) -> bool:
        return self._absence is not None or (self._versions is not None and noted >= set(range(self._count)))

    def _no_gpu_reason(self, hidden_by: str) -> str:
        if self._absence is not None:
            return self._absence
        if not self._is_complete(self._opened):
            return "the NVIDIA driver has not answered yet"
        if hidden_by:
            return f"{hidden_by} leaves runs none; change that and start again"
        if self._served:
            return "every GPU is in MIG mode and has no instance"
        return "no GPU answers" if self._lost else "the NVIDIA driver shows no GPU"


def _numbered(readers: Iterable[GpuReader], count: int) -> tuple[GpuReader, ...]:
    """Return the GPUs by their index, then the MIG instances, numbered on from the last GPU."""
    ordered = sorted(readers, key=lambda reader: (reader.position[1] >= 0, reader.position))
    for index, reader in enumerate((instance for instance in ordered if instance.position[1] >= 0), count):
        reader.gpu = msgspec.structs.replace(reader.gpu, index=index)
    return tuple(ordered)


def _without_fields(inventory: Inventory) -> Inventory:
    devices = (msgspec.structs.replace(device, fields={}, absent={}) for device in inventory.devices)
    return msgspec.structs.replace(inventory, devices=tuple(devices))


def _refused_id(index: int) -> str:
    return f"index-{index}"


def visible_gpus(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Return the UUIDs of the GPUs that CUDA shows, in its order, and the setting that hides others; "" if none does.

    As CUDA of driver 580 does it: the list ends before what names no GPU, or another kind of name than the first, and
    if it names one twice, nothing is left. Indices count the fastest GPU first unless CUDA_DEVICE_ORDER is PCI_BUS_ID:
    that is NVML's order only if all are of one model, and else known to CUDA alone, so that none may be used.
    NVIDIA_VISIBLE_DEVICES is the container runtime's; `void` is also in containers that get GPUs in another way.
    https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html

    `gpus` are all GPUs, then the MIG instances, each with the index of its GPU.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if gpus and environment.get("NVIDIA_VISIBLE_DEVICES") == "none":
        return (), "NVIDIA_VISIBLE_DEVICES=none"
    if named is None:
        return tuple(gpu.uuid for gpu in gpus), ""
    by_uuid = named.startswith(_UUIDS)
    uuids: list[str] = []
    for word in named.split(","):
        matches = _with_uuid(gpus, word) if by_uuid else _with_index(gpus, word)
        if len(matches) != 1:
            break
        uuids += matches
    hidden = f"CUDA_VISIBLE_DEVICES={shlex.quote(named)}"
    if len(uuids) == len(set(uuids)) == len(gpus):
        return tuple(uuids), ""
    models = {gpu.name for gpu in gpus if gpu.name != _NAMELESS and not gpu.uuid.startswith("MIG-")}
    if uuids and not by_uuid and len(models) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return (), f"{hidden} without CUDA_DEVICE_ORDER=PCI_BUS_ID"
    return tuple(uuids) if len(uuids) == len(set(uuids)) else (), hidden


_UUIDS = ("GPU-", "MIG-")


def _with_uuid(gpus: Sequence[Gpu], word: str) -> list[str]:
    """Return the UUIDs that begin like a word."""
    start = word.rstrip().lower() if word.startswith(_UUIDS) else "none"
    return [gpu.uuid for gpu in gpus if gpu.uuid.lower().startswith(start)]


def _with_index(gpus: Sequence[Gpu], word: str) -> list[str]:
    """Return the UUID of the GPU of an index, which CUDA reads with strtol(3): `1x` is 1."""
    number = re.match(r"\s*[+-]?\d+", word, re.ASCII)
    return [gpu.uuid for gpu in gpus if number is not None and gpu.index == int(number[0])][:1]
