"""Whether to have standby workers: by the environment variable, the window's setting, or the machine.

Apart from the workers themselves, for the window asks before its first paint.
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
"""The environment variable, `on` or `off`; with another value the setting decides, or the machine."""

MIN_PROCESSORS: Final = 8
"""An import uses one processor for some seconds during a run; with that many, runs on H200s were no slower for it."""


def environment_choice() -> str:
    """Return the value of the variable, `on` or `off`; "" if it has no such value."""
    choice = os.environ.get(STANDBY_VARIABLE, "").strip().lower()
    return choice if choice in (ON, OFF) else ""


def is_standby_wanted(feed: TelemetryFeed, stored_choice: Callable[[], str | None] = lambda: None) -> bool:
    """Return whether to have standby workers: by the variable, else by the setting, else by the machine.

    Waits until the machine is known. False if telemetry or the database does not answer. The stored choice None is
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
    """Return why a machine has none by default, in a few words; "" if it has.

    Without a GPU no import may go on during a run, so none would be ready for the next.
    """
    if not machine.gpus:
        return "no GPU"
    if machine.cpu_count < MIN_PROCESSORS:
        return f"fewer than {MIN_PROCESSORS} processors"
    return ""
