"""NVML through the real nvidia-ml-py on a stand-in for the driver's library."""

from pathlib import Path

import pynvml
import pytest

from app.telemetry.sampler import take_inventory
from app.values.fields import Sample
from app.values.samples import DeviceLost
from tests.fakes.nvml import NO_PERMISSION, TWO_H200, Card, Driver, installed
from tests.unit.telemetry.sources import Readers, opened

FIELDS = ("power_mw", "load_pct", "memory_bytes", "temperature_c", "sm_clock_mhz", "power_limit_mw")


def read_once(*cards: Card, missing: tuple[str, ...] = ()) -> tuple[Readers, list[Sample]]:
    with opened(*cards, missing=missing) as (source, _):
        readings = source.read()
        samples = [reading for reading in readings if isinstance(reading, Sample)]
        assert len(samples) == len(readings)
        return source, samples


def absent(source: Readers) -> dict[str, str]:
    """What the first card lacks of the fields every run is described with."""
    reasons = source.devices[0].absent
    return {name: reasons[name] for name in FIELDS if name in reasons}


def test_a_driver_without_field_values_at_all_gives_the_average_power() -> None:
    source, (sample,) = read_once(TWO_H200[0], missing=("nvmlDeviceGetFieldValues",))
    assert sample.power_mw == 600_000
    assert absent(source) == {}


def test_no_permission_is_a_reason_of_its_own() -> None:
    source, (sample,) = read_once(Card(uuid="GPU-x", sm_clock_mhz=NO_PERMISSION, load_pct=0))
    assert absent(source) == {"sm_clock_mhz": "no permission"}
    assert sample.sm_clock_mhz is None
    assert sample.load_pct == 0, "idle is a value"


def test_a_function_the_driver_lacks_is_absent() -> None:
    source, (sample,) = read_once(TWO_H200[0], missing=("nvmlDeviceGetEnforcedPowerLimit",))
    assert absent(source) == {"power_limit_mw": "not supported by this driver"}
    assert sample.power_limit_mw is None


def test_a_lost_card_says_so_once_and_the_other_goes_on(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    cards = (Card(uuid="GPU-aaaa", lost_when=str(gone)), TWO_H200[1])
    with opened(*cards) as (source, _):
        before = source.read()
        gone.touch()
        at, after = source.read(), source.read()
    assert [type(reading) for reading in before] == [Sample, Sample]
    assert [type(reading) for reading in at] == [DeviceLost, Sample]
    lost = at[0]
    assert isinstance(lost, DeviceLost)
    assert (lost.device, lost.reason) == ("GPU-aaaa", "NVIDIA H200 stopped answering (GPU is lost).")
    assert lost.t_ns > before[0].t_ns
    assert [(type(reading), reading.device) for reading in after] == [(Sample, "GPU-bbbb")]


def test_a_card_lost_before_the_start_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    lost = Card(uuid="GPU-aaaa", lost_when=str(tmp_path))
    source, (sample,) = read_once(lost, TWO_H200[1])
    assert sample.device == "GPU-bbbb"
    assert [(gpu.index, gpu.uuid) for gpu in source.gpus] == [(1, "GPU-bbbb")]


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver is installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "the NVIDIA driver was updated; restart the machine"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "this user may not use the NVIDIA driver"),
        (pynvml.NVML_ERROR_UNKNOWN, "the NVIDIA driver does not answer (Unknown Error)"),
    ],
)
def test_no_driver_is_said_in_one_sentence(code: int, sentence: str) -> None:
    with installed(Driver(init_error=code)):
        inventory = take_inventory()
    assert (inventory.no_gpu_reason, inventory.machine.gpus, inventory.driver) == (sentence, (), None)
    assert [device.kind for device in inventory.devices] == ["host"]


def test_a_driver_without_a_card_says_so() -> None:
    with installed(Driver()):
        assert take_inventory().no_gpu_reason == "the NVIDIA driver shows no GPU"


def test_the_inventory_lists_gpus_then_the_host() -> None:
    with installed(Driver(cards=TWO_H200)):
        inventory = take_inventory()
    assert [device.kind for device in inventory.devices] == ["gpu", "gpu", "host"]
    gpus = [(gpu.uuid, gpu.index, gpu.compute_capability) for gpu in inventory.machine.gpus]
    assert gpus == [("GPU-aaaa", 0, (9, 0)), ("GPU-bbbb", 1, (9, 0))]
    assert (inventory.driver, inventory.cuda_driver, inventory.no_gpu_reason) == ("580.65.06", "13.0", None)
    assert inventory.machine.cpu_count >= 1
