"""Finds out which calls a GPU supports, and their cost, call by call, so that a slow driver's first values come soon.

What a GPU does not support is absent permanently. Any other error may be temporary: those fields are tried again.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pynvml

from app.telemetry import nvml_calls
from app.telemetry.nvml_calls import (
    ENERGY_CALL,
    FAST_CALLS,
    PCIE_COUNTER_CALL,
    SLOW_CALLS,
    Gpm,
    Number,
    NvmlCall,
    ScheduledCall,
)
from app.values.fields import FIELDS
from app.values.samples import FieldInfo

LOST_ERRORS = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""A driver's errors for a GPU that is lost, or after the driver itself went away. Any other error may be temporary."""
_ABSENCE_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "not supported",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not supported by this driver",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "not supported by this driver",
    pynvml.NVML_ERROR_DEPRECATED: "not supported by this driver",
}
"""The permanent errors, in words: the fields that cause them are absent for good."""
_SILENT_S = 2.0
_PROBE_READS = 5
_SLOW_CALL_US, _VERY_SLOW_CALL_US = 1_000.0, 50_000.0
_PATIENT_TRIES = 3
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.5, 60.0


def absence_reason(error: pynvml.NVMLError) -> str:
    return _ABSENCE_REASONS.get(error.value, str(error))


class Answers:
    """Tracks whether a GPU still answers: after two seconds of nothing but errors it is lost."""

    def __init__(self) -> None:
        self._silent_since_s: float | None = None

    def came(self) -> None:
        self._silent_since_s = None

    def failed(self, errors: Sequence[pynvml.NVMLError]) -> None:
        """Record calls that failed while no other succeeded; raise the error of a GPU that is lost."""
        self.raise_if_lost(errors)
        now_s = time.monotonic()
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s > _SILENT_S:
            raise errors[-1]

    def raise_if_lost(self, errors: Sequence[pynvml.NVMLError]) -> None:
        """Raise an error that by itself shows that the GPU is lost."""
        for error in errors:
            if error.value in LOST_ERRORS:
                raise error


@dataclass(slots=True)
class SlowSchedule:
    """A slow call of this card: when it is due, and a counter's previous reading."""

    call: NvmlCall
    interval_s: float
    counter: bool
    due_s: float = 0.0
    previous: tuple[float, Sequence[Number]] | None = None


@dataclass(slots=True)
class _Search:
    """Fields without a working call so far: possible calls, best first; none stands for GPM."""

    alternatives: tuple[NvmlCall, ...] = ()
    slow: ScheduledCall | None = None
    due_s: float = 0.0
    tries: int = 0


def _slow_search(slow: ScheduledCall) -> _Search:
    return _Search(slow.alternatives, slow)


@dataclass(slots=True)
class Probe:
    """The probe of one GPU: its fields with their cost, absent fields with the reason, and the calls to make."""

    handle: Any
    answers: Answers
    fields: dict[str, FieldInfo] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    fast: tuple[NvmlCall, ...] = ()
    slow: list[SlowSchedule] = field(default_factory=list)
    energy: SlowSchedule | None = None
    gpm: Gpm | None = None
    gpm_due_s: float = 0.0
    _gpm_readings: int = 0
    _searches: list[_Search] = field(
        default_factory=lambda: [*map(_Search, FAST_CALLS), _Search(), *map(_slow_search, SLOW_CALLS)]
    )

    @property
    def next_s(self) -> float:
        """When to try fields again; infinite if all are decided."""
        return min((search.due_s for search in self._searches), default=float("inf"))

    @property
    def is_new(self) -> bool:
        """Whether there are fast fields that were never tried."""
        return any(search.slow is None and not search.tries for search in self._searches)

    def step(self, now_s: float) -> bool:
        """Try the next fields that are due; return whether there were any.

        Raises:
            pynvml.NVMLError: The GPU is lost.
        """
        search = next((search for search in self._searches if search.due_s <= now_s), None)
        if search is None:
            return False
        search.tries += 1
        if self._look_for(search) if search.alternatives else self._start_gpm():
            self._searches.remove(search)
        else:
            search.due_s = time.monotonic() + min(_FIRST_RETRY_S * 2 ** (search.tries - 1), _LONGEST_RETRY_S)
        return True

    def read_gpm(self) -> dict[str, float]:
        """Return the GPM metrics since the previous reading; the first readings show which exist."""
        if self.gpm is None:
            return {}
        started_ns = time.perf_counter_ns()
        try:
            metrics = self.gpm.read()
        except pynvml.NVMLError as error:
            self._note_error(error)
            if not self._gpm_readings:
                self._give_up_gpm(error)
            return {}
        if not metrics:
            return {}
        cost_us = _elapsed_us(started_ns)
        self._gpm_readings += 1
        for name, status, _ in metrics:
            if name not in self.fields:
                if status == pynvml.NVML_SUCCESS:
                    self._add_fields((name,), cost_us)
                elif status in _ABSENCE_REASONS or self._gpm_readings > _PATIENT_TRIES:
                    self.absent[name] = absence_reason(pynvml.NVMLError(status))
        return {name: value for name, status, value in metrics if status == pynvml.NVML_SUCCESS and value == value}

    def _look_for(self, search: _Search) -> bool:
        """Choose the first call that works; return False if a temporary error leaves the answer open.

        After some tries such an error counts as permanent if another call exists. Fields that the chosen call lacks are
        absent for the reason why a better call failed.
        """
        reasons, is_open = dict[str, str](), False
        for call in search.alternatives:
            try:
                cost_us = _cost_us(partial(call.read, self.handle))
            except pynvml.NVMLError as error:
                self._note_error(error)
                reasons.update({name: absence_reason(error) for name in call.fields})
                is_open = is_open or error.value not in _ABSENCE_REASONS
                if is_open and search.tries <= _PATIENT_TRIES:
                    break
                continue
            self.absent.update(reasons)
            if search.slow is None:
                self.fast = (*self.fast, call)
            elif search.slow is ENERGY_CALL:
                self.energy = SlowSchedule(call, search.slow.interval_s, search.slow.counter)
            else:
                self.slow.append(SlowSchedule(call, search.slow.interval_s, search.slow.counter))
            self._add_fields(call.fields, cost_us)
            return True
        self.absent.update(reasons)
        return not is_open

    def _add_fields(self, names: Iterable[str], cost_us: float) -> None:
        self.answers.came()
        for name in names:
            self.fields[name] = FieldInfo(unit=FIELDS[name].unit, cost_us=round(cost_us, 1))
            self.absent.pop(name, None)

    def _start_gpm(self) -> bool:
        gpm = Gpm(self.handle)
        try:
            gpm.start()
        except pynvml.NVMLError as error:
            gpm.close()
            self._note_error(error)
            return self._give_up_gpm(error)
        self.gpm, self.gpm_due_s = gpm, time.monotonic() + nvml_calls.FIRST_INTERVAL_S
        return True

    def _give_up_gpm(self, error: pynvml.NVMLError) -> bool:
        """Record why there is no GPM; if that is permanent, try the PCIe counters instead and return True."""
        self.absent.update(dict.fromkeys(nvml_calls.FIELDS, absence_reason(error)))
        if error.value not in _ABSENCE_REASONS:
            return False
        if self.gpm is not None:
            self.gpm.close()
            self.gpm = None
        self._searches.append(_slow_search(PCIE_COUNTER_CALL))
        return True

    def _note_error(self, error: pynvml.NVMLError) -> None:
        # Not found, or not supported, is an answer too.
        if error.value not in _ABSENCE_REASONS and error.value != pynvml.NVML_ERROR_NOT_FOUND:
            self.answers.failed((error,))


def _cost_us(read: Callable[[], object]) -> float:
    """Return the median time of a few reads, in microseconds; slow ones are read only once or twice."""
    durations_us: list[float] = []
    for _ in range(_PROBE_READS):
        started_ns = time.perf_counter_ns()
        read()
        durations_us.append(_elapsed_us(started_ns))
        if (len(durations_us) == 2 and min(durations_us) > _SLOW_CALL_US) or durations_us[0] > _VERY_SLOW_CALL_US:
            break
    return statistics.median(durations_us)


def _elapsed_us(started_ns: int) -> float:
    return (time.perf_counter_ns() - started_ns) / 1e3
