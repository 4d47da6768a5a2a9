"""The fields of telemetry in words: what each is called, its value as a reader wants it."""

from collections.abc import Mapping

from app.analysis.clock_events import ClockEvent
from app.samples import HOST, SAMPLE_FIELDS, SLOW_FIELDS
from app.telemetry.field_units import field_unit
from app.viewmodels import units
from app.viewmodels.throttling import throttle_words

_WORDS: Mapping[str, str] = {
    "power_mw": "Power",
    "power_average_mw": "Average power (1 s)",
    "power_limit_mw": "Power limit",
    "energy_mj": "Energy counter",
    "load_pct": "Load",
    "memory_load_pct": "Memory load",
    "memory_bytes": "Memory used",
    "memory_reserved_bytes": "Memory reserved",
    "temperature_c": "Temperature",
    "memory_temperature_c": "Memory temperature",
    "sm_clock_mhz": "SM clock",
    "memory_clock_mhz": "Memory clock",
    "throttle_reasons": "Clocks held back by",
    "throttled_power_ns": "Throttled by power",
    "throttled_thermal_ns": "Throttled by heat",
    "throttled_brake_ns": "Throttled by power brake",
    "fan_pct": "Fan",
    "pcie_tx_bytes_per_s": "PCIe out",
    "pcie_rx_bytes_per_s": "PCIe in",
    "nvlink_tx_bytes_per_s": "NVLink out",
    "nvlink_rx_bytes_per_s": "NVLink in",
    "sm_active_pct": "SM active",
    "sm_occupancy_pct": "SM occupancy",
    "tensor_active_pct": "Tensor cores",
    "fp32_active_pct": "FP32 pipe",
    "fp16_active_pct": "FP16 pipe",
    "dram_active_pct": "DRAM bandwidth",
    "worker_load_pct": "Worker's load",
    "worker_memory_bytes": "Worker's memory",
    "sampler_cpu_s": "Sampler's processor time",
}
_NOT_HELD_BACK = ((ClockEvent.IDLE, "idle"), (ClockEvent.CLOCKS_SET, "clocks set by the user"))
"""Clock event reasons that hold nothing back; the others are in `throttling`."""
_HOST_ONLY = ("worker_load_pct", "worker_memory_bytes", "sampler_cpu_s")
_HOST_FIELDS = ("power_mw", "load_pct", "memory_bytes", *_HOST_ONLY)


def fields_of(device: str) -> tuple[str, ...]:
    """Every field a device may have, in the order of the records."""
    everything = (*SAMPLE_FIELDS, *SLOW_FIELDS)
    if device == HOST:
        return tuple(name for name in everything if name in _HOST_FIELDS)
    return tuple(name for name in everything if name not in _HOST_ONLY)


def field_words(name: str) -> str:
    """What a field is called."""
    return _WORDS[name]


def field_text(name: str, value: float | None) -> str:
    """A field's value with its unit as a reader wants it: watts for milliwatts, GiB for bytes, words for bits."""
    if value is None:
        return units.ABSENT
    unit = field_unit(name)
    if unit == "bits":
        return reason_words(int(value))
    if unit == "bytes/s":
        return f"{units.byte_size(value)}/s"
    if unit == "bytes":
        return units.byte_size(value)
    if unit == "mW":
        return units.with_unit(value / 1000, "W", 1)
    if unit == "mJ":
        return units.with_unit(value / 1000, "J")
    if unit == "ns":
        return units.seconds(value / 1e9) if value else units.with_unit(0, "s")
    return units.with_unit(value, unit, 1 if unit in ("%", "s") and value != int(value) else 0)


def reason_words(mask: int) -> str:
    """A mask of clock event reasons in words, those too that hold nothing back."""
    words = [*(word for bit, word in _NOT_HELD_BACK if mask & bit), throttle_words(mask)]
    return ", ".join(filter(None, words)) or "nothing"
