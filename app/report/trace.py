"""Runs as a timeline in the Trace Event Format, for ui.perfetto.dev and chrome://tracing.

The format is described in Google's document "Trace Event Format"
(docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import numpy as np

from app.report.documents import list_document
from app.report.export import json_array
from app.storage.files import atomic_output
from app.storage.store import Store
from app.storage.transfer.import_export import Exported, check_exportable
from app.storage.transfer.progress import NO_PROGRESS, RowCounter, TransferProgress
from app.values.environment_keys import CUSTOM_TEXT_KEYS
from app.values.fields import FIELDS, Sample
from app.values.records import SampleColumns, StoredRun
from app.values.units import rate_unit
from app.viewmodels.format.cells import example_word
from app.viewmodels.format.naming import short_kernel_names, short_name
from app.viewmodels.format.telemetry_fields import ThrottleTracker
from app.viewmodels.plot.panels import device_label
from workloads.protocol import Evidence, StepKernel, StepTimeline

_NO_ARGS: Mapping[str, Any] = MappingProxyType({})


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event.

    Attributes:
        ph: A slice (X), an instant (i), a value of a counter (C) or a name (M).
        ts: Microseconds since the start of the run; whole numbers, except for kernels, which may be shorter.
        dur: Microseconds, likewise.
        cat: Category.
        s: Scope of an instant: its thread (t) or its process (p).
    """

    name: str
    ph: Literal["X", "i", "C", "M"]
    pid: int
    tid: int
    ts: float | None = None
    dur: float | None = None
    cat: str | None = None
    s: Literal["t", "p"] | None = None
    args: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One thread of a process, and the start of its run in nanoseconds of the monotonic clock.

    Both ends of a slice are rounded down, so that nested slices stay nested.
    """

    pid: int
    tid: int
    zero_ns: int

    def name_event(self, name: str, kind: Literal["process_name", "thread_name"] = "thread_name") -> TraceEvent:
        return TraceEvent(name=kind, ph="M", pid=self.pid, tid=self.tid, args={"name": name})

    def sort_index_event(self, index: int) -> TraceEvent:
        return TraceEvent(name="process_sort_index", ph="M", pid=self.pid, tid=self.tid, args={"sort_index": index})

    def slice(
        self, name: str, category: str, start_ns: int, end_ns: int, args: Mapping[str, Any] = _NO_ARGS
    ) -> TraceEvent:
        """Return a slice. Details that are None or not finite are left out; times are on the monotonic clock."""
        ts = self.to_us(start_ns)
        dur = self.to_us(end_ns) - ts
        return TraceEvent(
            name=name, ph="X", pid=self.pid, tid=self.tid, ts=ts, dur=dur, cat=category, args=_without_absent(args)
        )

    def instant(self, name: str, category: str, t_ns: int, *, process_wide: bool = False) -> TraceEvent:
        """Return an instant, drawn over all lines of its process if it is `process_wide`."""
        reach: Literal["t", "p"] = "p" if process_wide else "t"
        return TraceEvent(name=name, ph="i", pid=self.pid, tid=self.tid, ts=self.to_us(t_ns), cat=category, s=reach)

    def counter(self, name: str, unit: str, t_us: int, value: float) -> TraceEvent:
        """Return the value of a counter of the process from `t_us` on, in microseconds since the start of the run."""
        return TraceEvent(name=name, ph="C", pid=self.pid, tid=self.tid, ts=t_us, args={unit: value})

    def to_us(self, t_ns: int) -> int:
        """Return a time in whole microseconds since the start of the run."""
        return (t_ns - self.zero_ns) // 1000


def _without_absent(args: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out None, and numbers that JSON cannot express."""
    values = {name: value for name, value in args.items() if value is not None}
    return {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}


_THROTTLE_MASK = "throttle_reasons"
"""Drawn as slices that name the reasons, not as a counter."""


def trace_events(run: StoredRun, index: int, threads: Iterator[int]) -> Iterator[TraceEvent]:
    """Yield a run as a process whose pid is the number of the run.

    The main thread contains the run, its phases, and their blocks. Every field of a device is a counter; absent values
    are left out.
    """
    main = Track(pid=run.row.run, tid=run.row.run, zero_ns=run.anchor_t_ns)
    yield main.name_event(f"run {run.row.run} · {short_name(run.row.spec)}", "process_name")
    yield main.sort_index_event(index)
    yield main.name_event("Phases and blocks")
    yield from _phases(run, main)
    yield from _blocks(run, main)
    if run.epochs:
        yield from _epochs(run, _new_thread(main, threads))
    for columns in run.samples:
        yield from _throttling_events(columns, main, threads)
        yield from _counters(columns, main)
        if columns.lost_t_ns is not None:
            lost = f"{device_label(columns.device)} stopped answering"
            yield main.instant(lost, "device", columns.lost_t_ns, process_wide=True)
    if run.log:
        yield from _log(run, _new_thread(main, threads))
    if run.evidence is not None and run.evidence.timeline is not None:
        yield from _traced_step(run, run.evidence, run.evidence.timeline, index, threads)


def event_count(run: StoredRun) -> int:
    """Estimate the number of events, nearly all of which are values of counters."""
    timeline = run.evidence.timeline if run.evidence else None
    return (
        (len(timeline.kernels) if timeline else 0)
        + run.blocks.steps.size
        + sum(
            int(np.count_nonzero(np.isfinite(values)))
            for columns in run.samples
            for values in (*columns.fields.values(), *columns.slow.values())
        )
    )


def _new_thread(main: Track, threads: Iterator[int]) -> Track:
    return Track(pid=main.pid, tid=next(threads), zero_ns=main.zero_ns)


def _phases(run: StoredRun, track: Track) -> Iterator[TraceEvent]:
    ends = [*(phase.end_ns for phase in run.phases if phase.end_ns is not None), *run.blocks.end_ns.tolist()]
    end_ns = max(ends, default=run.anchor_t_ns)
    yield track.slice(f"run {run.row.run}", "run", run.anchor_t_ns, end_ns, _metadata(run))
    for phase in run.phases:
        args = {"energy_mj": phase.energy_mj, "mean_power_mw": phase.mean_power_mw}
        yield track.slice(phase.name, "phase", phase.start_ns, phase.end_ns or end_ns, args)


def _metadata(run: StoredRun) -> dict[str, Any]:
    """Return the details of a run, without the source of a custom workload."""
    (listed,) = list_document([run.row])["runs"]
    return {
        **listed,
        "devices": {device_label(columns.device): columns.device.name for columns in run.samples},
        "environment": {name: value for name, value in run.environment.items() if name not in CUSTOM_TEXT_KEYS},
    }


def _blocks(run: StoredRun, track: Track) -> Iterator[TraceEvent]:
    blocks = run.blocks
    rate = rate_unit(example_word(run.row.spec, run.row.summary))
    for i, throughput in enumerate(blocks.throughput.tolist()):
        start_ns, end_ns, loss = int(blocks.start_ns[i]), int(blocks.end_ns[i]), float(blocks.loss[i])
        counted = {name: int(getattr(blocks, name)[i]) for name in ("first_step", "steps", "examples")}
        values = {rate: throughput, "loss": loss, "measured": bool(blocks.measured[i])}
        yield track.slice("block", "block", start_ns, end_ns, {**counted, **values})
        for counter, unit, t_ns, value in (
            ("Throughput", rate, start_ns, throughput),
            ("Loss", "of the last step", end_ns, loss),
        ):
            if math.isfinite(value):
                yield track.counter(counter, unit, track.to_us(t_ns), value)


def _epochs(run: StoredRun, track: Track) -> Iterator[TraceEvent]:
    yield track.name_event("Epochs")
    for epoch in run.epochs:
        args = {"steps": epoch.steps, "examples": epoch.examples, "loss": epoch.loss, "accuracy": epoch.accuracy}
        yield track.slice(f"epoch {epoch.epoch}", "epoch", epoch.start_ns, epoch.end_ns, args)
        yield track.slice("test", "epoch", epoch.end_ns, epoch.tested_ns)


def _throttling_events(columns: SampleColumns, main: Track, threads: Iterator[int]) -> Iterator[TraceEvent]:
    """Yield the ranges in which a device was throttled, on a separate thread if there are any."""
    device, throttling = columns.device, ThrottleTracker(max_intervals=None)
    for t_ns, mask in _values(columns, _THROTTLE_MASK):
        throttling.add(Sample(t_ns=t_ns, device=device.device, throttle_reasons=int(mask)))
    if ranges := throttling.overlapping(-math.inf, math.inf):
        track = _new_thread(main, threads)
        yield track.name_event(f"{device_label(device)} throttled")
        for interval in ranges:
            yield track.slice(interval.text, "clock_event", round(interval.start_s * 1e9), round(interval.end_s * 1e9))


def _counters(columns: SampleColumns, track: Track) -> Iterator[TraceEvent]:
    for name in (name for name in (*columns.fields, *columns.slow) if name != _THROTTLE_MASK):
        field = FIELDS[name]
        counter = f"{device_label(columns.device)} · {field.label_on(columns.device.kind)}"
        for t_ns, value in _values(columns, name):
            yield track.counter(counter, field.display_unit, track.to_us(t_ns), value / field.scale)


def _values(columns: SampleColumns, name: str) -> Iterator[tuple[int, float]]:
    _, t_ns, values = columns.present(name)
    return zip(t_ns.tolist(), values.tolist(), strict=True)


def _log(run: StoredRun, track: Track) -> Iterator[TraceEvent]:
    """Yield the lines of a run's log; a standby worker's earlier lines are at its start, where times begin."""
    yield track.name_event("Log")
    for line in run.log:
        yield track.instant(line.text, "log", max(line.t_ns, run.anchor_t_ns))


def _traced_step(
    run: StoredRun, evidence: Evidence, step: StepTimeline, index: int, threads: Iterator[int]
) -> Iterator[TraceEvent]:
    """Yield the kernels of one traced step: a process for each device, with a thread for each stream."""
    names = short_kernel_names([kernel.name for kernel in evidence.kernels])
    processes = {stream.device: next(threads) for stream in step.streams}
    for device, pid in processes.items():
        step_track = Track(pid=pid, tid=pid, zero_ns=run.anchor_t_ns)
        yield step_track.name_event(f"run {run.row.run} · {device} · one traced step", "process_name")
        yield step_track.sort_index_event(index)
        yield step_track.name_event("Step")
        counts = {"kernels": len(step.kernels), "kernels_left_out": step.left_out}
        yield step_track.slice("one traced step", "step", step.start_ns, step.start_ns + step.duration_ns, counts)
    lanes = _lanes(step.kernels)
    tracks = {}
    for number, lane in sorted({*lanes, *((number, 0) for number in range(len(step.streams)))}):
        stream = step.streams[number]
        track = Track(pid=processes[stream.device], tid=next(threads), zero_ns=run.anchor_t_ns)
        yield track.name_event(f"{stream.name}, begun early" if lane else stream.name)
        tracks[number, lane] = track
    for launch, lane_key in zip(step.kernels, lanes, strict=True):
        track, kernel = tracks[lane_key], evidence.kernels[launch.rank]
        yield TraceEvent(
            name=names[launch.rank],
            ph="X",
            pid=track.pid,
            tid=track.tid,
            ts=(step.start_ns + launch.start_ns - track.zero_ns) / 1000,
            dur=launch.duration_ns / 1000,
            cat=kernel.kind,
            args=_without_absent({"occupancy_pct": kernel.occupancy_pct}),
        )


def _lanes(kernels: Sequence[StepKernel]) -> list[tuple[int, int]]:
    """Return each kernel's stream and lane in it, which is 0 if its predecessors have ended.

    On an H200, cuDNN's kernels may begin before their predecessor on the same stream has ended, and the slices of one
    thread must not overlap.
    """
    lanes, ends = list[tuple[int, int]](), dict[int, list[int]]()
    for kernel in kernels:
        of_stream = ends.setdefault(kernel.stream, [])
        lane = next((lane for lane, end_ns in enumerate(of_stream) if end_ns <= kernel.start_ns), len(of_stream))
        of_stream[lane : lane + 1] = [kernel.start_ns + kernel.duration_ns]
        lanes.append((kernel.stream, lane))
    return lanes


def export_trace(database: Path, runs: Sequence[int], target: Path, watch: TransferProgress = NO_PROGRESS) -> Exported:
    """Write a file in which each run is a process that starts at zero; it appears when complete.

    Raises:
        UserError: A run cannot be exported, or the file cannot be written.
        StoppedError: The export was stopped.
    """
    started_s = time.monotonic()
    check_exportable(database, runs)
    # One run at a time is in memory.
    with atomic_output(target) as part:
        # Viewers know threads by their number alone: none may be that of another thread or of a process.
        threads = itertools.count(max(runs) + 1)
        with Store.open(database) as store, json_array(part, b'{"displayTimeUnit": "ms", "traceEvents": ') as add:
            for index, number in enumerate(runs):
                run = store.load(number)
                counter = RowCounter(watch.part(index, len(runs)), event_count(run))
                for event in counter.rows(trace_events(run, index, threads)):
                    add(event)
    return Exported(
        files=(target,),
        runs=len(runs),
        bytes=target.stat().st_size,
        seconds=time.monotonic() - started_s,
    )
