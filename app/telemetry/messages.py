"""The messages of the sampler's process, and the orders that it takes."""

import msgspec

from app.values.fields import Sample, SlowSample
from app.values.samples import DeviceLost, FieldsUpdated, Inventory, Processes, TelemetryGap

SamplerMessage = Inventory | Sample | SlowSample | Processes | DeviceLost | FieldsUpdated | TelemetryGap
"""A telemetry message: an inventory, sent again when devices change, readings, and what they reveal; the feed adds
gaps."""


class Follow(msgspec.Struct, frozen=True, tag="follow", tag_field="type"):
    """An order to the sampler: also measure this process's load and memory; None stops that."""

    pid: int | None


class ReadEnergy(msgspec.Struct, frozen=True, tag="read_energy", tag_field="type"):
    """An order to the sampler: read the energy counters now, because a phase begins or ends."""


class SetRate(msgspec.Struct, frozen=True, tag="set_rate", tag_field="type"):
    """An order to the sampler: read the fast fields that many times per second from now on."""

    hz: float


SamplerCommand = Follow | ReadEnergy | SetRate
