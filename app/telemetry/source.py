"""What every source of telemetry is: devices, one verb, and an end; and the messages of the sampler's process."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from app.records import Device, DeviceLost, FieldsSeen, Inventory, Processes, Sample, SlowSample

Reading = Sample | DeviceLost

SamplerMessage = Inventory | Sample | SlowSample | Processes | DeviceLost | FieldsSeen
"""What the sampler writes: one inventory, then readings and what they teach."""


class Follow(msgspec.Struct, frozen=True, tag="follow", tag_field="type"):
    """An order to the sampler: watch this process's own load and memory too; None watches none."""

    pid: int | None


class ReadEnergy(msgspec.Struct, frozen=True, tag="read_energy", tag_field="type"):
    """An order to the sampler: read the energy counters now, because a phase begins or ends."""


Order = Follow | ReadEnergy


class TelemetrySource(Protocol):
    """Reads all its devices at once. What a device cannot give is None in its samples and named in `Device.absent`."""

    @property
    def devices(self) -> Sequence[Device]:
        """The devices found at the start, in their own order."""

    def read(self) -> Sequence[Reading]:
        """One sample of each device still there, stamped at the source; a device that is gone says so once."""

    def close(self) -> None:
        """Gives back what the source holds."""
