"""Recordings of stored runs and traces, and their playback at a chosen speed.

Times are those of the recording. Nothing is made up: what was absent is absent, and a device is who it was then.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from app.events import RunEnded, RunEvent, RunStarted
from app.fields import FIELDS, Sample, SlowSample
from app.records import Floats, Ints, SampleColumns, StoredRun
from app.samples import Device, DeviceLost, Inventory, Processes
from workloads.machine import Machine
from workloads.protocol import Block, PhaseName, PhaseStarted, Progress, TimedPhase

T = TypeVar("T", Sample, SlowSample)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStarted:
    """First event of telemetry that was recorded without a run."""

    t_ns: int
    devices: tuple[Device, ...]


Event = RunEvent | TraceStarted | Processes
"""What a recording plays: a run's events, or the telemetry of a trace."""


class Timed(NamedTuple):
    """An event and when it happened."""

    t_ns: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A stored run, or a trace.

    Attributes:
        name: `run 14`, or a file's name.
        inventory: The machine of then, with its devices, and no GPU that anything could run on.
        gpu_names: The names of the GPUs used.
        start_ns: When it begins.
        end_ns: When the last thing known of it happened.
        utc_ns: `start_ns` on the wall clock.
        events: Returns all events in their order, made one by one: 8 h take no more memory than a minute.
        run: The run, if it is one.
    """

    name: str
    inventory: Inventory
    gpu_names: tuple[str, ...]
    start_ns: int
    end_ns: int
    utc_ns: int
    events: Callable[[], Iterator[Timed]]
    run: StoredRun | None = None

    @property
    def measure_ns(self) -> int | None:
        """When its measured part begins; None where it has none, as telemetry without a run."""
        return self._start_ns("measure")

    @property
    def warmup_ns(self) -> int | None:
        """When its warm-up begins; None where it has none."""
        return self._start_ns("warmup")

    def _start_ns(self, name: PhaseName) -> int | None:
        phases = () if self.run is None else self.run.phases
        return next((phase.start_ns for phase in phases if phase.name == name), None)


def run_recording(run: StoredRun) -> Recording:
    """Return a stored run: its telemetry, phases, blocks and epochs, from `RunStarted` to `RunEnded`.

    `Progress` is where in its phase a block ended; log lines are left out, for a log is read, not played.
    """
    return Recording(
        name=f"run {run.row.run}",
        inventory=_run_inventory(run),
        gpu_names=run.row.gpu_names,
        start_ns=run.anchor_t_ns,
        end_ns=_run_end_ns(run),
        utc_ns=run.anchor_utc_ns,
        events=partial(_run_events, run),
        run=run,
    )


def _run_inventory(run: StoredRun) -> Inventory:
    """Return the machine as the run saw it."""
    count = run.environment.get("cpu_count", "")
    return Inventory(
        machine=Machine(cpu_count=int(count) if count.isdecimal() else 0),
        devices=_devices_at_start(run),
        driver=run.environment.get("driver"),
    )


def _devices_at_start(run: StoredRun) -> tuple[Device, ...]:
    return tuple(msgspec.structs.replace(columns.device, lost=None) for columns in run.samples)


def _run_events(run: StoredRun) -> Iterator[Timed]:
    begin = RunStarted(
        run=run.row.run,
        spec=run.row.spec,
        t_ns=run.anchor_t_ns,
        utc_ns=run.anchor_utc_ns,
        devices=_devices_at_start(run),
    )
    streams: list[Iterator[Timed]] = [
        (Timed(phase.start_ns, PhaseStarted(phase=phase.name, t_ns=phase.start_ns)) for phase in run.phases),
        _block_events(run),
        (Timed(epoch.tested_ns, epoch) for epoch in run.epochs),
    ]
    for columns in run.samples:
        streams += [
            _sample_events(Sample, columns.device.device, columns.t_ns, columns.fields),
            _sample_events(SlowSample, columns.device.device, columns.slow_t_ns, columns.slow),
            _loss_events(columns),
        ]
    merged = heapq.merge(*streams, key=lambda timed: timed.t_ns)
    return itertools.chain((Timed(run.anchor_t_ns, begin),), merged, _end_events(run))


def _run_end_ns(run: StoredRun) -> int:
    ends = [run.anchor_t_ns, *(phase.end_ns or phase.start_ns for phase in run.phases)]
    return max([*ends, *(int(columns.t_ns[-1]) for columns in run.samples if columns.t_ns.size)])


def _sample_events(kind: type[T], device: str, t_ns: Ints, fields: Mapping[str, Floats]) -> Iterator[Timed]:
    for row, at_ns in enumerate(t_ns.tolist()):
        values = {name: float(column[row]) for name, column in fields.items()}
        present: dict[str, Any] = {
            name: round(value) if FIELDS[name].is_integer else value
            for name, value in values.items()
            if not math.isnan(value)
        }
        yield Timed(at_ns, kind(t_ns=at_ns, device=device, **present))


def _loss_events(columns: SampleColumns) -> Iterator[Timed]:
    if columns.lost_t_ns is not None:
        reason = columns.device.lost or "it was lost during this run"
        yield Timed(columns.lost_t_ns, DeviceLost(t_ns=columns.lost_t_ns, device=columns.device.device, reason=reason))


def _block_events(run: StoredRun) -> Iterator[Timed]:
    blocks = run.blocks
    for row, at_ns in enumerate(blocks.end_ns.tolist()):
        phase = _block_phase(run, int(blocks.start_ns[row]), measured=bool(blocks.measured[row]))
        block = Block(
            phase=phase,
            first_step=int(blocks.first_step[row]),
            steps=int(blocks.steps[row]),
            examples=int(blocks.examples[row]),
            start_ns=int(blocks.start_ns[row]),
            end_ns=at_ns,
            loss=_value_or_none(blocks.loss[row]),
            allocator_bytes=_integer_or_none(blocks.allocator_bytes[row]) if blocks.allocator_bytes.size else None,
        )
        yield Timed(at_ns, block)
        yield from _progress_events(run, phase, at_ns)


def _block_phase(run: StoredRun, start_ns: int, *, measured: bool) -> TimedPhase:
    """Return the phase of a block; one that is not measured belongs to `compile` until `warmup` begins."""
    if measured:
        return "measure"
    warmup_ns = next((phase.start_ns for phase in run.phases if phase.name == "warmup"), math.inf)
    return "warmup" if start_ns >= warmup_ns else "compile"


def _progress_events(run: StoredRun, name: TimedPhase, at_ns: int) -> Iterator[Timed]:
    phase = next((phase for phase in run.phases if phase.name == name), None)
    if phase is not None and phase.end_ns is not None and phase.end_ns > phase.start_ns:
        fraction = min(1.0, (at_ns - phase.start_ns) / (phase.end_ns - phase.start_ns))
        yield Timed(at_ns, Progress(phase=name, fraction=fraction, t_ns=at_ns))


def _end_events(run: StoredRun) -> Iterator[Timed]:
    if run.row.outcome is not None:
        at_ns = _run_end_ns(run)
        if run.evidence is not None:
            yield Timed(at_ns, run.evidence)
        yield Timed(at_ns, RunEnded(run=run.row.run, t_ns=at_ns, outcome=run.row.outcome, summary=run.row.summary))


def _value_or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _integer_or_none(value: float) -> int | None:
    return None if math.isnan(value) else int(value)


class Replay:
    """Playback of a recording. `read` gives all that is due; `clock` gives seconds and only ever rises.

    Its events are those of the recording.
    """

    def __init__(
        self, recording: Recording, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._recording = recording
        self.speed = speed
        self._clock = clock
        self._start_ns = recording.start_ns
        self._origin_s = clock()
        self._played_s = 0.0
        self.paused = False
        self._events = recording.events()
        self._next = next(self._events, None)

    @property
    def devices(self) -> Sequence[Device]:
        """The devices of the recording."""
        return self._recording.inventory.devices

    @property
    def ended(self) -> bool:
        """Whether everything was read."""
        return self._next is None

    @property
    def behind(self) -> bool:
        """Whether events are due that were not read yet."""
        return self._next is not None and self._next.t_ns <= self._start_ns + round(self.position_s * 1e9)

    @property
    def position_s(self) -> float:
        """Seconds of the recording played so far."""
        return self._played_s if self.paused else self._played_s + (self._clock() - self._origin_s) * self.speed

    @property
    def next_s(self) -> float | None:
        """Seconds until the next event is due, at this speed; None when paused or at the end."""
        if self._next is None or self.paused:
            return None
        return max(0.0, ((self._next.t_ns - self._start_ns) / 1e9 - self.position_s) / self.speed)

    def read(self, limit: int = 5000) -> Sequence[Event]:
        """Return the events that are due, in their order; when they are more than `limit`, the rest comes next time."""
        now_ns = self._start_ns + round(self.position_s * 1e9)
        due: list[Event] = []
        while self._next is not None and self._next.t_ns <= now_ns and len(due) < limit:
            due.append(self._next.event)
            self._next = next(self._events, None)
        return due

    def set_speed(self, speed: float) -> None:
        """Play so many times as fast from here on."""
        self._sync_position()
        self.speed = speed

    def pause(self) -> None:
        """Stop the clock."""
        self._sync_position()
        self.paused = True

    def resume(self) -> None:
        """Let the clock go on where it stopped."""
        self._origin_s = self._clock()
        self.paused = False

    def restart(self) -> None:
        """Play from the beginning again."""
        self._played_s = 0.0
        self.resume()
        self._events = self._recording.events()
        self._next = next(self._events, None)

    def jump(self, position_s: float) -> None:
        """Play on from there; what happened before is due at once, from the beginning where it lies behind."""
        if position_s < self.position_s:
            self.restart()
        self._played_s = position_s
        self.resume()

    def close(self) -> None:
        """End the playback: nothing more is due."""
        self._next = None

    def _sync_position(self) -> None:
        self._played_s = self.position_s
        self._origin_s = self._clock()
