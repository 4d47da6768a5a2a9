"""The evidence of a run in JAX, from the program that XLA compiled and a profile of further steps."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
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
from workloads.xla import STATS, Plane, Profiled, ProfileLine, XlaTrace, profile_steps, program_ops, read_planes

_Fields = Mapping[int, tuple[str, "_Fields | type | None"]]
"""The fields of a protobuf message by number: the name, and the type: another message, str, bytes, or None for numbers.

They are the fields of XLA's hlo.proto and xla_data.proto that `program_ops` reads: JAX does not install protobuf.
"""
_SHAPE: _Fields = {2: ("element_type", None), 5: ("layout", {1: ("minor_to_major", None)})}
_INSTRUCTION: _Fields = {
    1: ("name", str),
    2: ("opcode", str),
    3: ("shape", _SHAPE),
    7: ("metadata", {1: ("op_type", str), 2: ("op_name", str)}),
    16: ("convolution_dimension_numbers", {8: ("input_feature_dimension", None)}),
    28: ("custom_call_target", str),
    35: ("id", None),
    36: ("operand_ids", None),
    38: ("called_computation_ids", None),
    43: ("backend_config", bytes),
    51: ("precision_config", {1: ("operand_precision", None)}),
}
_MODULE: _Fields = {
    3: ("computations", {1: ("name", str), 2: ("instructions", _INSTRUCTION), 5: ("id", None)}),
    6: ("entry_computation_id", None),
}
_REPEATED = frozenset(
    ("computations", "instructions", "minor_to_major", "operand_ids", "called_computation_ids", "operand_precision")
)


def decode_program(data: bytes, fields: _Fields = _MODULE) -> SimpleNamespace:
    """Return a HloModuleProto in protobuf's wire format, https://protobuf.dev/programming-guides/encoding."""
    value: Any
    message = SimpleNamespace(**{name: [] if name in _REPEATED else _empty(kind) for name, kind in fields.values()})
    position = 0
    while position < len(data):
        key, position = _number(data, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _number(data, position)
        else:
            size, position = _number(data, position) if wire == 2 else ({1: 8, 5: 4}[wire], position)
            value, position = data[position : position + size], position + size
        if number not in fields:
            continue
        name, kind = fields[number]
        values = list(_decoded(value, kind))
        if name in _REPEATED:
            getattr(message, name).extend(values)
        else:
            setattr(message, name, values[-1])
    return message


def _empty(kind: Any) -> Any:
    if isinstance(kind, dict):
        return decode_program(b"", kind)
    return kind() if kind else 0


def _decoded(value: Any, kind: Any) -> Iterator[Any]:
    if isinstance(kind, dict):
        yield decode_program(value, kind)
    elif kind is str:
        yield value.decode()
    elif kind is bytes or isinstance(value, int):
        yield value
    else:
        position = 0
        while position < len(value):
            number, position = _number(value, position)
            yield number


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Decode the varint at a position; return the number and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return number, position


def program_of(step: Step) -> tuple[Op, ...]:
    """Return the products of the program that the first step compiled."""
    modules = step.program.runtime_executable().hlo_modules()
    return tuple(
        op for module in modules for op in program_ops(decode_program(module.as_serialized_hlo_module_proto()))
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
