"""Telemetry of all devices as growing curves in bounded memory; labels and colours of devices."""

import math
from typing import NamedTuple

from app.analysis.pyramid import LEVELS
from app.fields import DeviceKind, Field, Sample, plotted_fields
from app.samples import HOST, Device, Inventory
from app.units import sentence
from app.viewmodels.format.naming import format_gpu_counts
from app.viewmodels.format.telemetry_fields import ThrottleTracker
from app.viewmodels.plot.model import SHORT_HISTORY_LEVELS, LiveSeries

HOST_COLOUR = 7
WORKER_COLOUR = 1
_SHORT_HISTORY_S = 3600.0

MONITOR_FIELDS = ("power_mw", "load_pct", "memory_bytes")
"""The fields that the Monitor plots for every device."""


def _buffered_fields(kind: DeviceKind) -> tuple[str, ...]:
    on_run = (field.name for field in plotted_fields("run", kind) if field.speed == "fast")
    return tuple(dict.fromkeys((*MONITOR_FIELDS, *on_run)))


_GPU_FIELDS, _HOST_FIELDS = _buffered_fields("gpu"), _buffered_fields("host")


class TelemetryBuffer:
    """The plotted fast fields of each device as curves, and when it was throttled; times in seconds of the one clock.

    Args:
        short_history: Store some minutes instead of hours.
    """

    def __init__(self, *, short_history: bool = False) -> None:
        self._levels = SHORT_HISTORY_LEVELS if short_history else LEVELS
        self._longest_s = _SHORT_HISTORY_S if short_history else math.inf
        self._series: dict[tuple[str, str], LiveSeries] = {}
        self.latest: dict[str, Sample] = {}
        self.throttling = ThrottleTracker()
        self.now_s: float | None = None
        self._first_s = math.inf

    @property
    def elapsed_s(self) -> float:
        """The length of what is stored, of a short history no more than it surely holds."""
        return min((self.now_s or 0.0) - self._first_s, self._longest_s) if self.now_s is not None else 0.0

    def add(self, sample: Sample) -> None:
        """Append a sample; one that was just appended, by another model that shares this buffer, is ignored."""
        if self.latest.get(sample.device) is sample:
            return
        t_s = sample.t_ns / 1e9
        self.latest[sample.device] = sample
        self.now_s = max(t_s, self.now_s or t_s)
        self._first_s = min(self._first_s, t_s)
        for name in _HOST_FIELDS if sample.device == HOST else _GPU_FIELDS:
            self.series(sample.device, name).append(t_s, getattr(sample, name))
        self.throttling.add(sample)

    def series(self, device: str, field: str) -> LiveSeries:
        """Return the curve of one field of one device, empty until it is reported."""
        found = self._series.get((device, field))
        if found is None:
            found = self._series[device, field] = LiveSeries(self._levels)
        return found

    def read_curve(self, device: Device, field: Field) -> LiveSeries:
        """Return the curve of one field of one device, as `device_panels` reads it."""
        return self.series(device.device, field.name)


def device_label(device: Device) -> str:
    """Return a device in one word: `GPU 0`, or `Host`."""
    return "Host" if device.device == HOST else f"GPU {device.index}"


def device_colour(device: Device) -> int:
    """Return the index of a device's colour, the same on every screen."""
    return HOST_COLOUR if device.device == HOST else device.index


def absence_reason(device: Device, field: str) -> str | None:
    """Return the reason why a device does not report a field, or None where it does."""
    return device.absent.get(field) if device.lost is None else "lost"


class MachineState(NamedTuple):
    """The machine in a few words, the tone in which it is shown (good, warning or bad), and an explanation."""

    text: str
    tone: str
    help: str


def machine_state(inventory: Inventory) -> MachineState:
    """Return the machine as `2× H200 · driver 580`, `CPU only · no NVIDIA driver` or `1 of 2 GPUs lost`."""
    lost = [device for device in inventory.devices if device.lost is not None]
    if any(device.device == HOST for device in lost):
        # The host cannot be lost: its sampler was given up.
        return MachineState("No telemetry", "bad", lost[-1].lost or "")
    gpus, driver = inventory.machine.gpus, inventory.driver
    if lost:
        count = len(gpus) + len(lost)
        text = f"{len(lost)} of {count} GPUs lost" if count > 1 else "GPU lost"
    elif gpus:
        text = format_gpu_counts(gpu.name for gpu in gpus)
    else:
        lacking = "hidden GPUs" if inventory.machine.hidden_by else f"no NVIDIA {'driver' if driver is None else 'GPU'}"
        text = f"CPU only · {lacking}"
    explanation = describe_lost(inventory) or inventory.no_gpu_reason or "Telemetry is running."
    with_driver = f"{text} · driver {driver.split('.')[0]}" if driver and (gpus or lost) else text
    return MachineState(with_driver, "bad" if lost else "good", explanation)


def describe_lost(inventory: Inventory) -> str:
    """Return which devices are lost and why; "" where none is."""
    lost = (f"{device_label(device)} is lost: {device.lost}" for device in inventory.devices if device.lost is not None)
    return " ".join(map(sentence, lost))
