"""The life of one GPU, on a thread of its own: what fails or hangs there harms no other."""

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import pynvml

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
        """Make the thread of a GPU.

        Args:
            gpus: Where the GPU is listed.
            index: Its index.
            slow: Set when its slow fields are to be read.
            stopped: Set when it is to end.
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
            known = [self._try(reader, lambda reader: reader.observe_energy_period(undisturbed)) for reader in readers]
            self._is_period_known = False not in known
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
