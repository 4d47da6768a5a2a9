"""Sinks get every event of a run, in the order of one clock."""

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

from app.errors import DatabaseError, DatabaseLockedError
from app.fields import Sample, SlowSample
from app.records import RunEvent
from app.samples import LogLine, TelemetryGap
from app.storage.store import Store, StoredEvent
from workloads.protocol import DataReady, Flops

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


class StepSink:
    """Remembers what the worker reports about a step, for the summary at the run's end.

    Attributes:
        flops: Operations of one step, over all replicas.
        ready_ms: Time of a step whose data are on the devices already, in milliseconds.
    """

    def __init__(self) -> None:
        self.flops: int | None = None
        self.ready_ms: float | None = None

    def handle(self, event: RunEvent) -> None:
        """Remember the event if it is one of them."""
        if isinstance(event, Flops):
            self.flops = event.per_step
        elif isinstance(event, DataReady):
            self.ready_ms = event.time_ns / 1e6 / event.steps


class StoreSink:
    """Writes a run's events to the store in batches, each one transaction, every half second.

    While another program keeps the database locked they are kept in memory: samples and log lines up to a limit, then
    fewer and fewer of them; blocks, phases and all else in any case.

    Of a long log the first and the last lines are stored.

    Thread: the one that opened the store.
    """

    def __init__(self, store: Store, run: int, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Store the events of a run; `now_ns` returns now on its host's monotonic clock."""
        self._store = store
        self._run = run
        self._now_ns = now_ns
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
        self.failure: DatabaseError | None = None
        """Why a batch could not be stored; None where all could, if late."""

    def handle(self, event: RunEvent) -> None:
        """Add the event to the next batch; raises `DatabaseError`, but not for a lock."""
        if isinstance(event, LogLine):
            self._add_log_line(event)
        elif isinstance(event, TelemetryGap):
            self._add_log_line(LogLine(event.t_ns, event.reason))
        elif isinstance(event, StoredEvent):
            self._add(event)
        if time.monotonic() - self._written_s >= _BATCH_S:
            with contextlib.suppress(DatabaseLockedError):
                self.flush()

    def flush(self) -> None:
        """Write the batch; raises `DatabaseError`, and keeps the batch where the database is locked."""
        self._written_s = time.monotonic()
        batch = self._batch
        if self._dropped:
            note = f"(while the database was locked, {self._dropped:,} samples and log lines were dropped)"
            batch = [*batch, LogLine(self._now_ns(), note)]
        try:
            self._store.write(self._run, batch, first_log_line=self._stored_lines)
        except DatabaseLockedError:
            raise
        except DatabaseError as error:
            self.failure = error
            raise
        self._stored_lines += sum(isinstance(event, LogLine) for event in batch)
        self._batch, self._batch_bytes, self._dropped = [], 0, 0

    def end_log(self) -> None:
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
