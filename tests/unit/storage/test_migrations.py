"""A database of an older version opens with all that is in it, and can do what this version can."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from app.queries import RunQuery
from app.storage.database import known_migrations
from app.storage.migrations import migrations
from app.storage.store import Store
from tests.fakes.runs import SPEC, UTC_NS
from tests.unit.storage.two_processes import twice_at_once

OLDER = Path(__file__).with_name("older.db")
"""31 runs of two H200s with every eighth sample, written before there were notes, tags or a trash."""


@pytest.fixture
def older(database_path: Path) -> Path:
    shutil.copyfile(OLDER, database_path)
    return database_path


def test_a_database_of_an_older_version_keeps_all_it_has(older: Path) -> None:
    plain = sqlite3.connect(f"file:{OLDER}?mode=ro&immutable=1", uri=True)
    before = plain.execute("SELECT run, uid, variant, throughput FROM runs ORDER BY run").fetchall()
    samples = plain.execute("SELECT count(*), sum(power_mw) FROM samples").fetchone()
    assert "note" not in {column for _, column, *_ in plain.execute("PRAGMA table_info(runs)")}
    plain.close()
    with Store.open(older) as store:
        after = store._db.execute("SELECT run, uid, variant, throughput FROM runs ORDER BY run").fetchall()
        assert store._db.execute("SELECT count(*), sum(power_mw) FROM samples").fetchone() == samples
        assert [row.run for row in reversed(store.list_runs())] == [run for run, *_ in before]
        assert {row.note for row in store.list_runs()} == {""}
    assert after == before


def test_what_was_stored_before_is_found_and_can_be_annotated(older: Path) -> None:
    with Store.open(older) as store:
        library = store.library
        rows = store.list_runs()
        fused = {row.run for row in rows if "fused" in str(row.spec.variant["implementation"])}
        assert (
            set(library.find(RunQuery(text="=fused h200"))) | set(library.find(RunQuery(text="=block_fused"))) == fused
        )
        library.add_tag([rows[0].run], "seen again")
        library.delete([rows[1].run])
        assert library.find(RunQuery(text="seen again")) == [rows[0].run]
        assert len(store.list_runs()) == len(rows) - 1


@pytest.mark.parametrize("name", known_migrations()[1:])
def test_every_older_version_opens(database_path: Path, name: str) -> None:
    with Database(database_path) as db:
        migrations.apply(db, stop_before=name)
        db.execute(
            "INSERT INTO runs (uid, workload, variant, started_utc_ns, started_t_ns, owner_pid, owner_started_s,"
            " owner_boot_id, outcome, throughput) VALUES ('uid-1', 'cnn10', '{\"layout\": \"NCHW\"}', ?, 1, 1, 1, 'x',"
            " 'completed', 5.0)",
            (UTC_NS,),
        )
        db.conn.commit()
    with Store.open(database_path) as store:
        (row,) = store.list_runs()
        assert (row.uid, row.spec.workload, row.summary.throughput) == ("uid-1", SPEC.workload, 5.0)
        assert store.library.find(RunQuery(text="layout=nch completed")) == [1]


def test_two_programs_migrate_one_older_database_at_once(older: Path) -> None:
    code = "with Store.open(path, busy_s=120) as store: print(len(store.list_runs()))"
    assert twice_at_once(code, older) == [("31\n", "")] * 2
