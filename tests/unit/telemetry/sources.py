"""Readers of fake cards on the test's own thread, with the fake below them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec
import pynvml

from app.telemetry.messages import SamplerMessage
from app.telemetry.nvml import GpuList
from app.telemetry.nvml_gpu import GpuReader, open_gpu, open_instances
from app.values.fields import Sample, SlowSample
from app.values.samples import Device, DeviceLost, FieldsUpdated, Processes
from tests.fakes.nvml import FakeNvml, installed
from tests.fakes.nvml_cards import Card, Driver
from workloads.catalog import Gpu

T = TypeVar("T")
GPM_S = 0.13
"""The metrics of GPM are of the time between two readings, and need some."""


class Readers:
    """The GPUs of the driver, opened and read one after the other; what their threads do at the same time."""

    def __init__(self) -> None:
        self.said: list[SamplerMessage] = []
        self.list = GpuList(self.said.extend, ())
        self._opened: list[GpuReader] = []

    def start(self, *, probes: bool = True) -> None:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        self.list.set_count(count)
        self.list.set_driver("580.65.06", "13.0")
        for index in range(count):
            self.list.note_opened(index)
            try:
                gpu = open_gpu(index)
            except pynvml.NVMLError as error:
                self.list.refuse(index, str(error))
                continue
            instances = open_instances(gpu, self._opened) if gpu.in_mig_mode else ()
            for reader in (gpu, *instances):
                self._opened.append(reader)
                self.list.adopt(reader)
        if probes:
            self.probe()
        self.list.begin()

    def probe(self) -> None:
        """Look for every field that is due."""
        for reader in tuple(self._opened):
            while self._try(reader, lambda reader: reader.probe.step(time.monotonic())):
                pass

    @property
    def devices(self) -> tuple[Device, ...]:
        return self.list.inventory().devices

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.list.inventory().machine.gpus

    def read(self) -> list[Sample | DeviceLost]:
        self.said.clear()
        samples = [sample for reader in self.list.readers for sample in self._try(reader, read_sample) or ()]
        lost = [message for message in self.said if isinstance(message, DeviceLost)]
        found: list[Sample | DeviceLost] = [*samples, *lost]
        return sorted(found, key=lambda message: message.device)

    def read_slow(self) -> list[SlowSample | Processes]:
        now_s = time.monotonic()
        found = (self._try(reader, lambda reader: list(reader.read_slow(now_s))) for reader in self.list.readers)
        return [message for messages in found for message in messages or ()]

    def read_energy(self) -> list[SlowSample]:
        samples = [self._try(reader, GpuReader.read_energy) for reader in self.list.readers]
        return [sample for sample in samples if sample is not None]

    def observe_energy_periods(self, undisturbed: Callable[[], bool]) -> bool:
        watch = partial(GpuReader.observe_energy_period, undisturbed=undisturbed)
        return False not in [self._try(reader, watch) for reader in self.list.readers]

    def fields_seen(self) -> Sequence[FieldsUpdated]:
        return [update for reader in self.list.readers if (update := reader.fields_updated()) is not None]

    def close(self) -> None:
        for reader in self._opened:
            reader.close()
        pynvml.nvmlShutdown()

    def _try(self, reader: GpuReader, read: Callable[[GpuReader], T]) -> T | None:
        try:
            return read(reader)
        except pynvml.NVMLError as error:
            self.list.lose(reader, str(error))
            return None


def read_sample(reader: GpuReader) -> list[Sample]:
    """What a tick reads of a GPU, as it is written; nothing before there is a field."""
    reader.take()
    return [msgspec.json.decode(line, type=Sample) for line in reader.lines().splitlines()]


@contextmanager
def opened(*cards: Card, missing: tuple[str, ...] = ()) -> Iterator[tuple[Readers, FakeNvml]]:
    """Started, and closed at the end."""
    with installed(Driver(cards=cards, missing=missing)) as fake:
        source = Readers()
        source.start()
        yield source, fake
        source.close()


def described(*cards: Card, missing: tuple[str, ...] = ()) -> tuple[Device, Sample, dict[str, float | int]]:
    """The first card as a device, its first sample, and the values of its first slow sample."""
    with opened(*cards, missing=missing) as (source, _):
        sample = source.read()[0]
        assert isinstance(sample, Sample)
        time.sleep(GPM_S)
        values = slow_values(source)
        return source.devices[0], sample, values


def slow_values(source: Readers) -> dict[str, float | int]:
    """The slow fields of the first card that its next slow sample holds; nothing where none is due."""
    first = source.devices[0].device
    samples = [said for said in source.read_slow() if isinstance(said, SlowSample) and said.device == first]
    return {
        name: value
        for sample in samples
        for name in sample.__struct_fields__[2:]
        if (value := getattr(sample, name)) is not None
    }
