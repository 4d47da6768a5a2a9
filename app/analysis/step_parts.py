"""Where the time of a step goes on its devices: computing, communicating, nothing; and how alike the devices are."""

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.protocol import DeviceTime, Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One step on a device, the mean of all, in milliseconds.

    It computes, or communicates while nothing computes, or is idle: no kernel runs.
    """

    compute_ms: float
    communication_ms: float
    idle_ms: float

    @property
    def step_ms(self) -> float:
        """The whole step."""
        return self.compute_ms + self.communication_ms + self.idle_ms

    def scaled(self, factor: float) -> "Parts":
        """All of it, longer or shorter."""
        return Parts(
            compute_ms=self.compute_ms * factor,
            communication_ms=self.communication_ms * factor,
            idle_ms=self.idle_ms * factor,
        )

    def less(self, other: "Parts") -> "Parts":
        """What it has more than another one, part by part."""
        return Parts(
            compute_ms=self.compute_ms - other.compute_ms,
            communication_ms=self.communication_ms - other.communication_ms,
            idle_ms=self.idle_ms - other.idle_ms,
        )


def parts_of(evidence: Evidence | None, step_ms: float | None) -> Parts | None:
    """A measured step divided as the traced ones were: a profiler makes steps longer, so only its shares are taken.

    None without a trace, or without a measured step.
    """
    if evidence is None or not evidence.devices or not step_ms:
        return None
    span, busy, compute = (sum(getattr(d, name) for d in evidence.devices) for name in _TIMES)
    if not span:
        return None
    whole = Parts(compute_ms=compute, communication_ms=busy - compute, idle_ms=span - busy)
    return whole.scaled(step_ms / span)


_TIMES = ("span_ns", "busy_ns", "compute_ns")


def mean_parts(parts: Sequence[Parts]) -> Parts | None:
    """The mean of some; None of none."""
    if not parts:
        return None
    return Parts(
        compute_ms=sum(one.compute_ms for one in parts) / len(parts),
        communication_ms=sum(one.communication_ms for one in parts) / len(parts),
        idle_ms=sum(one.idle_ms for one in parts) / len(parts),
    )


def imbalance(devices: Sequence[DeviceTime]) -> float | None:
    """How much longer the slowest device computes than the fastest, as a share of the mean; None of fewer than two.

    Of computing alone: a device that waits for another one does so inside its communication kernel, and looks busy.
    """
    times = [device.compute_ns for device in devices]
    if len(times) < 2 or not sum(times):
        return None
    return (max(times) - min(times)) * len(times) / sum(times)


def behind_share(devices: Sequence[DeviceTime]) -> float:
    """The same as a share of the span: how much shorter a step were if all computed as fast as the fastest."""
    times, span = [device.compute_ns for device in devices], sum(device.span_ns for device in devices)
    return (max(times) - min(times)) * len(times) / span if span else 0.0
