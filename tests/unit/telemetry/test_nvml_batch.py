"""The fast calls of one GPU as one: what fails or is not plausible is absent, and nothing is read too often."""

from collections.abc import Sequence

from app.telemetry.nvml_gpu import GpuReader
from app.values.fields import Sample
from tests.fakes.nvml_cards import Card, Course, Flaw
from tests.present import present
from tests.unit.telemetry.clock import Clock
from tests.unit.telemetry.sources import opened, read_sample

CARD = "GPU-aaaa"
LOAD, POWER, MEMORY = "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetFieldValues", "nvmlDeviceGetMemoryInfo_v2"


def samples_at(clock: Clock, reader: GpuReader, times_s: Sequence[float]) -> list[Sample]:
    found: list[Sample] = []
    for clock.passed_s in times_s:
        found += read_sample(reader)
    return found


def test_a_sample_with_gaps_has_all_else_as_one_without(clock: Clock) -> None:
    flaws = (Flaw(LOAD, error="UNKNOWN", from_s=20, to_s=30),)
    hot = Course(points=((0, 61), (40, 255), (50, 61)))
    with opened(Card(uuid=CARD, flaws=flaws, courses={"temperature_c": hot})) as (source, _):
        samples = samples_at(clock, source.list.readers[0], (11.0, 12.0, 25.0, 35.0, 45.0, 55.0))
    assert [sample.load_pct for sample in samples] == [99, 99, None, 99, 99, 99]
    assert [sample.temperature_c for sample in samples] == [61, 61, 61, 61, None, 61]
    assert [sample.implausible for sample in samples] == [(), (), (), (), ("temperature_c",), ()]
    for name in ("power_mw", "memory_bytes", "memory_clock_mhz", "throttle_reasons", "power_limit_mw"):
        assert len({getattr(sample, name) for sample in samples}) == 1, name


def test_every_tick_is_written_whether_at_once_or_later(clock: Clock) -> None:
    with opened(Card(uuid=CARD)) as (source, _):
        (reader,) = source.list.readers
        for clock.passed_s in (11.0, 11.05, 11.1):
            reader.take()
        assert len(reader.lines().splitlines()) == 3
        assert reader.lines() == b""


def test_at_high_rates_only_power_is_read_at_every_tick(clock: Clock) -> None:
    power = Course(points=((0, 100_000), (20, 300_000)), linear=True)
    with opened(Card(uuid=CARD, courses={"power_instant_mw": power})) as (source, fake):
        (reader,) = source.list.readers
        samples_at(clock, reader, [11.0])
        made = {LOAD: "", POWER: "", MEMORY: ""}
        for tick in range(20):
            before = dict(fake.calls)
            (sample,) = samples_at(clock, reader, [12 + tick / 100])
            for name in made:
                made[name] += str(fake.calls[CARD, name] - before.get((CARD, name), 0))
            assert abs(present(sample.power_mw) - (220_000 + 100 * tick)) < 50
            assert (sample.load_pct, sample.memory_bytes) == (99, 4_000_000_000)
    assert made == {LOAD: "10000" * 4, POWER: "1" * 20, MEMORY: "1000000000" * 2}
