"""The fast calls of one GPU: made as one at a tick, and a few ticks later unpacked, checked and written together.

Twenty times a second, beside a training, the caches are cold: what the interpreter runs at a tick costs more than the
driver's answers (docs/measurements/2026-11-22-sampler.md). So a tick only makes the calls and copies their buffers.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from operator import le
from typing import Any

import msgspec
import pynvml

from app.telemetry.nvml_calls import BufferedRead, Number
from app.telemetry.nvml_probe import PreparedCall

_EARLY_NS = 5_000_000
"""A tick that comes so much early counts as in time."""


@dataclass(slots=True)
class _Group:
    """The calls that are made equally often: their places among all, functions and arguments."""

    every_ns: int
    calls: list[tuple[int, Any, tuple[Any, ...]]]
    fields: list[str]
    due_ns: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """The answers at one tick: the outcome of each call, all buffers in a row, and the calls that were made."""

    t_ns: int
    codes: tuple[int, ...]
    memory: bytes
    made: Sequence[_Group]

    @property
    def fields(self) -> list[str]:
        """The fields that were read then; the others are of a tick before."""
        return [name for group in self.made for name in group.fields]


class FastBatch:
    """The fast calls of one GPU.

    Thread: the fast one.
    """

    def __init__(self, device: str, calls: Sequence[PreparedCall]) -> None:
        self.calls = calls
        self.names = tuple(name for call in calls for name in call.fields)
        self._reads = [call.read for call in calls if isinstance(call.read, BufferedRead)]
        self._groups = [_group(calls, every_ms) for every_ms in sorted({call.every_ms for call in calls})]
        self._codes = [0] * len(calls)
        self._buffers = [read.memory for read in self._reads]
        self._numbers = _joint([read.numbers for read in self._reads], self._buffers)
        self._statuses = _joint([read.statuses for read in self._reads], self._buffers)
        self._readings: list[Reading] = []
        fields = "".join(f',"{name}":%d' for name in self.names)
        self._line = f'{{"type":"sample","device":{msgspec.json.encode(device).decode()},"t_ns":%d{fields}}}\n'

    def take(self, t_ns: int) -> None:
        """Make the calls that are due."""
        due = [group for group in self._groups if t_ns >= group.due_ns]
        for group in due:
            group.due_ns = t_ns + group.every_ns
            for place, function, arguments in group.calls:
                self._codes[place] = code = function(*arguments)
                if code:
                    group.due_ns = 0
        self._readings.append(Reading(t_ns, tuple(self._codes), b"".join(self._buffers), due))

    def hand_over(self) -> list[Reading]:
        """Return what was read since the last time."""
        readings, self._readings = self._readings, []
        return readings

    def values(self, reading: Reading) -> tuple[Number, ...] | None:
        """Return the values of all fields; None where one of them is not there."""
        if any(reading.codes) or any(self._statuses.unpack(reading.memory)):
            return None
        return self._numbers.unpack(reading.memory)

    def values_there(self, reading: Reading) -> tuple[dict[str, Number | None], list[pynvml.NVMLError]]:
        """Return the values that are there, None for the others, and the errors of these."""
        values, errors, offset = dict[str, Number | None](), list[pynvml.NVMLError](), 0
        for call, read, code in zip(self.calls, self._reads, reading.codes, strict=True):
            statuses = read.statuses.unpack_from(reading.memory, offset) if read.statuses is not None else ()
            if failed := next(filter(None, (code, *statuses)), 0):
                errors.append(pynvml.NVMLError(failed))
                values.update(dict.fromkeys(call.fields))
            else:
                values.update(zip(call.fields, read.numbers.unpack_from(reading.memory, offset), strict=True))
            offset += len(read.memory)
        return values, errors

    def line(self, t_ns: int, values: Sequence[Number]) -> bytes:
        """Return the values of all fields as the sampler writes a `Sample`."""
        return (self._line % (t_ns, *values)).encode()


def within(low: Sequence[float], values: Sequence[Number], high: Sequence[float]) -> bool:
    """Return whether every value is within its limits."""
    return all(map(le, low, values)) and all(map(le, values, high))


def _group(calls: Sequence[PreparedCall], every_ms: int) -> _Group:
    chosen = [(place, call) for place, call in enumerate(calls) if call.every_ms == every_ms]
    functions = [
        (place, call.read.function, call.read.arguments)
        for place, call in chosen
        if isinstance(call.read, BufferedRead)
    ]
    return _Group(every_ms * 1_000_000 - _EARLY_NS, functions, [name for _, call in chosen for name in call.fields])


def _joint(layouts: Sequence[struct.Struct | None], buffers: Sequence[memoryview]) -> struct.Struct:
    """Return the layout of all buffers in a row; a buffer without a layout is skipped."""
    parts = (
        f"{layout.format}{len(buffer) - layout.size}x" if layout is not None else f"{len(buffer)}x"
        for layout, buffer in zip(layouts, buffers, strict=True)
    )
    return struct.Struct(f"={''.join(parts)}")
