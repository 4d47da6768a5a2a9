"""The fast calls of one GPU made as one give what the single ones give, and cost less at high rates."""

import msgspec
import pytest

from app.fields import Sample
from app.telemetry.nvml_gpu import GpuReader
from tests.fakes.nvml_cards import LAPTOP, RTX_2080_TI, TWO_H200, Card, Course, Flaw
from tests.unit.telemetry.clock import Clock
from tests.unit.telemetry.sources import opened

LOAD = "nvmlDeviceGetUtilizationRates"
POWER = "nvmlDeviceGetFieldValues"
WATCHED_S = 10.0
"""For so long the sampler watches how often values are renewed, and reads all at every tick."""


def line(reader: GpuReader) -> Sample:
    written = reader.read_line()
    assert written is not None
    return msgspec.json.decode(written, type=Sample)


@pytest.mark.parametrize("card", [TWO_H200[0], RTX_2080_TI, LAPTOP], ids=lambda card: card.name)
def test_a_line_is_the_sample_of_the_single_calls(clock: Clock, card: Card) -> None:
    with opened(card) as (source, _):
        (reader,) = source.list.readers
        line(reader)
        clock.passed_s += 1.1
        found = line(reader)
        assert reader._batch is not None, "by the second one the power limit is known"
        sample = reader.read()
    assert sample is not None
    assert found.load_pct == card.load_pct
    assert msgspec.structs.replace(found, t_ns=sample.t_ns) == sample
    assert found.t_ns < sample.t_ns


def test_a_field_that_fails_or_cannot_be_true_is_absent_only_then(clock: Clock) -> None:
    flaws = (Flaw(LOAD, error="UNKNOWN", from_s=20, to_s=30),)
    hot = Course(points=((0, 61), (40, 255), (50, 62)))
    with opened(Card(uuid="GPU-aaaa", flaws=flaws, courses={"temperature_c": hot})) as (source, _):
        (reader,) = source.list.readers
        samples = []
        for clock.passed_s in (0.0, 12.0, 25.0, 26.5, 35.0, 36.5, 45.0, 46.5, 55.0, 56.5):
            samples.append(line(reader))
    assert [sample.load_pct for sample in samples] == [99, 99, None, None, 99, 99, 99, 99, 99, 99]
    assert [sample.temperature_c for sample in samples] == [61, 61, 61, 61, 61, 61, None, None, 62, 62]
    assert [sample.implausible for sample in samples[6:8]] == [("temperature_c",)] * 2
    assert all(sample.power_mw == 688_123 for sample in samples)


def test_above_20_hz_only_power_is_read_at_every_tick(clock: Clock) -> None:
    power = Course(points=((0, 100_000), (20, 300_000)), linear=True)
    with opened(Card(uuid="GPU-aaaa", courses={"power_instant_mw": power})) as (source, fake):
        (reader,) = source.list.readers
        line(reader)
        clock.passed_s += WATCHED_S + 1.1
        line(reader)
        counts = []
        for tick in range(10):
            clock.passed_s = WATCHED_S + 2 + tick / 100
            before = fake.calls["GPU-aaaa", LOAD], fake.calls["GPU-aaaa", POWER]
            sample = line(reader)
            counts.append((fake.calls["GPU-aaaa", LOAD] - before[0], fake.calls["GPU-aaaa", POWER] - before[1]))
            assert sample.power_mw == pytest.approx(100_000 + 10_000 * clock.passed_s, abs=50)
            assert sample.load_pct == 99
    assert counts == [(1, 1), *[(0, 1)] * 4] * 2
