"""A database that is replaced, deleted or overwritten during a run: the run is rescued, the other file left alone."""

import errno
import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import DatabaseError, DatabaseGoneError, RunRescuedError
from app.events import RunEnded, RunEvent, RunStarted
from app.log import run_number
from app.records import StoredRun
from app.runs import sinks
from app.runs.experiment.queue import import_with_queue
from app.runs.sinks import Rescue, StoreSink
from app.storage import database, files
from app.storage.run_store import FileGuard, RunStore
from app.storage.store import Store
from tests.fakes.runs import (
    BLOCKS,
    ENVIRONMENT,
    EVIDENCE,
    GPU,
    HOST_DEVICE,
    LOG,
    OUTCOME,
    PHASES,
    SAMPLES,
    SPEC,
    SUMMARY,
    UTC_NS,
    S,
    begin,
    keep,
)
from workloads.protocol import Calibration, EnvironmentInfo

KERAS = EnvironmentInfo(environment={"keras": "3"})
CALIBRATION = Calibration(device=GPU.device, precision="tf32", size=8192, flops_per_s=8e10)
STARTED = RunStarted(
    uid="going", spec=SPEC, t_ns=S // 2, utc_ns=UTC_NS, devices=(GPU, HOST_DEVICE), environment=ENVIRONMENT
)
ENDED = RunEnded(t_ns=6 * S, outcome=OUTCOME)

needs_locks = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux lists locks")


@pytest.fixture(autouse=True)
def batches_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_BATCH_S", 0.0)
    monkeypatch.setattr(sinks, "_LOCK_TRY_S", 0.001)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another database, of five runs."""
    path = tmp_path / "other.db"
    with Store.open(path) as store:
        for number in range(5):
            keep(store, uid=f"other-{number}")
    return path


def uids(path: Path) -> list[str]:
    with Store.open(path) as store:
        assert store._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row.uid for row in reversed(store.list_runs())]


def measure(path: Path, accident: Callable[[], object]) -> StoreSink:
    """A run with batches before the accident and one after it, ended."""
    with Store.open(path) as store:
        keep(store, uid="earlier")
        store.save_calibration(CALIBRATION, utc_ns=1)
    with RunStore.open(path) as run_store:
        sink = StoreSink(run_store, has_rescue=True)
        feed(sink, STARTED, *PHASES, BLOCKS[0], BLOCKS[1], *SAMPLES[:2], LOG[0], EVIDENCE, KERAS)
        assert sink.run == 2
        accident()
        feed(sink, BLOCKS[2], SAMPLES[2], LOG[1], ENDED)
    assert (sink.ended is not None, run_number.get()) == (True, None)
    return sink


def feed(sink: StoreSink, *events: RunEvent) -> None:
    for event in events:
        sink.handle(event)


def rescued(sink: StoreSink, tmp_path: Path) -> StoredRun:
    """The run of the rescue file, which `import` takes once."""
    error = sink.failure
    assert isinstance(error, RunRescuedError)
    assert f"`python -m app import {error.path}` adds it" in str(error)
    assert sink.ended is not None
    assert f"the run is in {error.path}." in (sink.ended.outcome.reason or "")
    assert (sink.stored, error.path.stat().st_mode & 0o077) == (None, 0)
    mine = tmp_path / "mine.db"
    assert import_with_queue(mine, error.path).runs == (1,)
    again = import_with_queue(mine, error.path)
    assert (again.runs, [run.run for run in again.already]) == ((), [1])
    with Store.open(mine) as store:
        loaded = store.load(1)
        assert store.calibration(GPU.device, "tf32") is None, "of another database"
    assert loaded.row.outcome == OUTCOME
    assert loaded.blocks.first_step.tolist() == [0, 1, 5]
    assert [phase.name for phase in loaded.phases] == ["compile", "measure"]
    assert (loaded.evidence, loaded.log) == (EVIDENCE, LOG)
    assert loaded.environment.items() >= {**ENVIRONMENT, "keras": "3"}.items()
    assert sum(columns.t_ns.size for columns in loaded.samples) == len(SAMPLES)
    assert (loaded.row.summary.measured_steps, loaded.row.summary.peak_flops_per_s) == (8, CALIBRATION.flops_per_s)
    return loaded


def test_another_file_at_its_place_is_left_alone_and_the_run_rescued_whole(
    database_path: Path, other: Path, tmp_path: Path
) -> None:
    sink = measure(database_path, lambda: other.replace(database_path))
    assert uids(database_path) == [f"other-{number}" for number in range(5)]
    rescued(sink, tmp_path)
    assert "profiles.db was replaced by another file; the run is in" in str(sink.failure)


def test_a_deleted_database_leaves_no_log_for_the_next_one(database_path: Path, tmp_path: Path) -> None:
    sink = measure(database_path, database_path.unlink)
    assert "was deleted, or its disk is gone" in str(sink.failure)
    rescued(sink, tmp_path)
    assert uids(database_path) == []


def test_a_database_that_was_moved_has_all_that_was_stored_before(database_path: Path, tmp_path: Path) -> None:
    sink = measure(database_path, lambda: database_path.rename(tmp_path / "elsewhere.db"))
    rescued(sink, tmp_path)
    with Store.open(tmp_path / "elsewhere.db") as elsewhere:
        assert elsewhere.load(2).blocks.first_step.tolist() == [0, 1]


@pytest.mark.parametrize("size", [0, 8192])
def test_a_truncated_database_costs_nothing_of_the_run(database_path: Path, tmp_path: Path, size: int) -> None:
    sink = measure(database_path, lambda: os.truncate(database_path, size))
    assert "profiles.db was overwritten" in str(sink.failure)
    rescued(sink, tmp_path)
    assert database_path.stat().st_size in (0, size)


def test_a_database_overwritten_in_place_is_left_alone(database_path: Path, other: Path, tmp_path: Path) -> None:
    rescued(measure(database_path, lambda: shutil.copyfile(other, database_path)), tmp_path)
    assert uids(database_path) == [f"other-{number}" for number in range(5)]


def test_a_database_that_is_written_at_every_look_counts_as_overwritten(
    database_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_ns = itertools.count()
    monkeypatch.setattr("app.storage.run_store.time.sleep", lambda _: os.utime(database_path, ns=(0, next(times_ns))))
    with Store.open(database_path) as store:
        keep(store, uid="earlier")
        store._db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        guard = FileGuard(database_path)
        guard.expect("earlier")
        assert guard.problem() is None
        shutil.copyfile(other, database_path)
        assert guard.problem() == "was overwritten"
        guard.abandon(store._db.conn)


def test_a_checkpoint_of_its_own_is_no_accident(database_path: Path) -> None:
    def checkpoint() -> None:
        with Store.open(database_path) as store:
            store._db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()

    sink = measure(database_path, checkpoint)
    assert (sink.failure, list(database_path.parent.glob("*rescued*"))) == (None, [])
    assert uids(database_path) == ["earlier", "going"]


def test_an_accident_before_the_file_is_closed_is_noticed_too(database_path: Path, other: Path) -> None:
    with RunStore.open(database_path) as store:
        begin(store)
        other.replace(database_path)
    assert len(uids(database_path)) == 5


@needs_locks
def test_nobody_opens_a_replacement_with_the_log_of_the_old_file(database_path: Path, other: Path) -> None:
    with RunStore.open(database_path) as store:
        run = begin(store)
        other.replace(database_path)
        with pytest.raises(DatabaseGoneError, match="was replaced while another program had it open"):
            Store.open(database_path, busy_s=0.0)
        with pytest.raises(DatabaseGoneError, match="was replaced by another file"):
            store.write(run, PHASES)
        store.close()
        assert len(uids(database_path)) == 5, "the run took its log away"


def test_where_locks_are_not_listed_every_log_is_taken_for_its_own(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LOCKS", Path("/nowhere"))
    with Store.open(database_path):
        assert not files.uses_foreign_log(database_path)


def test_a_run_that_leaves_a_lock_behind_can_be_added_to_what_was_locked(
    database_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "_LOCK_WAIT_S", 0.0)
    lock = sqlite3.connect(database_path)
    sink = measure(database_path, lambda: lock.execute("BEGIN IMMEDIATE"))
    lock.close()
    rescued(sink, tmp_path)
    with Store.open(database_path) as store:
        assert store.load(2).log == LOG[:1]
        store.finish(2, outcome=OUTCOME, summary=SUMMARY, t_ns=6 * S, utc_ns=7 * S)
    assert isinstance(sink.failure, RunRescuedError)
    assert import_with_queue(database_path, sink.failure.path).runs == (3,)


def test_a_rescue_file_goes_elsewhere_where_none_can_be_made(
    database_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, state = tmp_path / "disk", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    monkeypatch.setenv("VARIANTSCOPE_LOG_DIR", str(state))
    sink = measure(folder / database_path.name, lambda: folder.rename(tmp_path / "gone"))
    rescued(sink, tmp_path)
    assert len(list(state.glob("profiles-rescued-*.vscope"))) == 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_rescue_that_cannot_be_written_further(
    database_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    write = Rescue.write

    def fail(rescue: Rescue, event: RunEvent) -> None:
        if event == (ENDED if is_lost else BLOCKS[2]):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(rescue, event)

    monkeypatch.setattr(Rescue, "write", fail)
    sink = measure(database_path, database_path.unlink if is_lost else lambda: None)
    if is_lost:
        assert "but not all of it (No space left on device)" in str(sink.failure)
    else:
        assert (sink.failure, sink.stored is not None) == (None, True), "the database has it"


def test_a_run_without_a_rescue_says_what_happened(database_path: Path) -> None:
    with RunStore.open(database_path) as run_store:
        sink = StoreSink(run_store)
        sink.handle(STARTED)
        database_path.unlink()
        with pytest.raises(DatabaseGoneError, match="was deleted"):
            sink.handle(BLOCKS[0])
        sink.handle(ENDED)
    assert sink.ended is not None
    assert sink.ended.outcome.name == "failed"
    assert isinstance(sink.failure, DatabaseGoneError)


def test_no_run_begins_in_a_database_that_may_only_be_read(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(database_path) as store:
        keep(store)
    monkeypatch.setattr(database, "_is_read_only", lambda _: True)
    with Store.open(database_path) as store:
        assert [row.uid for row in store.list_runs()] == ["uid-1"]
        with pytest.raises(DatabaseError, match="is read-only; make it writable, or choose another file"):
            store.library.set_note(1, "no")
    with pytest.raises(DatabaseError, match="is read-only; make it writable"):
        RunStore.open(database_path)
    assert not list(database_path.parent.glob("profiles.db-*")), "it is read as it lies there"
