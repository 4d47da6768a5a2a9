"""Collect a run's evidence: the graph of its first step, and a trace of a few more after its measured part."""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import tensorflow as tf

from workloads.catalog import is_custom
from workloads.protocol import Evidence, RunSpec
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.tensorflow.cnn import evidence
from workloads.tensorflow.cnn.evidence import image_layout
from workloads.tensorflow.evidence import aspects, graph, xplane
from workloads.tensorflow.evidence.aspects import NOT_INSPECTED, Aspect, Findings, Observation
from workloads.tensorflow.evidence.custom import custom_layout, layer_notes, step_aspects
from workloads.tensorflow.evidence.graph import Op
from workloads.tensorflow.evidence.timeline import step_timeline
from workloads.tensorflow.evidence.xplane import Trace
from workloads.tensorflow.recurrent.evidence import recurrent_implementation
from workloads.tensorflow.runtime import gpu_limits_bytes
from workloads.training import Inspection, Task

Result = TypeVar("Result")
Failure = TypeVar("Failure")
_MAX_STEPS = 10
_BUDGET_S = 1.0
_BUDGET_EVENTS = 200_000
_TIMEOUT_S = 120.0


def trace_steps(task: Task, *, gpu: bool) -> Trace:
    """Trace as many steps as fit into about a second and 200,000 events, at least one.

    The first trace of a process is of one step: it starts the profiler and shows how many fit. If only one does, it is
    the result; if several do and none can be told from the next one, its step is the one that is shown.
    """
    first, step_s = _profile_steps(task, 1, gpu=gpu)
    steps = int(min(_MAX_STEPS, _BUDGET_S / step_s, _BUDGET_EVENTS / max(1, first.events)))
    if steps <= 1:
        return first
    trace, _ = _profile_steps(task, steps, gpu=gpu)
    return replace(trace, step=trace.step or first.step)


def _profile_steps(task: Task, steps: int, *, gpu: bool) -> tuple[Trace, float]:
    """Return the trace of some steps, and the seconds that one of them took under the profiler."""
    with TemporaryDirectory(prefix="variantscope-") as folder:
        begin_ns = time.monotonic_ns()
        tf.profiler.experimental.start(folder)
        try:
            start_s = time.monotonic()
            for _ in range(steps):
                result = task.step()
            task.fetch(result)
            step_s = (time.monotonic() - start_s) / steps
        finally:
            tf.profiler.experimental.stop()
        (file,) = Path(folder).rglob("*.xplane.pb")
        to_monotonic = _monotonic_clock(begin_ns, time.monotonic_ns())
        return xplane.read(file.read_bytes(), steps, gpu=gpu, to_monotonic=to_monotonic), step_s


def _monotonic_clock(begin_ns: int, end_ns: int) -> Callable[[int], int]:
    """Return what converts a time since 1970, which was between these two times, to the monotonic clock."""
    behind_ns = time.time_ns() - time.monotonic_ns()
    return lambda utc_ns: min(max(utc_ns - behind_ns, begin_ns), end_ns)


def run_guarded(
    work: Callable[[], Result], failed: Callable[[str], Failure], timeout_s: float = _TIMEOUT_S
) -> Result | Failure:
    """Return what the work does, or what `failed` makes of how it went wrong; the traceback goes to the log.

    In a thread, since a profiler that hangs cannot be interrupted: the thread is left behind.
    """
    done: list[Result | Failure] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in a profiler must not cost the run
            traceback.print_exc(file=sys.stderr)
            done.append(failed(f"could not be used: {_first_line(error)}."))

    thread = threading.Thread(target=run, name="evidence", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return done[0] if done else failed(f"did not answer within {timeout_s:.0f} s.")


def empty_trace(how: str) -> Trace:
    """Return the trace of a profiler that went wrong."""
    return Trace(notes=(f"The profiler {how}",))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


_CNN_ASPECTS = (evidence.cnn_implementation, image_layout)
_WORKLOAD_ASPECTS: dict[str, tuple[Callable[[Observation], Aspect], ...]] = {
    **dict.fromkeys(RECURRENT_LAYERS, (recurrent_implementation,)),
    "cnn10": _CNN_ASPECTS,
    "wrn28-10": _CNN_ASPECTS,
}
_COMMON_ASPECTS = (aspects.precision, aspects.xla, aspects.device, aspects.replicas)


def _aspects(observation: Observation) -> Iterator[Aspect]:
    """Yield the aspects of a run."""
    spec = observation.spec
    for aspect_of in (*_WORKLOAD_ASPECTS.get(spec.workload, ()), *_COMMON_ASPECTS):
        yield aspect_of(observation)
    if is_custom(spec.workload):
        yield from step_aspects(observation)
        if layout := custom_layout(observation):
            yield layout
    if spec.variant["memory_limit"]:
        yield aspects.memory_limit(observation)
    if int(spec.variant["gpus"]) > 1 and spec.variant["mode"] == "train":
        yield aspects.all_reduce(observation)


def evidence_of(observation: Observation) -> Evidence:
    """Return the evidence; `match` is false if one aspect differs, else None if one is not known."""
    found = list(_aspects(observation))
    matches = {aspect.matches for aspect in found}
    match = False if False in matches else None if None in matches else True
    trace = observation.trace
    return Evidence(
        requested={aspect.name: aspect.requested for aspect in found},
        actual={aspect.name: aspect.actual for aspect in found if aspect.actual is not None},
        unverified={aspect.name: aspect.reason or "" for aspect in found if aspect.actual is None},
        match=match,
        reason=" ".join(dict.fromkeys(one.reason for one in found if one.reason and one.matches is match)) or None,
        sources=tuple(_sources(observation)),
        notes=(*(aspect.note for aspect in found if aspect.note), *_notes(observation)),
        steps=trace.steps,
        span_ns=trace.span_ns,
        busy_ns=trace.busy_ns,
        kernels=trace.kernels,
        devices=trace.times,
        timeline=step_timeline(trace.step, trace.kernels),
    )


def _sources(observation: Observation) -> Iterator[str]:
    if observation.graph:
        yield "graph"
    if observation.trace.kernels:
        yield "trace"
    if observation.programs:
        yield "hlo"


def _notes(observation: Observation) -> Iterator[str]:
    """Yield what the layers of a custom model show, and what the trace could not see, and why."""
    trace = observation.trace
    yield from layer_notes(observation)
    yield from trace.notes
    if trace.steps and not trace.kernels:
        yield _NO_KERNEL if observation.on_gpu else _NO_OPERATION
    if any("graph" in kernel.name.lower() and kernel.kind == "other" for kernel in trace.kernels):
        yield "Some kernels ran inside CUDA graphs, which the profiler shows as one."
    if trace.kernels and not observation.on_gpu and "hlo" not in _sources(observation):
        yield "TensorFlow does not trace operations on the CPU that take little time: no kernel has their time."


_NO_KERNEL = "The profiler saw no kernel: NVIDIA's libcupti is missing, or its driver allows profiling to root alone."
_NO_OPERATION = "The profiler saw no operation: on the CPU TensorFlow traces none that takes little time."


class EvidenceCollector:
    """Collects a run's evidence from its first step and from steps after the measured part, at no cost to that part."""

    def __init__(self, spec: RunSpec, task: Task) -> None:
        self._spec = spec
        self._task = task
        self._graph: tuple[Op, ...] | None = None
        self._trace = Trace()
        self._inspection = task.inspection
        self._checksums: Sequence[tuple[str, int]] = ()
        self._losses: tuple[float, ...] = ()
        self._findings: Findings | str = NOT_INSPECTED

    def start(self) -> None:
        """Start watching, before the first step."""
        if self._inspection and self._task.trains:
            self._checksums = self._inspection.checksums()
        graph.start_collecting()

    def first_step_done(self) -> None:
        """Record the graph of the first step, and the loss of a custom workload."""
        self._graph = graph.collected_ops()
        self._record_loss()

    def trace(self) -> None:
        """Run a few more steps under the profiler."""
        self._record_loss()
        on_gpu = int(self._spec.variant["gpus"]) > 0
        self._trace = run_guarded(lambda: trace_steps(self._task, gpu=on_gpu), empty_trace)

    def inspect(self) -> None:
        """Compare a custom workload's weights and losses with those of its first step, and its outputs."""
        if inspection := self._inspection:
            self._findings = run_guarded(
                lambda: self._inspect(inspection), lambda how: f"The check of weights and outputs {how}"
            )

    def _inspect(self, inspection: Inspection) -> Findings:
        self._record_loss()
        now = inspection.checksums() if self._task.trains else ()
        return Findings(
            eager_steps=inspection.eager_steps(),
            losses=self._losses,
            weights=tuple(name for name, _ in now),
            unchanged=tuple(name for (name, old), (_, new) in zip(self._checksums, now, strict=True) if old == new),
            without_gradient=tuple(inspection.without_gradient()),
            distinct=run_guarded(inspection.count_distinct, lambda how: f"The check of outputs {how}"),
        )

    def _record_loss(self) -> None:
        if self._inspection:
            self._losses += (self._inspection.loss(),)

    def evidence(self) -> Evidence | None:
        """Return what is known so far, or None before the first step was made."""
        if self._graph is None:
            return None
        limits = gpu_limits_bytes() if self._spec.variant["memory_limit"] else []
        return evidence_of(
            Observation(
                spec=self._spec,
                layers=self._task.layers,
                graph=self._graph,
                trace=self._trace,
                memory_limits_bytes=tuple(limits),
                findings=self._findings,
            )
        )
