"""A database of an older version opens with all that is in it, and can do what this version can."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlite_utils import Database

from app.queries import RunQuery
from app.storage.database import get_setting, known_migrations
from app.storage.known_settings import SHOWN_COLUMNS
from app.storage.migrations import migrations
from app.storage.store import Store
from tests.fakes.runs import SPEC, UTC_NS
from tests.present import present
from tests.unit.storage.two_processes import twice_at_once
from workloads.protocol import DeviceTime

OLDER = Path(__file__).with_name("older.db")
"""31 runs of two H200s with every eighth sample, written before there were notes, tags or a trash."""


@pytest.fixture
def older(database_path: Path) -> Path:
    shutil.copyfile(OLDER, database_path)
    return database_path


@contextmanager
def version_before(path: Path, migration: str) -> Iterator[Database]:
    """Make a database of the version before a migration."""
    with Database(path) as db:
        migrations.apply(db, stop_before=migration)
        yield db
        db.conn.commit()


def insert_run(db: Database, **values: object) -> None:
    row = {"uid": "uid-1", "workload": "lstm", "variant": "{}", "started_utc_ns": UTC_NS, "started_t_ns": 1}
    row |= {"owner_pid": 1, "owner_started_s": 1, "owner_boot_id": "x", **values}
    db.execute(f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


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
    with version_before(database_path, name) as db:
        insert_run(db, workload="cnn10", variant='{"layout": "NCHW"}', outcome="completed", throughput=5.0)
    with Store.open(database_path) as store:
        (row,) = store.list_runs()
        assert (row.uid, row.spec.workload, row.summary.throughput) == ("uid-1", SPEC.workload, 5.0)
        assert store.library.find(RunQuery(text="layout=nch completed")) == [1]
        assert store.library.find(RunQuery(text="framework=tensorflow")) == [1]


FORMER_SEARCH = """
CREATE TABLE run_words (run INTEGER PRIMARY KEY REFERENCES runs (run) ON DELETE CASCADE, words TEXT) STRICT;
CREATE VIEW run_words_now AS SELECT run, workload || note || coalesce(
    (SELECT reason FROM evidence WHERE evidence.run = runs.run AND match = 0), '') AS words FROM runs;
CREATE TRIGGER runs_added AFTER INSERT ON runs BEGIN
    INSERT INTO run_words (run, words) SELECT run, words FROM run_words_now WHERE run = NEW.run; END;
CREATE TRIGGER tags_added AFTER INSERT ON tags BEGIN
    UPDATE run_words SET words = (SELECT words FROM run_words_now WHERE run = NEW.run); END;
"""
"""What versions between `m007_library` and `m015_search_fields` searched, in short."""


@pytest.mark.parametrize("name", ["m008_warmup", "m012_implausible", "m014_steps", "m015_search_fields"])
def test_the_search_of_an_older_version_is_made_anew(database_path: Path, name: str) -> None:
    with version_before(database_path, name) as db:
        db.conn.executescript(FORMER_SEARCH)
        insert_run(db, workload="cnn10", variant='{"layout": "NCHW"}')
    with Store.open(database_path) as store:
        store.library.add_tag([1], "again")
        assert store.library.find(RunQuery(text="tag:again layout=nch")) == [1]


OLDER_IDLE_WAITS = {
    "12\xa0s, GPU 0 at 41\xa0°C": {"outcome": "idle", "s": "12", "gpus": "GPU 0 at 41\xa0°C"},
    "3\xa0s": {"outcome": "idle", "s": "3"},
    "gave up after 1,200\xa0s: a (1) on GPU 0, GPU 1 at 60\xa0°C": {
        "outcome": "timed out",
        "s": "1200",
        "blockers": "a (1) on GPU 0, GPU 1 at 60\xa0°C",
    },
    "skipped after 2\xa0s: CPU at 55\xa0%": {"outcome": "skipped", "s": "2", "blockers": "CPU at 55\xa0%"},
    "off": {"outcome": "off"},
}
"""The idle wait of a run as it was told in a sentence, and what that said."""


@pytest.mark.parametrize("sentence", OLDER_IDLE_WAITS)
def test_an_older_idle_wait_is_no_longer_told_but_stored(database_path: Path, sentence: str) -> None:
    environments = ({"os": "Linux", "gate": sentence}, {"os": "Linux"}, {"gate": 3}, {"gate": None})
    with version_before(database_path, "m021_idle_wait") as db:
        for number, environment in enumerate(environments):
            insert_run(db, uid=f"uid-{number}", environment=json.dumps(environment))
    with Store.open(database_path) as store:
        translated, *others = (
            json.loads(text) for (text,) in store._db.execute("SELECT environment FROM runs ORDER BY run")
        )
    assert translated == {
        "os": "Linux",
        **{f"idle_wait_{key}": value for key, value in OLDER_IDLE_WAITS[sentence].items()},
    }
    assert others == [{"os": "Linux"}, {"gate": 3}, {"gate": None}]


def test_times_of_older_traces_have_no_causes_of_idle_time(database_path: Path) -> None:
    with version_before(database_path, "m017_idle_causes") as db:
        insert_run(db, outcome="completed")
        db.execute(
            "INSERT INTO evidence (run, asked, ran, match, notes, sources, steps, span_ns, busy_ns)"
            " VALUES (1, '{}', '{}', 1, '[]', '[]', 3, 9, 6)"
        )
        db.execute("INSERT INTO device_times VALUES (1, 'GPU:0', 9, 6, 5, 1, 4)")
    with Store.open(database_path) as store:
        (times,) = present(store.load(1).evidence).devices
    assert times == DeviceTime(device="GPU:0", span_ns=9, busy_ns=6, compute_ns=5, communication_ns=1, kernels=4)


SAME = "The executed graph looks the same for standard and gemm2."
OLDER_EVIDENCE: tuple[tuple[object, object, bool | None, str | None, list[str]], ...] = (
    ({"xla": "on"}, {}, None, "No trace.", []),
    ({"xla": "off"}, {"xla": "off"}, True, None, ["Seen."]),
    ({"implementation": "gemm2"}, {"implementation": "gemm2"}, True, None, ["Seen.", SAME]),
    ({"precision": "bfloat16"}, {"precision": "bfloat16"}, True, None, ["23 of 29 products are in bfloat16."]),
    ({"xla": "off", "layout": "NCHW"}, {"xla": "on"}, False, "Not off.", []),
    ({"xla": "off", "layout": "NCHW"}, {"xla": "off"}, None, "No layout.", []),
    ("no", "dict", None, None, []),
)
"""Evidence as it was stored before it said what was verified: asked, ran, match, reason, notes."""
IN_NOTES = "Its notes say what was not verified."


def test_older_evidence_says_what_it_verified(database_path: Path) -> None:
    with version_before(database_path, "m010_evidence_state") as db:
        for run, (asked, ran, match, reason, notes) in enumerate(OLDER_EVIDENCE, 1):
            insert_run(db, uid=f"uid-{run}", outcome="completed")
            texts = [json.dumps(value) for value in (asked, ran, notes)]
            db.execute(
                "INSERT INTO evidence (run, asked, ran, match, reason, notes, sources, steps, span_ns, busy_ns)"
                " VALUES (?, ?, ?, ?, ?, ?, '[]', 0, 0, 0)",
                (run, texts[0], texts[1], match, reason, texts[2]),
            )
        db.execute("INSERT INTO filters (name, query) VALUES ('wrong', '{\"order\": \"as_asked\"}')")
        db.execute("INSERT INTO settings (name, value) VALUES ('shown_columns', 'run as_asked energy')")
    with Store.open(database_path) as store:
        rows = sorted(store.list_runs(), key=lambda row: row.run)
        assert [(row.evidence_state, row.evidence_reason) for row in rows[:-1]] == [
            ("not verifiable", "No trace."),
            ("verified", None),
            ("verified in part", IN_NOTES),
            ("verified in part", IN_NOTES),
            ("mismatch", "Not off."),
            ("verified in part", "No layout."),
        ]
        assert present(store.load(3).evidence).notes == ("Seen.", SAME)
        unverified = [present(store.load(run).evidence).unverified for run in (1, 2, 5, 6)]
        assert unverified == [
            {"xla": "No trace."},
            {},
            {"layout": "It could not be seen."},
            {"layout": "No layout."},
        ]
        assert get_setting(store._db.conn, SHOWN_COLUMNS) == ["run", "evidence", "energy", "host", "framework"]
        assert store.library.find(RunQuery(text="mismatch")) == [5]


def test_two_programs_migrate_one_older_database_at_once(older: Path) -> None:
    code = "with Store.open(path, busy_s=120) as store: print(len(store.list_runs()))"
    assert twice_at_once(code, older) == [("31\n", "")] * 2
