"""The fast calls of one GPU made as one: their answers are unpacked together and written without a `Sample` between.

Twenty times a second, beside a training, the caches are cold: what the interpreter runs between the calls costs as much
as the driver's answers (docs/measurements/2026-11-22-sampler.md).
"""

import struct
from collections.abc import Sequence
from operator import le

import msgspec
import pynvml

from app.telemetry.nvml_calls import BufferedRead, Number, PreparedRead
from app.telemetry.nvml_probe import PreparedCall
from app.telemetry.plausible import PlausibleReadings

_WHOLE_EVERY_NS = 45_000_000
"""At rates above 20 Hz only power is read at every tick; the other values of a sample may be so old, and a tick."""


class FastBatch:
    """The fast calls of one GPU.

    Thread: the fast one.
    """

    def __init__(
        self, device: str, calls: Sequence[PreparedCall], power: PreparedRead | None, plausible: PlausibleReadings
    ) -> None:
        """Prepare a batch.

        Args:
            device: The GPU's UUID.
            calls: Its fast calls.
            power: The cheapest read of `power_mw` alone; None where there is none.
            plausible: The limits of its readings as they are now.
        """
        reads = [call.read for call in calls if isinstance(call.read, BufferedRead)]
        self.calls = calls
        self.names = tuple(name for call in calls for name in call.fields)
        self._low, self._high = plausible.limits_of(self.names)
        self._functions = [(read.function, read.arguments) for read in reads]
        self._buffers = [read.memory for read in reads]
        self._statuses = [(read.statuses.unpack_from, read.memory) for read in reads if read.statuses is not None]
        layouts = (f"{read.numbers.format}{len(read.memory) - read.numbers.size}x" for read in reads)
        self._unpack = struct.Struct(f"={''.join(layouts)}").unpack
        self._power = power
        self._power_index = self.names.index("power_mw") if power is not None else 0
        self._values: tuple[Number, ...] = ()
        self._whole_due_ns = 0
        fields = "".join(f',"{name}":%d' for name in self.names)
        self._line = f'{{"type":"sample","device":{msgspec.json.encode(device).decode()},"t_ns":%d{fields}}}\n'

    def read(self, t_ns: int, *, whole: bool) -> tuple[Number, ...] | None:
        """Return the values of all fields; None where one of them is not there, or not plausible.

        Args:
            t_ns: Now.
            whole: Whether to read all of them now, though that was done a moment ago.
        """
        if self._power is None or whole or t_ns >= self._whole_due_ns:
            self._whole_due_ns = t_ns + _WHOLE_EVERY_NS
            codes = [function(*arguments) for function, arguments in self._functions]
            for unpack, memory in self._statuses:
                codes += unpack(memory)
            if any(codes):
                return None
            self._values = values = self._unpack(b"".join(self._buffers))
        else:
            try:
                values = (*self._values[: self._power_index], *self._power(), *self._values[self._power_index + 1 :])
            except pynvml.NVMLError:
                return None
        return values if all(map(le, self._low, values)) and all(map(le, values, self._high)) else None

    def line(self, t_ns: int, values: Sequence[Number]) -> bytes:
        """Return these values as the sampler writes a `Sample`."""
        return (self._line % (t_ns, *values)).encode()
