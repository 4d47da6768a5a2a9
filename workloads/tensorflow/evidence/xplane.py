"""Reads a profiler trace (XSpace): kernels by name, device busy time, and the operations of XLA's programs."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from workloads.kernels import classify, makes_products, on_tensor_cores
from workloads.protocol import MOST_KERNELS, DeviceTime, Kernel, plain
from workloads.tensorflow.evidence.graph import Op, plain_type

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


def _walk_computation(computations: dict[int, Any], entry: int, loop: str = "", fusion: str = "") -> Iterator[Op]:
    """Yield the products of a computation, which a loop or a fusion may call: a fusion is one kernel."""
    instructions = {instruction.id: instruction for instruction in computations[entry].instructions}
    for instruction in instructions.values():
        inside = (instruction.metadata.op_name or instruction.name) if instruction.opcode == "while" else loop
        kernel = fusion or (instruction.name if instruction.opcode == "fusion" else "")
        for called in instruction.called_computation_ids:
            yield from _walk_computation(computations, called, inside, kernel)
        if type_ := _op_type(instruction):
            operand = instructions[instruction.operand_ids[0]]
            yield Op(
                type=type_,
                name=instruction.metadata.op_name or instruction.name,
                dtype=_DTYPES.get(operand.shape.element_type, ""),
                layout=_convolution_layout(instruction, operand) if type_ == "Conv2D" else "",
                loop=loop,
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
_TF_OP = re.compile(r"([A-Za-z0-9.][\w.>/-]*):(_*[A-Z]\w*)")
_NUMBER = re.compile(r"\.\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What ran in some steps under the profiler: on GPUs kernels and copies, on the CPU TensorFlow's operations.

    Attributes:
        steps: Traced steps.
        kernels: By name, over all devices, the one that took longest first.
        times: The time of each device.
        events: How many kernels or operations ran in all.
        programs: The products of XLA's programs.
        op_times_ns: The time of products by the operation or instruction that started them, over all devices.
        notes: What could not be seen.
    """

    steps: int = 0
    kernels: tuple[Kernel, ...] = ()
    times: tuple[DeviceTime, ...] = ()
    events: int = 0
    programs: tuple[Op, ...] = ()
    op_times_ns: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """Return how many devices something ran on."""
        return len(self.times)

    @property
    def span_ns(self) -> int:
        """Return the time from the first kernel's start to the last one's end, summed over the devices."""
        return sum(one.span_ns for one in self.times)

    @property
    def busy_ns(self) -> int:
        """Return the part of it in which a kernel ran (on the CPU also the executor), summed over the devices."""
        return sum(one.busy_ns for one in self.times)


class _Event(NamedTuple):
    """One thing that ran, in picoseconds of the trace's clock, and the operation or instruction it is of, if known."""

    name: str
    start_ps: int
    end_ps: int
    op: str = ""


def read(data: bytes, steps: int, *, gpu: bool) -> Trace:
    """Return the trace in the bytes of an `.xplane.pb`.

    Args:
        data: The bytes.
        steps: How many steps were traced.
        gpu: Whether to read the GPUs or the CPU.
    """
    space = xplane_pb2.XSpace.FromString(data)
    plane_pattern, events_of = (_GPU_PLANE, _gpu_events) if gpu else (_HOST_PLANE, _cpu_events)
    devices: dict[str, list[_Event]] = {}
    for plane in space.planes:
        if (found := plane_pattern.fullmatch(plane.name)) and (events := list(events_of(plane))):
            devices[found[1]] = events
    kernels = [event for events in devices.values() for event in events if event.name != _EXECUTOR]
    return Trace(
        steps=steps,
        kernels=_kernels(kernels),
        times=tuple(_device_time(device, events) for device, events in sorted(devices.items(), key=_device_order)),
        events=len(kernels),
        programs=tuple(op for program in _programs(space) for op in program_ops(program)),
        op_times_ns=_op_times_ns(kernels),
        notes=tuple(
            f"The profiler says: {plain(message[:_MOST_NOTE_CHARS])}"
            for message in (*space.errors, *space.warnings)[:_MOST_NOTES]
        ),
    )


def _op_times_ns(events: Iterable[_Event]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for event in events:
        totals[event.op] += event.end_ps - event.start_ps
    return {op: time_ps // 1000 for op, time_ps in totals.items() if op}


def _device_order(item: tuple[str, Sequence[_Event]]) -> tuple[int, str]:
    """Return the key that sorts `GPU:2` before `GPU:10`."""
    return len(item[0]), item[0]


def _device_time(device: str, events: Sequence[_Event]) -> DeviceTime:
    communication_names = {name for name in {event.name for event in events} if classify(name) == "communication"}
    communication = [event for event in events if event.name in communication_names]
    return DeviceTime(
        device=device,
        span_ns=_span_ps(events) // 1000,
        busy_ns=_busy_ps(events) // 1000,
        compute_ns=_busy_ps(event for event in events if event.name not in communication_names) // 1000,
        communication_ns=_busy_ps(communication) // 1000,
        kernels=sum(event.name != _EXECUTOR for event in events),
    )


def _gpu_events(plane: Any) -> Iterator[_Event]:
    """Yield kernels and copies, products with what started them: XLA's instruction, else TensorFlow's operation."""
    numbers = {stat.name: number for number, stat in plane.stat_metadata.items()}
    sources = [numbers[name] for name in ("hlo_op", "tf_op") if name in numbers]

    def identify(name: str, event: Any) -> tuple[str, str]:
        if not makes_products(name):
            return name, ""
        found = {stat.metadata_id: stat for stat in event.stats}
        stat = next((found[number] for number in sources if number in found), None)
        return name, _stat_text(plane, stat).partition(":")[0] if stat else ""

    for line in plane.lines:
        if line.name.startswith(_GPU_LINE):
            yield from _events(plane, line, identify)


def _cpu_events(plane: Any) -> Iterator[_Event]:
    """Yield operations and XLA's instructions; of those that only contain others (loops, calls), what they contain."""
    instruction = {number for number, stat in plane.stat_metadata.items() if stat.name == "hlo_op"}

    def identify(name: str, event: Any) -> tuple[str, str] | None:
        if any(stat.metadata_id in instruction for stat in event.stats):
            return None if name.startswith("end: ") else (_NUMBER.sub("", name), name)
        operation = _TF_OP.fullmatch(name)
        return (operation[2], operation[1]) if operation else None

    for line in plane.lines:
        yield from _innermost_events(_events(plane, line, identify))
        yield from _events(plane, line, lambda name, _: (name, "") if name == _EXECUTOR else None)


def _events(plane: Any, line: Any, identify: Callable[[str, Any], tuple[str, str] | None]) -> Iterator[_Event]:
    """Yield a line's events that `identify` gives a name and an operation for, by their own name."""
    base_ps = line.timestamp_ns * 1000
    for event in line.events:
        if (found := identify(plane.event_metadata[event.metadata_id].name, event)) is not None:
            name, op = found
            start_ps = base_ps + event.offset_ps
            yield _Event(name, start_ps, start_ps + event.duration_ps, op)


def _innermost_events(events: Iterable[_Event]) -> Iterator[_Event]:
    """Yield one thread's events without those in which another one begins."""
    ordered = sorted(events, key=lambda event: (event.start_ps, -event.end_ps))
    for event, following in itertools.zip_longest(ordered, ordered[1:]):
        if following is None or following.start_ps >= event.end_ps:
            yield event


def _kernels(events: Iterable[_Event]) -> tuple[Kernel, ...]:
    """Return the kernels by name, the one that took longest first; at most as many as a message takes."""
    totals: dict[str, tuple[int, int]] = {}
    for event in events:
        count, time_ps = totals.get(event.name, (0, 0))
        totals[event.name] = count + 1, time_ps + event.end_ps - event.start_ps
    ranked = sorted(totals.items(), key=lambda item: item[1][1], reverse=True)
    return tuple(
        Kernel(name=name, kind=classify(name), count=count, time_ns=time_ps // 1000, tensor_cores=on_tensor_cores(name))
        for name, (count, time_ps) in ranked[:MOST_KERNELS]
    )


def _span_ps(events: Iterable[_Event]) -> int:
    starts, ends = zip(*((event.start_ps, event.end_ps) for event in events), strict=True)
    return int(max(ends) - min(starts))


def _busy_ps(events: Iterable[_Event]) -> int:
    """Return the length of the union of the events' intervals."""
    busy = reached = 0
    for event in sorted(events, key=lambda event: event.start_ps):
        busy += max(0, event.end_ps - max(event.start_ps, reached))
        reached = max(reached, event.end_ps)
    return busy


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
