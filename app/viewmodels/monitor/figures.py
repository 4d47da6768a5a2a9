"""The figures of a device as text, by topic, and what it does not report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from app import units
from app.fields import FIELDS, TOPICS, Field, Topic, fields_of
from app.limits import IMPLAUSIBLE
from app.samples import HOST, Device
from app.viewmodels.format.telemetry_fields import format_field, format_throttle_reasons

Values = Mapping[str, float]

TABLE_FIELDS = ("load_pct", "power_mw", "memory_bytes", "temperature_c")
"""The fields that every device has a column and a plot of, in this order."""
_SHOWN_WITH_ANOTHER = ("power_limit_mw",)
"""Fields without a figure of their own: the power reads `600 W of 700 W`."""


@dataclass(frozen=True, slots=True)
class DeviceMetric:
    """One number with its word, and the field that it is, where it can be pinned."""

    label: str
    value: str
    field: str = ""


def device_metrics(device: Device, now: Values, first: Values) -> tuple[DeviceMetric, ...]:
    """Return the figures of a device, by topic.

    Args:
        device: The device as it was probed.
        now: The newest value of each field that was ever reported.
        first: The first reading of each slow field, from which counters count.
    """
    return tuple(metric for topic in TOPICS for metric in _topic_metrics(device, topic, now, first))


def _topic_metrics(device: Device, topic: Topic, now: Values, first: Values) -> list[DeviceMetric]:
    fields = [field for field in fields_of(device.kind) if field.topic == topic and _is_available(device, field, now)]
    if topic == "throttled":
        return [DeviceMetric("Throttled", _format_throttled(fields, now, first))] if fields else []
    gauges = [field for field in fields if field.kind != "counter" and field.name not in _SHOWN_WITH_ANOTHER]
    metrics = [
        DeviceMetric(
            field.label_on(device.kind), _format_metric(device, field, now), field.name if is_pinnable(field) else ""
        )
        for field in gauges
    ]
    if topic == "memory" and fields and device.kind == "gpu":
        metrics.append(DeviceMetric("Memory free", _format_memory_free(device, now)))
    return metrics


def is_pinnable(field: Field) -> bool:
    """Return whether a field can be a column and a plot of its own; those that always are cannot be pinned."""
    return field.name not in TABLE_FIELDS and field.unit != "bits"


def _format_metric(device: Device, field: Field, now: Values) -> str:
    value = now.get(field.name)
    if device.absent.get(field.name) == IMPLAUSIBLE:
        return IMPLAUSIBLE
    if field.name == "memory_bytes":
        return units.bytes_of_total(value, device.memory_total_bytes)
    if field.name == "power_mw" and "power_limit_mw" in now:
        return f"{units.watts(value)} of {units.watts(now['power_limit_mw'])}"
    return format_field(field.name, value)


def _format_memory_free(device: Device, now: Values) -> str:
    if device.memory_total_bytes is None or "memory_bytes" not in now:
        return units.ABSENT
    return units.byte_size(device.memory_total_bytes - now["memory_bytes"] - now.get("memory_reserved_bytes", 0))


def _format_throttled(counters: Sequence[Field], now: Values, first: Values) -> str:
    """Return the time throttled since the first reading, by cause; causes of no time are left out."""
    since_ns = {
        field.label.removeprefix("Throttled by "): now[field.name] - first[field.name]
        for field in counters
        if field.name in now and field.name in first
    }
    if not since_ns:
        return units.ABSENT
    counted = ", ".join(f"{cause} {units.seconds(ns / 1e9)}" for cause, ns in since_ns.items() if ns > 0)
    # The counters are slow fields: for seconds they know nothing of a throttling that has begun.
    return counted or ("now" if format_throttle_reasons(int(now.get("throttle_reasons", 0))) else "never")


def describe_not_reported(device: Device, now: Values = MappingProxyType({})) -> str:
    """Return the fields that a device does not report, by reason, as one sentence; "" where it reports all.

    Args:
        device: The device.
        now: Its values; what has one is reported, whatever was found at first.
    """
    by_reason: dict[str, dict[str, None]] = {}
    for name, reason in device.absent.items():
        field = FIELDS[name]
        if name not in now:
            by_reason.setdefault(reason, {})[TOPICS[field.topic] or _lower_first(field.label)] = None
    fields = "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in by_reason.items())
    device_text = "the host" if device.device == HOST else "this GPU"
    return f"Not reported by {device_text}: {fields}." if fields else ""


def _is_available(device: Device, field: Field, now: Values) -> bool:
    """Return whether a field is reported: when the device was probed, or now; what was lost or is implausible stays."""
    return field.topic != "worker" and (
        field.name in now or field.name in device.fields or device.absent.get(field.name) in ("lost", IMPLAUSIBLE)
    )


def _lower_first(label: str) -> str:
    return label if label[1:2].isupper() else label[0].lower() + label[1:]
