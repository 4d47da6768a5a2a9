"""The machine in the window's head, and why the form offers fewer GPUs."""

import msgspec
import pytest

from app.telemetry.feed import updated_inventory
from app.values.samples import HOST, DeviceLost, Inventory
from app.viewmodels.plot.panels import describe_lost, machine_state
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY

REASON = "NVIDIA H200 stopped answering (GPU is lost)."


def without(*devices: str) -> Inventory:
    found = GPU_INVENTORY
    for device in devices:
        found = updated_inventory(found, DeviceLost(t_ns=1, device=device, reason=REASON))
    return found


@pytest.mark.parametrize(
    ("inventory", "text", "tone"),
    [
        (GPU_INVENTORY, "2× H200 · driver 580", "good"),
        (CPU_INVENTORY, "CPU only · no NVIDIA driver", "good"),
        (without("GPU-1"), "1 of 2 GPUs lost · driver 580", "bad"),
        (without("GPU-0", "GPU-1"), "2 of 2 GPUs lost · driver 580", "bad"),
        (without("GPU-0", HOST), "No telemetry", "bad"),
        (msgspec.structs.replace(CPU_INVENTORY, driver="580.1"), "CPU only · no NVIDIA GPU", "good"),
    ],
)
def test_a_lost_gpu_is_counted_and_not_green(inventory: Inventory, text: str, tone: str) -> None:
    assert machine_state(inventory)[:2] == (text, tone)


def test_the_reason_is_the_tooltip() -> None:
    assert describe_lost(GPU_INVENTORY) == ""
    assert machine_state(without("GPU-1")).help == f"GPU 1 is lost: {REASON}"
    assert machine_state(CPU_INVENTORY).help == "no NVIDIA driver is installed"
    assert machine_state(without(HOST)).help == REASON
