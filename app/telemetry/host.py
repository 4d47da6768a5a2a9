"""Host telemetry through psutil and RAPL: load, memory and power, and the load of one worker process.

Linux power capping framework: `energy_uj` counts microjoules and wraps at `max_energy_range_uj`
(https://docs.kernel.org/power/powercap/powercap.html). Since 2020 most systems let only root read it.
"""

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from app.fields import Sample, SlowSample, fields_of
from app.samples import HOST, Device, FieldInfo
from app.telemetry.plausible import PlausibleReadings

_POWERCAP = Path("/sys/class/powercap")


class RaplPower:
    """The mean power of all packages together since the reading before."""

    def __init__(self, folder: Path = _POWERCAP) -> None:
        self._packages = sorted(folder.glob("intel-rapl:[0-9]*/energy_uj"))
        self._packages = [path for path in self._packages if path.parent.name.count(":") == 1]
        self._previous: tuple[int, list[int]] | None = None

    def absence_reason(self) -> str | None:
        """Return the reason why there is no reading, or None when there is one."""
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
        """Return milliwatts since the last call; None on the first, and where a counter wrapped in between."""
        if not self._packages:
            return None
        try:
            now = (time.monotonic_ns(), self._read())
        except OSError:
            return None
        previous, self._previous = self._previous, now
        if previous is None or now[0] == previous[0]:
            return None
        used_uj = [after - start for after, start in zip(now[1], previous[1], strict=True)]
        return None if min(used_uj) < 0 else int(sum(used_uj) * 1e6 / (now[0] - previous[0]))

    def _read(self) -> list[int]:
        return [int(path.read_text()) for path in self._packages]


class HostSource:
    """The machine itself, and one process on it if `follow` names one."""

    def __init__(self) -> None:
        self._worker: psutil.Process | None = None
        self._rapl = RaplPower()
        self._plausible = PlausibleReadings("host")
        self._devices: tuple[Device, ...] = ()

    def start(self) -> None:
        """Find out what the host reports and what a read costs."""
        power_absence = self._rapl.absence_reason()
        absent = {"power_mw": power_absence} if power_absence else {}
        cost_us = self._cost_us()
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
        self._devices = (host,)

    @property
    def devices(self) -> Sequence[Device]:
        """The host, alone."""
        return self._devices

    def follow(self, pid: int | None) -> None:
        """Watch that process from now on; None watches none."""
        self._worker = None
        if pid is not None:
            try:
                self._worker = psutil.Process(pid)
                self._worker.cpu_percent()
            except psutil.NoSuchProcess:
                self._worker = None

    def read(self) -> Sequence[Sample]:
        """Return one sample of the host."""
        worker_load_pct, worker_memory_bytes = self._read_worker()
        values: dict[str, Any] = {
            "load_pct": max(0.0, psutil.cpu_percent()),
            "memory_bytes": _used_bytes(),
            "power_mw": self._rapl.power_mw(),
            "worker_load_pct": worker_load_pct,
            "worker_memory_bytes": worker_memory_bytes,
        }
        implausible = self._plausible.remove(values)
        return (Sample(t_ns=time.monotonic_ns(), device=HOST, implausible=implausible, **values),)

    def read_slow(self) -> SlowSample:
        """Return the processor time that this process has used."""
        return SlowSample(t_ns=time.monotonic_ns(), device=HOST, sampler_cpu_s=time.process_time())

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _cost_us(self) -> float:
        """Return what one read costs; psutil's first has nothing to compare with, so the second counts."""
        self.read()
        started_ns = time.perf_counter_ns()
        self.read()
        return round((time.perf_counter_ns() - started_ns) / 1e3, 1)

    def _read_worker(self) -> tuple[float | None, int | None]:
        worker = self._worker  # another thread may follow another one meanwhile
        if worker is None:
            return None, None
        try:
            with worker.oneshot():
                load_pct, memory_bytes = worker.cpu_percent(), worker.memory_info().rss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            if self._worker is worker:
                self._worker = None
            return None, None
        # A process that has ended but was not yet waited for holds no memory: that is no reading of the worker.
        return (load_pct, memory_bytes) if memory_bytes else (None, None)


def _used_bytes() -> int:
    """Return the memory that is not available to new programs (psutil: total - available)."""
    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)


def cpu_name() -> str:
    """Return the processor's name as the kernel reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
