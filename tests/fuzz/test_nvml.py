"""Drivers that answer anything: every reader gives values in their ranges, or none, and never raises."""

import math
from collections.abc import Iterable

import msgspec
import pynvml
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.telemetry.messages import SamplerMessage
from app.values.fields import FIELDS, Sample, SlowSample
from tests.fakes.nvml import FakeNvml, installed
from tests.fakes.nvml_cards import Card, Course, Driver, Flaw
from tests.fuzz.budget import one_in
from tests.unit.telemetry.clock import Clock
from tests.unit.telemetry.sources import Readers

ERRORS = sorted(
    value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)
)
FUNCTIONS = sorted(name.removeprefix("_card_") for name in vars(FakeNvml) if name.startswith("_card_nvml"))
ATTRIBUTES = [
    *("memory_used_bytes", "memory_reserved_bytes", "power_instant_mw", "power_average_mw", "energy_mj", "load_pct"),
    *("memory_load_pct", "temperature_c", "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons", "power_limit_mw"),
    *("fan_pct", "fields.82", "fields.74", "fields.75", "fields.197", "fields.269", "gpm.2", "gpm.20", "gpm.60"),
]
HIGHEST = {"%": 200, "mW": 1e7, "°C": 150, "MHz": 50_000, "bits": 2**24, "mJ": 2**53, "ns": 2**61}
"""As in the table of fields, or above; `bytes` are at most the card's."""
whole = st.one_of(
    st.sampled_from([0, 1, -1, 99, 101, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1]),
    st.sampled_from([-error for error in ERRORS]),
    st.integers(0, 2**64 - 1),
)
answers = {True: st.one_of(whole, st.floats(allow_nan=True)).map(float), False: whole}


@st.composite
def courses(draw: st.DrawFn) -> dict[str, Course]:
    return {
        name: Course(
            tuple((at, draw(answers[name.startswith("gpm")])) for at in range(draw(st.integers(1, 3)))), every_s=3
        )
        for name in draw(st.sets(st.sampled_from(ATTRIBUTES), max_size=6))
    }


flaws = st.builds(
    Flaw,
    function=st.sampled_from([*FUNCTIONS, "*", "nvmlGpm*", "nvmlDeviceGetHandle*"]),
    error=st.sampled_from([0, *ERRORS]),
    first=st.integers(1, 8),
    times=st.sampled_from([1, 2, 1_000_000]),
    from_s=st.sampled_from([0.0, 0.5, 2.0]),
    to_s=st.sampled_from([1.0, 4.0, 1e9]),
    delay_ms=st.sampled_from([0.0, 0.0, 300.0, 5_000.0]),
)
cards = st.builds(
    Card,
    uuid=st.one_of(st.just("GPU-x"), st.text(st.characters(max_codepoint=255, exclude_characters="\0"), max_size=90)),
    name=st.text(st.characters(max_codepoint=255, exclude_characters="\0"), max_size=90),
    encoding=st.sampled_from(["utf-8", "latin-1"]),
    memory_total_bytes=st.one_of(st.just(2**37), st.integers(0, 2**64 - 1)),
    courses=courses(),
    flaws=st.lists(flaws, max_size=4).map(tuple),
    processes=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(-1, 2**63)), max_size=3).map(tuple),
    costs_ms=st.just({}),
    mig_mode=st.sampled_from([None, 0, 1, 7]),
)
drivers = st.builds(
    Driver,
    cards=st.lists(cards, min_size=1, max_size=2).map(tuple),
    missing=st.sets(st.sampled_from(FUNCTIONS), max_size=3).map(tuple),
)


def is_in_range(message: Sample | SlowSample, totals: dict[str, int | None]) -> bool:
    return all(
        0 <= value <= _highest(name, totals[message.device]) or (name.endswith("_c") and -40 <= value <= 150)
        for name in FIELDS.keys() & set(message.__struct_fields__)
        if (value := getattr(message, name)) is not None
    )


def _highest(name: str, total_bytes: int | None) -> float:
    unit = FIELDS[name].unit
    return HIGHEST.get(unit, (total_bytes or 2**52) if unit == "bytes" else 1e13)


def read_all(readers: Readers, clock: Clock) -> Iterable[SamplerMessage]:
    """Everything that is said of a driver in a few seconds."""
    for _ in range(5):
        yield from readers.read()
        yield from readers.read_slow()
        yield from readers.read_energy()
        yield from readers.fields_seen()
        clock.sleep(1)
        readers.probe()
    readers.observe_energy_periods(lambda: True)
    yield from readers.said


@given(driver=drivers)
@example(driver=Driver(cards=(Card(uuid="GPU-x", flaws=(Flaw("*", "UNKNOWN"),)),)))
@example(driver=Driver(cards=(Card(uuid="GPU-x", name="NVIDIA ÿ", encoding="latin-1"),)))
@example(driver=Driver(cards=(Card(uuid="GPU-x", flaws=(Flaw("*", "RESET_REQUIRED", from_s=2),)),)))
@example(driver=Driver(cards=(Card(uuid="GPU-x", courses={"power_instant_mw": Course(((0, 2**32 - 1),))}),)))
@example(driver=Driver(cards=(Card(uuid="GPU-x", courses={"gpm.2": Course(((0, math.inf), (1, math.nan)))}),)))
@example(driver=Driver(cards=(Card(uuid="GPU-x", courses={"throttle_reasons": Course(((0, 2**64 - 1),))}),)))
@example(driver=Driver(cards=(Card(uuid="GPU-x", processes=((0, 2**62 + 1),)),)))
@one_in(2)
def test_a_driver_may_answer_anything(driver: Driver) -> None:
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder(SamplerMessage)
    with pytest.MonkeyPatch.context() as patch, installed(driver):
        clock, readers = Clock(patch), Readers()
        readers.start()
        for message in read_all(readers, clock):
            assert decoder.decode(encoder.encode(message)) == message
            if isinstance(message, Sample | SlowSample):
                totals = {device.device: device.memory_total_bytes for device in readers.devices}
                assert is_in_range(message, totals)
        for device in readers.devices:
            assert not device.fields.keys() & device.absent.keys()
            assert all(device.absent.values())
        readers.close()
