"""Runs as one timeline file in the Trace Event Format, for ui.perfetto.dev and chrome://tracing."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from app.report.trace_events import event_count, trace_events
from app.storage.store import Store
from app.storage.transfer import Exported, check_takeable
from app.storage.transfer_place import written_whole
from app.storage.transfer_watch import QUIET, Counter, Watch


def export_trace(database: Path, runs: Sequence[int], target: Path, watch: Watch = QUIET) -> Exported:
    """Writes a file in which each run is a process and all start at zero; it appears when it is complete.

    Raises `UserError` for a run that cannot be taken away or a place that cannot be written, `StoppedError`.
    """
    started_s = time.monotonic()
    check_takeable(database, runs)
    with written_whole(target) as part:
        _write(database, runs, part, watch)
    return Exported(
        files=(target,),
        runs=len(runs),
        bytes=target.stat().st_size,
        seconds=time.monotonic() - started_s,
    )


def _write(database: Path, runs: Sequence[int], path: Path, watch: Watch) -> None:
    """One run at a time is in memory, and its events one by one."""
    encode = msgspec.json.Encoder().encode
    # Viewers know threads by their number alone: none may be that of another thread or of a process.
    threads = itertools.count(max(runs) + 1)
    between = b"\n"
    with Store.open(database) as store, path.open("wb") as file:
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [')
        for place, number in enumerate(runs):
            run = store.load(number)
            counter = Counter(_part_of(watch, place, len(runs)), event_count(run))
            for event in counter.rows(trace_events(run, place, threads)):
                file.write(between + encode(event))
                between = b",\n"
        file.write(b"\n]}\n")


def _part_of(watch: Watch, place: int, parts: int) -> Watch:
    return Watch(lambda share: watch.told((place + share) / parts), watch.stop)
