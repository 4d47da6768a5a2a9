"""The sampler: a process of its own that takes the inventory and reads all devices at a steady rate.

    python -m app.telemetry.sampler HZ [fast]

writes one JSON object a line on stdout: an `Inventory`, then the other messages of `messages.py`; reads orders on stdin
and ends when stdin closes. Fast fields of the GPUs are read at every tick on the main thread, slow ones by a second
thread on their own schedule: a slow answer of the driver never delays a tick. The host takes longer to read than two
GPUs; it belongs to the second thread too, unless there is nothing else. The word `fast` leaves that thread out.
"""

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
import psutil

from app.errors import TelemetryError
from app.samples import Inventory
from app.telemetry.host import HostSource
from app.telemetry.messages import Follow, ReadEnergy, SamplerCommand, SamplerMessage
from app.telemetry.nvml import NvmlSource
from workloads.catalog import Machine


@dataclass(frozen=True, slots=True)
class Sources:
    """The telemetry of this machine: the GPUs where there is a driver, and the host; and what they found."""

    nvml: NvmlSource | None
    host: HostSource
    inventory: Inventory

    def close(self) -> None:
        """Close all sources."""
        self.host.close()
        if self.nvml is not None:
            self.nvml.close()


def open_sources() -> Sources:
    """Open every source of this machine; without an NVIDIA driver the inventory says why there is no GPU."""
    host = HostSource()
    host.start()
    nvml, no_gpu_reason = _open_nvml()
    machine = Machine(
        gpus=nvml.gpus if nvml else (),
        cpu_count=psutil.cpu_count() or 1,
        platform=sys.platform,
    )
    inventory = Inventory(
        machine=machine,
        devices=(*(nvml.devices if nvml else ()), *host.devices),
        driver=nvml.driver if nvml else None,
        cuda_driver=nvml.cuda_driver if nvml else None,
        no_gpu_reason=no_gpu_reason,
    )
    return Sources(nvml, host, inventory)


def _open_nvml() -> tuple[NvmlSource | None, str | None]:
    """Return NVML, or why there is none; also why there is no GPU though NVML answers."""
    nvml = NvmlSource()
    try:
        nvml.start()
    except TelemetryError as error:
        return None, str(error)
    if nvml.gpus:
        return nvml, None
    return nvml, "every GPU is in MIG mode and has no instance" if nvml.devices else "the NVIDIA driver shows no GPU"


def take_inventory() -> Inventory:
    """Return the inventory of this machine, read once in this process."""
    sources = open_sources()
    sources.close()
    return sources.inventory


_HOST_ALONE_EVERY_NS = 200_000_000
_SLOW_TICK_S = 0.25
_HOST_EVERY_S = 0.5
_LONGEST_SLEEP_S = 0.25
_HOST_SLOW_EVERY_S = 0.5
_FIELDS_EVERY_S = 5.0

CommandQueue = queue.SimpleQueue[SamplerCommand | None]


class Output:
    """The pipe to the program, shared by two threads; each write is whole lines."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def write(self, messages: Sequence[SamplerMessage]) -> None:
        """Write the messages at once; nobody at the other end ends this process."""
        lines = self._encoder.encode_lines(messages)
        with self._lock:
            try:
                self._pipe.write(lines)
                self._pipe.flush()
            except BrokenPipeError:
                os._exit(0)


def main() -> None:
    """Sample until stdin closes."""
    period_ns = int(1e9 / float(sys.argv[1]))
    output = Output(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    slow_commands: CommandQueue = queue.SimpleQueue()
    sources = open_sources()
    stopped = threading.Event()
    output.write([sources.inventory])
    _start_log(period_ns)
    read: Callable[[], Sequence[SamplerMessage]] = sources.host.read
    if sources.nvml is not None:
        read = sources.nvml.read
    else:
        period_ns = max(period_ns, _HOST_ALONE_EVERY_NS)
    threading.Thread(
        target=_handle_commands, args=(sys.stdin.buffer, sources, slow_commands, stopped), daemon=True
    ).start()
    slow = threading.Thread(target=_sample_slow_fields, args=(sources, output, slow_commands), daemon=True)
    if "fast" not in sys.argv[2:]:
        slow.start()
    # What lives now lives on: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    _sample_fast_fields(read, output, stopped, period_ns)
    if slow.is_alive():
        slow.join()
    sources.close()


def _start_log(period_ns: int) -> None:
    # Imported after the inventory is written: the program waits for that.
    import logging

    from app.log import configure_child

    configure_child()
    logging.getLogger("variantscope.telemetry").info("sampling every %g ms", period_ns / 1e6)


def _sample_fast_fields(
    read: Callable[[], Sequence[SamplerMessage]], output: Output, stopped: threading.Event, period_ns: int
) -> None:
    next_ns = time.monotonic_ns()
    while not stopped.is_set():
        output.write(read())
        # Ticks that were missed are left out, never made up for: the next one is the next of the same grid.
        missed = max(0, time.monotonic_ns() - next_ns) // period_ns
        next_ns += (1 + missed) * period_ns
        left_s = max(0, next_ns - time.monotonic_ns()) / 1e9
        # Waiting on the event costs more processor time than the GPUs' cheapest fields; a short sleep ends soon enough.
        if left_s > _LONGEST_SLEEP_S:
            stopped.wait(left_s)
        else:
            time.sleep(left_s)


def _sample_slow_fields(sources: Sources, output: Output, commands: CommandQueue) -> None:
    host_s = host_slow_s = fields_s = 0.0
    unobserved = sources.nvml
    while True:
        messages: list[SamplerMessage] = [*(sources.nvml.read_slow() if sources.nvml else ())]
        now_s = time.monotonic()
        if sources.nvml is not None and now_s >= host_s:
            host_s = now_s + _HOST_EVERY_S
            messages += sources.host.read()
        if now_s >= host_slow_s:
            host_slow_s = now_s + _HOST_SLOW_EVERY_S
            messages.append(sources.host.read_slow())
        if sources.nvml is not None and now_s >= fields_s:
            fields_s = now_s + _FIELDS_EVERY_S
            messages += sources.nvml.fields_seen()
        if messages:
            output.write(messages)
        if unobserved is not None and unobserved.observe_energy_periods(commands.empty):
            unobserved, fields_s = None, 0.0
        try:
            command = commands.get(timeout=_SLOW_TICK_S)
        except queue.Empty:
            continue
        if command is None:
            return
        if sources.nvml is not None:
            output.write([*sources.nvml.read_energy(), sources.host.read_slow()])


def _handle_commands(stdin: BinaryIO, sources: Sources, slow_commands: CommandQueue, stopped: threading.Event) -> None:
    decoder: msgspec.json.Decoder[SamplerCommand] = msgspec.json.Decoder(Follow | ReadEnergy)
    for line in stdin:
        command = decoder.decode(line)
        if isinstance(command, Follow):
            sources.host.follow(command.pid)
        else:
            slow_commands.put(command)
    stopped.set()
    slow_commands.put(None)


if __name__ == "__main__":
    main()
