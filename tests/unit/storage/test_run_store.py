"""A database that is replaced, deleted or overwritten during a run: the run is rescued, the other file left alone."""

import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import DatabaseError, DatabaseGoneError, DatabaseLockedError
from app.records import StoredRun
from app.storage import database, file_guard
from app.storage.run_store import RunStore
from app.storage.store import Store
from app.storage.transfer.import_export import import_runs
from tests.fakes.runs import BLOCKS, ENVIRONMENT, EVIDENCE, LOG, OUTCOME, PHASES, SAMPLES, SUMMARY, S, begin, keep
from workloads.protocol import EnvironmentInfo

needs_locks = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux lists locks")


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


def measure(path: Path, accident: Callable[[], object]) -> tuple[RunStore, int]:
    """A run with a batch before the accident and one after it, ended."""
    with Store.open(path) as store:
        keep(store, uid="earlier")
    with RunStore.open(path) as run_store:
        run = begin(run_store, uid="going")
        assert run == 2
        run_store.write(run, (*PHASES, BLOCKS[0], BLOCKS[1], *SAMPLES[:2], LOG[0], EVIDENCE))
        run_store.write(run, [EnvironmentInfo(environment={"keras": "3"})])
        accident()
        run_store.write(run, (BLOCKS[2], SAMPLES[2], LOG[1]), first_log_line=1)
        run_store.finish(run, outcome=OUTCOME, summary=SUMMARY, t_ns=6 * S, utc_ns=7 * S)
    return run_store, run


def rescued(store: RunStore) -> StoredRun:
    """The run in the rescue file, which `import` takes."""
    assert store.rescue_error is not None
    assert f"`python -m app import {store.path}` adds it" in str(store.rescue_error)
    with Store.open(store.path) as found:
        (row,) = found.list_runs()
        loaded = found.load(row.run)
    assert loaded.row.outcome == OUTCOME
    assert loaded.blocks.first_step.tolist() == [0, 1, 5]
    assert [phase.name for phase in loaded.phases] == ["compile", "measure"]
    assert (loaded.evidence, loaded.environment) == (EVIDENCE, {**ENVIRONMENT, "keras": "3"})
    with Store.open(store.path.with_name("mine.db")):
        pass
    assert import_runs(store.path.with_name("mine.db"), store.path).runs == (1,)
    return loaded


def test_another_file_at_its_place_is_left_alone_and_the_run_rescued_whole(database_path: Path, other: Path) -> None:
    store, run = measure(database_path, lambda: other.replace(database_path))
    assert uids(database_path) == [f"other-{number}" for number in range(5)]
    found = rescued(store)
    assert (found.row.run, found.log) == (run, LOG)
    assert sum(columns.t_ns.size for columns in found.samples) == len(SAMPLES)
    assert "profiles.db was replaced by another file; the run is in" in (store.rescue or "")


def test_a_deleted_database_leaves_no_log_for_the_next_one(database_path: Path) -> None:
    store, _ = measure(database_path, database_path.unlink)
    assert "was deleted, or its disk is gone" in (store.rescue or "")
    assert rescued(store).log == LOG
    assert uids(database_path) == []


def test_a_database_that_was_moved_has_all_that_was_stored_before(database_path: Path, tmp_path: Path) -> None:
    store, run = measure(database_path, lambda: database_path.rename(tmp_path / "elsewhere.db"))
    rescued(store)
    with Store.open(tmp_path / "elsewhere.db") as elsewhere:
        assert elsewhere.load(run).blocks.first_step.tolist() == [0, 1]


@pytest.mark.parametrize("size", [0, 8192])
def test_a_truncated_database_costs_samples_and_log_alone(database_path: Path, size: int) -> None:
    store, _ = measure(database_path, lambda: os.truncate(database_path, size))
    assert "profiles.db was overwritten" in (store.rescue or "")
    assert [line.text for line in rescued(store).log] == [LOG[1].text]
    assert database_path.stat().st_size in (0, size)


def test_a_database_overwritten_in_place_is_left_alone(database_path: Path, other: Path) -> None:
    store, _ = measure(database_path, lambda: shutil.copyfile(other, database_path))
    rescued(store)
    assert uids(database_path) == [f"other-{number}" for number in range(5)]


def test_a_database_that_is_written_at_every_look_counts_as_overwritten(
    database_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_ns = itertools.count()
    monkeypatch.setattr("app.storage.file_guard.time.sleep", lambda _: os.utime(database_path, ns=(0, next(times_ns))))
    with Store.open(database_path) as store:
        keep(store, uid="earlier")
        store._db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        guard = file_guard.FileGuard(database_path)
        guard.expect("earlier")
        assert guard.problem() is None
        shutil.copyfile(other, database_path)
        assert guard.problem() == "was overwritten"
        guard.abandon(store._db.conn)


def test_a_checkpoint_of_its_own_is_no_accident(database_path: Path) -> None:
    def checkpoint() -> None:
        with Store.open(database_path) as store:
            store._db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()

    store, _ = measure(database_path, checkpoint)
    assert store.rescue is None
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
        store.write(run, PHASES)
        assert len(uids(database_path)) == 5, "the run noticed, and took its log away"


def test_where_locks_are_not_listed_every_log_is_taken_for_its_own(
    database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_guard, "_LOCKS", Path("/nowhere"))
    with Store.open(database_path):
        assert not file_guard.uses_foreign_log(database_path)


def test_a_lock_changes_nothing_and_a_run_can_leave_it_behind(database_path: Path) -> None:
    with RunStore.open(database_path) as store:
        run = begin(store)
        store.write(run, (*PHASES, *BLOCKS, *SAMPLES, LOG[0]))
        store.wait_at_most(0.0)
        lock = sqlite3.connect(database_path)
        lock.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseLockedError):
            store.write(run, [LOG[1]], first_log_line=1)
        store.move_to_rescue_file(run, "It stayed locked")
        store.write(run, [LOG[1]], first_log_line=1)
        assert store.load(run).log == LOG
        assert store.load(run).row.uid != "uid-1", "it can be imported where the locked database has its beginning"
    lock.close()
    with Store.open(database_path) as there:
        assert there.load(run).log == LOG[:1]


def test_a_rescue_file_goes_elsewhere_where_none_can_be_made(
    database_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setenv("VARIANTSCOPE_LOG_DIR", str(tmp_path / "state"))
    store, _ = measure(folder / database_path.name, lambda: folder.rename(tmp_path / "gone"))
    assert store.path.parent == tmp_path / "state"
    rescued(store)


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
