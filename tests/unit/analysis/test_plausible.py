"""What is removed from stored samples: of honest cards nothing, of others what cannot be true."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.energy import COUNTER_SOURCE, INTEGRAL_SOURCE, gpu_energy
from app.analysis.summary import plausible_samples
from app.values.records import Floats, SampleColumns
from app.values.samples import Device

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
        (back(20, -500_000, 60), "on by 500 kJ"),
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


def test_no_integral_is_formed_where_too_much_power_is_implausible() -> None:
    for garbage, is_known in ((5, True), (8, False), (121, False)):
        power_w = np.full(121, 265.0)
        power_w[10 : 10 + garbage] = 4_294_967.295
        joules = energy_j(columns(6, power_w, energy_j=[]), 6)
        assert (joules is not None) is is_known, garbage
        assert joules is None or joules == pytest.approx(6 * 265)


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
