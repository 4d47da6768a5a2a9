"""What is known of the machine after news from the sampler."""

import msgspec

from app.samples import DeviceLost, FieldFacts, FieldsSeen, Inventory
from app.telemetry.inventory import take_inventory
from app.telemetry.news import with_news
from tests.fakes.nvml import installed
from tests.fakes.nvml_cards import TWO_H200, Driver

LOST = DeviceLost(t_ns=1, device="GPU-aaaa", reason="NVIDIA H200 stopped answering (GPU is lost).")


def two_h200() -> Inventory:
    with installed(Driver(cards=TWO_H200)):
        return take_inventory()


def test_a_lost_gpu_is_listed_but_none_to_run_on() -> None:
    before = two_h200()
    after = with_news(before, LOST)
    assert [gpu.uuid for gpu in after.machine.gpus] == ["GPU-bbbb"]
    assert [device.device for device in after.devices] == [device.device for device in before.devices]
    lost, *others = after.devices
    assert lost.fields == {}
    assert (lost.absent["power_mw"], lost.absent["energy_mj"]) == ("lost", "lost")
    assert lost.absent["fan_pct"] == "not supported", "what it never told, it did not lose"
    assert tuple(others) == before.devices[1:]
    assert (after.driver, after.machine.cpu_count) == (before.driver, before.machine.cpu_count)


def test_what_watching_taught_is_known_to_the_next_run() -> None:
    before = two_h200()
    facts = {**before.devices[1].fields, "energy_mj": FieldFacts(unit="mJ", cost_us=3_000.0, period_ms=100.0)}
    after = with_news(before, FieldsSeen(device="GPU-bbbb", fields=facts))
    assert after.devices[1] == msgspec.structs.replace(before.devices[1], fields=facts)
    assert (after.devices[0], after.machine) == (before.devices[0], before.machine)


def test_what_was_seen_of_a_lost_device_comes_too_late() -> None:
    before = two_h200()
    lost = with_news(before, LOST)
    assert with_news(lost, FieldsSeen(device="GPU-aaaa", fields=before.devices[0].fields)) == lost
