"""The slow fields: schedules, counters as rates, GPM, energy, processes, and cards that are lost on the way."""

import itertools
import math
import os
import queue
import threading
import time

import psutil
import pynvml
import pytest

from app.telemetry import nvml_calls
from app.telemetry.messages import SamplerMessage
from app.telemetry.nvml import GpuList, GpuThread
from app.values.fields import Sample, SlowSample
from app.values.samples import DeviceLost, FieldsUpdated, Processes
from tests.fakes.nvml import installed
from tests.fakes.nvml_cards import ENERGY, NOT_SUPPORTED, TWO_H200, Card, Driver, Flaw
from tests.present import present
from tests.unit.telemetry.clock import Clock
from tests.unit.telemetry.sources import Readers, opened, slow_values

H200, _ = TWO_H200


def counting(fields: dict[int, int]) -> Card:
    """A card without GPM, whose counters are the caller's to change."""
    return Card(uuid="GPU-x", gpm={}, fields=fields, costs_ms={})


def test_each_field_is_read_on_its_own_schedule(clock: Clock) -> None:
    with opened(Card(uuid="GPU-x", gpm={}, fan_pct=30, costs_ms={})) as (source, _):
        read: dict[str, list[float]] = {}
        for tick in range(41):
            now_s = clock.passed_s = tick / 4
            for name in slow_values(source):
                read.setdefault(name, []).append(now_s)
    assert read["energy_mj"] == [0, 4, 8]
    assert read["fan_pct"] == [0, 5, 10]
    assert read["memory_reserved_bytes"] == [0, 10]
    assert read["throttled_power_ns"] == [float(s) for s in range(11)]
    assert read["pcie_tx_bytes_per_s"] == [tick / 4 for tick in range(1, 41)], "the first has nothing before it"


def test_the_thread_of_a_gpu_wakes_for_what_is_due_first(clock: Clock) -> None:
    stopped, slow = threading.Event(), threading.Event()
    slow.set()

    class Orders(queue.SimpleQueue[bool]):
        def get(self, block: bool = True, timeout: float | None = None) -> bool:
            clock.sleep(timeout or 0.0)
            if clock.passed_s > 20:
                stopped.set()
            raise queue.Empty

    said: list[SamplerMessage] = []
    with installed(Driver(cards=(H200,))):
        pynvml.nvmlInit()
        gpus = GpuList(said.extend, ())
        gpus.set_count(1)
        thread = GpuThread(gpus, 0, slow, stopped)
        thread.orders = Orders()
        thread.run()
        pynvml.nvmlShutdown()
    active_ns = [each.t_ns for each in said if isinstance(each, SlowSample) and each.sm_active_pct is not None]
    assert len(active_ns) > 15
    assert max(later - earlier for earlier, later in itertools.pairwise(active_ns)) < 1.1e9


def test_counters_become_rates_and_a_wrapped_one_gives_none_this_time(clock: Clock) -> None:
    fields = {197: 1_000, 198: 4_294_900_000}
    with opened(counting(fields)) as (source, _):
        slow_values(source)
        clock.passed_s += 0.5
        fields[197] += 5_000_000
        fields[198] = 20_000
        rates = slow_values(source)
        assert rates["pcie_tx_bytes_per_s"] == pytest.approx(10_000_000, rel=1e-4)
        assert "pcie_rx_bytes_per_s" not in rates, "it wrapped"
        clock.passed_s += 0.25
        fields[198] += 1_000_000
        rates = slow_values(source)
    assert rates["pcie_rx_bytes_per_s"] == pytest.approx(4_000_000, rel=1e-4)
    assert rates["pcie_tx_bytes_per_s"] == 0, "nothing was sent: that is a value"


def test_a_counter_that_fails_once_begins_anew(clock: Clock) -> None:
    fields = {197: 0, 198: 0}
    with opened(counting(fields)) as (source, _):
        slow_values(source)
        fields[197] = NOT_SUPPORTED
        clock.passed_s += 1
        assert "pcie_tx_bytes_per_s" not in slow_values(source)
        fields[197] = 7_000_000
        clock.passed_s += 1
        assert "pcie_tx_bytes_per_s" not in slow_values(source), "the reading before was no reading"
        clock.passed_s += 1
        assert slow_values(source)["pcie_tx_bytes_per_s"] == 0


def gpm_of(source: Readers) -> dict[str, float]:
    return {name: value for name, value in slow_values(source).items() if name in nvml_calls.FIELDS}


def test_gpm_tells_of_the_time_since_the_reading_before(clock: Clock) -> None:
    """The fake answers as an H200 does, with zeros for samples less than 100 ms apart."""
    with opened(H200) as (source, fake):
        assert gpm_of(source) == {}, "the probe was only just now: better nothing than zeros"
        clock.passed_s += nvml_calls.INTERVAL_S
        first = gpm_of(source)
        clock.passed_s += nvml_calls.INTERVAL_S
        second = gpm_of(source)
    assert first["sm_active_pct"] == 96.0
    assert first["dram_active_pct"] == 16.0
    assert first["fp16_active_pct"] == 0.0, "idle is a value"
    assert first["pcie_tx_bytes_per_s"] == 0.25 * 2**20
    assert first == second
    before, last = fake.gpm_pairs[-2:]
    assert last[0] == before[1], "where one reading ends the next begins"


def test_a_metric_that_the_first_readings_lacked_is_reported_once_it_is_there(clock: Clock) -> None:
    metrics = {2: 96.0}
    with opened(Card(uuid="GPU-x", gpm=metrics)) as (source, _):
        for _ in range(6):
            clock.passed_s += 1
            assert "tensor_active_pct" not in gpm_of(source)
        assert source.devices[0].absent["tensor_active_pct"] == "not supported"
        clock.passed_s += 1
        metrics[5] = 93.5
        assert gpm_of(source)["tensor_active_pct"] == 93.5
        (updated,) = source.fields_seen()
    assert "tensor_active_pct" in updated.fields
    assert "tensor_active_pct" not in updated.absent


def test_gpm_that_fails_once_harms_nothing_else(clock: Clock) -> None:
    flaw = Flaw("nvmlGpmSampleGet", pynvml.NVML_ERROR_UNKNOWN, first=2, times=1)
    with opened(Card(uuid="GPU-x", flaws=(flaw,))) as (source, _):
        clock.passed_s += 1.1
        slow = slow_values(source)
        assert source.devices[0].absent["sm_active_pct"] == "Unknown Error"
        clock.passed_s += 1.1
        assert set(slow_values(source)) >= set(nvml_calls.FIELDS)
        assert not set(source.devices[0].absent) & set(nvml_calls.FIELDS), "it was an error of the moment"
    assert "energy_mj" in slow
    assert not set(slow) & set(nvml_calls.FIELDS)


def test_the_energy_counter_is_read_at_once_when_asked() -> None:
    with opened(*TWO_H200) as (source, _):
        before_ns = time.monotonic_ns()
        samples = source.read_energy()
        after_ns = time.monotonic_ns()
    assert [sample.device for sample in samples] == ["GPU-aaaa", "GPU-bbbb"]
    assert all(before_ns < sample.t_ns < after_ns for sample in samples)
    for sample, power_mw in zip(samples, (688_123, 671_000), strict=True):
        at_first, at_last = (2_190_936 + power_mw * t_ns / 1e9 for t_ns in (before_ns, after_ns))
        assert at_first - power_mw * 0.2 < (sample.energy_mj or 0) <= at_last


def test_the_energy_counter_s_period_is_learnt_by_watching(clock: Clock) -> None:
    with opened(*TWO_H200) as (source, _):
        assert source.observe_energy_periods(lambda: True)
        seen = source.fields_seen()
    assert [type(each) for each in seen] == [FieldsUpdated, FieldsUpdated]
    for each in seen:
        assert each.fields["energy_mj"].period_ms == pytest.approx(100, abs=3)
        cost_us = each.fields["energy_mj"].cost_us or math.nan
        assert cost_us == round(cost_us, 1), "no more digits than a reading's cost has"
        assert each.fields["temperature_c"].period_ms is None, "it never changed"


def test_a_counter_that_stands_still_is_not_watched_for_ever(clock: Clock) -> None:
    with opened(Card(uuid="GPU-x", power_instant_mw=0)) as (source, _):
        began_s = clock.passed_s
        assert source.observe_energy_periods(lambda: True)
        assert clock.passed_s - began_s < 1.5
        assert source.fields_seen()[0].fields["energy_mj"].period_ms is None


def test_watching_gives_way_at_once_and_is_taken_up_again(clock: Clock) -> None:
    answers = itertools.chain([True, False], itertools.repeat(True))
    with opened(H200) as (source, fake):
        before = fake.calls["GPU-aaaa", ENERGY]
        assert not source.observe_energy_periods(lambda: next(answers))
        assert fake.calls["GPU-aaaa", ENERGY] == before + 1
        assert source.observe_energy_periods(lambda: next(answers))
        assert source.fields_seen()[0].fields["energy_mj"].period_ms is not None


def test_processes_are_named_and_memory_that_is_not_told_is_absent(clock: Clock) -> None:
    mine = os.getpid()
    card = Card(uuid="GPU-x", processes=((mine, 3_000_000_000), (4_194_304 + 7, -1)))
    with opened(card) as (source, _):
        (listed,) = [said for said in source.read_slow() if isinstance(said, Processes)]
        again = [said for said in source.read_slow() if isinstance(said, Processes)]
    own, other = listed.processes
    assert (own.pid, own.memory_bytes) == (mine, 3_000_000_000)
    assert present(own.name).startswith(("python", "pytest"))
    assert own.user == psutil.Process().username()
    assert 0 < present(own.running_s) < time.time() - psutil.boot_time()
    assert (other.name, other.memory_bytes, other.user, other.running_s) == (None, None, None, None)
    assert again == [], "only every two seconds"


def test_a_lost_card_is_silent_in_slow_readings_and_the_other_goes_on(clock: Clock) -> None:
    lost = Card(uuid="GPU-aaaa", lost_after=_calls_of_a_probe())
    with opened(lost, TWO_H200[1]) as (source, _):
        assert {said.device for said in source.read_slow()} == {"GPU-bbbb"}
        assert [said.device for said in source.said if isinstance(said, DeviceLost)] == ["GPU-aaaa"]
        assert [sample.device for sample in source.read_energy()] == ["GPU-bbbb"]
        readings = [*source.read(), *source.read(), *source.read()]
        assert [said.device for said in source.fields_seen()] == ["GPU-bbbb"]
        assert source.observe_energy_periods(lambda: True)
    assert [type(reading) for reading in readings] == [Sample, Sample, Sample], "it is lost once"


def _calls_of_a_probe() -> int:
    with opened(H200) as (_, fake):
        return sum(number for (uuid, _), number in fake.calls.items() if uuid == "GPU-aaaa")


def test_a_card_may_be_lost_at_any_call_and_never_stays_as_one_that_says_nothing(clock: Clock) -> None:
    """Whenever it is lost it is listed with the reason, and is no GPU to run on. The other card never notices."""
    for calls in range(_calls_of_a_probe() + 12):
        card = Card(uuid="GPU-aaaa", lost_after=calls)
        with opened(card, TWO_H200[1]) as (source, _):
            readings = [reading for _ in range(3) for reading in source.read()]
            slow = [said for said in source.read_slow() if isinstance(said, SlowSample)]
            first, second = source.devices
            assert (first.index, first.fields, second.lost) == (0, {}, None)
            assert "GPU is lost" in (first.lost or "")
            assert [gpu.uuid for gpu in source.gpus] == ["GPU-bbbb"]
        assert [reading.device for reading in readings].count("GPU-bbbb") == 3
        assert [said.device for said in slow] == ["GPU-bbbb"]
