"""A stored run as a source: its telemetry, phases and blocks again, at their own spacing or faster.

Times are those of the recording. Nothing is made up: what was absent is absent, and a device is who it was then.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from app.records import (
    Device,
    DeviceLost,
    Floats,
    Ints,
    RunEnded,
    RunEvent,
    RunStarted,
    Sample,
    SampleColumns,
    SlowSample,
    StoredRun,
)
from workloads.protocol import Block, PhaseStarted, Progress, TimedPhase

T = TypeVar("T", Sample, SlowSample)

_WHOLE = {
    name for kind in (Sample, SlowSample) for name, hint in kind.__annotations__.items() if hint in (int, int | None)
}
"""Fields that are whole numbers: the columns of a stored run hold them as floats."""


class Timed(NamedTuple):
    """An event and when it happened."""

    t_ns: int
    event: RunEvent


class Replay:
    """Plays a stored run. `read` gives all that is due; `clock` gives seconds and only ever rises.

    It has the verb and the devices of a `TelemetrySource`; its events are a run's, from `RunStarted` to `RunEnded`.
    """

    def __init__(self, run: StoredRun, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._speed = speed
        self._clock = clock
        self._start_ns = run.anchor_t_ns
        self._origin_s = clock()
        self._played_s = 0.0
        self._paused = False
        self._events = events(run)
        self._next = next(self._events, None)

    @property
    def devices(self) -> Sequence[Device]:
        """The devices of the run."""
        return tuple(columns.device for columns in self._run.samples)

    @property
    def ended(self) -> bool:
        """Whether everything was read."""
        return self._next is None

    @property
    def paused(self) -> bool:
        """Whether time stands still."""
        return self._paused

    @property
    def speed(self) -> float:
        """Seconds of the run a second."""
        return self._speed

    @property
    def position_s(self) -> float:
        """Seconds of the run played so far."""
        return self._played_s if self._paused else self._played_s + (self._clock() - self._origin_s) * self._speed

    @property
    def next_s(self) -> float | None:
        """Seconds until the next event is due, at this speed; None when paused or at the end."""
        if self._next is None or self._paused:
            return None
        return max(0.0, ((self._next.t_ns - self._start_ns) / 1e9 - self.position_s) / self._speed)

    def read(self, most: int = 5000) -> Sequence[RunEvent]:
        """What is due and was not read yet, in its order; when it is more than `most`, the rest comes next time."""
        now_ns = self._start_ns + round(self.position_s * 1e9)
        due: list[RunEvent] = []
        while self._next is not None and self._next.t_ns <= now_ns and len(due) < most:
            due.append(self._next.event)
            self._next = next(self._events, None)
        return due

    def set_speed(self, speed: float) -> None:
        """Plays so many times as fast from here on."""
        self._hold()
        self._speed = speed

    def pause(self) -> None:
        """Stops time."""
        self._hold()
        self._paused = True

    def resume(self) -> None:
        """Lets time go on where it stopped."""
        self._origin_s = self._clock()
        self._paused = False

    def restart(self) -> None:
        """Plays from the beginning again."""
        self._played_s = 0.0
        self.resume()
        self._events = events(self._run)
        self._next = next(self._events, None)

    def close(self) -> None:
        """Nothing more is due."""
        self._next = None

    def _hold(self) -> None:
        self._played_s = self.position_s
        self._origin_s = self._clock()


def events(run: StoredRun) -> Iterator[Timed]:
    """A stored run's events in the order of its clock, made one by one: an 8 h run takes no more memory than a short.

    `Progress` is where in its phase a block ended; log lines are left out, for a log is read, not played.
    """
    begin = RunStarted(
        run=run.row.run,
        spec=run.row.spec,
        t_ns=run.anchor_t_ns,
        utc_ns=run.anchor_utc_ns,
        devices=tuple(columns.device for columns in run.samples),
    )
    streams: list[Iterator[Timed]] = [
        (Timed(phase.start_ns, PhaseStarted(phase=phase.name, t_ns=phase.start_ns)) for phase in run.phases),
        _blocks(run),
    ]
    for columns in run.samples:
        streams += [
            _samples(Sample, columns.device.device, columns.t_ns, columns.fields),
            _samples(SlowSample, columns.device.device, columns.slow_t_ns, columns.slow),
            _loss(columns),
        ]
    merged = heapq.merge(*streams, key=lambda timed: timed.t_ns)
    return itertools.chain((Timed(run.anchor_t_ns, begin),), merged, _end(run))


def end_ns(run: StoredRun) -> int:
    """When the last thing known of a run happened."""
    ends = [run.anchor_t_ns, *(phase.end_ns or phase.start_ns for phase in run.phases)]
    return max([*ends, *(int(columns.t_ns[-1]) for columns in run.samples if columns.t_ns.size)])


def _samples(kind: type[T], device: str, t_ns: Ints, fields: Mapping[str, Floats]) -> Iterator[Timed]:
    for row, at_ns in enumerate(t_ns.tolist()):
        values = {name: float(column[row]) for name, column in fields.items()}
        told: dict[str, Any] = {
            name: round(value) if name in _WHOLE else value for name, value in values.items() if not math.isnan(value)
        }
        yield Timed(at_ns, kind(t_ns=at_ns, device=device, **told))


def _loss(columns: SampleColumns) -> Iterator[Timed]:
    if columns.lost_t_ns is not None:
        lost = DeviceLost(t_ns=columns.lost_t_ns, device=columns.device.device, reason="it was lost during this run")
        yield Timed(lost.t_ns, lost)


def _blocks(run: StoredRun) -> Iterator[Timed]:
    blocks = run.blocks
    for row, at_ns in enumerate(blocks.end_ns.tolist()):
        phase = _phase_of(run, int(blocks.start_ns[row]), measured=bool(blocks.measured[row]))
        block = Block(
            phase=phase,
            first_step=int(blocks.first_step[row]),
            steps=int(blocks.steps[row]),
            examples=int(blocks.examples[row]),
            start_ns=int(blocks.start_ns[row]),
            end_ns=at_ns,
            loss=_present(blocks.loss[row]),
            allocator_bytes=_whole(blocks.allocator_bytes[row]) if blocks.allocator_bytes.size else None,
        )
        yield Timed(at_ns, block)
        yield from _progress(run, phase, at_ns)


def _phase_of(run: StoredRun, start_ns: int, *, measured: bool) -> TimedPhase:
    """A block that is not measured belongs to `compile` until `warmup` begins."""
    if measured:
        return "measure"
    warmup_ns = next((phase.start_ns for phase in run.phases if phase.name == "warmup"), math.inf)
    return "warmup" if start_ns >= warmup_ns else "compile"


def _progress(run: StoredRun, name: TimedPhase, at_ns: int) -> Iterator[Timed]:
    phase = next((phase for phase in run.phases if phase.name == name), None)
    if phase is not None and phase.end_ns is not None and phase.end_ns > phase.start_ns:
        fraction = min(1.0, (at_ns - phase.start_ns) / (phase.end_ns - phase.start_ns))
        yield Timed(at_ns, Progress(phase=name, fraction=fraction, t_ns=at_ns))


def _end(run: StoredRun) -> Iterator[Timed]:
    if run.row.outcome is not None:
        at_ns = end_ns(run)
        yield Timed(at_ns, RunEnded(run=run.row.run, t_ns=at_ns, outcome=run.row.outcome, summary=run.row.summary))


def _present(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else int(value)
