"""The sampler: a process that takes the inventory and reads all devices at a steady rate.

    python -m app.telemetry.sampler HZ [fast] [lock=FILE]

writes one JSON object per line to stdout: an `Inventory`, then the other messages of `messages.py`; reads orders from
stdin and ends when stdin closes. One thread reads the GPUs' fast fields at every tick, one thread per GPU the slow ones
on a separate schedule: a slow answer of the driver never delays a tick. The main thread reads the host, and replaces
the fast thread if a GPU blocks it. `fast` leaves out the slow fields, and if there are GPUs the host; `lock=` names an
open file, the lock of a shared stdout.
"""

import gc
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import psutil

from app.telemetry.messages import Follow, SamplerCommand, SetRate
from app.telemetry.nvml import NvmlSource
from app.telemetry.plausible import PlausibleReadings
from app.telemetry.sampler_process import Output, claim_output
from app.values.fields import Sample, SlowSample, fields_of
from app.values.samples import HOST, Device, FieldInfo, Inventory

_POWERCAP = Path("/sys/class/powercap")


class RaplPower:
    """The total mean power of all packages since the previous reading."""

    def __init__(self, folder: Path = _POWERCAP) -> None:
        self._packages = sorted(folder.glob("intel-rapl:[0-9]*/energy_uj"))
        self._packages = [path for path in self._packages if path.parent.name.count(":") == 1]
        self._previous: tuple[int, list[int]] | None = None

    def absence_reason(self) -> str | None:
        """Return why there is no reading; None if there is one."""
        if not self._packages:
            return "not supported"
        try:
            self._read()
        except PermissionError:
            return "no permission"
        except OSError as error:
            return str(error.strerror)
        return None

    def power_mw(self) -> int | None:
        """Return milliwatts since the last call; None on the first, and if a counter wrapped in between."""
        if not self._packages:
            return None
        try:
            now = (time.monotonic_ns(), self._read())
        except OSError:
            return None
        previous, self._previous = self._previous, now
        if previous is None or now[0] == previous[0]:
            return None
        used_uj = [end_uj - start for end_uj, start in zip(now[1], previous[1], strict=True)]
        return None if min(used_uj) < 0 else int(sum(used_uj) * 1e6 / (now[0] - previous[0]))

    def _read(self) -> list[int]:
        return [int(path.read_text()) for path in self._packages]


class HostSource:
    """The machine itself, and one process on it if `follow` names one."""

    def __init__(self) -> None:
        self._worker: psutil.Process | None = None
        self._rapl = RaplPower()
        self._plausible = PlausibleReadings("host")
        self.devices: tuple[Device, ...] = ()

    def start(self) -> None:
        power_absence = self._rapl.absence_reason()
        absent = {"power_mw": power_absence} if power_absence else {}
        self.read()
        started_ns = time.perf_counter_ns()
        self.read()
        cost_us = round((time.perf_counter_ns() - started_ns) / 1e3, 1)
        host = Device(
            device=HOST,
            kind="host",
            index=-1,
            name=cpu_name(),
            memory_total_bytes=psutil.virtual_memory().total,
            fields={
                field.name: FieldInfo(unit=field.unit, cost_us=cost_us)
                for field in fields_of("host")
                if field.speed == "fast" and field.name not in absent
            },
            absent=absent,
        )
        self.devices = (host,)

    def follow(self, pid: int | None) -> None:
        self._worker = None
        if pid is not None:
            try:
                self._worker = psutil.Process(pid)
                self._worker.cpu_percent()
            except psutil.NoSuchProcess:
                self._worker = None

    def read(self) -> Sequence[Sample]:
        worker_load_pct, worker_memory_bytes = self._read_worker()
        memory = psutil.virtual_memory()
        values: dict[str, Any] = {
            "load_pct": max(0.0, psutil.cpu_percent()),
            "memory_bytes": int(memory.total - memory.available),
            "power_mw": self._rapl.power_mw(),
            "worker_load_pct": worker_load_pct,
            "worker_memory_bytes": worker_memory_bytes,
        }
        implausible = self._plausible.remove(values)
        return (Sample(t_ns=time.monotonic_ns(), device=HOST, implausible=implausible, **values),)

    def read_slow(self) -> SlowSample:
        return SlowSample(t_ns=time.monotonic_ns(), device=HOST, sampler_cpu_s=time.process_time())

    def _read_worker(self) -> tuple[float | None, int | None]:
        worker = self._worker  # another thread may change it meanwhile
        if worker is None:
            return None, None
        try:
            with worker.oneshot():
                load_pct, memory_bytes = worker.cpu_percent(), worker.memory_info().rss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            if self._worker is worker:
                self._worker = None
            return None, None
        # A process that has ended but was not waited for holds no memory: that is no reading of the worker.
        return (load_pct, memory_bytes) if memory_bytes else (None, None)


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


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
    """The period of the fast fields. Thread: any; orders change it."""

    def __init__(self, hz: float) -> None:
        self.period_ns = int(1e9 / hz)


class FastThread(threading.Thread):
    """Reads the GPUs' fast fields at a steady rate, until it is stopped or replaced."""

    def __init__(self, nvml: NvmlSource, output: Output, pace: Pace) -> None:
        super().__init__(name="fast", daemon=True)
        self._nvml = nvml
        self._output = output
        self._pace = pace
        nvml.replace_fast_thread(self)

    def run(self) -> None:
        next_ns = time.monotonic_ns()
        while not self._nvml.stopped.is_set() and (lines := self._nvml.read(self)) is not None:
            if lines:
                self._output.write_lines(lines)
            if not self._nvml.has_gpus:
                self._nvml.stopped.wait(_LONGEST_SLEEP_S)
                next_ns = time.monotonic_ns()  # a recovered GPU starts a new grid
                continue
            # Missed ticks are left out, not made up for: the next one is the next of the same grid.
            period_ns = self._pace.period_ns
            missed = max(0, time.monotonic_ns() - next_ns) // period_ns
            next_ns += (1 + missed) * period_ns
            left_s = max(0, next_ns - time.monotonic_ns()) / 1e9
            # Waiting on the event costs more processor time than the cheapest fields; a short sleep ends soon.
            if left_s > _LONGEST_SLEEP_S:
                self._nvml.stopped.wait(left_s)
            else:
                time.sleep(left_s)


def main() -> None:
    """Sample until stdin closes."""
    pace = Pace(float(sys.argv[1]))
    has_slow = "fast" not in sys.argv[2:]
    output = claim_output()
    host = HostSource()
    host.start()
    nvml = NvmlSource(output.write, host.devices)
    nvml.start()
    nvml.wait(_PROBED_S, probed=True)
    nvml.begin(slow=has_slow)
    _start_log(pace)
    FastThread(nvml, output, pace).start()
    threading.Thread(target=_handle_commands, args=(sys.stdin.buffer, nvml, host, output, pace), daemon=True).start()
    # Objects alive now stay alive, so the collector need not visit them again.
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
    # Not by returning: a thread that hangs in the driver would block the interpreter's end.
    os._exit(0)


def _start_log(pace: Pace) -> None:
    # Imported after the inventory is written: the program waits for that.
    import logging

    from app.log import configure_child

    configure_child()
    logging.getLogger("variantscope.telemetry").info("sampling every %g ms", pace.period_ns / 1e6)


def _handle_commands(stdin: BinaryIO, nvml: NvmlSource, host: HostSource, output: Output, pace: Pace) -> None:
    """Follow orders, which may change the pace, until stdin closes; then stop the source."""
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
