"""Telemetry of one GPU: which calls it supports, their cost and update periods, and its readings."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pynvml

from app.fields import FIELDS, Sample, SlowSample
from app.samples import Device, FieldInfo
from app.telemetry import nvml_calls
from app.telemetry.nvml_calls import (
    ENERGY_CALL,
    FAST_CALLS,
    PCIE_COUNTER_CALL,
    SLOW_CALLS,
    Gpm,
    Number,
    NvmlCall,
    PreparedRead,
    ScheduledCall,
)
from app.telemetry.plausible import PlausibleReadings
from workloads.catalog import Gpu

_MAX_CHANGES = 64
_MIN_CHANGES = 5
_SAME_PERIOD_READINGS = 1.2
"""Times between changes this many readings apart are of one period: a change is seen up to one reading late."""


class PeriodEstimator:
    """Estimate the period at which a driver renews one value; a reader sees a change at its next reading.

    So the times between changes are a whole number of readings, one more or one less from change to change, and their
    mean is the period. Where a value happens to stay the same a change is missed: such long times are left out. Who
    reads no faster than the driver renews sees a change every time, and learns nothing.
    """

    def __init__(self) -> None:
        self._value: float | None = None
        self._seen_ns = 0
        self._changed_ns: int | None = None
        self._changes: deque[tuple[int, int]] = deque(maxlen=_MAX_CHANGES)

    def add_reading(self, t_ns: int, value: float) -> None:
        """Add one reading."""
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
        """The period; None until the value was seen to change often enough, and by readings that are close enough."""
        changes = list(self._changes)
        if len(changes) < _MIN_CHANGES:
            return None
        gaps_ns = sorted(between for between, _ in changes)
        reading_ns = statistics.median(reading for _, reading in changes)
        typical_ns = gaps_ns[len(gaps_ns) // 4]
        single_periods = [time for time in gaps_ns if abs(time - typical_ns) < _SAME_PERIOD_READINGS * reading_ns]
        period_ns = statistics.fmean(single_periods)
        return round(period_ns / 1e6, 1) if period_ns > 1.1 * reading_ns else None


GONE_ERRORS = (
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
)
_ABSENCE_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "not supported",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not supported by this driver",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "not supported by this driver",
}
# The fast fields are watched for their periods in the first ten seconds of each minute after the probe.
_OBSERVE_NS, _OBSERVE_EVERY_NS = 10_000_000_000, 60_000_000_000
_PROBE_READS = 5
_SLOW_CALL_US = 1_000.0


@dataclass(frozen=True, slots=True)
class _PreparedCall:
    """A call made ready for this card."""

    fields: tuple[str, ...]
    read: PreparedRead


@dataclass(slots=True)
class _SlowSchedule:
    """A slow call of this card: when it is due, and for a counter its reading before."""

    call: _PreparedCall
    interval_s: float
    counter: bool
    due_s: float = 0.0
    previous: tuple[float, Sequence[Number]] | None = None


@dataclass(slots=True)
class GpuReader:
    """One GPU, or a MIG instance of one, and what is known of it. Nothing raises for one absent field.

    One in MIG mode (`in_mig_mode`) is shared by its instances: no program can use it as a whole.
    """

    handle: Any
    gpu: Gpu
    in_mig_mode: bool = False
    fields: dict[str, FieldInfo] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    _fast: tuple[_PreparedCall, ...] = ()
    _fast_names: tuple[str, ...] = ()
    _probed_ns: int = 0
    _slow: list[_SlowSchedule] = field(default_factory=list)
    _energy: _PreparedCall | None = None
    _gpm: Gpm | None = None
    _gpm_due_s: float = 0.0
    _periods: dict[str, PeriodEstimator] = field(default_factory=dict)
    _plausible: PlausibleReadings = field(init=False)

    def __post_init__(self) -> None:
        self._plausible = PlausibleReadings("gpu", self.gpu.memory_total_bytes)

    def probe(self) -> None:
        """Find the best way to each field, and what it costs; raise `pynvml.NVMLError` where the GPU is lost."""
        try:
            self._probe()
        except pynvml.NVMLError:
            self.close()
            raise

    def _probe(self) -> None:
        self._fast = tuple(
            call for alternatives in FAST_CALLS if (call := self._first_working(alternatives)) is not None
        )
        self._probed_ns = time.monotonic_ns()
        self._fast_names = tuple(name for call in self._fast for name in call.fields)
        self._periods = {name: PeriodEstimator() for name in self._fast_names}
        self._probe_gpm()
        for slow in (*(() if self._gpm else (PCIE_COUNTER_CALL,)), *SLOW_CALLS):
            self._schedule(slow)

    def device(self) -> Device:
        """Return the GPU as telemetry shows it."""
        gpu = self.gpu
        return Device(
            device=gpu.uuid,
            kind="gpu",
            index=gpu.index,
            name=f"{gpu.name} (MIG mode)" if self.in_mig_mode else gpu.name,
            memory_total_bytes=gpu.memory_total_bytes,
            fields=self.known_fields(),
            absent=dict(self.absent),
        )

    def known_fields(self) -> dict[str, FieldInfo]:
        """Return every field, with the periods seen so far."""
        known = dict(self.fields)
        for name, period in self._periods.items():
            if name in known and period.period_ms is not None:
                field = known[name]
                known[name] = FieldInfo(unit=field.unit, cost_us=field.cost_us, period_ms=period.period_ms)
        return known

    def read(self) -> Sample:
        """Return every fast field; raise `pynvml.NVMLError` only where the GPU is gone."""
        t_ns, numbers = time.monotonic_ns(), list[Number | None]()
        for call in self._fast:
            try:
                numbers += call.read()
            except pynvml.NVMLError as error:
                _raise_if_gone(error)
                numbers += [None] * len(call.fields)
        values = dict(zip(self._fast_names, numbers, strict=True))
        implausible = self._plausible.remove(values)
        if (t_ns - self._probed_ns) % _OBSERVE_EVERY_NS < _OBSERVE_NS:
            self._observe_periods(t_ns, values)
        return Sample(t_ns=t_ns, device=self.gpu.uuid, implausible=implausible, **values)  # type: ignore[arg-type]

    def _observe_periods(self, t_ns: int, values: Mapping[str, Number | None]) -> None:
        for name, value in values.items():
            if value is not None:
                self._periods[name].add_reading(t_ns, value)

    def read_slow(self, now_s: float) -> SlowSample | None:
        """Return the slow fields that are due by now, or None."""
        values: dict[str, Any] = {}
        if self._gpm is not None and self._gpm_due_s <= now_s:
            self._gpm_due_s = now_s + nvml_calls.INTERVAL_S
            values.update(self._gpm_values(self._gpm))
        for scheduled in self._slow:
            if scheduled.due_s <= now_s:
                scheduled.due_s = now_s + scheduled.interval_s
                values.update(self._slow_values(scheduled))
        return self._slow_sample(values) if values else None

    def _slow_sample(self, values: dict[str, Any]) -> SlowSample:
        t_ns = time.monotonic_ns()
        implausible = self._plausible.remove_slow(t_ns, values)
        return SlowSample(t_ns=t_ns, device=self.gpu.uuid, implausible=implausible, **values)

    def read_energy(self) -> SlowSample | None:
        """Return the energy counter now, or None where there is none."""
        if self._energy is None:
            return None
        numbers = self._numbers(self._energy)
        return self._slow_sample({"energy_mj": int(numbers[0])}) if numbers else None

    def observe_energy_period(self) -> bool:
        """Read the energy counter to learn how often it is renewed; return whether that is still unknown."""
        if self._energy is None:
            return False
        period = self._periods.setdefault("energy_mj", PeriodEstimator())
        for value in self._numbers(self._energy):
            period.add_reading(time.monotonic_ns(), value)
        return period.period_ms is None

    def close(self) -> None:
        """Free what GPM holds."""
        if self._gpm is not None:
            self._gpm.close()

    def _numbers(self, call: _PreparedCall) -> Sequence[Number]:
        """Return what the call gives now; nothing where it fails this once."""
        try:
            return call.read()
        except pynvml.NVMLError as error:
            _raise_if_gone(error)
            return ()

    def _slow_values(self, scheduled: _SlowSchedule) -> dict[str, Number]:
        now_s, numbers = time.monotonic(), self._numbers(scheduled.call)
        if not scheduled.counter:
            return dict(zip(scheduled.call.fields, numbers, strict=False))
        previous, scheduled.previous = scheduled.previous, (now_s, numbers) if numbers else None
        if previous is None or not numbers:
            return {}
        rates = [(new - old) / (now_s - previous[0]) for new, old in zip(numbers, previous[1], strict=True)]
        # A counter that went backwards has wrapped: there is no rate this time.
        return {name: rate for name, rate in zip(scheduled.call.fields, rates, strict=True) if rate >= 0}

    def _gpm_values(self, gpm: Gpm) -> dict[str, float]:
        try:
            return gpm.read()
        except pynvml.NVMLError as error:
            _raise_if_gone(error)
            return {}

    def _schedule(self, slow: ScheduledCall) -> None:
        call = self._first_working(slow.alternatives)
        if call is not None:
            self._slow.append(_SlowSchedule(call, slow.interval_s, slow.counter))
            if slow is ENERGY_CALL:
                self._energy = call

    def _first_working(self, alternatives: Sequence[NvmlCall]) -> _PreparedCall | None:
        """Return the first way that works; what it does not give is absent for the reason the better way failed."""
        reasons: dict[str, str] = {}
        for call in alternatives:
            try:
                read = call.prepare(self.handle)
                cost_us = _cost_us(read)
            except pynvml.NVMLError as error:
                _raise_if_lost(error)
                reasons.update({name: absence_reason(error) for name in call.fields})
                continue
            self.fields.update({name: FieldInfo(unit=FIELDS[name].unit, cost_us=cost_us) for name in call.fields})
            self.absent.update({name: reason for name, reason in reasons.items() if name not in call.fields})
            return _PreparedCall(call.fields, read)
        self.absent.update(reasons)
        return None

    def _probe_gpm(self) -> None:
        gpm = Gpm(self.handle)
        try:
            gpm.start()
            cost_us = _cost_us(gpm.query)
            available = gpm.query()
        except pynvml.NVMLError as error:
            gpm.close()
            _raise_if_lost(error)
            self.absent.update({name: absence_reason(error) for name in nvml_calls.FIELDS})
            return
        self._gpm = gpm
        self.fields.update({name: FieldInfo(unit=FIELDS[name].unit, cost_us=cost_us) for name in available})
        self.absent.update({name: "not supported" for name in nvml_calls.FIELDS if name not in available})


def absence_reason(error: pynvml.NVMLError) -> str:
    """Return the reason why a field is absent, in a few words."""
    return _ABSENCE_REASONS.get(error.value, str(error))


def _raise_if_gone(error: pynvml.NVMLError) -> None:
    """Raise the error of a GPU that is gone; any other error takes only the field that was read, this once."""
    if error.value in GONE_ERRORS:
        raise error


def _raise_if_lost(error: pynvml.NVMLError) -> None:
    """Raise the error of a GPU that is lost while it is probed, which says nothing of what it supports."""
    if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
        raise error


def _cost_us(read: Callable[[], object]) -> float:
    """Return the median time of a few reads, in microseconds; a slow one is read only twice."""
    durations_us: list[float] = []
    for _ in range(_PROBE_READS):
        started_ns = time.perf_counter_ns()
        read()
        durations_us.append((time.perf_counter_ns() - started_ns) / 1e3)
        if len(durations_us) == 2 and min(durations_us) > _SLOW_CALL_US:
            break
    return round(statistics.median(durations_us), 1)
