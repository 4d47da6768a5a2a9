"""Sinks get every event of a run, in the order of one clock."""

import time
from collections.abc import Sequence
from typing import Protocol

from app.fields import Sample, SlowSample
from app.records import LogLine, RunEvent
from app.samples import DeviceLost, FieldsUpdated, TelemetryGap
from app.storage.store import Store, StoredEvent
from workloads.protocol import Block, Calibration, DataReady, EnvironmentInfo, Epoch, Evidence, Flops, PhaseStarted

_BATCH_S = 0.5
_MAX_LOG_LINES = 20_000


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

    Thread: the one that opened the store.
    """

    def __init__(self, store: Store, run: int) -> None:
        self._store = store
        self._run = run
        self._batch: list[StoredEvent] = []
        self._log_lines = 0
        self._written_s = time.monotonic()

    def handle(self, event: RunEvent) -> None:
        """Add the event to the next batch; parts of the environment are stored at once. Raises `DatabaseError`."""
        if isinstance(event, EnvironmentInfo):
            self._store.add_environment(self._run, event.environment)
        elif isinstance(event, Calibration):
            self._store.save_calibration(event, time.time_ns())
        elif isinstance(event, LogLine):
            self._add_log_line(event)
        elif isinstance(event, TelemetryGap):
            self._add_log_line(LogLine(event.t_ns, event.reason))
        elif isinstance(
            event, PhaseStarted | Block | Epoch | Sample | SlowSample | DeviceLost | FieldsUpdated | Evidence
        ):
            self._batch.append(event)
        if time.monotonic() - self._written_s >= _BATCH_S:
            self.flush()

    def flush(self) -> None:
        """Write the batch; raises `DatabaseError`."""
        batch, self._batch = self._batch, []
        self._written_s = time.monotonic()
        lines = sum(isinstance(event, LogLine) for event in batch)
        if batch:
            self._store.write(self._run, batch, first_log_line=self._log_lines - lines)

    def _add_log_line(self, line: LogLine) -> None:
        if self._log_lines < _MAX_LOG_LINES:
            self._batch.append(line)
            self._log_lines += 1
        elif self._log_lines == _MAX_LOG_LINES:
            self._batch.append(LogLine(line.t_ns, f"(only the first {_MAX_LOG_LINES:,} lines are kept)"))
            self._log_lines += 1
