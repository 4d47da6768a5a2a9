"""An open `NvmlSource` on fake cards, with the fake below it."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.fields import Sample, SlowSample
from app.samples import Device
from app.telemetry.nvml import NvmlSource
from tests.fakes.nvml import FakeNvml, installed
from tests.fakes.nvml_cards import Card, Driver


@contextmanager
def opened(*cards: Card, missing: tuple[str, ...] = ()) -> Iterator[tuple[NvmlSource, FakeNvml]]:
    """Started, and closed at the end."""
    with installed(Driver(cards=cards, missing=missing)) as fake:
        source = NvmlSource()
        source.start()
        yield source, fake
        source.close()


def described(*cards: Card, missing: tuple[str, ...] = ()) -> tuple[Device, Sample, dict[str, float | int]]:
    """The first card as a device, its first sample, and the values of its first slow sample."""
    with opened(*cards, missing=missing) as (source, _):
        sample = source.read()[0]
        assert isinstance(sample, Sample)
        return source.devices[0], sample, slow_values(source)


def slow_values(source: NvmlSource) -> dict[str, float | int]:
    """The slow fields of the first card that its next slow sample holds; nothing where none is due."""
    first = source.devices[0].device
    samples = [said for said in source.read_slow() if isinstance(said, SlowSample) and said.device == first]
    return {
        name: value
        for sample in samples
        for name in sample.__struct_fields__[2:]
        if (value := getattr(sample, name)) is not None
    }
