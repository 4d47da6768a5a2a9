"""The inventory of a machine, and what later readings change in it."""

from pathlib import Path

import msgspec
import pynvml
import pytest

from app.runs.leases import candidate_devices
from app.telemetry.feed import continued_inventory, updated_inventory
from app.telemetry.sampler import take_inventory
from app.values.fields import Sample
from app.values.samples import DeviceLost, FieldInfo, FieldsUpdated, Inventory, Processes
from tests.fakes.nvml import installed
from tests.fakes.nvml_cards import JETSON, MIG, RTX_2080_TI, TWO_H200, Card, Driver
from tests.unit.telemetry.sources import opened
from workloads.catalog import check, complete


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
    inventory = two_h200()
    assert [device.kind for device in inventory.devices] == ["gpu", "gpu", "host"]
    gpus = [(gpu.uuid, gpu.index, gpu.compute_capability) for gpu in inventory.machine.gpus]
    assert gpus == [("GPU-aaaa", 0, (9, 0)), ("GPU-bbbb", 1, (9, 0))]
    assert (inventory.driver, inventory.cuda_driver, inventory.no_gpu_reason) == ("580.65.06", "13.0", None)
    assert inventory.machine.cpu_count >= 1


def test_instances_can_be_used_and_the_whole_cannot() -> None:
    with opened(TWO_H200[0], MIG) as (source, _):
        assert [gpu.uuid for gpu in source.gpus] == ["GPU-aaaa", "MIG-one", "MIG-two"]
        assert [gpu.index for gpu in source.gpus] == [0, 2, 3], "numbered on from the last GPU"
        assert [gpu.memory_total_bytes for gpu in source.gpus[1:]] == [70 * 2**30, 35 * 2**30]
        assert [device.name for device in source.devices] == [
            "NVIDIA H200",
            "NVIDIA H200 (MIG mode)",
            "NVIDIA H200 MIG 3g.70gb",
            "NVIDIA H200 MIG 3g.35gb",
        ]


def test_each_tells_what_it_can_and_why_it_cannot_tell_the_rest() -> None:
    with opened(MIG) as (source, _):
        whole, one, two = source.devices
        readings = source.read()
        slow = [said.device for said in source.read_slow() if not isinstance(said, Processes)]
    assert {whole.absent[name] for name in ("load_pct", "memory_load_pct")} == {"not supported"}
    assert "power_mw" in whole.fields
    for instance in (one, two):
        assert set(instance.fields) == {"memory_bytes", "memory_reserved_bytes"}
        assert {*instance.absent.values()} == {"not supported"}
        assert {"power_mw", "load_pct", "energy_mj", "temperature_c", "sm_active_pct"} <= set(instance.absent)
    samples = [reading for reading in readings if isinstance(reading, Sample)]
    assert [(sample.power_mw, sample.load_pct) for sample in samples] == [(688_123, None), (None, None), (None, None)]
    assert [sample.memory_bytes for sample in samples] == [4_000_000_000, 1_000_000_000, 1_000_000_000]
    assert slow == ["GPU-split", "MIG-one", "MIG-two"]


def test_a_jetson_s_gpu_is_used_without_memory_of_its_own() -> None:
    thor = msgspec.structs.replace(JETSON, memory_used_bytes=0, name="NVIDIA Thor")
    for card in (JETSON, thor):
        with opened(card) as (source, _):
            assert [gpu.uuid for gpu in source.gpus] == [JETSON.uuid]
            (device,) = source.devices
        assert (device.name, device.memory_total_bytes, device.lost) == (card.name, None, None)
        assert {device.absent[name] for name in ("memory_bytes", "memory_reserved_bytes")} == {"not supported"}
        assert "load_pct" in device.fields


@pytest.mark.parametrize("uuid", ["54d0709b", f"{JETSON.uuid}0", f"../{JETSON.uuid}", "gpu 54d0709b-6a31-5d9e", ""])
def test_a_gpu_without_a_uuid_is_none(uuid: str) -> None:
    with opened(msgspec.structs.replace(JETSON, uuid=uuid)) as (source, _):
        assert not source.gpus


def test_an_instance_that_is_taken_away_is_lost_alone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    first = msgspec.structs.replace(MIG.mig[0], lost_when=str(gone))
    with opened(msgspec.structs.replace(MIG, mig=(first, MIG.mig[1]))) as (source, _):
        gone.touch()
        readings = [*source.read(), *source.read()]
    assert [reading.device for reading in readings if isinstance(reading, DeviceLost)] == ["MIG-one"]
    assert [reading.device for reading in readings].count("MIG-two") == 2
    assert [gpu.uuid for gpu in source.gpus] == ["MIG-two"]


def test_mig_mode_that_is_off_or_unknown_changes_nothing() -> None:
    with opened(Card(uuid="GPU-a", mig_mode=0), Card(uuid="GPU-b", mig_mode=None)) as (source, _):
        assert [gpu.uuid for gpu in source.gpus] == ["GPU-a", "GPU-b"]
        assert not any("MIG" in device.name for device in source.devices)


def test_a_gpu_in_mig_mode_without_an_instance_is_no_gpu_to_run_on() -> None:
    with installed(Driver(cards=(msgspec.structs.replace(MIG, mig=()),))):
        inventory = take_inventory()
    assert inventory.machine.gpus == ()
    assert [device.kind for device in inventory.devices] == ["gpu", "host"]
    assert inventory.no_gpu_reason == "every GPU is in MIG mode and has no instance"


def test_a_run_may_name_an_instance_but_not_the_gpu_it_is_of() -> None:
    with installed(Driver(cards=(MIG,))):
        machine = take_inventory().machine
    assert not check(complete("dummy", {"gpus": 1, "devices": "MIG-two"}, machine), machine)
    assert check(complete("dummy", {"gpus": 1, "devices": "GPU-split"}, machine), machine)


@pytest.mark.parametrize(
    ("named", "visible"),
    [
        (None, "ab"),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("all", ""),
        ("1", "b"),
        ("1,0", "ba"),
        (" 1", "b"),
        ("0, 1", "ab"),
        ("0 1", "a"),
        ("1x", "b"),
        ("+1", "b"),
        ("0,-1,1", "a"),
        ("0,junk,1", "a"),
        ("0,,1", "a"),
        (",0", ""),
        ("5", ""),
        ("0,0", ""),
        ("0,1,0", ""),
        ("0,1,5,0", "ab"),
        ("GPU-bbbb,GPU-aaaa", "ba"),
        ("GPU-b", "b"),
        ("GPU-BBBB ", "b"),
        ("GPU-", ""),
        ("gpu-bbbb", ""),
        ("bbbb", ""),
        ("GPU-aaaa,1", "a"),
        ("1,GPU-aaaa", "b"),
        ("GPU-aaaa,GPU-a", ""),
        ("GPU-aaaa, GPU-bbbb", "a"),
    ],
)
@pytest.mark.parametrize("others", [{}, {"SLURM_JOB_ID": "7"}])
def test_runs_get_the_gpus_that_cuda_shows(
    named: str | None, visible: str, others: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver itself (580, two H200) shows with each of these."""
    for name, value in {"CUDA_VISIBLE_DEVICES": named, **others}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    inventory = two_h200()
    machine = inventory.machine
    assert [gpu.uuid for gpu in machine.gpus] == [f"GPU-{4 * letter}" for letter in visible]
    assert [device.device for device in inventory.devices[:2]] == ["GPU-aaaa", "GPU-bbbb"], "all can be watched"
    assert (inventory.no_gpu_reason is None) == bool(visible)
    assert bool(machine.hidden_by) == (len(visible) < 2)
    asked = complete("dummy", {"gpus": 1}, machine)
    assert candidate_devices(asked, machine) == [gpu.uuid for gpu in machine.gpus]


def test_why_runs_have_no_gpu_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert two_h200().no_gpu_reason == "CUDA_VISIBLE_DEVICES='' hides all GPUs from runs; change that and start again"


def test_an_index_among_several_models_needs_cudas_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with installed(Driver(cards=(RTX_2080_TI, TWO_H200[1]))):
        unknown = take_inventory()
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        known = take_inventory()
    assert (unknown.machine.gpus, [gpu.uuid for gpu in known.machine.gpus]) == ((), ["GPU-bbbb"])
    assert "without CUDA_DEVICE_ORDER=PCI_BUS_ID hides all GPUs from runs" in str(unknown.no_gpu_reason)


def test_mig_instances_are_named_by_uuid_and_the_first_by_its_gpus_index(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(Driver(cards=(TWO_H200[0], MIG))):
        for named, visible in (("MIG-two", ["MIG-two"]), ("1", ["MIG-one"]), ("3", [])):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
            assert [gpu.uuid for gpu in take_inventory().machine.gpus] == visible


def test_a_container_that_asked_for_no_gpu_runs_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "void")
    assert len(two_h200().machine.gpus) == 2, "as where the runtime gives GPUs by CDI"
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "none")
    assert two_h200().machine.gpus == ()


LOST = DeviceLost(t_ns=1, device="GPU-aaaa", reason="NVIDIA H200 stopped answering (GPU is lost).")


def two_h200() -> Inventory:
    with installed(Driver(cards=TWO_H200)):
        return take_inventory()


def test_a_lost_gpu_is_listed_but_none_to_run_on() -> None:
    before = two_h200()
    after = updated_inventory(before, LOST)
    assert [gpu.uuid for gpu in after.machine.gpus] == ["GPU-bbbb"]
    assert [device.device for device in after.devices] == [device.device for device in before.devices]
    lost, *others = after.devices
    assert (lost.fields, lost.lost) == ({}, LOST.reason)
    assert (lost.absent["power_mw"], lost.absent["energy_mj"]) == ("lost", "lost")
    assert lost.absent["fan_pct"] == "not supported", "what it never told, it did not lose"
    assert tuple(others) == before.devices[1:]
    assert (after.driver, after.machine.cpu_count) == (before.driver, before.machine.cpu_count)


def test_what_watching_taught_is_known_to_the_next_run() -> None:
    before = two_h200()
    facts = {**before.devices[1].fields, "energy_mj": FieldInfo(unit="mJ", cost_us=3_000.0, period_ms=100.0)}
    after = updated_inventory(before, FieldsUpdated(device="GPU-bbbb", fields=facts, absent={"fan_pct": "no fan"}))
    assert after.devices[1] == msgspec.structs.replace(before.devices[1], fields=facts, absent={"fan_pct": "no fan"})
    assert (after.devices[0], after.machine) == (before.devices[0], before.machine)


def test_a_later_inventory_lacks_no_gpu_that_was_there() -> None:
    before = two_h200()
    first, second, host = before.devices
    found = msgspec.structs.replace(
        before,
        machine=msgspec.structs.replace(before.machine, gpus=before.machine.gpus[:1]),
        devices=(first, host),
        pending=True,
    )
    waiting = continued_inventory(before, found)
    assert (waiting.devices, waiting.machine.gpus) == (before.devices, (found.machine.gpus[0], before.machine.gpus[1]))
    after = continued_inventory(waiting, msgspec.structs.replace(found, pending=False))
    assert [device.lost for device in after.devices] == [None, "The NVIDIA driver no longer shows this GPU.", None]
    assert after.machine == found.machine
    assert continued_inventory(after, before) == before, "it came back"
    refused = msgspec.structs.replace(second, device="index-1", lost="The driver does not open this GPU.")
    other = continued_inventory(before, msgspec.structs.replace(found, pending=False, devices=(first, refused, host)))
    assert other.devices == (first, refused, host), "one row for each GPU"


def test_what_was_seen_of_a_lost_device_comes_too_late() -> None:
    before = two_h200()
    lost = updated_inventory(before, LOST)
    assert updated_inventory(lost, FieldsUpdated(device="GPU-aaaa", fields=before.devices[0].fields)) == lost
