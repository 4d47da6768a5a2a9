"""NVML's reasons for a GPU's clocks to be where they are, as bits of one number (nvml.h, nvmlClocksEventReason*)."""

from enum import IntEnum


class ClockEvent(IntEnum):
    """One reason; the first two hold nothing back."""

    IDLE = 0x1
    CLOCKS_SET = 0x2
    POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    THERMAL_LIMIT = 0x20
    HARDWARE_THERMAL_LIMIT = 0x40
    POWER_BRAKE = 0x80
    DISPLAY_CLOCKS = 0x100
