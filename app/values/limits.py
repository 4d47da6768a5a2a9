"""Which values a telemetry field can have: limits with their reasons, as the table of fields names them.

A limit is what no device can exceed, not what is usual: correct readings must never violate it. Values beyond are
errors of a driver or a sensor, such as power in the millions of watts, which drivers do report
(https://github.com/flightlessmango/MangoHud/pull/2144).
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""A time on the monotonic clock of the reading machine; as in `workloads.protocol`, which the sampler does not import.
"""
Integer = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""A number that the database can store."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The least and the highest plausible value of a field, in its unit, and why.

    Attributes:
        low: The least plausible value.
        high: The highest plausible value; for a GPU that reports `of`, the smaller of both limits.
        reason: Why, in a few words for docs/telemetry.md.
        of: The GPU's property that limits the value more closely.
        times: The largest multiple of that property.
        at_least: A limit by `of` is never below this.
        rate: The field whose sum over time is the counter, which grows no faster between two readings.
    """

    low: float
    high: float
    reason: str
    of: Literal["", "memory_total_bytes", "power_limit_mw"] = ""
    times: float = 1.0
    at_least: float = 0.0
    rate: str = ""

    def highest(self, reference: float | None) -> float:
        """Return the highest plausible value if the GPU reports `reference` for `of`; None or 0 means unknown."""
        return min(self.high, max(self.times * reference, self.at_least)) if reference else self.high


SHARE = Limits(0, 100, "a share")
FAN = Limits(0, 200, "NVML: may exceed 100 in certain cases")
POWER = Limits(
    1,
    10_000_000,
    "3 times the limit in force, which PCI Express CEM 5.0 allows, at least 300 W and at most 10 kW (a whole DGX H200)",
    of="power_limit_mw",
    times=3,
    at_least=300_000,
)
POWER_LIMIT = Limits(1, 10_000_000, "10 kW is a whole DGX H200")
ENERGY = Limits(0, 2.0**53, "28 years at 10 kW; between two readings no more than the highest power", rate="power_mw")
MEMORY = Limits(0, 2.0**52, "of a GPU its memory; physical addresses of x86-64 have 52 bits", of="memory_total_bytes")
TEMPERATURE = Limits(-40, 150, "the widest range that chips are qualified for (AEC-Q100, grade 0)")
CLOCK = Limits(0, 10_000, "no chip was ever clocked at 10 GHz")
MEMORY_CLOCK = Limits(0, 50_000, "GDDR7 ends at 48 Gbit/s a pin, of which NVML counts half")
PROCESSORS = Limits(0, 819_200, "Linux has at most 8,192 processors")
REASONS = Limits(0, 2.0**24 - 1, "NVML has 9 bits; room for 15 more")
DURATION = Limits(0, 2.0**61, "73 years")
PCIE = Limits(0, 256e9, "16 lanes of PCI Express 7.0")
NVLINK = Limits(0, 3.6e12, "NVLink 6, both ways together")
CPU_TIME = Limits(0, math.inf, "a counter")

IMPLAUSIBLE = "implausible"
"""The reason for an absent field whose reading was implausible."""
SLACK_S = 2.0
"""The most seconds between a counter's reading and its timestamp."""
