"""The evidence of a run in JAX, from the program that XLA compiled and a profile of further steps."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from workloads.aspects import NO_KERNEL, Observation, device, precision, replicas
from workloads.evidence import (
    Aspect,
    compared,
    exchange_note,
    guarded_trace,
    memory_limit,
    run_guarded,
    summarise,
    trace_steps,
)
from workloads.jax.steps import Step
from workloads.network_evidence import blank_reason, image_layout, observed_pattern
from workloads.operations import Op
from workloads.protocol import Evidence, RunSpec
from workloads.recurrent import OpPattern
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of
from workloads.training import Task
from workloads.xla import (
    STATS,
    Plane,
    Profiled,
    ProfileLine,
    XlaTrace,
    decode_protobuf,
    profile_steps,
    program_ops,
    read_planes,
)


def program_of(step: Step) -> tuple[Op, ...]:
    """Return the products of the program that the first step compiled."""
    modules = step.program.runtime_executable().hlo_modules()
    return tuple(
        op for module in modules for op in program_ops(decode_protobuf(module.as_serialized_hlo_module_proto()))
    )


def _trace_task(task: Task, *, gpu: bool) -> XlaTrace:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0

    def profile(steps: int) -> tuple[XlaTrace, float]:
        profiler = partial(jax.profiler.trace, profiler_options=options)
        data, to_monotonic, step_s = profile_steps(task, steps, profiler)
        planes = list(map(_plane, jax.profiler.ProfileData.from_serialized_xspace(data).planes))
        return read_planes(planes, steps, gpu=gpu, programs=(), to_monotonic=to_monotonic), step_s

    return trace_steps(profile)


def _plane(plane: Any) -> Plane:
    def events(line: Any) -> Iterator[Profiled]:
        for event in line.events:
            start_ps = round(event.start_ns * 1000)
            stats = {name: value for name, value in event.stats if name in STATS}
            yield Profiled(event.name, start_ps, start_ps + round(event.duration_ns * 1000), stats)

    lines = [ProfileLine(line.name, n, lambda line=line: events(line)) for n, line in enumerate(plane.lines)]  # type: ignore[misc]
    return Plane(name=plane.name, stats=dict(plane.stats), lines=lines)


def recurrent_implementation(observation: Observation) -> Aspect:
    """Return the implementation by the program's forward pass: calls of cuDNN, or loops with products."""
    variant = observation.variant
    config, requested = config_of(observation.spec.workload, variant), str(variant["implementation"])
    if not observation.products:
        return Aspect(name="implementation", requested=requested, reason=observation.no_product_reason)
    pattern = observed_pattern(observation.programs)
    # XLA unrolls loops of one iteration, and turns products of one unit into other operations.
    if not pattern.is_distinctive or (pattern.loops and config.units == 1):
        reason = blank_reason(replace(pattern, fully_compiled=True))
        return Aspect(name="implementation", requested=requested, reason=reason)
    actual = str(pattern)
    if pattern == OpPattern(cudnn=config.layers):
        actual = "cudnn"
    elif pattern.loops and pattern.products >= config.unroll:  # XLA may merge an iteration's input products
        actual = "combined_input" if pattern.products == config.unroll else "standard"
    differs, note = f"What ran is not {requested}: it has {pattern}.", f"XLA's program has {pattern}."
    return compared("implementation", requested, actual, differs, "", note)


def image_implementation(observation: Observation) -> Aspect:
    """Return `native`, the only implementation of JAX's networks, if a convolution was observed."""
    actual = "native" if any(op.is_spatial for op in observation.programs) else None
    requested = str(observation.variant["implementation"])
    return compared("implementation", requested, actual, "", observation.no_product_reason)


def all_reduce(observation: Observation) -> Aspect:
    """Return how gradients were exchanged, from the names of kernels."""
    requested, trace = str(observation.variant["all_reduce"]), observation.trace
    exchanges = [kernel.name for kernel in trace.kernels if kernel.kind == "communication"]
    actual = "nccl" if any("nccl" in name.lower() for name in exchanges) else "xla" if exchanges else "none"
    differs = "XLA exchanged gradients by its own kernels." if exchanges else "No kernel exchanged gradients."
    unseen = "No trace shows how gradients were exchanged."
    return compared("all_reduce", requested, actual if trace.steps else None, differs, unseen, exchange_note(trace))


_IMAGE_ASPECTS = (image_implementation, image_layout)
_COMMON_ASPECTS: tuple[Callable[[Observation], Aspect], ...] = (precision, device, replicas)


def aspects(observation: Observation) -> Iterator[Aspect]:
    recurrent = observation.spec.workload in RECURRENT_LAYERS
    for aspect_of in (*((recurrent_implementation,) if recurrent else _IMAGE_ASPECTS), *_COMMON_ASPECTS):
        yield aspect_of(observation)
    yield from memory_limit(observation.variant, observation.memory_limits_bytes)
    if int(observation.variant["gpus"]) > 1 and observation.variant["mode"] == "train":
        yield all_reduce(observation)


class EvidenceCollector:
    """Collects a run's evidence from its program and from steps after the measured part, at no cost to that part."""

    def __init__(self, spec: RunSpec, task: Task) -> None:
        self._spec = spec
        self._task = task
        self._trace = XlaTrace()

    def start(self) -> None: ...
    def first_step_done(self) -> None: ...
    def trace(self) -> None:
        """Run a few more steps under the profiler."""
        gpu = int(self._spec.variant["gpus"]) > 0
        self._trace = guarded_trace(lambda: _trace_task(self._task, gpu=gpu), XlaTrace)

    def inspect(self) -> None: ...
    def evidence(self) -> Evidence | None:
        """Return the evidence so far, or None before the first step."""
        step = self._task.step
        if not isinstance(step, Step) or step.program is None:
            return None
        no_program: tuple[Op, ...] = ()
        trace = replace(self._trace, programs=run_guarded(lambda: program_of(step), lambda _: no_program))
        sources = tuple(name for name, seen in (("trace", trace.kernels), ("hlo", trace.programs)) if seen)
        limits = [(gpu.memory_stats() or {}).get("bytes_limit") for gpu in step.mesh.devices.flat]
        observation = Observation(spec=self._spec, trace=trace, memory_limits_bytes=tuple(filter(None, limits)))
        unseen = (NO_KERNEL,) if observation.on_gpu and trace.steps and not trace.kernels else ()
        return summarise(aspects(observation), trace, sources, (*trace.notes, *unseen))
