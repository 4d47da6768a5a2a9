"""The database as others read it: the plain `sqlite3` shell and datasette see real, readable tables."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.migrations import APPLICATION_ID
from app.storage.store import Store
from app.values.fields import FAST_FIELDS
from tests.fakes.runs import begin, keep
from workloads.protocol import RunSpec

TABLES = ("runs", "devices", "phases", "blocks", "samples", "log_lines")


@pytest.fixture
def plain(database_path: Path) -> Iterator[sqlite3.Connection]:
    """A database with one run, opened by nothing of ours."""
    with Store.open(database_path) as store:
        keep(store)
    connection = sqlite3.connect(f"file:{database_path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    yield connection
    connection.close()


def pragma(connection: sqlite3.Connection, words: str) -> list[sqlite3.Row]:
    return connection.execute(f"PRAGMA {words}").fetchall()


def tables(connection: sqlite3.Connection) -> list[sqlite3.Row]:
    """The tables that hold something, without SQLite's own and those made of others."""
    return [row for row in pragma(connection, "table_list") if row["type"] == "table" and "sqlite_" not in row["name"]]


def test_the_file_is_ours_sound_and_in_wal(plain: sqlite3.Connection) -> None:
    assert pragma(plain, "application_id")[0][0] == APPLICATION_ID
    assert pragma(plain, "journal_mode")[0][0] == "wal"
    assert pragma(plain, "integrity_check")[0][0] == "ok"
    assert pragma(plain, "foreign_key_check") == []


def test_all_tables_are_strict(plain: sqlite3.Connection) -> None:
    found = {row["name"]: row["strict"] for row in tables(plain)}
    assert set(TABLES) <= set(found)
    assert set(found.values()) == {1}


def test_every_table_of_runs_goes_with_its_run(plain: sqlite3.Connection) -> None:
    there = {row["name"] for row in tables(plain)}
    for table in there - {"runs", "settings", "calibrations", "filters", "experiments", "queue"}:
        keys = {(key["table"], key["to"], key["on_delete"]) for key in pragma(plain, f"foreign_key_list({table})")}
        parent = ("devices", "device_id") if table.endswith("samples") else ("runs", "run")
        others = {("experiments", "experiment", "CASCADE")} if table == "experiment_runs" else set()
        assert keys == {(*parent, "CASCADE"), *others}, table


def test_an_entry_of_the_queue_outlives_its_experiment(plain: sqlite3.Connection) -> None:
    keys = [(key["table"], key["to"], key["on_delete"]) for key in pragma(plain, "foreign_key_list(queue)")]
    assert keys == [("experiments", "experiment", "SET NULL")]


def test_a_value_of_a_wrong_type_is_refused(database_path: Path, plain: sqlite3.Connection) -> None:
    with Store.open(database_path) as store:
        for wrong in (
            "UPDATE samples SET power_mw = 'much'",
            "UPDATE runs SET outcome = 'splendid'",
            "UPDATE runs SET variant = 'no json'",
            "INSERT INTO phases (run, phase, start_ns) VALUES (99, 'measure', 1)",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                store._db.execute(wrong)


def test_deleting_a_run_deletes_all_of_it(database_path: Path, plain: sqlite3.Connection) -> None:
    with Store.open(database_path) as store:
        store._db.execute("DELETE FROM runs")
        left = {table: store._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    assert left == dict.fromkeys(TABLES, 0)


def test_generated_columns_say_what_a_run_was(plain: sqlite3.Connection) -> None:
    (row,) = plain.execute("SELECT * FROM runs").fetchall()
    shown = {name: row[name] for name in ("layout", "gpus", "batch_size", "precision", "xla", "implementation")}
    assert shown == {
        "layout": "NCHW",
        "gpus": 1,
        "batch_size": 1024,
        "precision": "tf32",
        "xla": 1,
        "implementation": "native",
    }
    assert (row["tensorflow"], row["keras"], row["cudnn"]) == ("2.21.0", "3.15.1", None)
    assert row["started_utc"] == "2025-10-09T08:53:20Z"


def test_a_parameter_newer_than_a_run_is_null_in_its_column(database_path: Path, plain: sqlite3.Connection) -> None:
    with Store.open(database_path) as store:
        begin(store, uid="uid-2", spec=RunSpec(workload="cnn10", variant={"gpus": 1}))
    (row,) = plain.execute("SELECT gpus, implementation FROM runs WHERE uid = 'uid-2'").fetchall()
    assert tuple(row) == (1, None)


def test_blocks_and_phases_come_with_rates_and_lengths(plain: sqlite3.Connection) -> None:
    rates = plain.execute("SELECT examples_per_s FROM blocks ORDER BY first_step").fetchall()
    assert [row[0] for row in rates] == [4.0, 32.0, 16.0]
    lengths = plain.execute("SELECT phase, seconds FROM phases ORDER BY start_ns").fetchall()
    assert [tuple(row) for row in lengths] == [("compile", 2.0), ("measure", 3.0)]


def test_absent_is_null(plain: sqlite3.Connection) -> None:
    found = plain.execute("SELECT power_mw, load_pct, temperature_c FROM samples ORDER BY device_id, t_ns").fetchall()
    assert [tuple(row) for row in found] == [(688_123, 99.0, None), (None, 0.0, None), (None, 12.5, None)]


def test_sample_columns_are_the_fields(plain: sqlite3.Connection) -> None:
    columns = [row["name"] for row in pragma(plain, "table_info(samples)")]
    assert columns[:2] == ["device_id", "t_ns"]
    assert sorted(columns[2:]) == sorted(FAST_FIELDS)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("SELECT run FROM runs ORDER BY started_utc_ns DESC", "runs_by_start"),
        ("SELECT run FROM runs WHERE workload = 'lstm' ORDER BY started_utc_ns", "runs_by_workload"),
        ("SELECT run FROM runs WHERE outcome IS NULL", "runs_unfinished"),
        ("SELECT * FROM samples WHERE device_id = 1 ORDER BY t_ns", "PRIMARY KEY"),
        ("SELECT * FROM blocks WHERE run = 1 ORDER BY first_step", "PRIMARY KEY"),
    ],
)
def test_common_questions_use_an_index(plain: sqlite3.Connection, query: str, index: str) -> None:
    plan = " ".join(str(row["detail"]) for row in plain.execute(f"EXPLAIN QUERY PLAN {query}"))
    assert index in plan
    assert "TEMP B-TREE" not in plan
