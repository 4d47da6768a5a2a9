"""Descriptions of real GPUs for the fake NVML: what each returns, how long that takes, and what it refuses.

A negative number is the NVML error code that a GPU returns.
"""

from pathlib import Path

import msgspec
import pynvml

NOT_SUPPORTED: int = -pynvml.NVML_ERROR_NOT_SUPPORTED
NO_PERMISSION: int = -pynvml.NVML_ERROR_NO_PERMISSION

ENERGY_PERIOD_S = 0.1
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"

H200_FIELDS = {82: 37, 74: 5_000, 75: 0, 269: 7_000, 270: 1_000, 271: 0, 197: 1_732_107_552, 198: 2_694_099_776}
"""Field number to value, besides the two of power: memory temperature, throttled times, bytes over PCIe."""

H200_GPM = {2: 96.0, 3: 14.0, 5: 93.5, 10: 16.0, 12: 1.5, 13: 0.0, 20: 0.25, 21: 0.5, 60: 1_024.0, 61: 2_048.0}
"""GPM's metric number to value; those in bytes are MiB per second."""


class Flaw(msgspec.Struct, frozen=True):
    """A function that fails with an error from its call number `first` on (counted from 1), `times` times."""

    function: str
    error: int
    first: int = 1
    times: int = 1_000_000


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU and what it returns.

    It is lost as soon as the file `lost_when` exists, or after `lost_after` calls. It has field 185 (average power)
    where it has 186 (instantaneous); older drivers report `power_average_mw` only by nvmlDeviceGetPowerUsage. The
    energy counter starts at `energy_mj`, grows with the power and is updated every 100 ms. `costs_ms` is the duration
    of a function, `processes` the process id and bytes of those that compute on the GPU. `mig_mode` is None where the
    GPU has no MIG. The first temperatures are `cooling_c`, if any, all later ones `temperature_c`.
    """

    uuid: str
    name: str = "NVIDIA H200"
    memory_total_bytes: int = 150_754_820_096
    memory_used_bytes: int = 4_000_000_000
    memory_reserved_bytes: int = 644_939_776
    compute_capability: tuple[int, int] = (9, 0)
    power_instant_mw: int = 688_123
    power_average_mw: int = 600_000
    energy_mj: int = 2_190_936
    load_pct: int = 99
    memory_load_pct: int = 31
    temperature_c: int = 61
    cooling_c: tuple[int, ...] = ()
    sm_clock_mhz: int = 1_980
    memory_clock_mhz: int = 3_201
    throttle_reasons: int = 4
    power_limit_mw: int = 700_000
    fan_pct: int = NOT_SUPPORTED
    fields: dict[int, int] = msgspec.field(default_factory=lambda: dict(H200_FIELDS))
    gpm: dict[int, float] = msgspec.field(default_factory=lambda: dict(H200_GPM))
    processes: tuple[tuple[int, int], ...] = ()
    costs_ms: dict[str, float] = msgspec.field(default_factory=lambda: {ENERGY: 3.0})
    flaws: tuple[Flaw, ...] = ()
    mig_mode: int | None = 0
    mig: tuple["Card", ...] = ()
    lost_when: str | None = None
    lost_after: int | None = None

    def is_lost(self, calls: int) -> bool:
        after = self.lost_after is not None and calls > self.lost_after
        return after or (self.lost_when is not None and Path(self.lost_when).exists())

    def energy_at(self, seconds: float) -> int:
        """Return the value of the energy counter at a time."""
        if self.energy_mj < 0:
            return self.energy_mj
        renewed_s: float = seconds // ENERGY_PERIOD_S * ENERGY_PERIOD_S
        return self.energy_mj + int(max(self.power_instant_mw, 0) * renewed_s)

    def field(self, number: int) -> int:
        """Return the value of a field by its number."""
        power = self.power_instant_mw
        both = {
            pynvml.NVML_FI_DEV_POWER_INSTANT: power,
            pynvml.NVML_FI_DEV_POWER_AVERAGE: self.power_average_mw if power >= 0 else power,
        }
        answer: int = {**self.fields, **both}.get(number, NOT_SUPPORTED)
        return answer


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's NVIDIA driver: its cards, the functions it lacks, and the error it starts with (0 is none)."""

    cards: tuple[Card, ...] = ()
    missing: tuple[str, ...] = ()
    init_error: int = 0
    version: str = "580.65.06"
    cuda: int = 13_000


TWO_H200 = (Card(uuid="GPU-aaaa"), Card(uuid="GPU-bbbb", power_instant_mw=671_000, load_pct=98))
RTX_2080_TI = Card(
    uuid="GPU-2080",
    name="NVIDIA GeForce RTX 2080 Ti",
    memory_total_bytes=11_811_160_064,
    memory_reserved_bytes=0,
    compute_capability=(7, 5),
    power_instant_mw=NOT_SUPPORTED,
    power_average_mw=253_000,
    energy_mj=NOT_SUPPORTED,
    fan_pct=41,
    fields={74: 5_000, 75: 0},
    gpm={},
    mig_mode=None,
)
OLD_DRIVER = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlGpmQueryDeviceSupport")
"""Functions that a driver from the time of the RTX 2080 Ti lacks."""

LAPTOP = Card(
    uuid="GPU-mobile",
    name="NVIDIA GeForce GTX 1650 Mobile",
    compute_capability=(7, 5),
    power_instant_mw=NOT_SUPPORTED,
    power_average_mw=NOT_SUPPORTED,
    power_limit_mw=NOT_SUPPORTED,
    energy_mj=NOT_SUPPORTED,
    fields={},
    gpm={},
    mig_mode=None,
)


def mig_instance(uuid: str, gib: int) -> Card:
    """Return an instance of a GPU in MIG mode: it reports its memory and nothing else."""
    return Card(
        uuid=uuid,
        name=f"NVIDIA H200 MIG 3g.{gib}gb",
        memory_total_bytes=gib * 2**30,
        memory_used_bytes=1_000_000_000,
        power_instant_mw=NOT_SUPPORTED,
        power_average_mw=NOT_SUPPORTED,
        power_limit_mw=NOT_SUPPORTED,
        energy_mj=NOT_SUPPORTED,
        load_pct=NOT_SUPPORTED,
        temperature_c=-pynvml.NVML_ERROR_INVALID_ARGUMENT,
        sm_clock_mhz=NOT_SUPPORTED,
        memory_clock_mhz=NOT_SUPPORTED,
        throttle_reasons=NOT_SUPPORTED,
        fields={},
        gpm={},
        mig_mode=None,
    )


MIG = Card(
    uuid="GPU-split",
    load_pct=NOT_SUPPORTED,
    mig_mode=1,
    mig=(mig_instance("MIG-one", 70), mig_instance("MIG-two", 35)),
)
SLOW_ENERGY = tuple(
    Card(uuid=card.uuid, power_instant_mw=card.power_instant_mw, costs_ms={ENERGY: 19.0}) for card in TWO_H200
)
