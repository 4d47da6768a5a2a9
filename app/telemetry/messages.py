"""What the sampler's process says, and the orders that it takes."""

import msgspec

from app.values.fields import Sample, SlowSample
from app.values.samples import DeviceLost, FieldsUpdated, Inventory, Processes, TelemetryGap

SamplerMessage = Inventory | Sample | SlowSample | Processes | DeviceLost | FieldsUpdated | TelemetryGap
"""What telemetry says: an inventory, again when devices change, readings and what they teach; gaps are the feed's."""


class Follow(msgspec.Struct, frozen=True, tag="follow", tag_field="type"):
    """An order to the sampler: watch this process's own load and memory too; None watches none."""

    pid: int | None


class ReadEnergy(msgspec.Struct, frozen=True, tag="read_energy", tag_field="type"):
    """An order to the sampler: read the energy counters now, because a phase begins or ends."""


class SetRate(msgspec.Struct, frozen=True, tag="set_rate", tag_field="type"):
    """An order to the sampler: read the fast fields that many times a second from now on."""

    hz: float


SamplerCommand = Follow | ReadEnergy | SetRate
