"""Whether to keep standby workers: by the environment variable, the window's setting, or the machine.

A module apart from the workers, because the window asks before its first paint.
"""

import os
from collections.abc import Callable
from typing import Final

from app.errors import DatabaseError, TelemetryError
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import Machine

AUTOMATIC: Final = "automatic"
ON: Final = "on"
OFF: Final = "off"

STANDBY_VARIABLE: Final = "VARIANTSCOPE_STANDBY"
"""The environment variable, `on` or `off`; otherwise the setting decides, else the machine."""

MIN_PROCESSORS: Final = 8
"""An import uses one processor for some seconds during a run; with this many, runs on H200s were no slower for it."""


def environment_choice() -> str:
    """Return the variable's value, `on` or `off`; "" for any other."""
    choice = os.environ.get(STANDBY_VARIABLE, "").strip().lower()
    return choice if choice in (ON, OFF) else ""


def is_standby_wanted(feed: TelemetryFeed, stored_choice: Callable[[], str | None] = lambda: None) -> bool:
    """Return whether to keep standby workers: by the variable, else the setting, else the machine.

    Waits until the machine is known. False if telemetry or the database does not answer. A stored choice of None means
    automatic.
    """
    try:
        choice = environment_choice() or stored_choice()
        if choice in (ON, OFF):
            return choice == ON
        return not no_standby_reason(feed.wait_inventory().machine)
    except (TelemetryError, DatabaseError):
        return False


def no_standby_reason(machine: Machine) -> str:
    """Return why a machine has no standby workers by default, in a few words; "" if it has.

    Without a GPU nothing may be imported during a run, so no worker would be ready for the next.
    """
    if not machine.gpus:
        return "no GPU"
    if machine.cpu_count < MIN_PROCESSORS:
        return f"fewer than {MIN_PROCESSORS} processors"
    return ""
