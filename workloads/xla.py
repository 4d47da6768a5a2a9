"""XLA's programs and profiles, read in the same way for every framework.

A profile is an XSpace. TensorFlow has protobuf classes for it, JAX its own reader; both are read as `Plane`s.
"""

import itertools
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple

from workloads.kernels import makes_products
from workloads.operations import Op, plain_type
from workloads.protocol import plain
from workloads.trace import Event, Line, Trace, TracedStep, device_time, monotonic_clock, rank_kernels, traced_step
from workloads.training import Task

_DTYPES = {10: "float16", 11: "float32", 16: "bfloat16"}
_HIGHEST_PRECISION = 2
"""Enumerators of xla_data.proto: PrimitiveType and PrecisionConfig."""
_LIBRARY_CALLS = {"gemm": "MatMul", "matmul": "MatMul", "conv": "Conv2D", "dnn_rnn": "CudnnRNN"}
"""Words in names of library calls: `__cublas$gemm`, `__cublas$lt$matmul`, `__cudnn$convForward`, `cudnn_rnn_ffi`."""


_Fields = Mapping[int, tuple[str, "_Fields | type | None"]]
"""The fields of a protobuf message by number: the name, and the type: another message, str, bytes, or None for numbers.

Only those that are read: neither JAX nor the program installs protobuf.
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
    1: ("name", str),
    3: ("computations", {1: ("name", str), 2: ("instructions", _INSTRUCTION), 5: ("id", None)}),
    6: ("entry_computation_id", None),
}
"""HloModuleProto of XLA's hlo.proto."""
_HLO: _Fields = {1: ("hlo_module", _MODULE)}
_STAT: _Fields = {
    1: ("metadata_id", None),
    3: ("uint64_value", None),
    4: ("int64_value", None),
    5: ("str_value", str),
    6: ("bytes_value", bytes),
    7: ("ref_value", None),
}
_EVENT: _Fields = {1: ("metadata_id", None), 2: ("offset_ps", None), 3: ("duration_ps", None), 4: ("stats", _STAT)}
_NAMED: _Fields = {1: ("key", None), 2: ("value", {2: ("name", str), 5: ("stats", _STAT)})}
_PLANE: _Fields = {
    2: ("name", str),
    3: ("lines", {1: ("id", None), 2: ("name", str), 3: ("timestamp_ns", None), 4: ("events", _EVENT)}),
    4: ("event_metadata", _NAMED),
    5: ("stat_metadata", _NAMED),
    6: ("stats", _STAT),
}
_SPACE: _Fields = {1: ("planes", _PLANE), 2: ("errors", str), 3: ("warnings", str)}
"""XSpace of XLA's xplane.proto."""
_MAPS = ("event_metadata", "stat_metadata")
_REPEATED = frozenset(
    (
        *("computations", "instructions", "minor_to_major", "operand_ids", "called_computation_ids"),
        *("operand_precision", "planes", "lines", "events", "stats", "errors", "warnings", *_MAPS),
    )
)


def decode_protobuf(data: bytes, fields: _Fields = _MODULE) -> SimpleNamespace:
    """Return a message, by default a HloModuleProto, in the format of https://protobuf.dev/programming-guides/encoding."""
    value: Any
    values: dict[str, Any] = {name: [] if name in _REPEATED else _empty(kind) for name, kind in fields.values()}
    position = 0
    while position < len(data):
        key, position = _number(data, position)
        wire = key & 7
        if wire == 0:
            value, position = _number(data, position)
        else:
            size, position = _number(data, position) if wire == 2 else ({1: 8, 5: 4}[wire], position)
            value, position = data[position : position + size], position + size
        if (field := fields.get(key >> 3)) is None:
            continue
        name, kind = field
        if isinstance(kind, dict):
            value = decode_protobuf(value, kind)
        elif kind is str:
            value = value.decode()
        if name not in _REPEATED:
            values[name] = value
        elif kind is None and wire == 2:
            at = 0
            while at < len(value):
                number, at = _number(value, at)
                values[name].append(number)
        else:
            values[name].append(value)
    values |= {name: {entry.key: entry.value for entry in values[name]} for name in _MAPS if name in values}
    return SimpleNamespace(**values)


def _empty(kind: Any) -> Any:
    if isinstance(kind, dict):
        return decode_protobuf(b"", kind)
    return kind() if kind else 0


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Decode the varint at a position; return the number and the position after it."""
    number = shift = 0
    while (byte := data[position]) > 127:
        number |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
    return number | byte << shift, position + 1


def program_ops(module: Any) -> tuple[Op, ...]:
    """Return the products and convolutions of a program (HloModuleProto), including those in its fusions and loops.

    TensorFlow's fused batch norms follow, by name only, because XLA has replaced them by other operations.
    """
    computations = {computation.id: computation for computation in module.computations}
    sources = (instruction.metadata for computation in module.computations for instruction in computation.instructions)
    names = {(source.op_type, source.op_name) for source in sources}
    norms = sorted((type_, name) for type_, name in names if type_.startswith("FusedBatchNorm"))
    return (
        *_walk_computation(computations, module.entry_computation_id),
        *(Op(type=plain_type(type_), name=name, compiled=True) for type_, name in norms),
    )


def _walk_computation(
    computations: dict[int, Any], entry: int, loop: str = "", fusion: str = "", *, branch: bool = False
) -> Iterator[Op]:
    """Yield the products of a computation and of all that it calls: loops, fusions and conditionals.

    A fusion is one kernel.
    """
    instructions = {instruction.id: instruction for instruction in computations[entry].instructions}
    for instruction in instructions.values():
        inside = (instruction.metadata.op_name or instruction.name) if instruction.opcode == "while" else loop
        kernel = fusion or (instruction.name if instruction.opcode == "fusion" else "")
        conditional = branch or instruction.opcode == "conditional"
        if instruction.opcode == "conditional":
            yield Op(type="If", name=instruction.metadata.op_name or instruction.name, branch=True, compiled=True)
        for called in instruction.called_computation_ids:
            yield from _walk_computation(computations, called, inside, kernel, branch=conditional)
        if type_ := _op_type(instruction):
            operand = instructions[instruction.operand_ids[0]]
            # TensorFlow requests the highest if TF32 is off.
            precisions = instruction.precision_config.operand_precision
            yield Op(
                type=type_,
                name=instruction.metadata.op_name or instruction.name,
                dtype=_DTYPES.get(operand.shape.element_type, ""),
                layout=_convolution_layout(instruction, operand) if type_ == "Conv2D" else "",
                loop=loop,
                branch=branch,
                compiled=True,
                exact=_HIGHEST_PRECISION in precisions or b"HIGHEST" in instruction.backend_config,
                kernel=fusion or instruction.name,
            )


def _op_type(instruction: Any) -> str | None:
    if instruction.opcode == "custom-call":
        target = instruction.custom_call_target.lower()
        return next((type_ for word, type_ in _LIBRARY_CALLS.items() if word in target), None)
    return {"dot": "MatMul", "convolution": "Conv2D"}.get(instruction.opcode)


def _convolution_layout(convolution: Any, images: Any) -> str:
    """Return the layout by the channels' position in memory: XLA keeps the order of axes and chooses the layout."""
    channels = convolution.convolution_dimension_numbers.input_feature_dimension
    return "NHWC" if images.shape.layout.minor_to_major[0] == channels else "NCHW"


class Profiled(NamedTuple):
    """One event of a profile, in picoseconds of its clock, with those of its statistics that `STATS` names."""

    name: str
    start_ps: int
    end_ps: int
    stats: Mapping[str, Any]


class ProfileLine(NamedTuple):
    """A stream or a thread, with a function that yields its events anew at each call."""

    name: str
    number: int
    events: Callable[[], Iterable[Profiled]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A part of a profile: a GPU, the host, or the profile's metadata, by name."""

    name: str
    stats: Mapping[str, Any]
    lines: Sequence[ProfileLine]


_CORRELATION = "correlation_id"
"""The number that a CUDA call shares with what it started on a GPU; kernels of a graph have their launch's."""
STATS = frozenset(("hlo_op", "tf_op", "kernel_details", _CORRELATION))
_GPU_PLANE = re.compile(r"/device:(GPU:\d+)")
_GPU_LINE = "Stream #"
"""What CUPTI saw on a stream; a GPU plane's other lines are derived from these."""
_HOST_PLANE = re.compile("/host:(CPU)")
_EXECUTOR = "ExecutorState::Process"
"""A thread of TensorFlow's executor at work on the CPU, including operations that are too cheap to trace."""
_TASK_PLANE = "Task Environment"
_TF_OP = re.compile(r"([A-Za-z0-9.][\w.>/-]*):(_*[A-Z]\w*)")
_NUMBER = re.compile(r"\.\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaTrace(Trace):
    """A trace with the products of XLA's programs.

    Attributes:
        is_compiled: Whether a program of XLA ran, with products or without, as `read_space` tells.
        programs: The programs' products.
        op_times_ns: The products' time by the operation or instruction that started them, over all devices.
    """

    is_compiled: bool = False
    programs: tuple[Op, ...] = ()
    op_times_ns: Mapping[str, int] = field(default_factory=dict)


def profile_steps(
    task: Task, steps: int, profiler: Callable[[str], AbstractContextManager[Any]]
) -> tuple[bytes, Callable[[int], int], float]:
    """Run some steps of a task under a profiler that writes an XSpace into a folder.

    Returns:
        The XSpace, a function that converts its times to the monotonic clock, and the seconds per step.
    """
    with TemporaryDirectory(prefix="variantscope-") as folder:
        begin_ns = time.monotonic_ns()
        with profiler(folder):
            start_s = time.monotonic()
            for _ in range(steps):
                result = task.step()
            task.fetch(result)
            step_s = (time.monotonic() - start_s) / steps
        to_monotonic = monotonic_clock(begin_ns)
        (file,) = Path(folder).rglob("*.xplane.pb")
        return file.read_bytes(), to_monotonic, step_s


def read_planes(
    planes: Sequence[Plane],
    steps: int,
    *,
    gpu: bool,
    programs: tuple[Op, ...],
    to_monotonic: Callable[[int], int] = lambda utc_ns: utc_ns,
    notes: tuple[str, ...] = (),
) -> XlaTrace:
    """Return the trace of some steps on the GPUs, or on the CPU.

    `to_monotonic` converts nanoseconds since 1970, the profile's clock, to those of the monotonic clock.
    """
    plane_pattern, launches = (_GPU_PLANE, _launches(planes)) if gpu else (_HOST_PLANE, {})
    devices: dict[str, list[Event]] = {}
    for plane in planes:
        if (match := plane_pattern.fullmatch(plane.name)) and (
            events := list(_gpu_events(plane, match[1], launches) if gpu else _cpu_events(plane, match[1]))
        ):
            devices[match[1]] = events
    kernels = [event for events in devices.values() for event in events if event.name != _EXECUTOR]
    return XlaTrace(
        steps=steps,
        kernels=rank_kernels(kernels),
        times=tuple(
            device_time(device, events, sum(event.name != _EXECUTOR for event in events))
            # `GPU:2` before `GPU:10`
            for device, events in sorted(devices.items(), key=lambda item: (len(item[0]), item[0]))
        ),
        events=len(kernels),
        programs=programs,
        op_times_ns=_op_times_ns(kernels),
        # On the CPU a step's operations run on any thread: only a step traced alone can be separated from others.
        step=_step(planes, kernels, steps, to_monotonic) if gpu or steps == 1 else None,
        notes=notes,
    )


_PROGRAM_PLANE = "/host:metadata"
_MOST_NOTES, _MOST_NOTE_CHARS = 20, 1_000


def read_profile_bytes(data: bytes, steps: int, *, gpu: bool, to_monotonic: Callable[[int], int]) -> XlaTrace:
    """Return the trace of some steps from the bytes of an `.xplane.pb`, without the framework that wrote them."""
    space = decode_protobuf(data, _SPACE)
    return read_space(space, steps, lambda data: decode_protobuf(data, _HLO), gpu=gpu, to_monotonic=to_monotonic)


def read_space(
    space: Any, steps: int, decode: Callable[[bytes], Any], *, gpu: bool, to_monotonic: Callable[[int], int]
) -> XlaTrace:
    """Return the trace of some steps from an XSpace, of protobuf's class or of `decode_protobuf`.

    `decode` returns a HloProto: the profile contains all programs of the process.
    """
    executed = set(_executed_modules(space.planes))
    metadata = (plane.event_metadata.values() for plane in space.planes if plane.name == _PROGRAM_PLANE)
    modules = (decode(stat.bytes_value).hlo_module for entries in metadata for entry in entries for stat in entry.stats)
    trace = read_planes(
        list(map(_plane, space.planes)),
        steps,
        gpu=gpu,
        programs=tuple(op for module in modules if module.name in executed for op in program_ops(module)),
        to_monotonic=to_monotonic,
        notes=tuple(
            f"The profiler says: {plain(message[:_MOST_NOTE_CHARS])}"
            for message in (*space.errors, *space.warnings)[:_MOST_NOTES]
        ),
    )
    return replace(trace, is_compiled=bool(executed))


def _executed_modules(planes: Iterable[Any]) -> Iterator[str]:
    for plane in planes:
        module_stats = {number for number, stat in plane.stat_metadata.items() if stat.name == "hlo_module"}
        for line in plane.lines if module_stats else ():
            for event in line.events:
                for stat in event.stats:
                    if stat.metadata_id in module_stats:
                        yield str(_value(plane, stat))


def _plane(plane: Any) -> Plane:
    names = {number: entry.name for number, entry in plane.event_metadata.items()}
    stat_names = {number: stat.name for number, stat in plane.stat_metadata.items() if stat.name in STATS}

    def events(line: Any) -> Iterator[Profiled]:
        base_ps = line.timestamp_ns * 1000
        for event in line.events:
            start_ps = base_ps + event.offset_ps
            readable = (stat for stat in event.stats if stat.metadata_id in stat_names)
            stats = {stat_names[stat.metadata_id]: _value(plane, stat) for stat in readable}
            yield Profiled(names.get(event.metadata_id, ""), start_ps, start_ps + event.duration_ps, stats)

    return Plane(
        name=plane.name,
        stats={plane.stat_metadata[stat.metadata_id].name: _value(plane, stat) for stat in plane.stats},
        lines=[ProfileLine(line.name, line.id, lambda line=line: events(line)) for line in plane.lines],  # type: ignore[misc]
    )


def _value(plane: Any, stat: Any) -> Any:
    """Return a text or a whole number, which are all that is read."""
    text = plane.stat_metadata[stat.ref_value].name if stat.ref_value else stat.str_value
    return text or stat.uint64_value or stat.int64_value


def _step(
    planes: Sequence[Plane], events: Sequence[Event], steps: int, to_monotonic: Callable[[int], int]
) -> TracedStep | None:
    tasks = (plane.stats for plane in planes if plane.name == _TASK_PLANE)
    begin_utc_ns = int(next(tasks, {}).get("profile_start_time", 0))
    return traced_step(events, steps, lambda start_ps: to_monotonic(begin_utc_ns + start_ps // 1000))


def _op_times_ns(events: Iterable[Event]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for event in events:
        totals[event.op] += event.end_ps - event.start_ps
    return {op: time_ps // 1000 for op, time_ps in totals.items() if op}


_LAUNCH_PLANE = "/host:"
"""CUPTI's calls are in a separate plane, `/host:CUPTI`, or among TensorFlow's own events in `/host:CPU`."""


def _launches(planes: Iterable[Plane]) -> dict[int, int]:
    launches: dict[int, int] = {}
    for line in (line for plane in planes if plane.name.startswith(_LAUNCH_PLANE) for line in plane.lines):
        for event in line.events():
            if (number := event.stats.get(_CORRELATION)) is not None:
                launches[number] = min(event.start_ps, launches.get(number, event.start_ps))
    return launches


def _gpu_events(plane: Plane, device: str, launches: Mapping[int, int]) -> Iterator[Event]:
    """Yield kernels and copies, products with the XLA instruction or TensorFlow operation that started them."""
    gpu = plane.stats
    capability = gpu.get("compute_cap_major", 0), gpu.get("compute_cap_minor", 0)
    resident = int(gpu.get("core_count", 0)) * _THREADS_OF_A_MULTIPROCESSOR.get(capability, 2048)

    def identify(event: Profiled) -> _Identified:
        stats = event.stats
        occupancy_pct = _occupancy_pct(stats.get("kernel_details", ""), resident)
        source = stats.get("hlo_op") or stats.get("tf_op", "") if makes_products(event.name) else ""
        return event.name, source.partition(":")[0], occupancy_pct, launches.get(stats.get(_CORRELATION, -1))

    for line in plane.lines:
        if line.name.startswith(_GPU_LINE):
            yield from _events(line, device, identify)


_KERNEL_DETAILS = re.compile(r"grid:(\d+),(\d+),(\d+) block:(\d+),(\d+),(\d+) occ_pct:([\d.]+)")
"""The details as TensorFlow writes them: `regs:32 static_shared:0 dynamic_shared:16384 grid:16,1,1 block:128,1,1
occ_pct:50`."""
_THREADS_OF_A_MULTIPROCESSOR = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536, (12, 1): 1536}
"""By compute capability, if not 2048: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


@lru_cache(maxsize=4096)
def _occupancy_pct(details: str, resident: int) -> float | None:
    """Return the share of a GPU's warp slots that a kernel can fill; None if TensorFlow could not compute it.

    This is its theoretical occupancy, which registers and shared memory limit, or less if its grid is too small:
    NVIDIA, Nsight Compute, "Occupancy" and "Waves per SM".

    `details` describe the kernel's launch, as in the profile. `resident` is how many threads the GPU can hold; 0 if
    unknown.
    """
    match = _KERNEL_DETAILS.search(details)
    if match is None or not (theoretical_pct := float(match[7])):
        return None
    threads = math.prod(int(number) for number in match.groups()[:6])
    return min(theoretical_pct, 100 * threads / resident if resident else 100.0)


def _cpu_events(plane: Plane, device: str) -> Iterator[Event]:
    """Yield operations and XLA's instructions; containers (loops, calls) are replaced by what they contain."""

    def identify(event: Profiled) -> tuple[str, str] | None:
        if "hlo_op" in event.stats:
            return None if event.name.startswith("end: ") else (_NUMBER.sub("", event.name), event.name)
        operation = _TF_OP.fullmatch(event.name)
        return (operation[2], operation[1]) if operation else None

    for line in plane.lines:
        yield from _innermost_events(_events(line, device, identify))
        yield from _events(line, device, lambda event: (event.name, "") if event.name == _EXECUTOR else None)


_Identified = tuple[str, str] | tuple[str, str, float | None, int | None]
"""The name of an event, its operation, and on a GPU its occupancy and launch if known."""


def _events(line: ProfileLine, device: str, identify: Callable[[Profiled], _Identified | None]) -> Iterator[Event]:
    source = Line(device, line.name, line.number)
    for event in line.events():
        if (kernel := identify(event)) is not None:
            name, *attributes = kernel
            yield Event(name, event.start_ps, event.end_ps, source, *attributes)


def _innermost_events(events: Iterable[Event]) -> Iterator[Event]:
    """Yield those of one thread's events in which no other event begins."""
    ordered = sorted(events, key=lambda event: (event.start_ps, -event.end_ps))
    for event, following in itertools.zip_longest(ordered, ordered[1:]):
        if following is None or following.start_ps >= event.end_ps:
            yield event
