"""From what was seen to what is told: every aspect as asked and as it ran, and whether they are the same."""

from collections.abc import Callable, Iterator

from workloads.cnn import signatures
from workloads.cnn.layouts import layout
from workloads.evidence import common, exchange
from workloads.evidence.seen import Aspect, Seen
from workloads.lstm.signatures import implementation
from workloads.protocol import Evidence, RunSpec

_CNN = (signatures.implementation, layout)
_OWN: dict[str, tuple[Callable[[Seen], Aspect], ...]] = {"lstm": (implementation,), "cnn10": _CNN, "wrn28-10": _CNN}
_COMMON = (common.precision, common.xla, common.device, common.replicas)


def _told_of(spec: RunSpec) -> Iterator[Callable[[Seen], Aspect]]:
    """The aspects a run of this spec has."""
    yield from (*_OWN.get(spec.workload, ()), *_COMMON)
    if int(spec.variant["gpus"]) > 1 and spec.variant["mode"] == "train":
        yield exchange.all_reduce


def evidence_of(seen: Seen) -> Evidence:
    """What ran beside what was asked; `match` is false for one aspect that differs, None for one that is not known."""
    aspects = [tell(seen) for tell in _told_of(seen.spec)]
    fits = {aspect.fits for aspect in aspects}
    match = False if False in fits else None if None in fits else True
    trace = seen.trace
    return Evidence(
        asked={aspect.name: aspect.asked for aspect in aspects},
        ran={aspect.name: aspect.ran for aspect in aspects if aspect.ran is not None},
        match=match,
        reason=" ".join(dict.fromkeys(aspect.reason or "" for aspect in aspects if aspect.fits is match)) or None,
        sources=tuple(_sources(seen)),
        notes=(*(aspect.note for aspect in aspects if aspect.note), *_notes(seen)),
        steps=trace.steps,
        span_ns=trace.span_ns,
        busy_ns=trace.busy_ns,
        kernels=trace.kernels,
        devices=trace.times,
    )


def _sources(seen: Seen) -> Iterator[str]:
    if seen.graph:
        yield "graph"
    if seen.trace.kernels:
        yield "trace"
    if seen.programs:
        yield "hlo"


def _notes(seen: Seen) -> Iterator[str]:
    """What the trace could not see, and why."""
    trace = seen.trace
    yield from trace.notes
    if trace.steps and not trace.kernels:
        yield "The profiler saw no kernel: NVIDIA's libcupti is missing, or its driver allows profiling to root alone."
    if any("graph" in kernel.name.lower() and kernel.kind == "other" for kernel in trace.kernels):
        yield "Some kernels ran inside CUDA graphs, which the profiler shows as one."
    if trace.kernels and not seen.on_gpu and "hlo" not in _sources(seen):
        yield "TensorFlow does not trace operations that it knows to be cheap on the CPU: no kernel has their time."
