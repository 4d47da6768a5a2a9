"""Each device's part in the traced steps, where there are several."""

from collections.abc import Sequence
from typing import NamedTuple

from app.analysis.step_parts import imbalance
from app.viewmodels import units
from workloads.protocol import DeviceTime, Evidence


class DeviceRow(NamedTuple):
    """One device's step: how long it is, and in how much of it the device computes, communicates alone, is idle."""

    device: str
    step: str
    computing: str
    communicating: str
    idle: str
    kernels: str


HEADS = DeviceRow("", "Step", "Computing", "Communicating alone", "No kernel", "Kernels")


def device_rows(evidence: Evidence) -> tuple[DeviceRow, ...]:
    """One row a device; none where there is one device only."""
    return tuple(_row(one, evidence.steps) for one in evidence.devices) if len(evidence.devices) > 1 else ()


def imbalance_words(devices: Sequence[DeviceTime]) -> str:
    """How alike the devices are, in a sentence; "" of one."""
    share = imbalance(devices)
    if share is None:
        return ""
    slowest = max(devices, key=lambda device: device.compute_ns)
    return f"The slowest, {slowest.device}, computes {units.percent(100 * share, 1)} longer than the fastest."


def _row(time: DeviceTime, steps: int) -> DeviceRow:
    def a_step(time_ns: int) -> str:
        return units.milliseconds(time_ns / 1e6 / steps)

    return DeviceRow(
        device=time.device,
        step=a_step(time.span_ns),
        computing=a_step(time.compute_ns),
        communicating=a_step(time.busy_ns - time.compute_ns),
        idle=a_step(time.span_ns - time.busy_ns),
        kernels=units.number(time.kernels / steps),
    )
