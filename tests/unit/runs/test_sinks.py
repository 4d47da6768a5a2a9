"""The store's sink writes batches, and keeps a log that has an end."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from app.errors import DatabaseError
from app.log import run_number
from app.runs import sinks
from app.runs.sinks import Sink, StoreSink
from app.storage.store import RunStore, Store
from app.values.environment_keys import HOST_KEY
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.values.samples import LogLine, Waiting
from tests.fakes.runs import BLOCKS, GPU, HOST_DEVICE, PHASES, SAMPLES, SPEC, UTC_NS
from tests.present import present
from workloads.protocol import Calibration, DataReady, EnvironmentInfo, Flops, Progress

ENDED = RunEnded(t_ns=10**10, outcome=Outcome(name="completed"), summary=Summary(allocator_peak_bytes=77))


@pytest.fixture(autouse=True)
def unnumbered() -> Iterator[None]:
    """A run that is not ended keeps its number in the log of its thread, here the tests'."""
    token = run_number.set(None)
    yield
    run_number.reset(token)


class EventList:
    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def handle(self, event: RunEvent) -> None:
        self.events.append(event)


def started(store: RunStore, *listeners: Sink, is_live: bool = False) -> tuple[StoreSink, int]:
    """A sink whose run has begun, and the run's number."""
    sink = StoreSink(store, listeners, is_live=is_live)
    sink.handle(RunStarted(uid="uid-1", spec=SPEC, t_ns=0, utc_ns=UTC_NS, devices=(GPU, HOST_DEVICE)))
    return sink, present(sink.run)


def test_what_is_kept_is_written_at_once_and_together(database_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_BATCH_S", 3600.0)
    with RunStore.open(database_path) as store, Store.open(database_path) as reader:
        sink, run = started(store)
        events: list[RunEvent] = [*PHASES, *BLOCKS, *SAMPLES, LogLine(1, "a"), LogLine(2, "b")]
        for event in events:
            sink.handle(event)
        assert (reader.load(run).phases, reader.load(run).log) == ((), ()), "nothing before the batch"
        sink.flush()
        assert len(reader.load(run).phases) == len(PHASES)
        assert reader.load(run).blocks.steps.size == len(BLOCKS)
        sink.handle(LogLine(3, "c"))
        sink.flush()
        sink.flush()
        assert [line.text for line in reader.load(run).log] == ["a", "b", "c"]


def test_a_batch_is_written_as_soon_as_its_time_is_over(database_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_BATCH_S", 0.0)
    with RunStore.open(database_path) as store:
        sink, run = started(store)
        for event in BLOCKS:
            sink.handle(event)
            assert store.load(run).blocks.end_ns[-1] == event.end_ns


def test_a_wait_is_passed_on_from_any_thread_and_a_number_ends_with_its_run(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "_BATCH_S", 0.0)
    passed_on = EventList()
    with RunStore.open(database_path) as store:
        sink, run = started(store, passed_on)
        assert run_number.get() == run
        thread = threading.Thread(target=sink.handle, args=(Waiting(1, "The host is silent."),))
        thread.start()
        thread.join()
        sink.handle(ENDED)
    assert passed_on.events[1] == Waiting(1, "The host is silent.")
    assert run_number.get() is None


def test_facts_are_stored_at_once_and_what_has_no_row_is_passed_over(database_path: Path) -> None:
    with RunStore.open(database_path) as store:
        sink, run = started(store)
        sink.handle(EnvironmentInfo(environment={"keras": "3.15.1"}))
        sink.handle(Progress(phase="measure", fraction=0.5, t_ns=1))
        sink.handle(Waiting(1, "It waits."))
        sink.flush()
        assert store.load(run).environment["keras"] == "3.15.1"


@pytest.mark.parametrize("more", [0, 1])
def test_batches_outlast_a_lock_until_they_are_too_large(
    database_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(sinks, "_BATCH_S", 3600.0)
    monkeypatch.setattr(sinks, "_LOCK_TRY_S", 0.0)
    monkeypatch.setattr(sinks, "_BATCH_EVENTS", 100 + more)
    monkeypatch.setattr(sinks, "_MOST_EVENTS", 100)
    with RunStore.open(database_path) as store:
        sink, _ = started(store, is_live=True)
        with contextlib.closing(sqlite3.connect(database_path)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            for t_ns in range(100):
                sink.handle(msgspec.structs.replace(SAMPLES[0], t_ns=t_ns))
            if more:
                with pytest.raises(DatabaseError, match="stayed locked by another program"):
                    sink.handle(msgspec.structs.replace(SAMPLES[0], t_ns=100))
        sink.handle(ENDED)
    assert (sink.stored and sink.stored.samples[0].t_ns.size, sink.failure) == (100 + more, None)


def test_what_comes_faster_than_its_time_is_stored_whole(database_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_BATCH_S", 3600.0)
    monkeypatch.setattr(sinks, "_BATCH_EVENTS", 100)
    with RunStore.open(database_path) as store:
        sink, run = started(store)
        for t_ns in range(250):
            sink.handle(msgspec.structs.replace(SAMPLES[0], t_ns=t_ns))
        assert store.load(run).samples[0].t_ns.size == 200
        sink.handle(ENDED)
        assert store.load(run).samples[0].t_ns.size == 250


@pytest.mark.parametrize(("host", "name"), [("", "cpu"), ("box", "cpu of box")])
def test_a_calibration_is_that_of_the_processor_of_its_host(database_path: Path, host: str, name: str) -> None:
    with RunStore.open(database_path) as store:
        sink = StoreSink(store)
        environment = {HOST_KEY: host} if host else {}
        devices = (HOST_DEVICE,)
        sink.handle(RunStarted(uid="a", spec=SPEC, t_ns=0, utc_ns=1, devices=devices, environment=environment))
        sink.handle(Calibration(device="cpu", precision="tf32", size=1024, flops_per_s=1e9))
        sink.handle(ENDED)
        assert [store.calibration(device, "tf32") is not None for device in ("cpu", name)] == [not host, True]
        assert (sink.stored is not None, sink.stored and sink.stored.row.summary.peak_flops_per_s) == (True, 1e9)


def test_what_is_told_of_a_step_and_the_allocator_becomes_a_figure(database_path: Path) -> None:
    passed_on = EventList()
    with RunStore.open(database_path) as store:
        sink, run = started(store, passed_on)
        for event in (Flops(per_step=12), DataReady(steps=4, time_ns=50_000_000), ENDED):
            sink.handle(event)
        summary = store.load(run).row.summary
    assert (summary.flops_per_step, summary.ready_step_ms, summary.allocator_peak_bytes) == (12, 12.5, 77)
    first, *_, last = passed_on.events
    assert isinstance(first, RunStarted)
    assert isinstance(last, RunEnded)
    assert (first.run, last.run, last.summary) == (run, run, summary)


@pytest.mark.parametrize(
    ("count", "text", "stored"),
    [
        (2 * sinks._MOST_LINES, "line", 2 * sinks._MOST_LINES),
        (2 * sinks._MOST_LINES + 100, "line", 2 * sinks._MOST_LINES),
        (2_000, "x" * 4_000, 2 * sinks._MOST_CHARS // 4_000),
    ],
)
def test_of_a_log_without_end_the_first_and_the_last_lines_are_stored(
    database_path: Path, count: int, text: str, stored: int
) -> None:
    with RunStore.open(database_path) as store:
        sink, run = started(store)
        for number in range(count):
            sink.handle(LogLine(number, text))
        sink.handle(ENDED)
        log = store.load(run).log
    notes = [line.text for line in log if line.text != text]
    assert notes == ([f"(… {count - stored:,} lines left out: the log is too long)"] if count > stored else [])
    first, last = stored // 2, stored - stored // 2
    assert [line.t_ns for line in log if line.text == text] == [*range(first), *range(count - last, count)]


def test_of_a_line_longer_than_a_whole_log_the_last_is_kept(database_path: Path) -> None:
    with RunStore.open(database_path) as store:
        sink, run = started(store)
        for number in range(3):
            sink.handle(LogLine(number, "x" * (sinks._MOST_CHARS + 1)))
        sink.handle(ENDED)
        log = store.load(run).log
    assert [line.text[:20] for line in log] == ["(… 2 lines left out:", "x" * 20]
