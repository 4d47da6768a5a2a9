"""NVIDIA GPUs through NVML. Only the modules called nvml* import nvidia-ml-py (module `pynvml`).

One thread opens the driver; one thread per GPU opens and probes it and reads its slow fields; one reads the fast fields
of all GPUs. What is lost, refused or missing is tried again every few seconds, so that a newly loaded driver or a
recovered GPU needs no restart. NVML is thread-safe.
"""

import contextlib
import math
import os
import queue
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import psutil
import pynvml

from app.telemetry.messages import SamplerMessage
from app.telemetry.nvml_calls import read_text
from app.telemetry.nvml_gpu import GpuReader, open_gpu, open_instances
from app.values import units
from app.values.samples import Device, DeviceLost, Inventory, lost_device
from workloads.machine import UUID_PREFIXES, Gpu, Machine

_NAMELESS = "NVIDIA GPU"


class GpuList:
    """The GPUs in use, lost, or refused by the driver; and why there are none.

    A GPU's UUID is its identity; a refused one has only its index. `write` sends messages, none before `begin`.
    `readers` have their inventory written: no sample of a GPU may come before it.

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
        with self._changed:
            self._written = self.inventory()
            self.write([self._written])
            self.readers = self._served

    def set_driver(self, driver: str | None, cuda_driver: str | None) -> None:
        with self._changed:
            self._versions = driver, cuda_driver
            self._update_if_complete()

    def set_count(self, count: int, absence: str | None = None) -> None:
        with self._changed:
            self._count, self._absence = count, absence
            self._update_if_complete()

    def note_opened(self, index: int, *, probed: bool = False) -> None:
        indices = {index}
        if indices <= (self._probed if probed else self._opened):
            return
        with self._changed:
            self._opened |= indices
            self._probed |= indices if probed else set()
            self._update_if_complete()

    def wait(self, timeout_s: float, *, probed: bool) -> None:
        """Wait until every GPU was opened or refused, or until each of its fields was tried."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_complete(self._probed if probed else self._opened), timeout_s)

    def stop_waiting(self) -> None:
        """Mark the GPUs that have not answered so far in the inventory."""
        with self._changed:
            if self._versions is None and self._absence is None:
                self._absence = "the NVIDIA driver does not answer"
            for index in set(range(self._count)) - self._opened:
                self._opened.add(index)
                self.refuse(index, "no answer yet")
            self._update()

    def serves(self, reader: GpuReader) -> bool:
        return reader in self._served

    def inventory(self) -> Inventory:
        """Return the machine's current inventory: GPUs by NVML's index, then MIG instances, then the host."""
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
        """Add an opened GPU; a lost one returns only if it answers.

        Raises:
            pynvml.NVMLError: It is still lost.
        """
        if reader.gpu.uuid in self._lost:
            while not reader.probe.fields:
                if not reader.probe.step(time.monotonic()):
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        with self._changed:
            twins = [served for served in self._served if served.gpu.uuid == reader.gpu.uuid]
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
        """Remove a GPU that does not answer, and report it; another thread may have done so."""
        with self._changed:
            if not self.serves(reader):
                return
            self._served = tuple(served for served in self._served if served is not reader)
            reason = f"{reader.gpu.name} stopped answering ({error})."
            self._lost[reader.gpu.uuid] = lost_device(reader.device(), reason)
            if self._written is not None:
                self.write([DeviceLost(t_ns=time.monotonic_ns(), device=reader.gpu.uuid, reason=reason)])
            self._update()

    def refuse(self, index: int, error: str) -> None:
        """List a GPU that cannot be opened, by its index, unless it is listed as lost."""
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
        """Write the inventory if its devices have changed; changes of their fields are written elsewhere."""
        self._changed.notify_all()
        if self._written is None:
            return
        written, self._written = self._written, self.inventory()
        if _without_fields(self._written) != _without_fields(written):
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
            return f"{hidden_by} hides all GPUs from runs; change that and start again"
        if self._served:
            return "every GPU is in MIG mode and has no instance"
        return "no GPU answers" if self._lost else "the NVIDIA driver shows no GPU"


def _numbered(readers: Iterable[GpuReader], count: int) -> tuple[GpuReader, ...]:
    """Return the GPUs by their index, then the MIG instances, numbered after the last GPU."""
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

    Follows CUDA of driver 580: the list ends before a name that matches no GPU or is of another kind than the first,
    and if it names a GPU twice, it is empty. Indices count the fastest GPU first unless CUDA_DEVICE_ORDER is
    PCI_BUS_ID. That is NVML's order only if all are of one model; otherwise only CUDA knows it, so none may be used.
    NVIDIA_VISIBLE_DEVICES belongs to the container runtime; `void` also occurs in containers that get GPUs in another
    way. https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html

    `gpus` are all GPUs, then the MIG instances, each with the index of its GPU.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if gpus and environment.get("NVIDIA_VISIBLE_DEVICES") == "none":
        return (), "NVIDIA_VISIBLE_DEVICES=none"
    if named is None:
        return tuple(gpu.uuid for gpu in gpus), ""
    by_uuid = named.startswith(UUID_PREFIXES)
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


def _with_uuid(gpus: Sequence[Gpu], word: str) -> list[str]:
    start = word.rstrip().lower() if word.startswith(UUID_PREFIXES) else "none"
    return [gpu.uuid for gpu in gpus if gpu.uuid.lower().startswith(start)]


def _with_index(gpus: Sequence[Gpu], word: str) -> list[str]:
    """Return the UUID of the GPU with an index, which CUDA reads with strtol(3): `1x` is 1."""
    number = re.match(r"\s*[+-]?\d+", word, re.ASCII)
    return [gpu.uuid for gpu in gpus if number is not None and gpu.index == int(number[0])][:1]


T = TypeVar("T")

_INSTANCES_EVERY_S = 4.0
_LONGEST_WAIT_S = 2.0
_FIELDS_EVERY_S, _NEW_FIELDS_S = 5.0, 0.25


class GpuThread(threading.Thread):
    """Opens one GPU and its MIG instances, finds their fields and reads the slow ones, until they are lost.

    `orders` wakes it; True has the energy counters read.
    """

    def __init__(self, gpus: GpuList, index: int, slow: threading.Event, stopped: threading.Event) -> None:
        """Create the thread of a GPU, given its index.

        `slow` is set to have its slow fields read, `stopped` to end the thread.
        """
        super().__init__(name=f"gpu {index}", daemon=True)
        self.orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._gpus = gpus
        self._index = index
        self._slow = slow
        self._stopped = stopped
        self._readers: list[GpuReader] = []
        self._counts: list[tuple[int, int]] = []
        self._fields_due_s = math.inf
        self._instances_due_s = 0.0
        self._is_probed = self._is_period_known = False

    @property
    def is_left(self) -> bool:
        return any(reader.is_left for reader in self._readers)

    def run(self) -> None:
        """Open the GPU and serve it until it is lost, or the program ends."""
        try:
            self._adopt(open_gpu(self._index))
        except pynvml.NVMLError as error:
            self._gpus.refuse(self._index, str(error))
        try:
            while readers := self._served():
                self._serve(readers, time.monotonic())
        finally:
            self._gpus.note_opened(self._index, probed=True)
            for reader in self._readers:
                reader.close()

    def _adopt(self, reader: GpuReader) -> None:
        try:
            self._gpus.adopt(reader)
        except pynvml.NVMLError:
            reader.close()
            raise
        self._readers.append(reader)

    def _served(self) -> list[GpuReader]:
        if self._stopped.is_set():
            return []
        return [reader for reader in self._readers if self._gpus.serves(reader)]

    def _serve(self, readers: Sequence[GpuReader], now_s: float) -> None:
        self._open_instances(readers, now_s)
        self._gpus.note_opened(self._index)
        searching = [self._try(reader, lambda reader: reader.probe.step(now_s)) for reader in readers]
        if not any(searching):
            self._is_probed = True
            self._gpus.note_opened(self._index, probed=True)
        if self._slow.is_set():
            self._read_slow(readers, now_s)
        if any(searching):
            next_s = now_s
        elif self._slow.is_set():
            next_s = min(self._fields_due_s, *(reader.next_s() for reader in readers))
        else:
            next_s = min(reader.probe.next_s for reader in readers)
        self._obey(readers, min(max(0.0, next_s - time.monotonic()), _LONGEST_WAIT_S))

    def _open_instances(self, readers: Sequence[GpuReader], now_s: float) -> None:
        if self._instances_due_s > now_s:
            return
        self._instances_due_s = now_s + _INSTANCES_EVERY_S
        for gpu in readers:
            if gpu.in_mig_mode:
                for instance in open_instances(gpu, readers):
                    with contextlib.suppress(pynvml.NVMLError):
                        self._adopt(instance)

    def _read_slow(self, readers: Sequence[GpuReader], now_s: float) -> None:
        for reader in readers:
            if not reader.probe.is_new and (
                messages := self._try(reader, lambda reader: list(reader.read_slow(now_s)))
            ):
                self._gpus.write(messages)
        if self._is_probed and not self._is_period_known:
            undisturbed = self.orders.empty
            answers = [self._try(reader, lambda gpu: gpu.observe_energy_period(undisturbed)) for reader in readers]
            self._is_period_known = False not in answers
            self._fields_due_s = 0.0
        counts = [(len(reader.probe.fields), len(reader.probe.absent)) for reader in readers]
        if counts != self._counts:
            self._counts = counts
            self._fields_due_s = min(self._fields_due_s, now_s + _NEW_FIELDS_S)
        if self._fields_due_s <= now_s:
            self._fields_due_s = now_s + _FIELDS_EVERY_S
            if updates := [update for reader in readers if (update := reader.fields_updated()) is not None]:
                self._gpus.write(updates)

    def _obey(self, readers: Sequence[GpuReader], timeout_s: float) -> None:
        try:
            reads_energy = self.orders.get(timeout=timeout_s)
        except queue.Empty:
            return
        if reads_energy:
            samples = [self._try(reader, GpuReader.read_energy) for reader in readers]
            self._gpus.write([sample for sample in samples if sample is not None])

    def _try(self, reader: GpuReader, read: Callable[[GpuReader], T]) -> T | None:
        """Return the result of a reading; None if it shows that the GPU is lost."""
        try:
            return read(reader)
        except pynvml.NVMLError as error:
            self._gpus.lose(reader, str(error))
            return None


_NVML_ABSENCE_REASONS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated; restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not use the NVIDIA driver",
}
_RETRY_S = 4.0
_HANG_S = 3.0
_MOST_GPUS = 64
_LINES_EVERY_NS = 95_000_000

_NO_VERSIONS: tuple[str | None, str | None] = (None, None)
_Reading = tuple[GpuReader | None, int]


class NvmlSource:
    """Every GPU that the NVIDIA driver shows, or why there is none.

    `write` sends messages; `host` are the other devices of the machine, for the inventory.

    Thread: `read` belongs to the fast thread, all else to the main one.
    """

    def __init__(self, write: Callable[[Sequence[SamplerMessage]], None], host: Iterable[Device] = ()) -> None:
        self.stopped = threading.Event()
        self._list = GpuList(write, host)
        self._watch = threading.Thread(target=self._watch_driver, name="nvml", daemon=True)
        self._threads: dict[int, GpuThread] = {}
        self._slow = threading.Event()
        self._fast_thread: threading.Thread | None = None
        self._reading: _Reading = (None, 0)
        self._lines_due_ns = 0
        self._watched: tuple[_Reading, float] = (self._reading, 0.0)

    def start(self) -> None:
        """Start opening the driver and the GPUs, in the background."""
        self._watch.start()

    def wait(self, timeout_s: float, *, probed: bool) -> None:
        self._list.wait(timeout_s, probed=probed)

    def begin(self, *, slow: bool) -> None:
        """Write the inventory, and its changes from now on; read the slow fields if `slow` is set."""
        self._list.begin()
        if slow:
            self._slow.set()
            self._order(energy=False)

    def stop_waiting(self) -> None:
        self._list.stop_waiting()

    @property
    def inventory(self) -> Inventory:
        return self._list.inventory()

    @property
    def has_gpus(self) -> bool:
        return bool(self._list.readers)

    def read(self, thread: threading.Thread) -> bytes | None:
        """Read the fast fields of each GPU; return the lines to write.

        None means that another thread has replaced this one.
        """
        readers, tick = self._list.readers, self._reading[1] + 1
        for reader in readers:
            self._reading = reader, tick
            try:
                reader.take()
            except pynvml.NVMLError as error:
                self._list.lose(reader, str(error))
            if self._fast_thread is not thread:
                for left in readers:
                    left.is_left = False
                return None
        self._reading = None, tick
        if (t_ns := time.monotonic_ns()) < self._lines_due_ns:
            return b""
        self._lines_due_ns = t_ns + _LINES_EVERY_NS
        return b"".join([reader.lines() for reader in readers if self._list.serves(reader)])

    def replace_fast_thread(self, thread: threading.Thread) -> None:
        """Let this thread read the fast fields from now on."""
        self._fast_thread = thread

    def leave_hanging(self) -> bool:
        """Give up a GPU whose fast reading hangs; return whether one does, so that the fast thread must be replaced."""
        now_s, (watched, since_s) = time.monotonic(), self._watched
        if self._reading != watched:
            self._watched = self._reading, now_s
        elif (reader := watched[0]) is not None and now_s - since_s > _HANG_S + 3 * reader.tick_s():
            reader.is_left = True
            self._fast_thread = None
            self._reading = None, watched[1] + 1
            self._list.lose(reader, f"no answer for {units.with_unit(now_s - since_s, 's')}")
            return True
        return False

    def read_energy(self) -> None:
        """Have the energy counters read immediately."""
        self._order(energy=True)

    def close(self, timeout_s: float) -> bool:
        """End all threads and close NVML; return False if something hangs for longer."""
        self.stopped.set()
        self._watch.join(timeout_s)
        return not self._watch.is_alive()

    def _order(self, *, energy: bool) -> None:
        for thread in tuple(self._threads.values()):
            thread.orders.put(energy)

    def _watch_driver(self) -> None:
        """Open the driver and its GPUs until the end; reopen it if nothing of it is left."""
        is_open, versions = False, _NO_VERSIONS
        while not self.stopped.is_set():
            if is_open and not any(thread.is_alive() for thread in self._threads.values()):
                _shut_down()
                is_open, versions = False, _NO_VERSIONS
            is_open = is_open or self._open_driver()
            if is_open:
                self._open_gpus()
                if None in versions:
                    versions = _read_versions()
                    self._list.set_driver(*versions)
            self.stopped.wait(_RETRY_S)
        self._order(energy=False)
        for thread in (*self._threads.values(), *filter(None, (self._fast_thread,))):
            thread.join()
        if is_open:
            _shut_down()

    def _open_driver(self) -> bool:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            reason = _NVML_ABSENCE_REASONS.get(error.value, f"the NVIDIA driver does not answer ({error})")
            self._list.set_count(0, reason)
            return False
        return True

    def _open_gpus(self) -> None:
        """Start a thread for each GPU that lacks one, unless a hanging reading still uses the earlier handles."""
        try:
            count = min(pynvml.nvmlDeviceGetCount(), _MOST_GPUS)
        except pynvml.NVMLError as error:
            self._list.set_count(0, f"the NVIDIA driver does not list its GPUs ({error})")
            return
        self._list.set_count(count)
        for index in range(count):
            before = self._threads.get(index)
            if before is None or not (before.is_alive() or before.is_left):
                thread = GpuThread(self._list, index, self._slow, self.stopped)
                self._threads = {**self._threads, index: thread}
                thread.start()


def _read_versions() -> tuple[str | None, str | None]:
    driver = cuda_driver = None
    with contextlib.suppress(pynvml.NVMLError):
        driver = read_text(pynvml.nvmlSystemGetDriverVersion)
    with contextlib.suppress(pynvml.NVMLError):
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        cuda_driver = f"{version // 1000}.{version % 1000 // 10}"
    return driver, cuda_driver


def _shut_down() -> None:
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
