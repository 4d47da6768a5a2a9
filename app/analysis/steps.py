"""Where the time of a step goes: computing, exposed communication, and idle.

Kernel times come from the trace: a profiler does not change them, but stretches the gaps between them up to threefold
(docs/internals/measurements/2026-11-22-why.md). So idle is the time of the measured, untraced step beyond its kernels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec.structs import replace

from app.values.events import Summary
from app.values.records import StoredRun
from workloads.catalog import is_script
from workloads.protocol import DeviceTime, Evidence, Kernel, RunSpec

TOLERANCE = 0.02
"""Kernels that take this much longer than the measured step belong to another one: their time repeats to 0.2 to 1 %."""


class TracedStep(NamedTuple):
    """The kernels of one traced step on one GPU: their number, and the time in which any ran, or any that computes."""

    busy_ms: float
    compute_ms: float
    kernels: float


def without_waits(evidence: Evidence) -> Evidence:
    """Return evidence in which exchanges take as long as on the GPU that waits least for the others.

    A profiler slows the hosts of GPUs differently, and a collective kernel runs until the slowest takes part. All GPUs
    end it together, so none is busy for longer than the least busy one, unless it computes for longer. Of 37 variants
    on two and four H200s, the time of kernels repeats within 4.3 % so, and within 42 % with the waits. Copies between
    GPUs wait for nobody. `span_ns` of all GPUs and the timeline stay as traced.
    """
    waiting = {k for k in evidence.kernels if k.kind == "communication" and not k.name.lower().startswith("memcpy")}
    exchange_ns = sum(kernel.time_ns for kernel in waiting)
    if not exchange_ns or not evidence.devices:
        return evidence
    least_ns = min(device.busy_ns for device in evidence.devices)
    waits_ns = [max(0, device.busy_ns - max(device.compute_ns, least_ns)) for device in evidence.devices]
    share = max(0.0, 1 - sum(waits_ns) / exchange_ns)
    return replace(
        evidence,
        busy_ns=evidence.busy_ns - sum(waits_ns),
        kernels=tuple(
            replace(kernel, time_ns=round(share * kernel.time_ns)) if kernel in waiting else kernel
            for kernel in evidence.kernels
        ),
        devices=tuple(
            replace(
                device,
                span_ns=device.span_ns - wait_ns,
                busy_ns=device.busy_ns - wait_ns,
                communication_ns=max(0, device.communication_ns - wait_ns),
            )
            for device, wait_ns in zip(evidence.devices, waits_ns, strict=True)
        ),
    )


IdleCause = Literal["host", "kernel", "other"]
"""What an idle GPU waits for: the host, which has not yet launched the next kernel; the next kernel, launched in time;
or something else, such as another stream or GPU."""


class StepParts(NamedTuple):
    """A measured step on one GPU, or the difference of two, in milliseconds.

    It computes, communicates while nothing computes, or is idle, without a kernel. A step's parts are never negative.
    """

    compute_ms: float
    communication_ms: float
    idle_ms: float

    @property
    def step_ms(self) -> float:
        return self.compute_ms + self.communication_ms + self.idle_ms


def step_parts(traced: TracedStep | None, step_ms: float | None) -> StepParts | None:
    """Return the parts of a measured step, which add up to it.

    None without a trace or a measured step, or if they do not fit. Kernels longer than the step are shortened to it if
    within `TOLERANCE`.
    """
    if traced is None or not step_ms or traced.busy_ms > (1 + TOLERANCE) * step_ms:
        return None
    factor = min(1.0, step_ms / traced.busy_ms) if traced.busy_ms else 1.0
    busy_ms, compute_ms = factor * traced.busy_ms, factor * traced.compute_ms
    return StepParts(
        compute_ms=compute_ms, communication_ms=max(0.0, busy_ms - compute_ms), idle_ms=max(0.0, step_ms - busy_ms)
    )


def traced_device(device: DeviceTime, steps: int) -> TracedStep:
    return TracedStep(device.busy_ns / 1e6 / steps, device.compute_ns / 1e6 / steps, device.kernels / steps)


def traced_step(evidence: Evidence | None, gpus: object) -> TracedStep | None:
    """Return a traced step, the mean of all GPUs.

    None without a trace, and on the CPU, where operations run on several threads at once and short ones are not traced.
    """
    if evidence is None or not evidence.steps or not evidence.busy_ns or not isinstance(gpus, int) or gpus < 1:
        return None
    if evidence.devices:
        return mean_step([traced_device(device, evidence.steps) for device in evidence.devices])
    if gpus > 1:
        return None
    # Runs older than device times: a single GPU exchanges nothing.
    busy_ms = evidence.busy_ns / 1e6 / evidence.steps
    return TracedStep(busy_ms, busy_ms, sum(kernel.count for kernel in evidence.kernels) / evidence.steps)


def mean_present(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def mean_step(steps: Sequence[TracedStep]) -> TracedStep | None:
    return TracedStep(*(sum(values) / len(steps) for values in zip(*steps, strict=True))) if steps else None


def measured_step_ms(spec: RunSpec, summary: Summary) -> float | None:
    if is_script(spec.workload):  # only its steps are certain
        seconds, steps = summary.measured_s, summary.measured_steps
        return 1000 * seconds / steps if seconds and steps else None
    examples, throughput = step_examples(spec, summary), summary.throughput
    return 1000 * examples / throughput if throughput and examples else None


def step_examples(spec: RunSpec, summary: Summary) -> int:
    """Return the examples per step on all GPUs, a script's as measured; 0 if unknown."""
    steps, examples, batch_size = summary.measured_steps, summary.measured_examples, spec.variant.get("batch_size")
    if is_script(spec.workload):  # its own parameter may be the batch of each GPU
        return round(examples / steps) if steps and examples != steps else 0
    return batch_size if isinstance(batch_size, int) and batch_size > 0 else 0


def run_traced_step(run: StoredRun) -> TracedStep | None:
    return traced_step(run.evidence, run.row.spec.variant.get("gpus"))


def idle_shares(evidence: Evidence | None) -> dict[IdleCause, float] | None:
    """Return each cause's share of the traced gaps on all devices; None without gaps or launches."""
    devices = evidence.devices if evidence else ()
    gaps_ns = sum(device.span_ns - device.busy_ns for device in devices)
    waits = [(device.host_wait_ns, device.kernel_wait_ns) for device in devices]
    host_ns = sum(host for host, _ in waits if host is not None)
    kernel_ns = sum(kernel for _, kernel in waits if kernel is not None)
    if gaps_ns <= 0 or any(None in row for row in waits):
        return None
    host, kernel = host_ns / gaps_ns, kernel_ns / gaps_ns
    return {"host": host, "kernel": kernel, "other": max(0.0, 1 - host - kernel)}


def gpu_step_ms(run: StoredRun) -> float | None:
    """Return the time in which kernels ran on a GPU per step, averaged over its GPUs; None without a trace of GPUs."""
    traced = run_traced_step(run)
    return traced.busy_ms if traced else None


def occupancy_pct(evidence: Evidence | None) -> float | None:
    """Return the share of a GPU's warp slots that kernels can fill, averaged by their time; None if unknown."""
    kernels = evidence.kernels if evidence else ()
    occupancies = [(kernel.time_ns, kernel.occupancy_pct) for kernel in kernels if kernel.occupancy_pct]
    total_ns = sum(time_ns for time_ns, _ in occupancies)
    return sum(time_ns * pct for time_ns, pct in occupancies) / total_ns if total_ns else None


def busy_share(run: StoredRun) -> float | None:
    """Return the share of a measured step in which a kernel ran, from 0 to 1; None if its parts are unknown."""
    step_ms = measured_step_ms(run.row.spec, run.row.summary)
    parts = step_parts(run_traced_step(run), step_ms)
    return 1 - parts.idle_ms / step_ms if parts and step_ms else None


def imbalance(devices: Sequence[DeviceTime]) -> float | None:
    """Return how much longer the slowest device computes than the fastest, as a share of that one; None below two.

    Only computing counts: a device waits for another inside its communication kernel, and looks busy.
    """
    times = [device.compute_ns for device in devices]
    return max(times) / min(times) - 1 if len(times) > 1 and min(times) else None


def straggler_ms(devices: Sequence[DeviceTime], steps: int) -> float:
    """Return how much longer the slowest device computes than the fastest, in milliseconds per step."""
    times = [device.compute_ns for device in devices]
    return (max(times) - min(times)) / 1e6 / steps


def kernel_ms(evidence: Evidence) -> float:
    """Return the milliseconds per step and device for one nanosecond of a kernel's total time."""
    return 1 / (1e6 * evidence.steps * max(len(evidence.devices), 1))


TENSOR_CORE_SHARE = 0.05
"""A larger share of a step in products without tensor cores causes a warning."""
_TENSOR_CORE_PRECISIONS = frozenset({"tf32", "bfloat16"})
"""Precisions whose products should run on tensor cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowProducts:
    """Matrix products and convolutions of a step that ran without tensor cores: their time, and the longest kernel."""

    time_ms: float
    share: float
    longest: Kernel
    longest_ms: float


def slow_products(spec: RunSpec, evidence: Evidence | None, step_ms: float | None) -> SlowProducts | None:
    """Return the products without tensor cores if they take much of a step although the precision allows them."""
    if evidence is None or not evidence.steps or not step_ms:
        return None
    slow = [kernel for kernel in evidence.kernels if kernel.tensor_cores is False]
    if not slow or spec.variant.get("precision") not in _TENSOR_CORE_PRECISIONS:
        return None
    time_ms = sum(kernel.time_ns for kernel in slow) * kernel_ms(evidence)
    if time_ms <= TENSOR_CORE_SHARE * step_ms:
        return None
    longest = max(slow, key=lambda kernel: kernel.time_ns)
    return SlowProducts(
        time_ms=time_ms, share=time_ms / step_ms, longest=longest, longest_ms=longest.time_ns * kernel_ms(evidence)
    )


def run_slow_products(run: StoredRun) -> SlowProducts | None:
    return slow_products(run.row.spec, run.evidence, measured_step_ms(run.row.spec, run.row.summary))
