"""Descriptions of real GPUs for the fake NVML: what each returns, how long that takes, and what it refuses.

A negative number is the NVML error code that a GPU returns. Times are in seconds after a process's first call of NVML.
"""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

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


FOREVER_S = 1e9


class Flaw(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Functions that fail, or take `delay_ms` longer: one by its name, or several by a pattern with `*`.

    They do so from call number `first` on (counted from 1) `times` times, and from `from_s` to `to_s`. `error` is
    NVML's number, or its name without `NVML_ERROR_`; 0 is none.
    """

    function: str
    error: int | str = 0
    first: int = 1
    times: int = 1_000_000
    from_s: float = 0.0
    to_s: float = FOREVER_S
    delay_ms: float = 0.0

    def applies(self, function: str, count: int, seconds: float) -> bool:
        """Return whether it concerns this call, the function's `count`th."""
        in_time = self.first <= count < self.first + self.times and self.from_s <= seconds < self.to_s
        return in_time and fnmatchcase(function, self.function)


def error_code(error: int | str) -> int:
    return error if isinstance(error, int) else int(getattr(pynvml, f"NVML_ERROR_{error}"))


class Course(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value over time by its points, each of a time and a value: steps, or straight lines where it is `linear`.

    It begins again every `every_s`, else the last value stays.
    """

    points: tuple[tuple[float, float], ...]
    linear: bool = False
    every_s: float = FOREVER_S

    def at(self, seconds: float) -> float:
        seconds %= self.every_s
        begun = [point for point in self.points if point[0] <= seconds] or [self.points[0]]
        before_s, before = begun[-1]
        if not self.linear or len(begun) == len(self.points):
            return before
        after_s, after = self.points[len(begun)]
        return before + (after - before) * max(0.0, seconds - before_s) / (after_s - before_s)


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU and what it returns.

    It is lost as soon as the file `lost_when` exists, or after `lost_after` calls. It has field 185 (average power)
    where it has 186 (instantaneous); older drivers report `power_average_mw` only by nvmlDeviceGetPowerUsage. The
    energy counter starts at `energy_mj`, grows with the power and is updated every 100 ms. `costs_ms` is the duration
    of a function, `processes` the process id and bytes of those that compute on the GPU. `mig_mode` is None where the
    GPU has no MIG. `courses` are the values that change with time, by attribute, `fields.82` or `gpm.2`; one of
    `energy_mj` is the counter itself. `encoding` is that of its name, which is no UTF-8 where a driver has written
    something else.
    """

    uuid: str
    name: str = "NVIDIA H200"
    encoding: str = "utf-8"
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
    sm_clock_mhz: int = 1_980
    memory_clock_mhz: int = 3_201
    throttle_reasons: int = 4
    power_limit_mw: int = 700_000
    fan_pct: int = NOT_SUPPORTED
    fields: dict[int, int] = msgspec.field(default_factory=lambda: dict(H200_FIELDS))
    gpm: dict[int, float] = msgspec.field(default_factory=lambda: dict(H200_GPM))
    processes: tuple[tuple[int, int], ...] = ()
    costs_ms: dict[str, float] = msgspec.field(default_factory=lambda: {ENERGY: 3.0})
    courses: dict[str, Course] = {}
    flaws: tuple[Flaw, ...] = ()
    mig_mode: int | None = 0
    mig: tuple["Card", ...] = ()
    lost_when: str | None = None
    lost_after: int | None = None

    def is_lost(self, calls: int) -> bool:
        after = self.lost_after is not None and calls > self.lost_after
        return after or (self.lost_when is not None and Path(self.lost_when).exists())

    def at(self, seconds: float) -> "Card":
        if not self.courses:
            return self
        changes: dict[str, dict[int, float]] = {"fields": {}, "gpm": {}}
        values: dict[str, int] = {}
        for path, course in self.courses.items():
            name, _, number = path.partition(".")
            if number:
                changes[name][int(number)] = course.at(seconds)
            else:
                values[name] = round(course.at(seconds))
        fields = {**self.fields, **{number: round(value) for number, value in changes["fields"].items()}}
        return msgspec.structs.replace(self, **values, fields=fields, gpm={**self.gpm, **changes["gpm"]})

    def energy_at(self, seconds: float, clock_s: float) -> int:
        """Return the value of the energy counter; of constant power it goes on with the machine's clock."""
        power = self.courses.get("power_instant_mw")
        if "energy_mj" in self.courses:
            return self.at(seconds // ENERGY_PERIOD_S * ENERGY_PERIOD_S).energy_mj
        if self.energy_mj < 0:
            return self.energy_mj
        if power is not None:
            periods = range(int(seconds / ENERGY_PERIOD_S))
            return self.energy_mj + int(sum(power.at(period * ENERGY_PERIOD_S) for period in periods) * ENERGY_PERIOD_S)
        renewed_s: float = clock_s // ENERGY_PERIOD_S * ENERGY_PERIOD_S
        return self.energy_mj + int(max(self.power_instant_mw, 0) * renewed_s)

    def field(self, number: int) -> int:
        power = self.power_instant_mw
        both = {
            pynvml.NVML_FI_DEV_POWER_INSTANT: power,
            pynvml.NVML_FI_DEV_POWER_AVERAGE: self.power_average_mw if power >= 0 else power,
        }
        answer: int = {**self.fields, **both}.get(number, NOT_SUPPORTED)
        return answer


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's NVIDIA driver: its cards, the functions it lacks (patterns too), and the error it starts with.

    Its time begins with a process's first call, or once the file `begins_when` exists; until then it is 0 s. It is not
    loaded in the times of `away`, from one time to another, and all that was opened before is void then.
    `flaws` are those of the driver itself. Time goes `speed` times as fast, delays take so much less.
    """

    cards: tuple[Card, ...] = ()
    missing: tuple[str, ...] = ()
    init_error: int | str = 0
    version: str = "580.65.06"
    cuda: int = 13_000
    flaws: tuple[Flaw, ...] = ()
    away: tuple[tuple[float, float], ...] = ()
    begins_when: str | None = None
    speed: float = 1.0


def plain_card(uuid: str, name: str, **values: Any) -> Card:
    """Return a GPU that tells no power, energy, limit, field value or GPM metric but these, and has no MIG."""
    absent = dict.fromkeys(("power_instant_mw", "power_average_mw", "power_limit_mw", "energy_mj"), NOT_SUPPORTED)
    return Card(uuid=uuid, name=name, **{**absent, "fields": {}, "gpm": {}, "mig_mode": None, **values})


TWO_H200 = (Card(uuid="GPU-aaaa"), Card(uuid="GPU-bbbb", power_instant_mw=671_000, load_pct=98))
RTX_2080_TI = plain_card(
    "GPU-2080",
    "NVIDIA GeForce RTX 2080 Ti",
    memory_total_bytes=11_811_160_064,
    memory_reserved_bytes=0,
    compute_capability=(7, 5),
    power_average_mw=253_000,
    power_limit_mw=700_000,
    fan_pct=41,
    fields={74: 5_000, 75: 0},
)
OLD_DRIVER = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlGpmQueryDeviceSupport")
"""Functions that a driver from the time of the RTX 2080 Ti lacks."""

LAPTOP = plain_card("GPU-mobile", "NVIDIA GeForce GTX 1650 Mobile", compute_capability=(7, 5))

JETSON = plain_card(
    "54d0709b-6a31-5d9e-8a76-0b9a5c9d1f20",
    "Orin (nvgpu)",
    memory_used_bytes=NOT_SUPPORTED,
    memory_total_bytes=0,
    memory_reserved_bytes=0,
    compute_capability=(8, 7),
)
"""Its UUID begins as no other GPU's, and its memory is the host's."""

H100 = Card(uuid="GPU-h100", name="NVIDIA H100 80GB HBM3", memory_total_bytes=85_520_809_984)


def mig_instance(uuid: str, gib: int) -> Card:
    """Return an instance of a GPU in MIG mode: it reports its memory and nothing else."""
    names = ("load_pct", "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons")
    return plain_card(
        uuid,
        f"NVIDIA H200 MIG 3g.{gib}gb",
        memory_total_bytes=gib * 2**30,
        memory_used_bytes=1_000_000_000,
        temperature_c=-pynvml.NVML_ERROR_INVALID_ARGUMENT,
        **dict.fromkeys(names, NOT_SUPPORTED),
    )


MIG = Card(
    uuid="GPU-split", load_pct=NOT_SUPPORTED, mig_mode=1, mig=(mig_instance("MIG-one", 70), mig_instance("MIG-two", 35))
)
SLOW_ENERGY = tuple(
    Card(uuid=card.uuid, power_instant_mw=card.power_instant_mw, costs_ms={ENERGY: 19.0}) for card in TWO_H200
)
