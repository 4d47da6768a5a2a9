"""Sinks get every event of a run, in the order of one clock."""

import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from app import units
from app.analysis.comparability import throttled_environment
from app.analysis.summary import phases_with_energy, summarise
from app.crash import write_report
from app.environment_keys import HOST_KEY
from app.errors import DatabaseError, DatabaseLockedError
from app.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.fields import Sample, SlowSample
from app.log import run_number
from app.records import Phase, StoredRun
from app.runs.host import calibrated_device
from app.runs.leases import CPU
from app.samples import LogLine, TelemetryGap, Waiting
from app.storage.owner import this_process
from app.storage.run_store import RunStore
from app.storage.store import Store, StoredEvent
from workloads.protocol import DataReady, Flops, RunSpec

_log = logging.getLogger("variantscope.run")
_REPORTED_LINES = 100
_LOCK_TRY_S = 0.1
"""How long a batch waits for another program that writes: the worker is watched between two tries."""
_LOCK_WAIT_S = 60.0
"""How long the end of a run waits for a locked database."""

_BATCH_S = 0.5
_MOST_LINES, _MOST_CHARS = 10_000, 2_000_000
"""Of the first lines of a log, and of the last ones, that are stored."""
_MAX_BATCH_BYTES = 48_000_000
_EVENT_BYTES = 700
"""About what a sample takes: a tuple-like object and its numbers."""
_THINNED = (Sample, SlowSample, LogLine)


class Sink(Protocol):
    """Gets a run's events as they come.

    Thread: the session's.
    """

    def handle(self, event: RunEvent) -> None:
        """Take one event; returns at once."""


class FanOut:
    """A sink that passes each event to several sinks, in their order."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def handle(self, event: RunEvent) -> None:
        """Pass the event on."""
        for sink in self._sinks:
            sink.handle(event)


class StoreSink:
    """Stores a run's events, from `RunStarted` to `RunEnded`, and passes each on with what only the store knows.

    The first gets the run's number, the last its figures. Events between are written in batches, each one transaction,
    every half second. While another program keeps the database locked they are kept in memory: samples and log lines up
    to a limit, then fewer and fewer of them; blocks, phases and all else in any case. Of a long log the first and the
    last lines are stored.

    Attributes:
        run: The run's number; None until it has begun.
        stored: The run as it is stored, once it has ended; None if its end could not be stored.
        ended: Its last event, as it was passed on.
        failure: Why it, or a part of it, is not in the database; None where all is, if late.

    Thread: the one that opened the store; any for `Waiting`.
    """

    def __init__(self, store: RunStore, listeners: Sequence[Sink] = ()) -> None:
        self._store = store
        self._listeners = FanOut(listeners)
        self._batch: list[StoredEvent] = []
        self._batch_bytes = 0
        self._log_lines = 0
        self._log_chars = 0
        self._last_lines: deque[LogLine] = deque()
        self._last_chars = 0
        self._left_out = 0
        self._stored_lines = 0
        self._dropped = 0
        self._written_s = time.monotonic()
        self._started: RunStarted | None = None
        self._flops: int | None = None
        self._ready_ms: float | None = None
        self.run: int | None = None
        self.stored: StoredRun | None = None
        self.ended: RunEnded | None = None
        self.failure: DatabaseError | None = None

    def handle(self, event: RunEvent) -> None:
        """Take the next event; raises `DatabaseError`, but not for a lock, nor at the run's end."""
        match event:
            case RunStarted():
                self._begin(event)
            case RunEnded():
                self._end(event)
            case Waiting():
                self._listeners.handle(event)  # a link says it on a thread of its own
            case _:
                self._listeners.handle(event)
                self._store_event(event)

    def abandon(self) -> None:
        """End a run whose last events never came, so that it can be deleted; raises `DatabaseError`."""
        assert self._started is not None, "the run has begun"
        self._store_end(self._started.t_ns, Outcome(name="crashed", reason="Its events ended."), Summary())
        run_number.reset(self._numbered)

    def _begin(self, event: RunStarted) -> None:
        self.run = self._store.begin(
            event.spec,
            uid=event.uid,
            owner=this_process(),
            t_ns=event.t_ns,
            utc_ns=event.utc_ns,
            devices=event.devices,
            environment=event.environment,
            purpose=event.purpose,
        )
        self._store.wait_at_most(_LOCK_TRY_S)
        self._numbered = run_number.set(self.run)
        _log.info("starts: %s %s", event.spec.workload, event.spec.variant)
        self._started = msgspec.structs.replace(event, run=self.run)
        self._listeners.handle(self._started)

    def _store_event(self, event: RunEvent) -> None:
        match event:
            case LogLine():
                self._add_log_line(event)
            case TelemetryGap(t_ns=t_ns, reason=reason):
                self._add_log_line(LogLine(t_ns, reason))
            case Flops(per_step=per_step):
                self._flops = per_step
            case DataReady():
                self._ready_ms = event.time_ns / 1e6 / event.steps
            case _ if isinstance(event, StoredEvent):
                self._add(event)
        if self.run is not None and time.monotonic() - self._written_s >= _BATCH_S:
            with contextlib.suppress(DatabaseLockedError):
                self.flush()

    def _end(self, event: RunEnded) -> None:
        """Store what follows from all that happened; wait for a locked database, then go on in a rescue file."""
        outcome, summary = event.outcome, Summary()
        end_s: float | None = None
        try:
            self._end_log()
            while True:
                try:
                    self.flush()
                    outcome, summary = self._conclude(event)
                    break
                except DatabaseLockedError:
                    end_s = self._wait_for_lock(event.t_ns, end_s)
        except DatabaseError as error:
            outcome, summary = Outcome(name="failed", reason=str(error), ended_by=event.outcome.ended_by), Summary()
            self.failure = error
            # Where this fails too, the run is marked as crashed once this program is gone.
            self._store.use_reserve()
            with contextlib.suppress(DatabaseError):
                self._store_end(event.t_ns, outcome, summary)
        _log.info("ended: %s, %s examples/s. %s", outcome.name, summary.throughput, outcome.reason or "")
        self.ended = RunEnded(run=self._number(), t_ns=event.t_ns, outcome=outcome, summary=summary)
        self._listeners.handle(self.ended)
        self.failure = self._store.rescue_error or self.failure
        run_number.reset(self._numbered)

    def _conclude(self, event: RunEnded) -> tuple[Outcome, Summary]:
        """Compute what follows from all that was measured, and store it; return outcome and metrics."""
        run = self._number()
        stored = self._store.load(run)
        self._store.add_environment(run, throttled_environment(stored))
        outcome = event.outcome
        if self._store.rescue is not None:
            outcome = replace(outcome, reason=f"{outcome.reason or ''} {self._store.rescue}".strip())
        assert self._started is not None, "the run has begun"
        devices = [device.device for device in self._started.devices if device.kind == "gpu"] or [CPU]
        summary = summarise(
            stored,
            allocator_peak_bytes=event.summary.allocator_peak_bytes,
            flops_per_step=self._flops,
            peak_flops_per_s=peak_flops_per_s(
                self._store, self._started.spec, devices, self._started.environment.get(HOST_KEY, "")
            ),
            ready_step_ms=self._ready_ms,
        )
        self._store_end(event.t_ns, outcome, summary, phases_with_energy(stored))
        self.stored = self._store.with_end(stored)
        if outcome.name == "crashed":
            lines = "\n".join(line.text for line in stored.log[-_REPORTED_LINES:])
            write_report(f"Run {run} crashed: {outcome.reason}", f"End of the run's log:\n{lines}")
        return outcome, summary

    def _store_end(self, t_ns: int, outcome: Outcome, summary: Summary, phases: Sequence[Phase] = ()) -> None:
        assert self._started is not None, "the run has begun"
        utc_ns = self._started.utc_ns + t_ns - self._started.t_ns
        self._store.finish(self._number(), outcome=outcome, summary=summary, t_ns=t_ns, utc_ns=utc_ns, phases=phases)

    def _wait_for_lock(self, t_ns: int, end_s: float | None) -> float:
        """Return until when the run waits for its database; move it to a rescue file when that time is over.

        Args:
            t_ns: When the run ended.
            end_s: Until when it waits; None at the first lock, which is told.
        """
        if end_s is None:
            wait = f"close it: the run waits {units.with_unit(_LOCK_WAIT_S, 's')} at most to be stored."
            self._listeners.handle(Waiting(t_ns, f"{self._store.path} is locked by another program; {wait}"))
            return time.monotonic() + _LOCK_WAIT_S
        if time.monotonic() > end_s:
            self._store.move_to_rescue_file(self._number(), f"{self._store.path} stayed locked by another program")
        return end_s

    def _number(self) -> int:
        assert self.run is not None, "the run has begun"
        return self.run

    def flush(self) -> None:
        """Write the batch; raises `DatabaseError`, and keeps the batch where the database is locked."""
        self._written_s = time.monotonic()
        batch = self._batch
        if self._dropped:
            note = f"(while the database was locked, {self._dropped:,} samples and log lines were dropped)"
            batch = [*batch, LogLine(max(event.t_ns for event in batch if isinstance(event, _THINNED)), note)]
        try:
            self._store.write(self._number(), batch, first_log_line=self._stored_lines)
        except DatabaseLockedError:
            raise
        except DatabaseError as error:
            self.failure = error
            raise
        self._stored_lines += sum(isinstance(event, LogLine) for event in batch)
        self._batch, self._batch_bytes, self._dropped = [], 0, 0

    def _end_log(self) -> None:
        """Add the last lines of a long log to the next batch: no more will come."""
        if self._left_out:
            self._add(LogLine(self._last_lines[0].t_ns, f"(… {self._left_out:,} lines left out: the log is too long)"))
        for line in self._last_lines:
            self._add(line)
        self._last_lines.clear()

    def _add_log_line(self, line: LogLine) -> None:
        self._log_lines += 1
        self._log_chars += len(line.text)
        if self._log_lines <= _MOST_LINES and self._log_chars <= _MOST_CHARS:
            self._add(line)
            return
        self._last_lines.append(line)
        self._last_chars += len(line.text)
        while len(self._last_lines) > _MOST_LINES or (len(self._last_lines) > 1 and self._last_chars > _MOST_CHARS):
            self._last_chars -= len(self._last_lines.popleft().text)
            self._left_out += 1

    def _add(self, event: StoredEvent) -> None:
        self._batch.append(event)
        if isinstance(event, _THINNED):
            self._batch_bytes += _size_bytes(event)
            if self._batch_bytes > _MAX_BATCH_BYTES:
                self._thin()

    def _thin(self) -> None:
        """Drop every second sample of each device, and every second line of the log."""
        seen: Counter[tuple[type, str]] = Counter()
        batch: list[StoredEvent] = []
        self._batch_bytes = 0
        for event in self._batch:
            if isinstance(event, _THINNED):
                kind = type(event), "" if isinstance(event, LogLine) else event.device
                seen[kind] += 1
                if seen[kind] % 2 == 0:
                    self._dropped += 1
                    continue
                self._batch_bytes += _size_bytes(event)
            batch.append(event)
        self._batch = batch


def _size_bytes(event: Sample | SlowSample | LogLine) -> int:
    """Return about how much memory an event takes."""
    return _EVENT_BYTES + (len(event.text) if isinstance(event, LogLine) else 0)


def peak_flops_per_s(store: Store, spec: RunSpec, devices: Sequence[str], host: str) -> float | None:
    """Return the calibrated rate of these devices of a host together, taken to be alike; None if none is calibrated."""
    named = (calibrated_device(device, host) for device in devices)
    calibrations = (store.calibration(device, str(spec.variant["precision"])) for device in named)
    rate = next((calibration.flops_per_s for calibration in calibrations if calibration is not None), None)
    return None if rate is None else rate * len(devices)


def mark_crashed_runs(store: Store) -> list[int]:
    """Mark every unfinished run whose owner no longer lives as crashed, and return their numbers."""
    orphaned = [run for run, owner in store.unfinished_runs() if not owner.is_alive()]
    for run in orphaned:
        _log.warning("run %d is marked as crashed: the program that owned it is gone", run)
        stored = store.load(run)
        last_ns = _last_stored_ns(stored)
        reason = "The program that owned this run ended without finishing it; everything up to its last batch is kept."
        store.finish(
            run,
            outcome=Outcome(name="crashed", reason=reason),
            summary=summarise(stored),
            t_ns=last_ns,
            utc_ns=stored.anchor_utc_ns + last_ns - stored.anchor_t_ns,
        )
    return orphaned


def _last_stored_ns(run: StoredRun) -> int:
    """Return the time of the last that is stored of a run, so that no phase of it ends before it began."""
    columns = (*(columns.t_ns for columns in run.samples), run.blocks.end_ns)
    ends = [int(times[-1]) for times in columns if times.size]
    return max([run.anchor_t_ns, *(phase.start_ns for phase in run.phases), *ends])
