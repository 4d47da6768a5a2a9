"""Reads TensorFlow's profiler trace by its classes of protobuf (XSpace), with the programs of XLA that are in it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from workloads.protocol import plain
from workloads.xla import STATS, Plane, Profiled, ProfileLine, XlaTrace, program_ops, read_planes

_MOST_NOTES, _MOST_NOTE_CHARS = 20, 1_000
_PROGRAM_PLANE = "/host:metadata"


def read(data: bytes, steps: int, *, gpu: bool, to_monotonic: Callable[[int], int] = lambda utc_ns: utc_ns) -> XlaTrace:
    """Return the trace of some steps in the bytes of an `.xplane.pb`; the arguments are those of `read_planes`."""
    space = xplane_pb2.XSpace.FromString(data)
    return read_planes(
        list(map(_plane, space.planes)),
        steps,
        gpu=gpu,
        programs=tuple(op for program in _programs(space) for op in program_ops(program)),
        to_monotonic=to_monotonic,
        notes=tuple(
            f"The profiler says: {plain(message[:_MOST_NOTE_CHARS])}"
            for message in (*space.errors, *space.warnings)[:_MOST_NOTES]
        ),
    )


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
    field = stat.WhichOneof("value")
    return plane.stat_metadata[stat.ref_value].name if field == "ref_value" else getattr(stat, field)


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
    return str(_value(plane, stat))
