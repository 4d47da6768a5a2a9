"""Whether a worker is to stand by on this machine: as the user set it, else where nobody misses what it takes."""

import os

import psutil

from app.records import Inventory

VARIABLE = "VARIANTSCOPE_STANDBY"
"""The environment variable that says `on` or `off`; anything else leaves the choice to the program."""

_PROCESSORS = 8
_MEMORY_BYTES = 4 * 2**30


def wanted_here(inventory: Inventory) -> bool:
    """Whether to have one: with GPUs, 8 processors and 4 GiB of free memory, unless the user set it.

    Without a GPU it would be of little use: no import may go on beside a run on the CPU, so none is ready for the next.
    """
    chosen = os.environ.get(VARIABLE, "").strip().lower()
    if chosen in ("on", "off"):
        return chosen == "on"
    machine = inventory.machine
    roomy = psutil.virtual_memory().available >= _MEMORY_BYTES
    return bool(machine.gpus) and machine.cpu_count >= _PROCESSORS and roomy
