"""Collects a run's evidence: the graph of its first step, and a trace of a few more after its measured part."""

from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from workloads import aspects
from workloads.aspects import NO_KERNEL, Observation
from workloads.catalog import is_custom
from workloads.custom.evidence import Inspector
from workloads.evidence import Aspect, guarded_trace, memory_limit, summarise, trace_steps
from workloads.network_evidence import cnn_implementation, image_layout, recurrent_implementation
from workloads.operations import Op
from workloads.protocol import Evidence, RunSpec
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.tensorflow.evidence import graph
from workloads.tensorflow.evidence.custom import custom_layout, layer_notes, step_aspects
from workloads.tensorflow.runtime import gpu_limits_bytes
from workloads.training import Task
from workloads.xla import XlaTrace, profile_steps, read_space


def read_xplane(
    data: bytes, steps: int, *, gpu: bool, to_monotonic: Callable[[int], int] = lambda utc_ns: utc_ns
) -> XlaTrace:
    """Return the trace of some steps from the bytes of an `.xplane.pb`; the arguments are those of `read_planes`."""
    space = xplane_pb2.XSpace.FromString(data)
    return read_space(space, steps, hlo_pb2.HloProto.FromString, gpu=gpu, to_monotonic=to_monotonic)


def trace_task(task: Task, *, gpu: bool) -> XlaTrace:
    """Trace a few steps of a task under TensorFlow's profiler."""

    def profile(steps: int) -> tuple[XlaTrace, float]:
        data, to_monotonic, step_s = profile_steps(task, steps, tf.profiler.experimental.Profile)
        return read_xplane(data, steps, gpu=gpu, to_monotonic=to_monotonic), step_s

    return trace_steps(profile)


_CNN_ASPECTS = (cnn_implementation, image_layout)
_WORKLOAD_ASPECTS: dict[str, tuple[Callable[[Observation], Aspect], ...]] = {
    **dict.fromkeys(RECURRENT_LAYERS, (recurrent_implementation,)),
    "cnn10": _CNN_ASPECTS,
    "wrn28-10": _CNN_ASPECTS,
}
_COMMON_ASPECTS = (aspects.precision, aspects.xla, aspects.device, aspects.replicas)


def _aspects(observation: Observation) -> Iterator[Aspect]:
    spec = observation.spec
    for aspect_of in (*_WORKLOAD_ASPECTS.get(spec.workload, ()), *_COMMON_ASPECTS):
        yield aspect_of(observation)
    if is_custom(spec.workload):
        yield from step_aspects(observation)
        if layout := custom_layout(observation):
            yield layout
    yield from memory_limit(spec.variant, observation.memory_limits_bytes)
    if int(spec.variant["gpus"]) > 1 and spec.variant["mode"] == "train":
        yield aspects.all_reduce(observation)


def evidence_of(observation: Observation) -> Evidence:
    return summarise(_aspects(observation), observation.trace, tuple(_sources(observation)), tuple(_notes(observation)))


def _sources(observation: Observation) -> Iterator[str]:
    if observation.graph:
        yield "graph"
    if observation.trace.kernels:
        yield "trace"
    if observation.programs:
        yield "hlo"


def _notes(observation: Observation) -> Iterator[str]:
    """Yield what a custom model's layers reveal, and what the trace did not show, and why."""
    trace = observation.trace
    yield from layer_notes(observation)
    yield from trace.notes
    if trace.steps and not trace.kernels:
        yield NO_KERNEL if observation.on_gpu else _NO_OPERATION
    if any("graph" in kernel.name.lower() and kernel.kind == "other" for kernel in trace.kernels):
        yield "Some kernels ran inside CUDA graphs, which the profiler shows as one."
    if trace.kernels and not observation.on_gpu and "hlo" not in _sources(observation):
        yield "TensorFlow does not trace operations on the CPU that take little time: no kernel has their time."


_NO_OPERATION = "The profiler saw no operation: on the CPU TensorFlow traces no short ones."


class EvidenceCollector(Inspector):
    """Collects a run's evidence from its first step and from steps after the measured part, at no cost to that part."""

    def __init__(self, spec: RunSpec, task: Task) -> None:
        super().__init__(task)
        self._spec = spec
        self._task = task
        self._graph: tuple[Op, ...] | None = None
        self._trace = XlaTrace()

    def start(self) -> None:
        super().start()
        graph.start_collecting()

    def first_step_done(self) -> None:
        """Record the graph of the first step, and the loss of a custom workload."""
        self._graph = graph.collected_ops()
        self.record_loss()

    def trace(self) -> None:
        self.record_loss()
        on_gpu = int(self._spec.variant["gpus"]) > 0
        self._trace = guarded_trace(lambda: trace_task(self._task, gpu=on_gpu), XlaTrace)

    def evidence(self) -> Evidence | None:
        """Return the evidence so far, or None before the first step."""
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
                findings=self.findings,
            )
        )
