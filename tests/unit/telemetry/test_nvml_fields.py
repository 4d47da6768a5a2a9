"""Which way to each field is chosen on which card, what is absent and why, and what probing costs."""

import msgspec
import pynvml
import pytest

from app.telemetry.nvml_calls import FAST_CALLS
from app.telemetry.nvml_calls import FIELDS as GPM_FIELDS
from app.values.fields import FAST_FIELDS, SLOW_FIELDS, Sample, fields_of
from app.values.samples import Device
from tests.fakes.nvml import FakeNvml
from tests.fakes.nvml_cards import (
    ENERGY,
    LAPTOP,
    NO_PERMISSION,
    NOT_SUPPORTED,
    OLD_DRIVER,
    RTX_2080_TI,
    SLOW_ENERGY,
    TWO_H200,
    Card,
    Flaw,
)
from tests.present import present
from tests.unit.telemetry.clock import Clock
from tests.unit.telemetry.sources import described, opened

GPU_FIELDS = {field.name for field in fields_of("gpu")}
OF_THE_HOST = {*FAST_FIELDS, *SLOW_FIELDS} - GPU_FIELDS
H200, _ = TWO_H200


def every_field_has_an_answer(device: Device) -> None:
    assert set(device.fields) | set(device.absent) == GPU_FIELDS
    assert not set(device.fields) & set(device.absent)


def test_an_h200_tells_all_but_its_fan() -> None:
    device, sample, _ = described(H200)
    every_field_has_an_answer(device)
    assert device.absent == {"fan_pct": "not supported"}
    said = {name: value for name, value in msgspec.structs.asdict(sample).items() if name in GPU_FIELDS}
    assert said == {
        "power_mw": 688_123,
        "power_average_mw": 600_000,
        "load_pct": 99,
        "memory_load_pct": 31,
        "memory_bytes": 4_000_000_000,
        "temperature_c": 61,
        "sm_clock_mhz": 1_980,
        "memory_clock_mhz": 3_201,
        "throttle_reasons": 4,
        "power_limit_mw": 700_000,
    }


def test_the_units_are_those_of_the_names() -> None:
    device, *_ = described(H200)
    endings = {
        "_mw": "mW",
        "_mj": "mJ",
        "_pct": "%",
        "_bytes": "bytes",
        "_per_s": "bytes/s",
        "_mhz": "MHz",
        "_ns": "ns",
    }
    for name, facts in device.fields.items():
        assert [facts.unit] == [unit for ending, unit in endings.items() if name.endswith(ending)] or name.endswith(
            ("_c", "_reasons")
        ), name
        assert present(facts.cost_us) > 0


def test_an_rtx_2080_ti_on_an_old_driver_takes_every_second_best_way() -> None:
    device, sample, slow = described(RTX_2080_TI, missing=OLD_DRIVER)
    every_field_has_an_answer(device)
    assert (sample.power_mw, sample.power_average_mw) == (253_000, None)
    assert sample.memory_bytes == 4_000_000_000
    assert sample.throttle_reasons == 4, "by the old name of the function"
    assert slow["throttled_thermal_ns"] == 0, "one counter where the two newer ones are not there"
    assert (slow["throttled_power_ns"], slow["fan_pct"]) == (5_000, 41)
    old, never = "not supported by this driver", "not supported"
    assert {name: why for name, why in device.absent.items() if name not in GPM_FIELDS} == {
        "power_average_mw": never,
        "memory_reserved_bytes": old,
        "memory_temperature_c": never,
        "throttled_brake_ns": never,
        "energy_mj": never,
    }
    assert {device.absent[name] for name in GPM_FIELDS if "pcie" not in name} == {old}
    assert {device.absent[name] for name in GPM_FIELDS if "pcie" in name} == {never}


def test_a_laptop_without_power_has_no_energy_either() -> None:
    device, sample, slow = described(LAPTOP)
    every_field_has_an_answer(device)
    power = {"power_mw", "power_average_mw", "power_limit_mw", "energy_mj"}
    assert {device.absent[name] for name in power} == {"not supported"}
    assert (sample.power_mw, sample.load_pct, "energy_mj" in slow) == (None, 99, False)


def test_a_card_with_instantaneous_power_alone_gives_that() -> None:
    """Both fields come in one call, which fails as a whole where one of them is refused."""
    card = Card(uuid="GPU-x", power_average_mw=NO_PERMISSION)
    device, sample, _ = described(card)
    assert (sample.power_mw, sample.power_average_mw) == (688_123, None)
    assert device.absent["power_average_mw"] == "no permission"


def test_no_permission_is_told_apart_from_not_supported() -> None:
    card = Card(uuid="GPU-x", energy_mj=NO_PERMISSION, sm_clock_mhz=NO_PERMISSION, fan_pct=NOT_SUPPORTED, load_pct=0)
    device, sample, _ = described(card)
    assert (device.absent["energy_mj"], device.absent["fan_pct"]) == ("no permission", "not supported")
    assert device.absent["sm_clock_mhz"] == "no permission"
    assert (sample.sm_clock_mhz, sample.load_pct) == (None, 0), "idle is a value"


def test_a_driver_without_field_values_at_all_gives_the_average_power() -> None:
    device, sample, _ = described(H200, missing=("nvmlDeviceGetFieldValues", "nvmlDeviceGetEnforcedPowerLimit"))
    assert (sample.power_mw, sample.power_limit_mw) == (600_000, None)
    assert "power_mw" not in device.absent
    assert device.absent["power_limit_mw"] == "not supported by this driver"


def test_a_card_without_gpm_counts_bytes_over_pcie() -> None:
    device, *_ = described(Card(uuid="GPU-x", gpm={}))
    assert {"pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"} <= set(device.fields)
    assert device.absent["sm_active_pct"] == "not supported"


def test_a_metric_that_gpm_lacks_is_absent_alone() -> None:
    device, *_ = described(Card(uuid="GPU-x", gpm={2: 50.0, 10: 16.0}))
    assert "sm_active_pct" in device.fields
    assert "dram_active_pct" in device.fields, "though the first answer is not a number"
    assert device.absent["tensor_active_pct"] == "not supported"


def times(fake: FakeNvml, card: Card, function: str) -> int:
    return fake.calls[card.uuid, function]


def test_dear_calls_are_made_at_most_twice_to_learn_their_cost(clock: Clock) -> None:
    slow = Card(uuid="GPU-x", costs_ms={ENERGY: 5.0, "nvmlDeviceGetFanSpeed": 2.0}, fan_pct=30)
    with opened(slow) as (source, fake):
        assert times(fake, slow, ENERGY) == 2
        assert times(fake, slow, "nvmlDeviceGetFanSpeed") == 2
        assert times(fake, slow, "nvmlDeviceGetTemperature") == 5
        costs_us = {name: facts.cost_us or 0 for name, facts in source.devices[0].fields.items()}
    assert costs_us["energy_mj"] == pytest.approx(5_000, abs=5)
    assert costs_us["fan_pct"] == pytest.approx(2_000, abs=5)
    assert costs_us["temperature_c"] < 5


def test_cheap_readings_never_make_a_dear_call() -> None:
    with opened(*SLOW_ENERGY) as (source, fake):
        before = times(fake, SLOW_ENERGY[0], ENERGY)
        for _ in range(20):
            source.read()
        assert times(fake, SLOW_ENERGY[0], ENERGY) == before
    assert not any(function == "nvmlDeviceGetPcieThroughput" for _, function in fake.calls)


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetTemperature", {"temperature_c"}),
        ("nvmlDeviceGetUtilizationRates", {"load_pct", "memory_load_pct"}),
        ("nvmlDeviceGetMemoryInfo_v2", {"memory_bytes"}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"throttle_reasons"}),
    ],
)
def test_an_error_that_is_no_loss_takes_only_its_own_fields_this_once(function: str, fields: set[str]) -> None:
    # Five probes for a field's cost; the memory call is probed for what is reserved, too.
    probed = 10 if function == "nvmlDeviceGetMemoryInfo_v2" else 5
    card = Card(uuid="GPU-x", flaws=(Flaw(function, pynvml.NVML_ERROR_UNKNOWN, first=probed + 1, times=1),))
    with opened(card) as (source, _):
        (bad,) = source.read()
        (good,) = source.read()
    assert isinstance(bad, Sample)
    assert isinstance(good, Sample)
    missing = {name for name in FAST_FIELDS if getattr(bad, name) is None} - OF_THE_HOST
    assert missing == fields
    assert all(getattr(good, name) is not None for name in fields)


def test_every_cheap_field_is_read_ten_times_a_second_by_one_call_each(clock: Clock) -> None:
    with opened(Card(uuid="GPU-x")) as (source, fake):
        fake.calls.clear()
        samples = []
        for clock.passed_s in (11.0, 11.1, 11.2):
            samples += source.read()
    assert sum(fake.calls.values()) == 3 * len(FAST_CALLS)
    of_a_gpu = set(FAST_FIELDS) - OF_THE_HOST
    assert all(getattr(sample, name) is not None for sample in samples for name in of_a_gpu)


def test_a_reading_is_the_driver_s_answer_now_not_the_first_one(clock: Clock) -> None:
    with opened(Card(uuid="GPU-x", temperature_c=41)) as (source, fake):
        (before,) = source.read()
        clock.sleep(0.05)
        fake.replace("GPU-x", temperature_c=77, load_pct=12)
        (after,) = source.read()
    assert isinstance(before, Sample)
    assert isinstance(after, Sample)
    assert (before.temperature_c, after.temperature_c, after.load_pct) == (41, 77, 12)
