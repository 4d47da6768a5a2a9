"""What the sampler removes from the readings of honest, of broken and of hostile devices."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.telemetry.plausible import PlausibleReadings
from app.values.fields import FIELDS, Field, Sample, SlowSample, fields_of
from tests.fakes.nvml_cards import LAPTOP, MIG, RTX_2080_TI, TWO_H200, Card
from tests.unit.telemetry.clock import Clock
from tests.unit.telemetry.sources import opened

S = 1_000_000_000
TOTAL = 140 * 2**30
GARBAGE = {
    "power_mw": 4_294_967_295,
    "load_pct": 37_100,
    "memory_bytes": 279 * 2**30,
    "temperature_c": 255,
    "power_limit_mw": 0,
    "sm_clock_mhz": 4_294_967_295,
    "memory_clock_mhz": 4_294_967_295,
    "throttle_reasons": 2**64 - 1,
}


def removed(values: dict[str, float | None]) -> tuple[str, ...]:
    return PlausibleReadings("gpu", TOTAL).remove(values)


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_every_field_has_limits_with_a_reason(field: Field) -> None:
    limits = field.limits
    assert limits.low < limits.highest(None) == limits.high
    assert limits.reason
    assert math.isfinite(limits.high) or field.name == "sampler_cpu_s"
    assert limits.of in ("", "memory_total_bytes", "power_limit_mw")
    assert not limits.rate or field.kind == "counter"
    assert limits.highest(0) == limits.high, "a total of 0 is not known"


def test_all_ones_and_not_a_number_are_plausible_for_no_gauge() -> None:
    gauges = [field for field in fields_of("gpu") if field.kind != "counter"]
    for value in (2.0**32 - 1, 2.0**64 - 1, math.inf, -math.inf, math.nan):
        values: dict[str, float | None] = {field.name: value for field in gauges if "bytes" not in field.name}
        assert set(removed(values)) == set(values)
        assert set(values.values()) == {None}


def test_garbage_is_removed_and_named() -> None:
    values: dict[str, float | None] = {**GARBAGE, "memory_load_pct": 31}
    assert set(removed(values)) == set(GARBAGE)
    assert {name: value for name, value in values.items() if value is not None} == {"memory_load_pct": 31}


def test_only_what_counts_may_not_go_back() -> None:
    readings = PlausibleReadings("gpu", TOTAL)
    for second, (fan_pct, energy_mj, wrong) in enumerate(((50, 900, ()), (30, 800, ("energy_mj",)), (60, 850, ()))):
        values: dict[str, float | None] = {"fan_pct": fan_pct, "energy_mj": energy_mj}
        assert readings.remove_slow(second * S, values) == wrong


@pytest.mark.parametrize(
    ("name", "value"), [("power_mw", 0), ("load_pct", 101), ("temperature_c", 255), ("load_pct", -1)]
)
def test_just_beyond_is_beyond(name: str, value: int) -> None:
    assert removed({name: value}) == (name,)


POWERS = {
    "of two H200s": (700_000, 892_330, True),
    "excursion": (700_000, 2_100_000, True),
    "beyond": (700_000, 2_100_001, False),
    "laptop": (5_000, 95_000, True),
    "no limit": (None, 9_000_000, True),
    "no limit, beyond": (None, 10_000_001, False),
    "garbage limit": (4_294_967_295, 10_000_001, False),
    "zero limit": (0, 1_000_000, True),
}
"""The limit in force, a power, and whether that is plausible."""


@pytest.mark.parametrize(("limit_mw", "power_mw", "plausible"), POWERS.values(), ids=POWERS)
def test_power_is_judged_by_the_limit_in_force(limit_mw: int | None, power_mw: int, plausible: bool) -> None:
    assert ("power_mw" not in removed({"power_limit_mw": limit_mw, "power_mw": power_mw})) is plausible


def test_power_follows_a_lowered_limit_late() -> None:
    readings = PlausibleReadings("gpu", TOTAL)
    assert readings.remove({"power_limit_mw": 700_000, "power_mw": 690_000}) == ()
    assert readings.remove({"power_limit_mw": 100_000, "power_mw": 690_000}) == ()


def test_the_worker_s_load_is_of_all_processors() -> None:
    host = PlausibleReadings("host")
    assert host.remove({"worker_load_pct": 6_400.0, "load_pct": 100.0}) == ()
    assert host.remove({"worker_load_pct": 1e9, "load_pct": 100.1, "memory_bytes": -1, "power_mw": 0}) == (
        "worker_load_pct",
        "load_pct",
        "memory_bytes",
        "power_mw",
    )


def counter(*readings: tuple[float, int], name: str = "energy_mj", limit_mw: int = 700_000) -> list[bool]:
    """Which readings of a counter, each of a time in seconds and a value, are plausible."""
    plausible = PlausibleReadings("gpu", TOTAL)
    plausible.remove({"power_limit_mw": limit_mw})
    return [not plausible.remove_slow(int(seconds * S), {name: value}) for seconds, value in readings]


def test_a_counter_that_goes_back_counts_on_from_there() -> None:
    assert counter((0, 9_000_000), (4, 10_000_000), (8, 6_000_000), (12, 7_000_000)) == [True, True, False, True]


def test_after_the_driver_was_loaded_again_the_counter_begins_at_zero() -> None:
    assert counter((0, 10**9), (4, 10**9 + 1000), (60, 0), (64, 1000)) == [True, True, False, True]


def test_energy_grows_no_faster_than_the_highest_power() -> None:
    assert counter((0, 0), (4, 6 * 2_100_000), (4.1, 6 * 2_100_000), (8, 10**9)) == [True, True, True, False]
    assert counter((0, 0), (4, 2**64 - 1), (8, 4_000)) == [True, False, True], "all bits set are beyond its limits"


def test_throttled_time_may_stand_still_but_not_go_back() -> None:
    assert counter((0, 5), (1, 5), (2, 4), name="throttled_power_ns") == [True, True, False]


@pytest.mark.parametrize("card", [*TWO_H200, RTX_2080_TI, LAPTOP, MIG, *MIG.mig], ids=lambda card: card.uuid)
def test_honest_cards_lose_nothing(card: Card) -> None:
    with opened(card) as (source, _):
        for _ in range(3):
            said = [*source.read(), *source.read_slow(), *source.read_energy()]
            samples = [sample for sample in said if isinstance(sample, Sample | SlowSample)]
            assert {sample.implausible for sample in samples} == {()}


HONEST = st.fixed_dictionaries(
    {
        "load_pct": st.integers(0, 100),
        "memory_bytes": st.integers(0, TOTAL),
        "temperature_c": st.integers(-20, 110),
        "sm_clock_mhz": st.integers(0, 4_000),
        "memory_clock_mhz": st.integers(0, 18_000),
        "throttle_reasons": st.integers(0, 0x1FF),
    }
)


@given(st.integers(5_000, 1_400_000), st.lists(st.tuples(HONEST, st.floats(0.01, 3), st.floats(0.05, 1)), max_size=9))
def test_no_honest_reading_is_removed(highest_mw: int, readings: list[tuple[dict[str, int], float, float]]) -> None:
    """Of any card within its specification, with excursions of its power, whose limit is lowered at any time."""
    card = PlausibleReadings("gpu", TOTAL)
    assert card.remove({"power_limit_mw": highest_mw}) == ()
    for values, excursion, lowered in readings:
        power_mw = excursion * highest_mw
        limit_mw = max(1, int(highest_mw * lowered))
        assert card.remove({**values, "power_mw": power_mw, "power_limit_mw": limit_mw}) == ()


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 1.3)), max_size=30), st.integers(0, 2**50))
def test_no_honest_counter_is_removed(steps: list[tuple[float, float]], start_mj: int) -> None:
    """A counter that adds up at most 1.3 times the limit, read at any times, up to a second old."""
    t_s, energy_mj, readings = 0.0, float(start_mj), list[tuple[float, int]]()
    for seconds, of_limit in steps:
        t_s, energy_mj = t_s + seconds, energy_mj + 700_000 * of_limit * seconds
        readings.append((t_s + 1e-3 * (len(readings) % 7), int(energy_mj)))
    assert all(counter(*readings))


def test_a_broken_card_s_sample_has_no_garbage_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    card = Card(uuid="GPU-x", power_instant_mw=2**32 - 1, load_pct=37_100, temperature_c=255, energy_mj=2**63)
    with opened(card) as (source, _):
        clock.sleep(1)
        (sample,), (energy,) = source.read(), source.read_energy()
    assert isinstance(sample, Sample)
    assert set(sample.implausible) == {"power_mw", "load_pct", "temperature_c"}
    assert (sample.power_mw, sample.load_pct, sample.temperature_c, sample.memory_load_pct) == (None, None, None, 31)
    assert (energy.energy_mj, energy.implausible) == (None, ("energy_mj",))
