"""Whether a worker is to stand by: only where the user asked for it."""

import os

VARIABLE = "VARIANTSCOPE_STANDBY"
"""The environment variable that says `on`; anything else is off."""


def wanted() -> bool:
    """Whether to have one.

    Off by itself: what an import costs a run that measures on a GPU beside it has not been measured, and without a GPU
    no import may go on beside a run, so none would be ready for the next.
    """
    return os.environ.get(VARIABLE, "").strip().lower() == "on"
