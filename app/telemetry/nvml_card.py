"""One GPU: which calls it answers, what each costs, and its readings."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pynvml

from app.samples import Device, FieldFacts, Sample, SlowSample
from app.telemetry import nvml_gpm
from app.telemetry.field_units import field_unit
from app.telemetry.nvml_calls import CHEAP, ENERGY, PCIE_COUNTERS, SLOW, Call, SlowCall
from app.telemetry.nvml_gpm import Gpm
from app.telemetry.nvml_prepared import Number, Read
from app.telemetry.periods import PeriodWatch
from workloads.catalog import Gpu

GONE = (
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
)
_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "not supported",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not supported by this driver",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "not supported by this driver",
}
# The cheap fields are watched for their periods in the first ten seconds of each minute after the probe.
_WATCH_NS, _WATCH_EVERY_NS = 10_000_000_000, 60_000_000_000
_PROBES = 5
_DEAR_US = 1_000.0


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call made ready for this card."""

    fields: tuple[str, ...]
    read: Read


@dataclass(slots=True)
class _Scheduled:
    """A slow call of this card: when it is due, and for a counter its reading before."""

    call: _Ready
    every_s: float
    counter: bool
    due_s: float = 0.0
    before: tuple[float, Sequence[Number]] | None = None


@dataclass(slots=True)
class Card:
    """One GPU, or a MIG instance of one, and what is known of it. Nothing raises for one absent field.

    One in MIG mode (`in_mig_mode`) is shared by its instances: no program can use it as a whole.
    """

    handle: Any
    gpu: Gpu
    in_mig_mode: bool = False
    fields: dict[str, FieldFacts] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    _cheap: tuple[_Ready, ...] = ()
    _cheap_names: tuple[str, ...] = ()
    _probed_ns: int = 0
    _slow: list[_Scheduled] = field(default_factory=list)
    _energy: _Ready | None = None
    _gpm: Gpm | None = None
    _gpm_due_s: float = 0.0
    _watches: dict[str, PeriodWatch] = field(default_factory=dict)

    def probe(self) -> None:
        """Finds the best way to each field, and what it costs; raises `pynvml.NVMLError` where the card is lost."""
        try:
            self._probe()
        except pynvml.NVMLError:
            self.close()
            raise

    def _probe(self) -> None:
        self._cheap = tuple(call for ways in CHEAP if (call := self._best(ways)) is not None)
        self._probed_ns = time.monotonic_ns()
        self._cheap_names = tuple(name for call in self._cheap for name in call.fields)
        self._watches = {name: PeriodWatch() for name in self._cheap_names}
        self._probe_gpm()
        for slow in (*(() if self._gpm else (PCIE_COUNTERS,)), *SLOW):
            self._schedule(slow)

    def device(self) -> Device:
        """The card as telemetry shows it."""
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

    def known_fields(self) -> dict[str, FieldFacts]:
        """The facts of every field, with the periods seen so far."""
        known = dict(self.fields)
        for name, watch in self._watches.items():
            if name in known and watch.period_ms is not None:
                facts = known[name]
                known[name] = FieldFacts(unit=facts.unit, cost_us=facts.cost_us, period_ms=watch.period_ms)
        return known

    def read(self) -> Sample:
        """Every cheap field; raises `pynvml.NVMLError` only where the card is gone."""
        t_ns, numbers = time.monotonic_ns(), list[Number | None]()
        for call in self._cheap:
            try:
                numbers += call.read()
            except pynvml.NVMLError as error:
                _raise_if_gone(error)
                numbers += [None] * len(call.fields)
        values = dict(zip(self._cheap_names, numbers, strict=True))
        if (t_ns - self._probed_ns) % _WATCH_EVERY_NS < _WATCH_NS:
            self._watch(t_ns, values)
        return Sample(t_ns=t_ns, device=self.gpu.uuid, **values)  # type: ignore[arg-type]

    def _watch(self, t_ns: int, values: Mapping[str, Number | None]) -> None:
        for name, value in values.items():
            if value is not None:
                self._watches[name].see(t_ns, value)

    def read_slow(self, now_s: float) -> SlowSample | None:
        """What is due of the slow fields by now, or None."""
        values: dict[str, Any] = {}
        if self._gpm is not None and self._gpm_due_s <= now_s:
            self._gpm_due_s = now_s + nvml_gpm.EVERY_S
            values.update(self._gpm_values(self._gpm))
        for scheduled in self._slow:
            if scheduled.due_s <= now_s:
                scheduled.due_s = now_s + scheduled.every_s
                values.update(self._slow_values(scheduled))
        return SlowSample(t_ns=time.monotonic_ns(), device=self.gpu.uuid, **values) if values else None

    def read_energy(self) -> SlowSample | None:
        """The energy counter now, or None where there is none."""
        if self._energy is None:
            return None
        numbers = self._numbers(self._energy)
        return (
            SlowSample(t_ns=time.monotonic_ns(), device=self.gpu.uuid, energy_mj=int(numbers[0])) if numbers else None
        )

    def watch_energy(self) -> bool:
        """Reads the energy counter once more to learn how often it is renewed; whether that is still to be learnt."""
        if self._energy is None:
            return False
        watch = self._watches.setdefault("energy_mj", PeriodWatch())
        for value in self._numbers(self._energy):
            watch.see(time.monotonic_ns(), value)
        return watch.period_ms is None

    def close(self) -> None:
        """Gives back what GPM holds."""
        if self._gpm is not None:
            self._gpm.close()

    def _numbers(self, call: _Ready) -> Sequence[Number]:
        """What the call gives now; nothing where it fails this once."""
        try:
            return call.read()
        except pynvml.NVMLError as error:
            _raise_if_gone(error)
            return ()

    def _slow_values(self, scheduled: _Scheduled) -> dict[str, Number]:
        now_s, numbers = time.monotonic(), self._numbers(scheduled.call)
        if not scheduled.counter:
            return dict(zip(scheduled.call.fields, numbers, strict=False))
        before, scheduled.before = scheduled.before, (now_s, numbers) if numbers else None
        if before is None or not numbers:
            return {}
        rates = [(new - old) / (now_s - before[0]) for new, old in zip(numbers, before[1], strict=True)]
        # A counter that went backwards has wrapped: there is no rate this time.
        return {name: rate for name, rate in zip(scheduled.call.fields, rates, strict=True) if rate >= 0}

    def _gpm_values(self, gpm: Gpm) -> dict[str, float]:
        try:
            return gpm.read()
        except pynvml.NVMLError as error:
            _raise_if_gone(error)
            return {}

    def _schedule(self, slow: SlowCall) -> None:
        call = self._best(slow.ways)
        if call is not None:
            self._slow.append(_Scheduled(call, slow.every_s, slow.counter))
            if slow is ENERGY:
                self._energy = call

    def _best(self, ways: Sequence[Call]) -> _Ready | None:
        """The first way that works; what it does not give is absent for the reason the better way failed."""
        reasons: dict[str, str] = {}
        for call in ways:
            try:
                read = call.prepare(self.handle)
                cost_us = _cost_us(read)
            except pynvml.NVMLError as error:
                _raise_if_lost(error)
                reasons.update({name: why(error) for name in call.fields})
                continue
            self.fields.update({name: FieldFacts(unit=field_unit(name), cost_us=cost_us) for name in call.fields})
            self.absent.update({name: reason for name, reason in reasons.items() if name not in call.fields})
            return _Ready(call.fields, read)
        self.absent.update(reasons)
        return None

    def _probe_gpm(self) -> None:
        gpm = Gpm(self.handle)
        try:
            gpm.start()
            cost_us = _cost_us(gpm.ask)
            given = gpm.ask()
        except pynvml.NVMLError as error:
            gpm.close()
            _raise_if_lost(error)
            self.absent.update({name: why(error) for name in nvml_gpm.FIELDS})
            return
        self._gpm = gpm
        self.fields.update({name: FieldFacts(unit=field_unit(name), cost_us=cost_us) for name in given})
        self.absent.update({name: "not supported" for name in nvml_gpm.FIELDS if name not in given})


def why(error: pynvml.NVMLError) -> str:
    """The reason why a field is absent, in a few words."""
    return _REASONS.get(error.value, str(error))


def _raise_if_gone(error: pynvml.NVMLError) -> None:
    """A card that is gone gives nothing any more; any other error takes only what was asked, this once."""
    if error.value in GONE:
        raise error


def _raise_if_lost(error: pynvml.NVMLError) -> None:
    """A card that is lost while it is probed tells nothing of what it supports."""
    if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
        raise error


def _cost_us(read: Callable[[], object]) -> float:
    """The median time of a few reads, in microseconds; a dear one is read only twice."""
    times_us: list[float] = []
    for _ in range(_PROBES):
        started_ns = time.perf_counter_ns()
        read()
        times_us.append((time.perf_counter_ns() - started_ns) / 1e3)
        if len(times_us) == 2 and min(times_us) > _DEAR_US:
            break
    return round(statistics.median(times_us), 1)
