"""What is removed from stored samples: of honest cards nothing, of others what cannot be true."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.energy import COUNTER_SOURCE, INTEGRAL_SOURCE, gpu_energy
from app.analysis.summary import plausible_samples
from app.records import Floats, SampleColumns
from app.samples import Device

S = 1_000_000_000
BIG = 10**15
HZ = 20
TOTAL = 140 * 2**30


def columns(
    seconds: float,
    power_w: Sequence[float] | Floats | float = 265.0,
    *,
    load_pct: Sequence[float] | Floats | float = 99.0,
    energy_j: Sequence[tuple[float, float]] | None = None,
    memory: float = 4e9,
    kind: str = "gpu",
) -> SampleColumns:
    """A card for some seconds at 20 Hz; its counter is read every 4 s and at the end, and right without `energy_j`."""
    t_s = np.arange(0, seconds + 1e-9, 1 / HZ)
    power_mw = np.broadcast_to(1e3 * np.asarray(power_w, dtype=np.float64), t_s.shape).copy()
    read_s = np.array([*np.arange(0, seconds, 4.0), seconds])
    drawn_j = np.interp(read_s, t_s, np.concatenate(([0.0], np.cumsum((power_mw[1:] + power_mw[:-1]) / 2e3 / HZ))))
    readings = energy_j if energy_j is not None else list(zip(read_s, 5_000 + drawn_j, strict=True))
    return SampleColumns(
        device=Device(
            device="GPU-a", kind="host" if kind == "host" else "gpu", index=0, name="", memory_total_bytes=TOTAL
        ),
        t_ns=(BIG + t_s * S).astype(np.int64),
        fields={
            "power_mw": power_mw,
            "load_pct": np.broadcast_to(np.asarray(load_pct, dtype=np.float64), t_s.shape).copy(),
            "power_limit_mw": np.full(t_s.size, 700_000.0),
            "memory_bytes": np.full(t_s.size, memory),
        },
        slow_t_ns=np.array([BIG + at * S for at, _ in readings], dtype=np.int64),
        slow={
            "energy_mj": np.array([1e3 * joules for _, joules in readings]),
            "fan_pct": np.full(len(readings), np.nan),
        },
    )


def counts(samples: SampleColumns) -> dict[str, int]:
    return plausible_samples(samples).device.implausible


def energy_j(samples: SampleColumns, seconds: float, source: str = INTEGRAL_SOURCE) -> float | None:
    used = gpu_energy(plausible_samples(samples), BIG, BIG + int(seconds * S))
    assert used is None or used.source == source
    return None if used is None else used.energy_mj / 1e3


def test_an_honest_card_s_samples_stay_the_same_object() -> None:
    samples = columns(60)
    assert plausible_samples(samples) is samples
    assert energy_j(samples, 60, COUNTER_SOURCE) == pytest.approx(265 * 60)


def test_an_idle_card_that_repeats_its_values_for_an_hour_is_honest() -> None:
    assert counts(columns(3600, 70.0, load_pct=0.0)) == {}
    assert counts(columns(3600, 70.0, load_pct=49.0)) == {}
    asleep = [(at, 7.0) for at in range(0, 601, 4)]
    assert counts(columns(600, 0.001, load_pct=0.0, energy_j=asleep)) == {}, "its counter need not move"


def test_stored_garbage_is_left_out_and_counted() -> None:
    power_w = np.full(121, 265.0)
    power_w[[3, 50]] = 4_294_967.295, 0.0
    cleaned = plausible_samples(columns(6, power_w, load_pct=37_100, memory=279 * 2.0**30, energy_j=[]))
    assert cleaned.device.implausible == {"power_mw": 2, "load_pct": 121, "memory_bytes": 121}
    assert np.isnan(cleaned.fields["load_pct"]).all()
    assert np.flatnonzero(np.isnan(cleaned.fields["power_mw"])).tolist() == [3, 50]
    assert plausible_samples(cleaned) is cleaned, "what is left is plausible"


def test_the_host_s_memory_may_grow_beyond_what_it_had() -> None:
    assert counts(columns(6, memory=2.0 * TOTAL, kind="host")) == {}
    assert counts(columns(6, memory=2.0 * TOTAL)) == {"memory_bytes": 121}


def back(at_s: float, by_j: float, seconds: int) -> list[tuple[float, float]]:
    return [(at, 9_000 + 265 * at - (by_j if at >= at_s else 0.0)) for at in (*range(0, seconds, 4), seconds)]


@pytest.mark.parametrize(
    ("energy", "name"),
    [
        (back(20, 5_000, 60), "back by 5 kJ"),
        (back(20, -5_000, 60), "on by 5 kJ"),
        (back(20, -500_000, 60), "on by 500 kJ"),
        ([(at, 9_000 + 265 * min(at, 20)) for at in range(0, 61, 4)], "stands still"),
        ([(at, 9.0 + 0.265 * at) for at in range(0, 61, 4)], "a thousandth"),
        ([(at, 9_000 + 265 * (at if at != 20 else -30)) for at in range(0, 61, 4)], "one bad reading"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_counter_that_cannot_be_true_gives_way_to_the_power(energy: list[tuple[float, float]], name: str) -> None:
    varying = 265 + 5 * np.sin(np.arange(1201))
    samples = columns(60, varying, energy_j=energy)
    assert set(counts(samples)) == {"energy_mj"}, name
    assert energy_j(samples, 60) == pytest.approx(265 * 60, rel=0.01)


@pytest.mark.parametrize("by_j", [5_000, -500_000])
def test_a_counter_that_was_set_anew_does_not_speak_against_a_steady_power(by_j: float) -> None:
    samples = columns(60, 265.0, energy_j=back(20, by_j, 60))
    assert counts(samples) == {"energy_mj": 1}
    assert energy_j(samples, 60) == pytest.approx(265 * 60)


def test_a_power_that_never_changes_while_the_counter_speaks_against_it_is_not_believed_either() -> None:
    counted = [(at, 9_000 + 700 * at) for at in range(0, 61, 4)]
    samples = columns(60, 70.0, energy_j=[(float(at), joules) for at, joules in counted])
    assert set(counts(samples)) == {"energy_mj", "power_mw"}
    assert energy_j(samples, 60) is None


def test_a_power_that_stays_the_same_while_the_load_changes_is_not_read_anew() -> None:
    load = np.where(np.arange(121 * HZ - 19) < 600, 3.0, 98.0)
    samples = columns(120, 70.0, load_pct=load, energy_j=[])
    assert counts(samples) == {"power_mw": samples.t_ns.size}
    assert energy_j(samples, 120) is None
    assert counts(columns(59, 70.0, load_pct=load[: 59 * HZ + 1], energy_j=[])) == {}, "too short to say"


@pytest.mark.parametrize(("change_pct", "is_frozen"), [(49.9, False), (50.0, True)])
def test_a_power_is_frozen_from_a_change_of_half_the_load_on(change_pct: float, is_frozen: bool) -> None:
    load = np.where(np.arange(121 * HZ - 19) < 600, 20.0, 20.0 + change_pct)
    assert (counts(columns(120, 70.0, load_pct=load, energy_j=[])) != {}) is is_frozen


@pytest.mark.parametrize(("factor", "agrees"), [(1.98, True), (2.1, False), (0.51, True), (0.48, False)])
def test_counter_and_power_agree_within_a_factor_of_two(factor: float, agrees: bool) -> None:
    power_w = np.where(np.arange(600 * HZ + 1) % 40 < 20, 260.0, 270.0)
    counted = [(float(at), 9_000 + 265 * factor * at) for at in range(0, 601, 4)]
    assert ("energy_mj" not in counts(columns(600, power_w, energy_j=counted))) is agrees


def test_no_integral_is_formed_where_too_much_power_is_implausible() -> None:
    for garbage, is_known in ((5, True), (8, False), (121, False)):
        power_w = np.full(121, 265.0)
        power_w[10 : 10 + garbage] = 4_294_967.295
        joules = energy_j(columns(6, power_w, energy_j=[]), 6)
        assert (joules is not None) is is_known, garbage
        assert joules is None or joules == pytest.approx(6 * 265)


def test_the_counter_is_not_judged_by_power_that_is_missing() -> None:
    """As while a sampler was replaced: idle before and after, work in between."""
    samples = columns(60, 70.0, energy_j=[(0.0, 0.0), (4.0, 280.0), (56.0, 30_000.0), (60.0, 30_280.0)])
    away = (samples.t_ns > BIG + 5 * S) & (samples.t_ns < BIG + 55 * S)
    for field in samples.fields.values():
        np.copyto(field, np.nan, where=away)
    assert counts(samples) == {}


@given(
    st.lists(st.floats(30, 890), min_size=40, max_size=400),
    st.integers(1, 40),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 0.15),
)
def test_no_honest_energy_is_accused(powers: list[float], hold: int, lag: float, late_s: float, bias: float) -> None:
    """The power jumps about; telemetry shows a mean of up to a second and a late counter, with different errors."""
    true_w = np.repeat(powers, hold)
    seconds = (true_w.size - 1) / HZ
    width = 1 + int(lag * HZ)
    shown_w = np.convolve(np.concatenate((np.full(width - 1, true_w[0]), true_w)), np.ones(width) / width, "valid")
    counted_j = (1 + bias) * np.concatenate(([0.0], np.cumsum((true_w[1:] + true_w[:-1]) / 2 / HZ)))
    read_s = np.array([*np.arange(0, seconds, 4.0), seconds])
    energy = np.interp(read_s - late_s * 0.2, np.arange(true_w.size) / HZ, counted_j)
    samples = columns(seconds, shown_w, energy_j=list(zip(read_s.tolist(), (1_000 + energy).tolist(), strict=True)))
    assert counts(samples) == {}


def test_values_that_are_no_numbers_are_absent_or_implausible() -> None:
    samples = columns(6, load_pct=[math.inf, math.nan, *[50.0] * 119])
    assert counts(samples) == {"load_pct": 1}
