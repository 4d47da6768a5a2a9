"""NVIDIA GPUs through NVML. Only the modules called nvml* import nvidia-ml-py (module `pynvml`).

One thread opens the driver; a thread for each GPU opens and probes it and reads its slow fields; one reads the fast
fields of all. What is lost, refused or not there is tried again every few seconds, so that a driver that is loaded and
a GPU that comes back need no restart. NVML is thread-safe.
"""

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pynvml

from app import units
from app.samples import Device, Inventory
from app.telemetry.messages import SamplerMessage
from app.telemetry.nvml_calls import read_text
from app.telemetry.nvml_gpu import GpuReader, open_gpu, open_instances
from app.telemetry.nvml_list import GpuList

T = TypeVar("T")

_INSTANCES_EVERY_S = 4.0
_LONGEST_WAIT_S = 2.0
_FIELDS_EVERY_S, _NEW_FIELDS_S = 5.0, 0.25


class GpuThread(threading.Thread):
    """Opens one GPU and its MIG instances, finds their fields and reads the slow ones, until they are lost.

    `orders` wakes it; True has the energy counters read.
    """

    def __init__(self, gpus: GpuList, index: int, slow: threading.Event, stopped: threading.Event) -> None:
        """Make the thread of a GPU by its index.

        `slow` is set when its slow fields are to be read, `stopped` when it is to end.
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
        """Whether a fast reading of it hangs."""
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
        """Do what is due, and wait for the next."""
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
        """Return what a reading gives, None for a GPU that is lost by it."""
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

    `write` takes what is to be told; `host` are the other devices of the machine, for the inventory.

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
        """Begin to open the driver and the GPUs, in the background."""
        self._watch.start()

    def wait(self, timeout_s: float, *, probed: bool) -> None:
        """Wait until every GPU was opened or refused, or until each of its fields was looked for."""
        self._list.wait(timeout_s, probed=probed)

    def begin(self, *, slow: bool) -> None:
        """Write the inventory, and from now on what changes in it; read the slow fields if `slow` is set."""
        self._list.begin()
        if slow:
            self._slow.set()
            self._order(energy=False)

    def stop_waiting(self) -> None:
        """List the GPUs that have not answered so far as such."""
        self._list.stop_waiting()

    @property
    def inventory(self) -> Inventory:
        """The machine as it is known now."""
        return self._list.inventory()

    @property
    def has_gpus(self) -> bool:
        """Whether a GPU is there to be read."""
        return bool(self._list.readers)

    def read(self, thread: threading.Thread) -> bytes | None:
        """Read the fast fields of each GPU; return the lines that are to be written.

        None says that another thread has taken the place of this one.
        """
        readers, tick = self._list.readers, self._reading[1] + 1
        for reader in readers:
            self._reading = reader, tick
            reader.take()
            if self._fast_thread is not thread:
                for left in readers:
                    left.is_left = False
                return None
        self._reading = None, tick
        if (t_ns := time.monotonic_ns()) < self._lines_due_ns:
            return b""
        self._lines_due_ns = t_ns + _LINES_EVERY_NS
        return b"".join([self._lines(reader) for reader in readers])

    def _lines(self, reader: GpuReader) -> bytes:
        try:
            return reader.lines()
        except pynvml.NVMLError as error:
            self._list.lose(reader, str(error))
            return b""

    def replace_fast_thread(self, thread: threading.Thread) -> None:
        """Let this thread read the fast fields from now on."""
        self._fast_thread = thread

    def leave_hanging(self) -> bool:
        """Give up a GPU whose fast reading hangs; return whether one does, and the fast thread is to be replaced."""
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
        """Have the energy counters read at once."""
        self._order(energy=True)

    def close(self, timeout_s: float) -> bool:
        """End all threads and close NVML; return False if something hangs for longer than that."""
        self.stopped.set()
        self._watch.join(timeout_s)
        return not self._watch.is_alive()

    def _order(self, *, energy: bool) -> None:
        for thread in tuple(self._threads.values()):
            thread.orders.put(energy)

    def _watch_driver(self) -> None:
        """Open the driver and what it shows until the end; again where nothing is left of it."""
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
        """Start a thread for each GPU that has none, unless a reading that hangs still uses what was opened before."""
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
