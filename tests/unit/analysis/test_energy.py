"""Energy of a window against closed forms, and its error bound against a simulated card."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.energy import (
    COUNTER_SOURCE,
    INTEGRAL_SOURCE,
    STILL_SOURCE,
    gpu_energy,
    total_energy,
    traffic_bytes_per_step,
    values_in_window,
)
from app.values.records import Floats, SampleColumns
from app.values.samples import Device, FieldInfo
from tests.fakes.experiments import result
from tests.present import present
from workloads.catalog import Machine, complete

S = 1_000_000_000
BIG = 10**15
"""A clock that has run for eleven days."""
PERIOD_S = 0.1
W700 = 700_000.0


def at(seconds: float) -> int:
    return BIG + round(seconds * S)


def gpu(
    *,
    counter: tuple[Sequence[float] | Floats, Sequence[float] | Floats] = ((), ()),
    power: tuple[Sequence[float] | Floats, Sequence[float] | Floats] = ((), ()),
    period_ms: float | None = 100.0,
    name: str = "GPU-a",
) -> SampleColumns:
    """A GPU from its readings: seconds and millijoules, seconds and milliwatts."""
    facts = {
        "energy_mj": FieldInfo(unit="mJ", period_ms=period_ms),
        "power_mw": FieldInfo(unit="mW", period_ms=period_ms),
    }
    return SampleColumns(
        device=Device(device=name, kind="gpu", index=0, name=name, fields=facts),
        t_ns=np.array([at(s) for s in power[0]], dtype=np.int64),
        fields={"power_mw": np.array(power[1], dtype=np.float64)},
        slow_t_ns=np.array([at(s) for s in counter[0]], dtype=np.int64),
        slow={"energy_mj": np.array(counter[1], dtype=np.float64)},
    )


def steady(times_s: Sequence[float], power_mw: float = W700) -> tuple[Sequence[float], Floats]:
    return times_s, 5_000_000 + power_mw * np.array(times_s)


def test_the_counter_s_difference_at_constant_power_is_power_times_time() -> None:
    used = present(gpu_energy(gpu(counter=steady([0.0, 2.0, 4.0, 6.0])), at(1.0), at(5.0)))
    assert used.source == COUNTER_SOURCE
    assert used.energy_mj == pytest.approx(4 * W700)
    assert used.error_mj == pytest.approx(W700 * (PERIOD_S + 2 * 1.0)), "each edge lies 1 s from its nearest reading"


def test_nobody_knows_what_was_used_while_nothing_was_read() -> None:
    """The integral bridges the two seconds of a killed sampler; its error allows for all of them. A counter counts."""
    times_s = np.delete(np.arange(0.0, 10.01, 0.1), range(41, 60))
    power = (times_s, np.full(times_s.size, W700))
    used = present(gpu_energy(gpu(power=power), at(1.0), at(9.0)))
    assert used.source == INTEGRAL_SOURCE
    assert used.energy_mj == pytest.approx(8 * W700)
    assert used.error_mj == pytest.approx(W700 * (PERIOD_S + 2.0))
    counted = present(gpu_energy(gpu(power=power, counter=steady([0.0, 1.0, 9.0, 10.0])), at(1.0), at(9.0)))
    assert counted.error_mj == pytest.approx(W700 * PERIOD_S)


def test_readings_at_the_edges_leave_only_the_period_as_error() -> None:
    used = present(gpu_energy(gpu(counter=steady([0.0, 2.0, 5.0, 6.0])), at(2.0), at(5.0)))
    assert used.energy_mj == pytest.approx(3 * W700)
    assert used.error_mj == pytest.approx(W700 * PERIOD_S)


def test_a_step_in_power_at_the_edge_belongs_to_its_own_side() -> None:
    """100 W until 2 s, 700 W from there on; a reading at the edge, as a phase's beginning has it."""
    stepped = gpu(counter=([0.0, 2.0, 4.0], [0.0, 200_000.0, 1_600_000.0]))
    before, after = present(gpu_energy(stepped, at(0.0), at(2.0))), present(gpu_energy(stepped, at(2.0), at(4.0)))
    assert before.energy_mj == pytest.approx(200_000)
    assert after.energy_mj == pytest.approx(1_400_000)


def test_the_error_of_an_idle_window_knows_of_the_power_beside_it() -> None:
    """The counter may be a period old at the edge: then what was used before the window is counted in it."""
    times = np.arange(0.0, 4.0, 0.05)
    power = np.where(times < 2.0, W700, 0.0)
    idle = gpu(counter=([0.0, 2.0, 4.0], [0.0, 1_330_000.0, 1_400_000.0]), power=(times, power))
    used = present(gpu_energy(idle, at(2.0), at(4.0)))
    assert used.energy_mj == pytest.approx(70_000), "all of it of before"
    assert used.error_mj == pytest.approx(70_000)


@pytest.mark.parametrize("window", [(-0.5, 3.0), (1.0, 6.5), (-1.0, 9.0)])
def test_a_window_the_counter_does_not_cover_is_the_integral_of_power(window: tuple[float, float]) -> None:
    times = np.arange(-1.0, 9.01, 0.05)
    card = gpu(counter=steady([0.0, 2.0, 4.0, 6.0]), power=(times, np.full(times.size, 300_000.0)))
    used = present(gpu_energy(card, at(window[0]), at(window[1])))
    assert used.source == INTEGRAL_SOURCE
    assert used.energy_mj == pytest.approx(300_000 * (window[1] - window[0]))


@pytest.mark.parametrize(("late_s", "source"), [(0.09, COUNTER_SOURCE), (0.11, INTEGRAL_SOURCE)])
def test_a_counter_covers_a_window_within_its_period(late_s: float, source: str) -> None:
    """A run's last reading comes just before its end."""
    times = np.arange(0.0, 2.01, 0.05)
    card = gpu(counter=steady([late_s, 2.0 - late_s]), power=(times, np.full(times.size, W700)))
    used = present(gpu_energy(card, at(0.0), at(2.0)))
    assert used.source == source
    assert abs(used.energy_mj - 2 * W700) <= used.error_mj


def test_a_counter_that_went_backwards_is_not_used() -> None:
    """The driver was loaded again: its counter begins anew."""
    times = np.arange(0.0, 6.01, 0.05)
    power = (times, np.full(times.size, 300_000.0))
    used = present(
        gpu_energy(gpu(counter=([0.0, 2.0, 4.0, 6.0], [9e6, 9.6e6, 100.0, 600_000.0]), power=power), at(1.0), at(5.0))
    )
    assert used.source == INTEGRAL_SOURCE
    assert used.energy_mj == pytest.approx(1_200_000)


@pytest.mark.parametrize("power_mw", [[], np.full(121, 300_000.0)], ids=["no power", "power"])
def test_a_counter_of_which_a_reading_was_left_out_gives_way_to_the_power(power_mw: Floats | list[float]) -> None:
    """It may have jumped any distance: what is left of it only looks right."""
    card = gpu(counter=steady([0.0, 2.0, 4.0, 6.0]), power=(np.arange(0.0, 6.01, 0.05)[: len(power_mw)], power_mw))
    wrong = replace(card, device=msgspec.structs.replace(card.device, implausible={"energy_mj": 1}))
    used = gpu_energy(wrong, at(1.0), at(5.0))
    assert (used and (used.source, round(used.energy_mj))) == ((INTEGRAL_SOURCE, 1_200_000) if len(power_mw) else None)


@pytest.mark.parametrize(("absent", "is_measured"), [(5, True), (8, False), (121, False)])
def test_no_integral_is_formed_where_too_much_power_is_absent(absent: int, is_measured: bool) -> None:
    power_mw = np.full(121, 300_000.0)
    power_mw[10 : 10 + absent] = np.nan
    used = gpu_energy(gpu(power=(np.arange(0.0, 6.01, 0.05), power_mw)), at(0.0), at(6.0))
    assert (used and used.energy_mj) == (pytest.approx(1_800_000) if is_measured else None)


def test_readings_that_failed_are_passed_over() -> None:
    card = gpu(counter=([0.0, 1.0, 2.0, 4.0], [0.0, np.nan, 2 * W700, 4 * W700]))
    assert present(gpu_energy(card, at(0.5), at(3.0))).energy_mj == pytest.approx(2.5 * W700)


def test_neither_counter_nor_power_is_no_energy() -> None:
    assert gpu_energy(gpu(), at(0.0), at(5.0)) is None
    nothing_said = gpu(counter=([0.0, 5.0], [np.nan, np.nan]), power=([0.0, 2.0, 5.0], [np.nan] * 3))
    assert gpu_energy(nothing_said, at(0.0), at(5.0)) is None
    assert gpu_energy(gpu(counter=steady([0.0])), at(0.0), at(5.0)) is None


@pytest.mark.parametrize("period_ms", [100.0, None])
def test_a_window_shorter_than_the_period_has_no_energy(period_ms: float | None) -> None:
    """Also where the period is not known yet: then it is taken to be the usual one."""
    times = np.arange(0.0, 6.01, 0.01)
    card = gpu(counter=steady([0.0, 2.0, 2.001, 6.0]), power=(times, np.full(times.size, W700)), period_ms=period_ms)
    assert gpu_energy(card, at(2.0), at(2.09)) is None
    assert gpu_energy(card, at(2.0), at(2.1)) is None, "not longer either"
    assert gpu_energy(card, at(2.0), at(2.2)) is not None


def test_gpus_with_different_sources_are_added_and_both_are_named() -> None:
    times = np.arange(0.0, 6.01, 0.05)
    counted = gpu(counter=steady([0.0, 3.0, 6.0]))
    integrated = gpu(power=(times, np.full(times.size, 250_000.0)), name="GPU-b")
    used = present(total_energy([counted, integrated], at(1.0), at(5.0)))
    parts = [gpu_energy(card, at(1.0), at(5.0)) for card in (counted, integrated)]
    assert used.energy_mj == pytest.approx(4 * (W700 + 250_000))
    assert used.source == "energy counter and integral of power"
    assert used.error_mj == pytest.approx(sum(part.error_mj for part in parts if part))


def test_a_counter_that_stands_still_is_not_used() -> None:
    times = np.arange(0.0, 10.01, 0.05)
    power = (times, np.full(times.size, W700))
    stuck = gpu(counter=(times, np.full(times.size, 2.0**53)), power=power)
    used = present(gpu_energy(stuck, at(1.0), at(9.0)))
    assert used.energy_mj == pytest.approx(8 * W700)
    assert used.source == STILL_SOURCE
    assert gpu_energy(stuck, at(1.0), at(1.5)) is not None, "a window shorter than any standstill"
    only_at_ends = present(gpu_energy(gpu(counter=([0.0, 10.0], [5.0, 5.0]), power=power), at(1.0), at(9.0)))
    assert only_at_ends.source == STILL_SOURCE
    assert gpu_energy(gpu(counter=([0.0, 10.0], [5.0, 5.0])), at(1.0), at(9.0)) is None, "not 0 mJ"
    off = present(
        gpu_energy(gpu(counter=([0.0, 10.0], [5.0, 5.0]), power=(times, np.zeros(times.size))), at(1.0), at(9.0))
    )
    assert (off.energy_mj, off.source) == (0.0, COUNTER_SOURCE), "no power was drawn"


@pytest.mark.parametrize(
    ("still_s", "period_ms", "source"),
    [
        (1.9, 100.0, COUNTER_SOURCE),
        (2.1, 100.0, STILL_SOURCE),
        (2.9, 1000.0, COUNTER_SOURCE),
        (3.1, 1000.0, STILL_SOURCE),
        (2.1, None, STILL_SOURCE),
    ],
)
def test_so_long_may_a_counter_stand_still(still_s: float, period_ms: float | None, source: str) -> None:
    times = np.arange(0.0, 10.01, 0.05)
    counter = 5_000_000 + W700 * np.maximum(0.0, times - 4.0 - still_s) + W700 * np.minimum(times, 4.0)
    used = present(
        gpu_energy(
            gpu(counter=(times, counter), power=(times, np.full(times.size, W700)), period_ms=period_ms),
            at(1.0),
            at(9.0),
        )
    )
    assert used.source == source


def test_a_gap_in_the_readings_is_no_standstill() -> None:
    times = np.array([0.0, 1.0, 2.0, 7.0, 8.0, 10.0])
    used = present(gpu_energy(gpu(counter=steady([*times])), at(1.0), at(9.0)))
    assert used.energy_mj == pytest.approx(8 * W700)
    assert used.source == COUNTER_SOURCE


def test_one_gpu_without_energy_leaves_the_run_without() -> None:
    assert total_energy([gpu(counter=steady([0.0, 6.0])), gpu(name="GPU-b")], at(1.0), at(5.0)) is None
    assert total_energy([], at(1.0), at(5.0)) is None


def simulated(
    levels_w: Sequence[float], readings_s: Sequence[float], phase_s: float
) -> tuple[SampleColumns, Callable[[Floats], Floats]]:
    """A card whose power holds each level for half a second, and the true energy until a time.

    Counter and power are renewed every 100 ms at the given phase, power is sampled every 50 ms.
    """
    bounds = np.arange(len(levels_w) + 1) * 0.5
    totals = np.concatenate(([0.0], np.cumsum(np.array(levels_w) * 500.0)))

    def true_mj(seconds: Floats) -> Floats:
        return np.asarray(np.interp(seconds, bounds, totals), dtype=np.float64)

    def renewed(seconds: Floats) -> Floats:
        return np.asarray(np.floor((seconds - phase_s) / PERIOD_S) * PERIOD_S + phase_s, dtype=np.float64)

    sampled = np.arange(0.0, bounds[-1], 0.05)
    level = np.clip((renewed(sampled) // 0.5).astype(int), 0, len(levels_w) - 1)
    readings = np.array(sorted({0.0, float(bounds[-1]), *readings_s}))
    card = gpu(counter=(readings, true_mj(renewed(readings))), power=(sampled, np.array(levels_w)[level] * 1e3))
    return card, true_mj


@given(
    levels_w=st.lists(st.floats(0.0, 700.0), min_size=20, max_size=20),
    readings=st.lists(st.floats(0.0, 10.0), max_size=12),
    start=st.floats(0.0, 8.0),
    length=st.floats(0.15, 10.0),
    phase=st.floats(0.0, 0.1),
)
def test_the_error_bounds_what_the_counter_gets_wrong(
    levels_w: list[float], readings: list[float], start: float, length: float, phase: float
) -> None:
    card, true_mj = simulated(levels_w, readings, phase)
    end = min(start + length, 10.0)
    used = present(gpu_energy(card, at(start), at(end)))
    assert used.source == COUNTER_SOURCE
    true = float(true_mj(np.array(end)) - true_mj(np.array(start)))
    assert abs(used.energy_mj - true) <= used.error_mj + 1e-3


@given(start=st.floats(0.5, 4.0), length=st.floats(0.3, 5.0), power_w=st.floats(50.0, 700.0))
def test_the_integral_of_a_steady_power_is_right_to_the_last_digit(start: float, length: float, power_w: float) -> None:
    times = np.arange(0.0, 10.0, 0.05)
    used = present(gpu_energy(gpu(power=(times, np.full(times.size, power_w * 1e3))), at(start), at(start + length)))
    assert used.energy_mj == pytest.approx(power_w * 1e3 * length, rel=1e-6)
    assert 0 < used.error_mj <= power_w * 1e3 * (PERIOD_S + 2 * 0.025 + 1e-6)


@pytest.mark.parametrize(("gap_s", "unread_s"), [(1.0, 0.0), (1.1, 1.1)])
def test_a_gap_of_a_busy_machine_counts_as_read_up_to_a_second(gap_s: float, unread_s: float) -> None:
    times_s = np.concatenate((np.arange(0.0, 5.0, 0.05), 4.95 + gap_s + np.arange(0.0, 5.0, 0.05)))
    used = present(gpu_energy(gpu(power=(times_s, np.full(times_s.size, W700))), at(1.0), at(9.0)))
    assert used.error_mj == pytest.approx(W700 * (PERIOD_S + unread_s))


def test_a_window_has_its_end_and_not_its_start() -> None:
    times = np.array([1, 2, 3, 4], dtype=np.int64)
    assert values_in_window(times, np.array([10.0, 20.0, np.nan, 40.0]), 1, 4).tolist() == [20.0, 40.0]


def test_memory_traffic_of_a_step_is_the_load_of_the_memory_by_its_bandwidth_and_time() -> None:
    """25 % of an H200's 4.8 TB/s, for a step of 64 ms; not known without the load."""
    run = result(1, complete("lstm", {"gpus": 1, "batch_size": 64}, Machine()), 1000.0)
    loaded = tuple(
        replace(columns, slow_t_ns=columns.t_ns, slow={"dram_active_pct": np.full(columns.t_ns.size, 25.0)})
        for columns in run.samples
    )
    assert traffic_bytes_per_step(replace(run, samples=loaded)) == pytest.approx(0.25 * 4.8e12 * 0.064)
    assert traffic_bytes_per_step(run) is None
