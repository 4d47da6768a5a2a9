"""Sinks get every event of a run, in the order of one clock."""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import msgspec

from app.analysis.comparability import throttled_environment
from app.analysis.summary import phases_with_energy, summarise
from app.errors import DatabaseError, DatabaseLockedError
from app.log import run_number
from app.runs.host import calibrated_device
from app.runs.leases import CPU
from app.storage.owner import this_process
from app.storage.store import RunStore, Store, StoredEvent
from app.values import units
from app.values.environment_keys import HOST_KEY
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.values.records import Phase, StoredRun
from app.values.samples import LogLine, TelemetryGap, Waiting
from workloads.protocol import Calibration, DataReady, Flops, RunSpec

_log = logging.getLogger("variantscope.run")
_LOCK_TRY_S = 0.1
"""How long a batch of a live run waits for a lock: between two tries the worker is watched."""
_LOCK_WAIT_S = 60.0
"""How long the end of a run waits for a locked database."""

_BATCH_S = 0.5
_MOST_LINES, _MOST_CHARS = 10_000, 2_000_000
"""How many lines and characters are stored of a log's beginning, and again of its end."""
_BATCH_EVENTS = 20_000
"""A batch of that many is written early: replayed events arrive quickly."""
_MOST_EVENTS = 80_000
"""The most events that wait for a locked database: about 56 MB, half an hour of one GPU."""


class Sink(Protocol):
    """Gets a run's events as they come. Thread: the session's."""

    def handle(self, event: RunEvent) -> None: ...


class StoreSink:
    """Stores a run's events, from `RunStarted` to `RunEnded`, and passes each on with what only the store knows.

    The first event gets the run's number, the last its figures. Events between them are written every half second, in
    one transaction. While another program locks the database they stay in memory. Of a long log only the first and last
    lines are stored. If an event cannot be stored, the run ends and says so.

    Attributes:
        run: The run's number; None until it has begun.
        stored: The run as stored, once it has ended; None if its end is not in the database.
        ended: Its last event, as forwarded.
        failure: Why it, or a part of it, is not in the database; None if everything is, even if late.

    Thread: the one that opened the store; any thread for `Waiting`.
    """

    def __init__(self, store: RunStore, listeners: Sequence[Sink] = (), *, is_live: bool = False) -> None:
        """Create a sink for a store and further listeners; `is_live` says that events come as they happen.

        Then no write waits long for its turn.
        """
        self._store = store
        self._is_live = is_live
        self._listeners = tuple(listeners)
        self._batch: list[StoredEvent] = []
        self._log_lines = 0
        self._log_chars = 0
        self._last_lines: deque[LogLine] = deque()
        self._last_chars = 0
        self._left_out = 0
        self._stored_lines = 0
        self._written_s = time.monotonic()
        self._started: RunStarted | None = None
        self._flops: int | None = None
        self._ready_ms: float | None = None
        self.run: int | None = None
        self.stored: StoredRun | None = None
        self.ended: RunEnded | None = None
        self.failure: DatabaseError | None = None

    def handle(self, event: RunEvent) -> None:
        """Take the next event; raises `DatabaseError`, except for a lock or at the run's end."""
        match event:
            case RunStarted():
                self._begin(event)
            case RunEnded():
                self._end(event)
            case Waiting():
                self._tell(event)  # a link reports it on its own thread
            case _:
                self._tell(event)
                self._store_event(event)

    def abandon(self) -> None:
        """End a run whose last events never arrived, so that it can be deleted; raises `DatabaseError`."""
        assert self._started is not None, "the run has begun"
        self._store_end(self._started.t_ns, Outcome(name="crashed", reason="Its events ended."), Summary())
        run_number.reset(self._numbered)

    def _tell(self, event: RunEvent) -> None:
        for listener in self._listeners:
            listener.handle(event)

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
        self._numbered = run_number.set(self.run)
        _log.info("starts: %s %s", event.spec.workload, event.spec.variant)
        self._started = msgspec.structs.replace(event, run=self.run)
        self._host = event.environment.get(HOST_KEY, "")
        self._devices = [device.device for device in event.devices if device.kind == "gpu"] or [CPU]
        if self._is_live:
            self._store.wait_at_most(_LOCK_TRY_S)
        self._tell(self._started)

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
            case Calibration(device=device):
                self._batch.append(msgspec.structs.replace(event, device=calibrated_device(device, self._host)))
            case _ if isinstance(event, StoredEvent):
                self._batch.append(event)
        is_large = bool(self._batch) and len(self._batch) % _BATCH_EVENTS == 0
        if self.run is not None and (is_large or time.monotonic() - self._written_s >= _BATCH_S):
            try:
                self.flush()
            except DatabaseLockedError:
                if len(self._batch) > _MOST_EVENTS:
                    raise self._still_locked() from None

    def _end(self, event: RunEnded) -> None:
        """Store what follows from all events; wait for a locked database, then report what is not stored."""
        outcome, summary = event.outcome, Summary()
        end_s: float | None = None
        try:
            # Add the last lines of a long log to the next batch, which is the last.
            if self._left_out:
                note = f"(… {self._left_out:,} lines left out: the log is too long)"
                self._batch.append(LogLine(self._last_lines[0].t_ns, note))
            self._batch += self._last_lines
            self._last_lines.clear()
            while True:
                try:
                    self.flush()
                    summary = self._conclude(event)
                    break
                except DatabaseLockedError:
                    end_s = self._wait_for_lock(event.t_ns, end_s)
        except DatabaseError as error:
            outcome, summary = Outcome(name="failed", reason=str(error), ended_by=event.outcome.ended_by), Summary()
            self.failure = error
            # If this fails too, the run is marked as crashed once this program has ended.
            self._store.use_reserve()
            with contextlib.suppress(DatabaseError):
                self._store_end(event.t_ns, outcome, summary)
        _log.info("ended: %s, %s examples/s. %s", outcome.name, summary.throughput, outcome.reason or "")
        self.ended = RunEnded(run=self._number(), t_ns=event.t_ns, outcome=outcome, summary=summary)
        self._tell(self.ended)
        run_number.reset(self._numbered)

    def _conclude(self, event: RunEnded) -> Summary:
        """Compute and store what follows from all measurements; return the metrics."""
        run = self._number()
        stored = self._store.load(run)
        self._store.add_environment(run, throttled_environment(stored))
        assert self._started is not None, "the run has begun"
        calibration = stored_calibration(self._store, self._started.spec, self._devices, self._host)
        summary = summarise(
            stored,
            allocator_peak_bytes=event.summary.allocator_peak_bytes,
            flops_per_step=self._flops,
            peak_flops_per_s=None if calibration is None else calibration.flops_per_s * len(self._devices),
            ready_step_ms=self._ready_ms,
        )
        self._store_end(event.t_ns, event.outcome, summary, phases_with_energy(stored, event.t_ns))
        self.stored = self._store.with_end(stored)
        return summary

    def _store_end(self, t_ns: int, outcome: Outcome, summary: Summary, phases: Sequence[Phase] = ()) -> None:
        assert self._started is not None, "the run has begun"
        utc_ns = self._started.utc_ns + t_ns - self._started.t_ns
        self._store.finish(self._number(), outcome=outcome, summary=summary, t_ns=t_ns, utc_ns=utc_ns, phases=phases)

    def _wait_for_lock(self, t_ns: int, end_s: float | None) -> float:
        """Return until when the run waits for its database; raises `DatabaseError` after that.

        Args:
            t_ns: When the run ended.
            end_s: Until when it waits; None at the first lock, which is reported.
        """
        if end_s is None:
            wait = f"close it: the run waits {units.with_unit(_LOCK_WAIT_S, 's')} at most to be stored."
            self._tell(Waiting(t_ns, f"{self._store.path} is locked by another program; {wait}"))
            return time.monotonic() + _LOCK_WAIT_S
        if time.monotonic() > end_s:
            raise self._still_locked()
        return end_s

    def _still_locked(self) -> DatabaseError:
        return DatabaseError(f"{self._store.path} stayed locked by another program; the end of the run is not stored.")

    def _number(self) -> int:
        assert self.run is not None, "the run has begun"
        return self.run

    def flush(self) -> None:
        """Write the batch; raises `DatabaseError`, and keeps the batch where the database is locked."""
        self._written_s = time.monotonic()
        try:
            self._store.write(self._number(), self._batch, first_log_line=self._stored_lines)
        except DatabaseLockedError:
            raise
        except DatabaseError as error:
            self.failure = error
            raise
        self._stored_lines += sum(isinstance(event, LogLine) for event in self._batch)
        self._batch = []

    def _add_log_line(self, line: LogLine) -> None:
        self._log_lines += 1
        self._log_chars += len(line.text)
        if self._log_lines <= _MOST_LINES and self._log_chars <= _MOST_CHARS:
            self._batch.append(line)
            return
        self._last_lines.append(line)
        self._last_chars += len(line.text)
        while len(self._last_lines) > _MOST_LINES or (len(self._last_lines) > 1 and self._last_chars > _MOST_CHARS):
            self._last_chars -= len(self._last_lines.popleft().text)
            self._left_out += 1


def stored_calibration(store: Store, spec: RunSpec, devices: Sequence[str], host: str) -> Calibration | None:
    """Return the calibration of the first of a host's devices that has one; the devices are assumed alike."""
    named = (calibrated_device(device, host) for device in devices)
    if (precision := spec.variant.get("precision")) is None:  # for a script only what ran shows it
        return None
    calibrations = (store.calibration(device, str(precision)) for device in named)
    return next(filter(None, calibrations), None)


def mark_crashed_runs(store: Store) -> list[int]:
    """Mark every unfinished run whose owner has ended as crashed, and return their numbers."""
    orphaned = [run for run, owner in store.unfinished_runs() if not owner.is_alive()]
    for run in orphaned:
        _log.warning("run %d is marked as crashed: the program that owned it is gone", run)
        stored = store.load(run)
        columns = (*(columns.t_ns for columns in stored.samples), stored.blocks.end_ns)
        ends = [int(times[-1]) for times in columns if times.size]
        last_ns = max([stored.anchor_t_ns, *(phase.start_ns for phase in stored.phases), *ends])
        reason = "The program that owned this run ended without finishing it; everything up to its last batch is kept."
        store.finish(
            run,
            outcome=Outcome(name="crashed", reason=reason),
            summary=summarise(stored),
            t_ns=last_ns,
            utc_ns=stored.anchor_utc_ns + last_ns - stored.anchor_t_ns,
            phases=phases_with_energy(stored, last_ns),
        )
    return orphaned
