"""Telemetry of one GPU: its identity, its readings, and who uses it."""

import contextlib
import re
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psutil
import pynvml

from app.telemetry import nvml_calls
from app.telemetry.nvml_calls import Number, NvmlCall, compute_processes, read_text
from app.telemetry.nvml_probe import LOST_ERRORS, Answers, Probe, SlowSchedule, absence_reason
from app.telemetry.plausible import PlausibleReadings
from app.values.fields import Sample, SlowSample
from app.values.limits import MEMORY
from app.values.samples import Device, FieldInfo, FieldsUpdated, GpuProcess, Processes
from workloads.machine import Gpu

# A device's fields are observed in the first ten seconds of each minute after its start.
_OBSERVE_NS, _OBSERVE_EVERY_NS = 10_000_000_000, 60_000_000_000
_MAX_CHANGES = 64
_MIN_CHANGES = 5
_SAME_PERIOD_READINGS = 1.2
"""Times between changes that differ by this many readings still have one period: a change shows up to one reading late.
"""


class PeriodEstimator:
    """Estimates the period at which a driver updates one value; a reader sees a change at its next reading.

    So the times between changes are whole numbers of readings that vary by one, and their mean is the period. Long
    times are left out: an update to the same value is missed. A reader no faster than the driver sees a change every
    time, and learns nothing.
    """

    def __init__(self) -> None:
        self._value: float | None = None
        self._seen_ns = 0
        self._changed_ns: int | None = None
        self._changes: deque[tuple[int, int]] = deque(maxlen=_MAX_CHANGES)

    def add_reading(self, t_ns: int, value: float) -> None:
        reading_ns, self._seen_ns = t_ns - self._seen_ns, t_ns
        if value == self._value:
            return
        if self._value is not None:
            if self._changed_ns is not None:
                self._changes.append((t_ns - self._changed_ns, reading_ns))
            self._changed_ns = t_ns
        self._value = value

    @property
    def period_ms(self) -> float | None:
        """Return the period; None until enough changes were seen, in readings that are close enough."""
        changes = list(self._changes)
        if len(changes) < _MIN_CHANGES:
            return None
        gaps_ns = sorted(between for between, _ in changes)
        reading_ns = statistics.median(reading for _, reading in changes)
        typical_ns = gaps_ns[len(gaps_ns) // 4]
        single_periods = [time for time in gaps_ns if abs(time - typical_ns) < _SAME_PERIOD_READINGS * reading_ns]
        period_ns = statistics.fmean(single_periods)
        return round(period_ns / 1e6, 1) if period_ns > 1.1 * reading_ns else None


class FieldPeriods:
    """The periods of one device's fields, as far as they are known.

    Thread: several may add readings, each for different fields.
    """

    def __init__(self) -> None:
        self._opened_ns = time.monotonic_ns()
        self._estimators: dict[str, PeriodEstimator] = {}

    def __getitem__(self, name: str) -> PeriodEstimator:
        return self._estimators.setdefault(name, PeriodEstimator())

    def is_time(self, t_ns: int) -> bool:
        return (t_ns - self._opened_ns) % _OBSERVE_EVERY_NS < _OBSERVE_NS

    def observe(self, t_ns: int, values: Mapping[str, float | None]) -> None:
        for name, value in values.items():
            if value is not None:
                self[name].add_reading(t_ns, value)

    def added_to(self, fields: Mapping[str, FieldInfo]) -> dict[str, FieldInfo]:
        periods = {name: estimator.period_ms for name, estimator in list(self._estimators.items())}
        return {
            name: info if periods.get(name) is None else msgspec.structs.replace(info, period_ms=periods[name])
            for name, info in fields.items()
        }


_EARLY_NS = 5_000_000
"""A tick that is early by this much counts as on time."""
_OBSERVE_S, _OBSERVE_PAUSE_S = 1.2, 0.002
_PROCESSES_EVERY_S = 0.5
"""A wait before a run lasts until a list no longer contains its predecessor."""
_TOGETHER_S = 0.1
"""What is due this soon is read as well: waking up costs more than most reads."""
_MOST_BYTES = 2**50
_MOST_INSTANCES = 16
_UUID = re.compile(r"(GPU|MIG)-.*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""A Jetson's GPU has a plain UUID (RFC 9562), without the usual prefix."""


@dataclass(slots=True, eq=False)
class GpuReader:
    """One GPU, or a MIG instance of one. Nothing raises for one absent field.

    In MIG mode (`in_mig_mode`) its instances share the GPU, and no program can use it as a whole. `position` is NVML's
    index of the GPU, then the number of the instance in it, or -1. If the GPU is lost, every reading raises
    `pynvml.NVMLError`: one that says so, or the last after two seconds of nothing but errors.

    Thread: `take` and `lines` belong to the fast thread, everything else to the GPU's. `is_left` means that a fast
    reading hangs.
    """

    handle: Any
    gpu: Gpu
    position: tuple[int, int]
    in_mig_mode: bool = False
    is_left: bool = False
    probe: Probe = field(init=False)
    _answers: Answers = field(default_factory=Answers)
    _periods: FieldPeriods = field(default_factory=FieldPeriods)
    _processes_due_s: float = 0.0
    _processes_reason: str | None = None
    _updated: FieldsUpdated | None = None
    _plausible: PlausibleReadings = field(init=False)
    _due_ns: dict[tuple[str, ...], int] = field(default_factory=dict)
    _values: dict[str, Number | None] = field(default_factory=dict)
    _lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.probe = Probe(self.handle, self._answers)
        self._plausible = PlausibleReadings("gpu", self.gpu.memory_total_bytes)

    def device(self) -> Device:
        gpu = self.gpu
        return Device(
            device=gpu.uuid,
            kind="gpu",
            index=gpu.index,
            name=f"{gpu.name} (MIG mode)" if self.in_mig_mode else gpu.name,
            memory_total_bytes=gpu.memory_total_bytes,
            fields=self._periods.added_to(dict(self.probe.fields)),
            absent=dict(self.probe.absent),
        )

    def fields_updated(self) -> FieldsUpdated | None:
        """Return the current state of the fields; None if nothing has changed since the last call."""
        fields = self._periods.added_to(self.probe.fields)
        update = FieldsUpdated(device=self.gpu.uuid, fields=fields, absent=dict(self.probe.absent))
        if update == self._updated:
            return None
        self._updated = update
        return update

    def take(self) -> None:
        """Read the known fast fields that are due; raise `pynvml.NVMLError` if the GPU is lost."""
        t_ns, calls = time.monotonic_ns(), self.probe.fast
        if not calls:
            return
        due = [call for call in calls if t_ns >= self._due_ns.get(call.fields, 0)]
        fresh, errors = dict[str, Number | None](), list[pynvml.NVMLError]()
        for call in due:
            self._due_ns[call.fields] = t_ns + call.every_ms * 1_000_000 - _EARLY_NS
            try:
                fresh.update(zip(call.fields, call.read(self.handle), strict=True))
            except pynvml.NVMLError as error:
                errors.append(error)
                fresh.update(dict.fromkeys(call.fields))
                self._due_ns[call.fields] = 0
        if len(errors) < len(due):
            self._answers.raise_if_lost(errors)
            self._answers.came()
        elif errors:
            self._answers.failed(errors)
        self._values.update(fresh)
        values = dict(self._values)
        implausible = self._plausible.remove(values)
        if self._periods.is_time(t_ns):
            self._periods.observe(t_ns, {name: values[name] for name in fresh})
        sample = Sample(t_ns=t_ns, device=self.gpu.uuid, implausible=implausible, **values)  # type: ignore[arg-type]
        self._lines.append(msgspec.json.encode(sample) + b"\n")

    def lines(self) -> bytes:
        """Return the readings since the last call in the sampler's format; empty as long as there are no fields."""
        lines, self._lines = self._lines, []
        return b"".join(lines)

    def read_slow(self, now_s: float) -> Iterator[SlowSample | Processes]:
        values: dict[str, Any] = {}
        soon_s = now_s + _TOGETHER_S
        if self.probe.gpm is not None and self.probe.gpm_due_s <= soon_s:
            self.probe.gpm_due_s = now_s + nvml_calls.INTERVAL_S
            values.update(self.probe.read_gpm())
        for scheduled in self._schedules():
            if scheduled.due_s <= soon_s:
                scheduled.due_s = now_s + scheduled.interval_s
                values.update(self._slow_values(scheduled))
        if values:
            yield self._slow_sample(values)
        if self._processes_due_s <= soon_s:
            self._processes_due_s = now_s + _PROCESSES_EVERY_S
            yield from self._list_processes()

    def next_s(self) -> float:
        due_s = [self.probe.next_s, self._processes_due_s, *(scheduled.due_s for scheduled in self._schedules())]
        return min(due_s) if self.probe.gpm is None else min(*due_s, self.probe.gpm_due_s)

    def read_energy(self) -> SlowSample | None:
        """Return the energy counter now, or None if there is none."""
        numbers = self._numbers(self.probe.energy.call) if self.probe.energy is not None else ()
        return self._slow_sample({"energy_mj": int(numbers[0])}) if numbers else None

    def observe_energy_period(self, undisturbed: Callable[[], bool]) -> bool:
        """Measure for about a second how often the energy counter is updated; return whether that is finished."""
        end_s, energy, period = time.monotonic() + _OBSERVE_S, self.probe.energy, self._periods["energy_mj"]
        while energy is not None and period.period_ms is None and time.monotonic() < end_s:
            if not undisturbed():
                return False
            for value in self._numbers(energy.call):
                period.add_reading(time.monotonic_ns(), value)
            time.sleep(_OBSERVE_PAUSE_S)
        return True

    def tick_s(self) -> float:
        """Return about how long reading the fast fields takes."""
        return sum(self.probe.fields[call.fields[0]].cost_us or 0.0 for call in self.probe.fast) / 1e6

    def close(self) -> None:
        if self.probe.gpm is not None:
            self.probe.gpm.close()

    def _slow_sample(self, values: dict[str, Any]) -> SlowSample:
        t_ns = time.monotonic_ns()
        implausible = self._plausible.remove_slow(t_ns, values)
        return SlowSample(t_ns=t_ns, device=self.gpu.uuid, implausible=implausible, **values)

    def _schedules(self) -> list[SlowSchedule]:
        """Return the slow calls, the energy counter last: its time matters most, and a sample is stamped at its end."""
        return self.probe.slow if self.probe.energy is None else [*self.probe.slow, self.probe.energy]

    def _numbers(self, call: NvmlCall) -> Sequence[Number]:
        """Return the call's current values; empty if it fails this once."""
        try:
            numbers = call.read(self.handle)
        except pynvml.NVMLError as error:
            self._answers.failed((error,))
            return ()
        self._answers.came()
        return numbers

    def _slow_values(self, scheduled: SlowSchedule) -> dict[str, Number]:
        now_s, numbers = time.monotonic(), self._numbers(scheduled.call)
        if not scheduled.counter:
            return dict(zip(scheduled.call.fields, numbers, strict=False))
        previous, scheduled.previous = scheduled.previous, (now_s, numbers) if numbers else None
        if previous is None or not numbers:
            return {}
        rates = [(new - old) / (now_s - previous[0]) for new, old in zip(numbers, previous[1], strict=True)]
        # A counter that went backwards has wrapped: it has no rate this time.
        return {name: rate for name, rate in zip(scheduled.call.fields, rates, strict=True) if rate >= 0}

    def _list_processes(self) -> Iterator[Processes]:
        """Yield the processes that compute on the GPU, or once why they are unknown."""
        reason = None
        try:
            processes = compute_processes(self.handle)
        except pynvml.NVMLError as error:
            reason, processes = absence_reason(error), []
            if error.value in LOST_ERRORS or reason == self._processes_reason:
                return
        self._processes_reason = reason
        listed = tuple(_describe_process(pid, used) for pid, used in processes)
        yield Processes(t_ns=time.monotonic_ns(), device=self.gpu.uuid, processes=listed, reason=reason)


def open_gpu(index: int) -> GpuReader:
    """Return the GPU with that index; raise `pynvml.NVMLError` if the driver refuses it, or its UUID."""
    return _open_reader(pynvml.nvmlDeviceGetHandleByIndex(index), (index, -1), index)


def open_instances(gpu: GpuReader, readers: Sequence[GpuReader]) -> Iterator[GpuReader]:
    """Yield the MIG instances of a GPU that are not among `readers`; their numbers may have gaps."""
    with contextlib.suppress(pynvml.NVMLError):
        for slot in range(min(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle), _MOST_INSTANCES)):
            position = (gpu.position[0], slot)
            if all(reader.position != position for reader in readers):
                with contextlib.suppress(pynvml.NVMLError):
                    handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, slot)
                    yield _open_reader(handle, position, gpu.gpu.index)


def _open_reader(handle: Any, position: tuple[int, int], index: int) -> GpuReader:
    """Query a GPU's identity in parallel: a slow driver takes long for each answer."""
    uuid, name, total_bytes, capability, mig_mode = _results(
        lambda: read_text(pynvml.nvmlDeviceGetUUID, handle),
        lambda: read_text(pynvml.nvmlDeviceGetName, handle),
        lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        lambda: tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        lambda: pynvml.nvmlDeviceGetMigMode(handle)[0],
    )
    if isinstance(uuid, pynvml.NVMLError):
        raise uuid
    if not _UUID.fullmatch(uuid):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    gpu = Gpu(
        index=index,
        uuid=uuid,
        name=name if isinstance(name, str) and name else "NVIDIA GPU",
        memory_total_bytes=total_bytes if isinstance(total_bytes, int) and 0 < total_bytes <= _MOST_BYTES else None,
        compute_capability=capability if isinstance(capability, tuple) else None,
    )
    # An error of nvidia-ml-py cannot be compared with a number.
    in_mig_mode = isinstance(mig_mode, int) and mig_mode == pynvml.NVML_DEVICE_MIG_ENABLE
    return GpuReader(handle, gpu, position, in_mig_mode=in_mig_mode)


def _results(*reads: Callable[[], Any]) -> list[Any]:
    """Return each result, or the error with which it failed; all are called concurrently."""
    results: list[Any] = [None] * len(reads)

    def call(index: int) -> None:
        try:
            results[index] = reads[index]()
        except pynvml.NVMLError as error:
            results[index] = error

    threads = [threading.Thread(target=call, args=(index,), daemon=True) for index in range(len(reads))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _describe_process(pid: int, memory_bytes: int | None) -> GpuProcess:
    """Return a process with what the system reveals of it: little of other users' or containers' processes."""
    facts: dict[str, Any] = {}
    try:
        with (process := psutil.Process(pid)).oneshot():
            facts["name"] = process.name()
            facts["running_s"] = max(0.0, time.time() - process.create_time())
            facts["user"] = process.username()
    except (psutil.Error, KeyError):  # the user has no name
        pass
    is_plausible = memory_bytes is not None and memory_bytes <= MEMORY.high
    return GpuProcess(pid=pid, memory_bytes=memory_bytes if is_plausible else None, **facts)
