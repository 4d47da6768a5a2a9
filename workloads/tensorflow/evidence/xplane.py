"""Reads a profiler trace (XSpace): kernels by name, device busy time, and the operations of XLA's programs."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from workloads.kernels import makes_products
from workloads.protocol import plain
from workloads.tensorflow.evidence.graph import Op, plain_type
from workloads.trace import Event, Line, Trace, TracedStep, device_time, rank_kernels, traced_step

_DTYPES = {
    xla_data_pb2.F32: "float32",
    xla_data_pb2.F16: "float16",
    xla_data_pb2.BF16: "bfloat16",
}
_HIGHEST_PRECISION = xla_data_pb2.PrecisionConfig.HIGHEST
_MOST_NOTES, _MOST_NOTE_CHARS = 20, 1_000
_LIBRARY_CALLS = {"gemm": "MatMul", "matmul": "MatMul", "conv": "Conv2D"}
"""Words in the names of XLA's library calls, as `__cublas$gemm`, `__cublas$lt$matmul`, `__cudnn$convForward`."""


def program_ops(module: Any) -> tuple[Op, ...]:
    """Return the products and convolutions of a program (HloModuleProto), also those in its fusions and loops.

    After them TensorFlow's fused batch norms that it was made from: no more than their names is left of them.
    """
    computations = {computation.id: computation for computation in module.computations}
    sources = (one.metadata for computation in module.computations for one in computation.instructions)
    norms = sorted({(one.op_type, one.op_name) for one in sources if one.op_type.startswith("FusedBatchNorm")})
    return (
        *_walk_computation(computations, module.entry_computation_id),
        *(Op(type=plain_type(type_), name=name, compiled=True) for type_, name in norms),
    )


def _walk_computation(
    computations: dict[int, Any], entry: int, loop: str = "", fusion: str = "", *, branch: bool = False
) -> Iterator[Op]:
    """Yield the products of a computation, which a loop or a fusion may call, and its conditionals.

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
            yield Op(
                type=type_,
                name=instruction.metadata.op_name or instruction.name,
                dtype=_DTYPES.get(operand.shape.element_type, ""),
                layout=_convolution_layout(instruction, operand) if type_ == "Conv2D" else "",
                loop=loop,
                branch=branch,
                compiled=True,
                exact=_keeps_precision(instruction),
                kernel=fusion or instruction.name,
            )


def _op_type(instruction: Any) -> str | None:
    if instruction.opcode == "custom-call":
        target = instruction.custom_call_target.lower()
        return next((type_ for word, type_ in _LIBRARY_CALLS.items() if word in target), None)
    return {"dot": "MatMul", "convolution": "Conv2D"}.get(instruction.opcode)


def _convolution_layout(convolution: Any, images: Any) -> str:
    """Return the layout by the channels' place in memory: XLA keeps the order of axes and chooses the layout."""
    channels = convolution.convolution_dimension_numbers.input_feature_dimension
    return "NHWC" if images.shape.layout.minor_to_major[0] == channels else "NCHW"


def _keeps_precision(instruction: Any) -> bool:
    """Return whether its operands keep their precision: TensorFlow requests the highest if TF32 is off."""
    precisions = instruction.precision_config.operand_precision
    return any(one == _HIGHEST_PRECISION for one in precisions) or b"HIGHEST" in instruction.backend_config


_GPU_PLANE = re.compile(r"/device:(GPU:\d+)")
_GPU_LINE = "Stream #"
"""What CUPTI saw on a stream; other lines of a GPU's plane are derived from these."""
_HOST_PLANE = re.compile("/host:(CPU)")
_EXECUTOR = "ExecutorState::Process"
"""On the CPU, a thread of TensorFlow's executor at work, also on operations that are too cheap to be traced."""
_PROGRAM_PLANE = "/host:metadata"
_TASK_PLANE = "Task Environment"
_TF_OP = re.compile(r"([A-Za-z0-9.][\w.>/-]*):(_*[A-Z]\w*)")
_NUMBER = re.compile(r"\.\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaTrace(Trace):
    """A trace with what it tells of XLA's programs.

    Attributes:
        programs: Their products.
        op_times_ns: The time of products by the operation or instruction that started them, over all devices.
    """

    programs: tuple[Op, ...] = ()
    op_times_ns: Mapping[str, int] = field(default_factory=dict)


def read(data: bytes, steps: int, *, gpu: bool, to_monotonic: Callable[[int], int] = lambda utc_ns: utc_ns) -> XlaTrace:
    """Return the trace of some steps on the GPUs, or on the CPU, in the bytes of an `.xplane.pb`.

    `to_monotonic` converts nanoseconds since 1970, the profile's clock, to those of the monotonic clock.
    """
    space = xplane_pb2.XSpace.FromString(data)
    plane_pattern, launches = (_GPU_PLANE, _launches(space)) if gpu else (_HOST_PLANE, {})
    devices: dict[str, list[Event]] = {}
    for plane in space.planes:
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
            for device, events in sorted(devices.items(), key=_device_order)
        ),
        events=len(kernels),
        programs=tuple(op for program in _programs(space) for op in program_ops(program)),
        op_times_ns=_op_times_ns(kernels),
        # On the CPU a step's operations run on any thread: only a step that is traced alone can be told from others.
        step=_step(space, kernels, steps, to_monotonic) if gpu or steps == 1 else None,
        notes=tuple(
            f"The profiler says: {plain(message[:_MOST_NOTE_CHARS])}"
            for message in (*space.errors, *space.warnings)[:_MOST_NOTES]
        ),
    )


def _step(space: Any, events: Sequence[Event], steps: int, to_monotonic: Callable[[int], int]) -> TracedStep | None:
    begin_utc_ns = _plane_stats(space, _TASK_PLANE).get("profile_start_time", 0)
    return traced_step(events, steps, lambda start_ps: to_monotonic(begin_utc_ns + start_ps // 1000))


def _plane_stats(space: Any, name: str) -> dict[str, int]:
    """Return the whole numbers that the profile has about its plane of that name."""
    for plane in space.planes:
        if plane.name == name:
            return _whole_stats(plane)
    return {}


def _whole_stats(plane: Any) -> dict[str, int]:
    return {plane.stat_metadata[stat.metadata_id].name: _whole(stat) for stat in plane.stats}


def _whole(stat: Any) -> int:
    return int(stat.uint64_value or stat.int64_value)


def _stat_numbers(plane: Any) -> dict[str, int]:
    return {stat.name: number for number, stat in plane.stat_metadata.items()}


def _op_times_ns(events: Iterable[Event]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for event in events:
        totals[event.op] += event.end_ps - event.start_ps
    return {op: time_ps // 1000 for op, time_ps in totals.items() if op}


def _device_order(item: tuple[str, Sequence[Event]]) -> tuple[int, str]:
    """Return the key that sorts `GPU:2` before `GPU:10`."""
    return len(item[0]), item[0]


_LAUNCH_PLANE = "/host:"
"""CUPTI's calls are in a plane of their own, `/host:CUPTI`, or among TensorFlow's own events in `/host:CPU`."""
_CORRELATION = "correlation_id"
"""The number that a call of CUDA and what it started on a GPU have in common; kernels of a graph have its launch's."""


def _launches(space: Any) -> dict[int, int]:
    """Return when each call of CUDA began, in picoseconds, by its correlation id."""
    launches: dict[int, int] = {}
    for plane in space.planes:
        number = _stat_numbers(plane).get(_CORRELATION)
        if number is None or not plane.name.startswith(_LAUNCH_PLANE):
            continue
        for line in plane.lines:
            for event in line.events:
                for stat in event.stats:
                    if stat.metadata_id == number:
                        start_ps = line.timestamp_ns * 1000 + event.offset_ps
                        launches[_whole(stat)] = min(start_ps, launches.get(_whole(stat), start_ps))
    return launches


def _gpu_events(plane: Any, device: str, launches: Mapping[int, int]) -> Iterator[Event]:
    """Yield kernels and copies, products with what started them: XLA's instruction, else TensorFlow's operation."""
    names = {number: stat.name for number, stat in plane.stat_metadata.items()}
    numbers = _stat_numbers(plane)
    sources = [numbers[name] for name in ("hlo_op", "tf_op") if name in numbers]
    details, resident = numbers.get("kernel_details"), _resident_threads(_whole_stats(plane))
    correlation = numbers.get(_CORRELATION)

    def identify(name: str, event: Any) -> _Identified:
        stats = {stat.metadata_id: stat for stat in event.stats}
        launch_ps = launches.get(_whole(stats[correlation])) if correlation in stats else None
        launch = stats.get(details)
        occupancy_pct = _occupancy_pct(launch.str_value or names[launch.ref_value], resident) if launch else None
        if not makes_products(name):
            return name, "", occupancy_pct, launch_ps
        stat = next((stats[number] for number in sources if number in stats), None)
        return name, _stat_text(plane, stat).partition(":")[0] if stat else "", occupancy_pct, launch_ps

    for line in plane.lines:
        if line.name.startswith(_GPU_LINE):
            yield from _events(plane, line, device, identify)


_KERNEL_DETAILS = re.compile(r"grid:(\d+),(\d+),(\d+) block:(\d+),(\d+),(\d+) occ_pct:([\d.]+)")
"""As TensorFlow writes them: `regs:32 static_shared:0 dynamic_shared:16384 grid:16,1,1 block:128,1,1 occ_pct:50`."""
_THREADS_OF_A_MULTIPROCESSOR = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536, (12, 1): 1536}
"""By compute capability, where it is not 2048: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability"."""


def _resident_threads(gpu: Mapping[str, int]) -> int:
    """Return how many threads a GPU of the profile can hold at a time; 0 if the profile does not say."""
    capability = gpu.get("compute_cap_major", 0), gpu.get("compute_cap_minor", 0)
    return gpu.get("core_count", 0) * _THREADS_OF_A_MULTIPROCESSOR.get(capability, 2048)


@lru_cache(maxsize=4096)
def _occupancy_pct(details: str, resident: int) -> float | None:
    """Return the share of a GPU's warp slots that a kernel can fill; None if TensorFlow could not compute it.

    That is its theoretical occupancy, which registers and shared memory limit, or less if its grid is too small:
    NVIDIA, Nsight Compute, "Occupancy" and "Waves per SM".

    `details` are the kernel's launch, as in the profile. `resident` is how many threads the GPU can hold; 0 if not
    known.
    """
    match = _KERNEL_DETAILS.search(details)
    if match is None or not (theoretical_pct := float(match[7])):
        return None
    threads = math.prod(int(number) for number in match.groups()[:6])
    return min(theoretical_pct, 100 * threads / resident if resident else 100.0)


def _cpu_events(plane: Any, device: str) -> Iterator[Event]:
    """Yield operations and XLA's instructions; of those that only contain others (loops, calls), what they contain."""
    instruction = {number for number, stat in plane.stat_metadata.items() if stat.name == "hlo_op"}

    def identify(name: str, event: Any) -> tuple[str, str] | None:
        if any(stat.metadata_id in instruction for stat in event.stats):
            return None if name.startswith("end: ") else (_NUMBER.sub("", name), name)
        operation = _TF_OP.fullmatch(name)
        return (operation[2], operation[1]) if operation else None

    for line in plane.lines:
        yield from _innermost_events(_events(plane, line, device, identify))
        yield from _events(plane, line, device, lambda name, _: (name, "") if name == _EXECUTOR else None)


_Identified = tuple[str, str] | tuple[str, str, float | None, int | None]
"""The name of an event, its operation, and on a GPU its occupancy and launch where they are known."""


def _events(plane: Any, line: Any, device: str, identify: Callable[[str, Any], _Identified | None]) -> Iterator[Event]:
    """Yield a line's events that `identify` knows by their own name and themselves."""
    base_ps, source = line.timestamp_ns * 1000, Line(device, line.name, line.id)
    for event in line.events:
        if (kernel := identify(plane.event_metadata[event.metadata_id].name, event)) is not None:
            name, *others = kernel
            start_ps = base_ps + event.offset_ps
            yield Event(name, start_ps, start_ps + event.duration_ps, source, *others)


def _innermost_events(events: Iterable[Event]) -> Iterator[Event]:
    """Yield one thread's events without those in which another one begins."""
    ordered = sorted(events, key=lambda event: (event.start_ps, -event.end_ps))
    for event, following in itertools.zip_longest(ordered, ordered[1:]):
        if following is None or following.start_ps >= event.end_ps:
            yield event


def _programs(space: Any) -> Iterator[Any]:
    """Yield the optimised programs (HloModuleProto) that ran; the profile has all of the process."""
    executed = set(_executed_modules(space.planes))
    for plane in space.planes:
        if plane.name == _PROGRAM_PLANE:
            for entry in plane.event_metadata.values():
                for stat in entry.stats:
                    module = hlo_pb2.HloProto.FromString(stat.bytes_value).hlo_module
                    if module.name in executed:
                        yield module


def _executed_modules(planes: Iterable[Any]) -> Iterator[str]:
    for plane in planes:
        module_stats = {number for number, stat in plane.stat_metadata.items() if stat.name == "hlo_module"}
        for line in plane.lines if module_stats else ():
            for event in line.events:
                for stat in event.stats:
                    if stat.metadata_id in module_stats:
                        yield _stat_text(plane, stat)


def _stat_text(plane: Any, stat: Any) -> str:
    return str(stat.str_value or plane.stat_metadata[stat.ref_value].name)
