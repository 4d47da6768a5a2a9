"""The sampler: a process of its own that takes the inventory and reads all devices at a steady rate.

    python -m app.telemetry.sampler HZ [fast] [lock=FILE]

writes one JSON object a line on stdout: an `Inventory`, then the other messages of `messages.py`; reads orders on stdin
and ends when stdin closes. Fast fields of the GPUs are read at every tick on one thread, slow ones by a thread for each
GPU on their own schedule: a slow answer of the driver never delays a tick. The main thread reads the host, and replaces
the fast thread where a GPU holds it up. The word `fast` leaves out the slow fields, and next to GPUs the host;
`lock=` names an open file, the lock of a stdout that it shares.
"""

import gc
import math
import os
import sys
import threading
import time
from typing import BinaryIO

import msgspec

from app.samples import Inventory
from app.telemetry.host import HostSource
from app.telemetry.messages import Follow, SamplerCommand, SetRate
from app.telemetry.nvml import NvmlSource
from app.telemetry.pipe import Output, sampler_output

_HOST_EVERY_S, _HOST_ALONE_EVERY_S = 0.5, 0.2
_HOST_SLOW_EVERY_S = 0.45
_LONGEST_SLEEP_S = 0.25
_PROBED_S, _OPENED_S = 1.2, 10.0
_CLOSE_S = 1.0


def take_inventory() -> Inventory:
    """Return the inventory of this machine, read once in this process."""
    host = HostSource()
    host.start()
    nvml = NvmlSource(lambda _: None, host.devices)
    nvml.start()
    nvml.wait(_PROBED_S, probed=True)
    nvml.wait(_OPENED_S, probed=False)
    inventory = nvml.inventory
    nvml.close(_CLOSE_S)
    return inventory


class Pace:
    """The period of the fast fields.

    Thread: any; orders change it.
    """

    def __init__(self, hz: float) -> None:
        self.period_ns = int(1e9 / hz)


class FastThread(threading.Thread):
    """Reads the fast fields of the GPUs at a steady rate, until it is stopped or another takes its place."""

    def __init__(self, nvml: NvmlSource, output: Output, pace: Pace) -> None:
        super().__init__(name="fast", daemon=True)
        self._nvml = nvml
        self._output = output
        self._pace = pace
        nvml.replace_fast_thread(self)

    def run(self) -> None:
        """Write a sample of each GPU at every tick."""
        next_ns = time.monotonic_ns()
        while not self._nvml.stopped.is_set() and (lines := self._nvml.read(self)) is not None:
            if lines:
                self._output.write_lines(lines)
            if not self._nvml.has_gpus:
                self._nvml.stopped.wait(_LONGEST_SLEEP_S)
                next_ns = time.monotonic_ns()  # a GPU that comes back begins a grid of its own
                continue
            # Ticks that were missed are left out, never made up for: the next one is the next of the same grid.
            period_ns = self._pace.period_ns
            missed = max(0, time.monotonic_ns() - next_ns) // period_ns
            next_ns += (1 + missed) * period_ns
            left_s = max(0, next_ns - time.monotonic_ns()) / 1e9
            # Waiting on the event costs more processor time than the GPUs' cheapest fields; a short sleep ends soon.
            if left_s > _LONGEST_SLEEP_S:
                self._nvml.stopped.wait(left_s)
            else:
                time.sleep(left_s)


def main() -> None:
    """Sample until stdin closes."""
    pace = Pace(float(sys.argv[1]))
    has_slow = "fast" not in sys.argv[2:]
    output = sampler_output(sys.argv[2:])
    host = HostSource()
    host.start()
    nvml = NvmlSource(output.write, host.devices)
    nvml.start()
    nvml.wait(_PROBED_S, probed=True)
    nvml.begin(slow=has_slow)
    _start_log(pace)
    FastThread(nvml, output, pace).start()
    threading.Thread(target=_handle_commands, args=(sys.stdin.buffer, nvml, host, output, pace), daemon=True).start()
    # What lives now lives on: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    slow_due_s, opened_due_s = 0.0 if has_slow else math.inf, time.monotonic() + _OPENED_S
    while not nvml.stopped.is_set():
        if nvml.leave_hanging():
            FastThread(nvml, output, pace).start()
        if has_slow or not nvml.has_gpus:
            output.write(host.read())
        if (now_s := time.monotonic()) >= opened_due_s:
            opened_due_s = math.inf
            nvml.stop_waiting()
        if now_s >= slow_due_s:
            slow_due_s = now_s + _HOST_SLOW_EVERY_S
            output.write([host.read_slow()])
        nvml.stopped.wait(_HOST_EVERY_S if nvml.has_gpus else max(pace.period_ns / 1e9, _HOST_ALONE_EVERY_S))
    nvml.close(_CLOSE_S)
    # Not by returning: a thread that hangs in the driver would hold up the interpreter's end.
    os._exit(0)


def _start_log(pace: Pace) -> None:
    # Imported after the inventory is written: the program waits for that.
    import logging

    from app.log import configure_child

    configure_child()
    logging.getLogger("variantscope.telemetry").info("sampling every %g ms", pace.period_ns / 1e6)


def _handle_commands(stdin: BinaryIO, nvml: NvmlSource, host: HostSource, output: Output, pace: Pace) -> None:
    """Follow orders until stdin closes, then stop the source.

    Args:
        stdin: The orders.
        nvml: Source of the GPUs' fields.
        host: Source of the host's.
        output: Where readings go.
        pace: The period, which an order changes.
    """
    decoder: msgspec.json.Decoder[SamplerCommand] = msgspec.json.Decoder(SamplerCommand)
    for line in stdin:
        command = decoder.decode(line)
        if isinstance(command, Follow):
            host.follow(command.pid)
        elif isinstance(command, SetRate):
            pace.period_ns = int(1e9 / command.hz)
        else:
            nvml.read_energy()
            output.write([host.read_slow()])
    nvml.stopped.set()


if __name__ == "__main__":
    main()
