"""The numbers of one device on the Monitor screen in words, and what the device does not tell."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.samples import HOST, Device
from app.viewmodels import units
from app.viewmodels.fields import field_text, field_words

Values = Mapping[str, float]

_GPM = (
    "sm_active_pct",
    "sm_occupancy_pct",
    "tensor_active_pct",
    "fp32_active_pct",
    "fp16_active_pct",
    "dram_active_pct",
)
_PAIRS = (("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"))
_THROTTLED = {"throttled_power_ns": "power", "throttled_thermal_ns": "heat", "throttled_brake_ns": "brake"}
_UNTOLD_WORDS = {
    **dict.fromkeys(_GPM, "GPM metrics"),
    **dict.fromkeys(_PAIRS[0], "PCIe bytes"),
    **dict.fromkeys(_PAIRS[1], "NVLink bytes"),
    **dict.fromkeys(_THROTTLED, "throttled time"),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its word."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A figure made of these fields; it is left out where the device has none of them."""

    label: str
    fields: tuple[str, ...]
    words: Callable[[Device, Values, Values], str]


def _plain(field: str, label: str = "") -> _Quantity:
    return _Quantity(
        label or field_words(field), (field,), lambda _device, now, _first: field_text(field, now.get(field))
    )


def _power(_device: Device, now: Values, _first: Values) -> str:
    power, limit = units.watts(now.get("power_mw")), now.get("power_limit_mw")
    return power if limit is None else f"{power} of {units.watts(limit)}"


def _used(device: Device, now: Values, _first: Values) -> str:
    return units.bytes_of(now.get("memory_bytes"), device.memory_total_bytes)


def _free(device: Device, now: Values, _first: Values) -> str:
    if device.memory_total_bytes is None or "memory_bytes" not in now:
        return units.ABSENT
    return units.byte_size(device.memory_total_bytes - now["memory_bytes"] - now.get("memory_reserved_bytes", 0))


def _throttled(_device: Device, now: Values, first: Values) -> str:
    """Time since the first reading, by cause; causes of no time are left out."""
    since = {word: now[name] - first[name] for name, word in _THROTTLED.items() if name in now and name in first}
    if not since:
        return units.ABSENT
    return ", ".join(f"{word} {units.seconds(ns / 1e9)}" for word, ns in since.items() if ns > 0) or "not yet"


_GPU_FIGURES = (
    _Quantity("Power", ("power_mw",), _power),
    _plain("power_average_mw", "Average power"),
    _plain("load_pct"),
    _plain("memory_load_pct"),
    _Quantity("Memory", ("memory_bytes",), _used),
    _plain("memory_reserved_bytes"),
    _Quantity("Memory free", ("memory_bytes",), _free),
    _plain("temperature_c"),
    _plain("memory_temperature_c", "Memory temp."),
    _plain("sm_clock_mhz"),
    _plain("memory_clock_mhz"),
    _plain("throttle_reasons", "Held back by"),
    _Quantity("Throttled", tuple(_THROTTLED), _throttled),
    _plain("fan_pct"),
    *(_plain(field) for field in _GPM),
    *(_plain(field) for pair in _PAIRS for field in pair),
)
_HOST_FIGURES = (_plain("load_pct"), _Quantity("Memory", ("memory_bytes",), _used), _plain("power_mw"))


def figures_of(device: Device, now: Values, first: Values) -> tuple[Figure, ...]:
    """The numbers a device gives; `first` are the first readings of counters."""
    kinds = _HOST_FIGURES if device.device == HOST else _GPU_FIGURES
    return tuple(
        Figure(kind.label, kind.words(device, now, first))
        for kind in kinds
        if any(_gives(device, name, now) for name in kind.fields)
    )


def untold(device: Device) -> str:
    """What a device does not tell, by reason, in one quiet sentence; "" where it tells everything."""
    by_reason: dict[str, dict[str, None]] = {}
    for name, reason in device.absent.items():
        by_reason.setdefault(reason, {})[_UNTOLD_WORDS.get(name) or _quiet(field_words(name))] = None
    told = "; ".join(f"{', '.join(words)} ({reason})" for reason, words in by_reason.items())
    which = "the host" if device.device == HOST else "this card"
    return f"Not told by {which}: {told}." if told else ""


def _gives(device: Device, name: str, now: Values) -> bool:
    """Whether a field was found when the device was probed, or is told now; one that was lost keeps its place."""
    return name in now or name in device.fields or device.absent.get(name) == "lost"


def _quiet(word: str) -> str:
    return word if word[1:2].isupper() else word[0].lower() + word[1:]
