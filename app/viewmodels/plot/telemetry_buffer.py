"""Telemetry of all devices as growing curves in bounded memory; labels and colours of devices."""

from collections.abc import Iterable

from app.analysis.pyramid import LEVELS
from app.fields import Sample
from app.samples import HOST, Device, Inventory
from app.viewmodels.format.naming import format_gpu_counts
from app.viewmodels.plot.model import SHORT_HISTORY_LEVELS, LiveSeries

HOST_COLOUR = 7
WORKER_COLOUR = 1
NOT_SUPPORTED = "not supported"


class TelemetryBuffer:
    """One `Series` for each device and field; times in seconds of the one clock. `brief` ones keep some minutes."""

    def __init__(self, *, short_history: bool = False) -> None:
        self._levels = SHORT_HISTORY_LEVELS if short_history else LEVELS
        self._series: dict[tuple[str, str], LiveSeries] = {}
        self.latest: dict[str, Sample] = {}
        self.now_s: float | None = None

    def add(self, sample: Sample, fields: Iterable[str]) -> None:
        """Append these fields of a sample."""
        t_s = sample.t_ns / 1e9
        self.latest[sample.device] = sample
        self.now_s = max(t_s, self.now_s or t_s)
        for field in fields:
            self.series(sample.device, field).append(t_s, getattr(sample, field))

    def series(self, device: str, field: str) -> LiveSeries:
        """The curve of one field of one device, empty until it says something."""
        found = self._series.get((device, field))
        if found is None:
            found = self._series[device, field] = LiveSeries(self._levels)
        return found


def device_label(device: Device) -> str:
    """A device in one word: `GPU 0`, or the host."""
    return "Host" if device.device == HOST else f"GPU {device.index}"


def device_colour(device: Device) -> int:
    """The index of a device's colour, the same on every screen."""
    return HOST_COLOUR if device.device == HOST else device.index


def absence_reason(device: Device, field: str) -> str | None:
    """Why a device does not say a field, or None when it should."""
    return device.absent.get(field)


def describe_machine(inventory: Inventory | None) -> str:
    """What the machine is, in a few words: `2× H200 · driver 580`, or `CPU only · no NVIDIA driver`."""
    if inventory is None:
        return "Looking for GPUs …"
    gpus = inventory.machine.gpus
    if not gpus:
        return "CPU only · no NVIDIA driver" if inventory.driver is None else "CPU only · no NVIDIA GPU"
    names = format_gpu_counts(gpu.name for gpu in gpus)
    return f"{names} · driver {inventory.driver.split('.')[0]}" if inventory.driver else names
