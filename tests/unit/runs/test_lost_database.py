"""A database that is replaced, deleted or locked during a run: that is said, and another file is left alone."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import DatabaseError, DatabaseGoneError
from app.log import run_number
from app.runs import sinks
from app.runs.sinks import StoreSink
from app.storage import database, files
from app.storage.store import RunStore, Store
from app.values.events import RunEnded, RunEvent, RunStarted
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
    """Return the sink of a run with batches before the accident and one after it, ended."""
    with Store.open(path) as store:
        keep(store, uid="earlier")
        store.save_calibration(CALIBRATION, utc_ns=1)
    with RunStore.open(path) as run_store:
        sink = StoreSink(run_store, is_live=True)
        feed(sink, STARTED, *PHASES, BLOCKS[0], BLOCKS[1], *SAMPLES[:2], LOG[0], EVIDENCE, KERAS)
        assert sink.run == 2
        accident()
        with contextlib.suppress(DatabaseGoneError):  # the maker ends the run then
            feed(sink, BLOCKS[2], SAMPLES[2], LOG[1])
        sink.handle(ENDED)
    return sink


def feed(sink: StoreSink, *events: RunEvent) -> None:
    for event in events:
        sink.handle(event)


def check_is_said(sink: StoreSink, words: str) -> None:
    """The run failed with a sentence, which its session raises."""
    assert (sink.ended is not None, run_number.get(), sink.stored) == (True, None, None)
    assert sink.ended is not None
    assert sink.ended.outcome.name == "failed"
    assert str(sink.failure) == sink.ended.outcome.reason
    assert str(sink.failure).endswith(f"profiles.db {words}; the end of the run is not stored.")


def test_another_file_at_its_place_is_left_alone(database_path: Path, other: Path) -> None:
    sink = measure(database_path, lambda: other.replace(database_path))
    check_is_said(sink, "was replaced by another file")
    assert uids(database_path) == [f"other-{number}" for number in range(5)]


def test_a_deleted_database_leaves_no_log_for_the_next_one(database_path: Path) -> None:
    check_is_said(measure(database_path, database_path.unlink), "was deleted, or its disk is gone")
    assert uids(database_path) == []


def test_a_database_that_was_moved_has_all_that_was_stored_before(database_path: Path, tmp_path: Path) -> None:
    sink = measure(database_path, lambda: database_path.rename(tmp_path / "elsewhere.db"))
    check_is_said(sink, "was deleted, or its disk is gone")
    with Store.open(tmp_path / "elsewhere.db") as elsewhere:
        assert elsewhere.load(2).blocks.first_step.tolist() == [0, 1]


def test_a_checkpoint_of_its_own_is_no_accident(database_path: Path) -> None:
    def checkpoint() -> None:
        with Store.open(database_path) as store:
            store._db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()

    assert measure(database_path, checkpoint).failure is None
    assert uids(database_path) == ["earlier", "going"]


def test_a_lock_that_outlasts_the_run_is_said(database_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_LOCK_WAIT_S", 0.0)
    lock = sqlite3.connect(database_path)
    sink = measure(database_path, lambda: lock.execute("BEGIN IMMEDIATE"))
    lock.close()
    check_is_said(sink, "stayed locked by another program")
    with Store.open(database_path) as store:
        assert store.load(2).log == LOG[:1], "up to the last batch"


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
