"""Whether a worker is to stand by: where runs use a GPU and there are processors to spare, unless the user says."""

import os
from typing import Final

from app.errors import TelemetryError
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import Machine

VARIABLE: Final = "VARIANTSCOPE_STANDBY"
"""The environment variable that says `on` or `off`; anything else leaves it to the machine."""

ENOUGH_PROCESSORS: Final = 8
"""An import takes one of them for some seconds beside a run; with so many, runs on H200s were no slower for it."""


def wanted(feed: TelemetryFeed) -> bool:
    """Whether to have one; waits until it is known what machine this is."""
    said = os.environ.get(VARIABLE, "").strip().lower()
    if said in ("on", "off"):
        return said == "on"
    try:
        return has_room(feed.wait_inventory().machine)
    except TelemetryError:
        return False


def has_room(machine: Machine) -> bool:
    """Whether a machine has one by itself.

    Without a GPU no import may go on beside a run, so none would be ready for the next.
    """
    return bool(machine.gpus) and machine.cpu_count >= ENOUGH_PROCESSORS
