"""Whether a worker is to stand by: where runs use a GPU and there are processors to spare, unless the user says."""

import os
from collections.abc import Callable
from typing import Final

from app.errors import DatabaseError, TelemetryError
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import Machine

AUTOMATIC: Final = "automatic"
ON: Final = "on"
OFF: Final = "off"

VARIABLE: Final = "VARIANTSCOPE_STANDBY"
"""The environment variable that says `on` or `off`; anything else leaves it to the setting, or the machine."""

ENOUGH_PROCESSORS: Final = 8
"""An import takes one of them for some seconds beside a run; with so many, runs on H200s were no slower for it."""


def said() -> str:
    """What the variable says, `on` or `off`; "" where it says nothing of use."""
    words = os.environ.get(VARIABLE, "").strip().lower()
    return words if words in (ON, OFF) else ""


def wanted(feed: TelemetryFeed, chosen: Callable[[], str | None] = lambda: None) -> bool:
    """Whether to have one: as the variable says, else as was `chosen`, else where there is room.

    Waits until it is known what machine this is. None is wanted where telemetry or the database does not answer.
    """
    try:
        decided = said() or chosen()
        if decided in (ON, OFF):
            return decided == ON
        return has_room(feed.wait_inventory().machine)
    except (TelemetryError, DatabaseError):
        return False


def has_room(machine: Machine) -> bool:
    """Whether a machine has one by itself."""
    return not why_none(machine)


def why_none(machine: Machine) -> str:
    """Why a machine has none by itself, in a few words; "" where it has one.

    Without a GPU no import may go on beside a run, so none would be ready for the next.
    """
    if not machine.gpus:
        return "no GPU"
    if machine.cpu_count < ENOUGH_PROCESSORS:
        return f"fewer than {ENOUGH_PROCESSORS} processors"
    return ""
