"""Files that cannot be imported: one sentence each, nothing imported partially, our own database unchanged."""

import contextlib
import json
import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.cli.main import main
from app.errors import DatabaseError
from app.paths import weights_path
from app.report.documents import run_document
from app.storage.files import DiskSpace
from app.storage.library import Library
from app.storage.store import Store
from app.storage.transfer import import_export, source_file
from app.storage.transfer.copying import TRANSFERRED, columns
from app.storage.transfer.import_export import import_runs
from app.storage.transfer.validation import check_values
from app.values.events import Outcome, Summary
from app.values.samples import LogLine
from tests.fakes.runs import UTC_NS, begin, keep
from tests.fakes.saved_experiments import save_experiment
from tests.present import present
from tests.unit.storage.contents import changed, contents

LATER = "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('variantscope', 'm999_later', 'x')"


def good(path: Path) -> Path:
    with Store.open(path) as store:
        runs = [keep(store, uid=uid) for uid in ("uid-1", "uid-2")]
        library = Library(store._db, path)
        library.set_note(runs[0], "a note")
        library.add_tag(runs, "a tag")
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid file, to be damaged in copies."""
    return good(tmp_path_factory.mktemp("whole") / "f.db")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our own database with one run, to be copied."""
    path = tmp_path_factory.mktemp("clean") / "profiles.db"
    with Store.open(path) as store:
        keep(store, uid="mine")
    return path


@pytest.fixture
def ours(clean: Path, tmp_path: Path) -> Iterator[Path]:
    """Our own database with a run; a test must not change it, nor leave files next to it."""
    path = tmp_path / "ours" / "profiles.db"
    path.parent.mkdir()
    shutil.copyfile(clean, path)
    before = contents(path)
    yield path
    assert contents(path) == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.fixture
def theirs(whole: Path, tmp_path: Path) -> Path:
    """A valid file of two runs, to be damaged."""
    path = tmp_path / "theirs" / "f.db"
    path.parent.mkdir()
    shutil.copyfile(whole, path)
    return path


def refused(ours: Path, file: Path) -> str:
    """Return the sentence with which a file is refused."""
    with pytest.raises(DatabaseError) as caught:
        import_runs(ours, file)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 600
    return sentence


def text_file(path: Path) -> Path:
    path.write_text("These are notes, long enough to be taken for a header of a database. " * 10)
    return path


def another_program(path: Path) -> Path:
    path.unlink()
    return changed(path, "CREATE TABLE runs (run INTEGER PRIMARY KEY)", "INSERT INTO runs VALUES (1)")


def encrypted(path: Path) -> Path:
    path.write_bytes(random.Random(7).randbytes(100_000))
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def cut_off(path: Path) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def only_a_header(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:100])
    return path


def half_written(path: Path) -> Path:
    """Every second page was never written, as after a lost disk."""
    content = bytearray(path.read_bytes())
    for start in range(8192, len(content), 8192):
        content[start : start + 4096] = bytes(4096)
    path.write_bytes(content)
    return path


def with_journal(path: Path) -> Path:
    path.with_name(f"{path.name}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(1000))
    return path


def huge(path: Path) -> Path:
    """Make a sparse file of 10 GB: only its length is written."""
    path.unlink()
    with path.open("wb") as file:
        file.truncate(10_000_000_000)
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path.with_name("pipe.db"))
    return path.with_name("pipe.db")


def loop(path: Path) -> Path:
    path.unlink()
    path.symlink_to(path)
    return path


def link_to_nothing(path: Path) -> Path:
    path.unlink()
    path.symlink_to("nowhere.db")
    return path


@pytest.mark.parametrize(
    ("spoilt", "sentence"),
    [
        (text_file, "is not an SQLite database, or it is encrypted"),
        (another_program, "is a database of another program"),
        (encrypted, "is not an SQLite database, or it is encrypted"),
        (empty, "is empty"),
        (cut_off, "is truncated: "),
        (only_a_header, "is truncated: "),
        (half_written, "is damaged"),
        (with_journal, "was left half-written by another program"),
        (huge, "is not an SQLite database"),
        (lambda path: path.parent, "is a folder; name the database file in it."),
        (pipe, "is not a regular file"),
        (loop, "cannot be read (it is a loop of links)."),
        (link_to_nothing, "There is no file "),
        (lambda path: path.with_name("nowhere.db"), "There is no file "),
        (lambda path: Path("/dev/zero"), "is not a regular file"),
        (lambda path: changed(path, LATER), "was written by a newer version of VariantScope; update the program here."),
        (lambda path: changed(path, "DELETE FROM _sqlite_migrations"), "does not state its version"),
        (
            lambda path: changed(path, "DELETE FROM _sqlite_migrations WHERE name GLOB 'm002*'"),
            "does not state its version",
        ),
        (lambda path: changed(path, "DROP TABLE _sqlite_migrations"), "does not state its version"),
    ],
)
def test_a_file_that_is_none_is_refused(
    ours: Path, theirs: Path, spoilt: Callable[[Path], Path], sentence: str
) -> None:
    assert sentence in refused(ours, spoilt(theirs))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")
def test_a_file_without_permission(ours: Path, theirs: Path) -> None:
    theirs.chmod(0)
    assert "cannot be read (Permission denied)." in refused(ours, theirs)


RENAMED = "ALTER TABLE {0} RENAME TO old_{0}"
VIEW = (
    RENAMED.format("phases"),
    "CREATE VIEW phases AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS run FROM n",
)
SQL = "UPDATE sqlite_schema SET sql = replace(sql, '{}', '{}') WHERE name = '{}'"


@pytest.mark.parametrize(
    ("statements", "table"),
    [
        (VIEW, "phases"),
        (("DROP TABLE blocks",), "blocks"),
        ((RENAMED.format("samples"),), "samples"),
        (("ALTER TABLE runs RENAME COLUMN reason TO why",), "runs"),
        (("ALTER TABLE runs ADD COLUMN more TEXT AS (hex(zeroblob(100000000)))",), "runs"),
        ((SQL.format("steps INTEGER NOT NULL", "steps INTEGER AS (run)", "blocks"),), "blocks"),
        ((SQL.format("CHECK (json_valid(variant))", "CHECK (load_extension(variant))", "runs"),), "runs"),
        ((SQL.format("run INTEGER NOT NULL", "run INTEGER NOT NULL COLLATE evil", "log_lines"),), "log_lines"),
        ((SQL.format(") STRICT", ")", "evidence"),), "evidence"),
        (("DROP TABLE kernels", "CREATE VIRTUAL TABLE kernels USING fts5(name)"), "kernels"),
    ],
)
def test_a_schema_that_is_not_ours_is_refused(
    ours: Path, theirs: Path, statements: tuple[str, ...], table: str
) -> None:
    assert f"was not written by VariantScope: its table {table} is " in refused(ours, changed(theirs, *statements))


def test_the_list_of_migrations_may_be_no_view(ours: Path, theirs: Path) -> None:
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'variantscope', i FROM n"
    view = f"CREATE VIEW _sqlite_migrations (migration_set, name) AS {endless}"
    spoilt = changed(theirs, "DROP TABLE _sqlite_migrations", view)
    assert "cannot be read as a database of VariantScope" in refused(ours, spoilt)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE runs (' WHERE name = 'runs'",
        "UPDATE sqlite_schema SET rootpage = 999999 WHERE name = 'samples'",
        "INSERT INTO sqlite_schema SELECT * FROM sqlite_schema WHERE name = 'runs'",
    ],
)
def test_a_schema_that_is_no_schema_is_refused(ours: Path, theirs: Path, statement: str) -> None:
    assert "damaged or only half copied" in refused(ours, changed(theirs, statement))


def test_what_sqlite_says_of_damage_is_one_line(ours: Path, theirs: Path) -> None:
    with contextlib.closing(sqlite3.connect(theirs)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'devices'").fetchone()
    content, first = bytearray(theirs.read_bytes()), (root - 1) * 4096 + 8
    # The pointers to the page's first two rows (https://www.sqlite.org/fileformat.html#b_tree_pages) change places.
    content[first : first + 4] = content[first + 2 : first + 4] + content[first : first + 2]
    theirs.write_bytes(content)
    assert "is damaged (" in refused(ours, theirs)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("UPDATE runs SET uid = '../../../etc/passwd' WHERE run = 1", "runs.uid"),
        ("UPDATE runs SET uid = '' WHERE run = 1", "runs.uid"),
        ("UPDATE runs SET throughput = 9e999", "runs.throughput"),
        ("UPDATE runs SET throughput = -1.0", "runs.throughput"),
        ("UPDATE runs SET throughput = 0.0", "runs.throughput"),
        ("UPDATE runs SET measured_s = 1e-300", "runs.measured_s"),
        ("UPDATE runs SET loss_last = -9e999", "runs.loss_last"),
        ("UPDATE runs SET started_utc_ns = 9223372036854775807", "runs.started_utc_ns"),
        ("UPDATE runs SET variant = '[]'", "runs.variant"),
        ("UPDATE runs SET variant = '{\"seconds\": 1e999}'", "runs.variant"),
        ('UPDATE runs SET variant = \'{"seconds": "two"}\'', "runs.variant"),
        ("UPDATE runs SET variant = '{\"batch_size\": -1}'", "runs.variant"),
        ("UPDATE runs SET variant = '{\"xla\": 2}'", "runs.variant"),
        ("UPDATE runs SET variant = '{\"layout\": 5}'", "runs.variant"),
        ("UPDATE runs SET workload = 'later', variant = '{\"seconds\": \"two\"}'", "runs.variant"),
        ("UPDATE runs SET environment = '{\"cpu\": 5}'", "runs.environment"),
        ("UPDATE runs SET environment = json_object('cpu', char(27) || '[2J')", "runs.environment"),
        ("UPDATE runs SET environment = json_object('cpu' || char(7), '')", "runs.environment"),
        ("UPDATE runs SET environment = json_object('cpu', hex(zeroblob(50000)))", "runs.environment"),
        ("UPDATE runs SET environment = json_object('cpu_count', 'many')", "runs.environment"),
        ("UPDATE runs SET environment = json_object('own_source', 'a' || char(0))", "runs.environment"),
        ('UPDATE runs SET environment = \'{"cpu": "\\ud800"}\'', "runs.environment"),
        ("UPDATE runs SET reason = char(27) || '[2J'", "runs.reason"),
        ("UPDATE runs SET purpose = hex(zeroblob(50000))", "runs.purpose"),
        ("UPDATE runs SET note = hex(zeroblob(50000))", "runs.note"),
        ("UPDATE tags SET tag = 'a,b'", "tags.tag"),
        ('UPDATE devices SET fields = \'{"power_mw": {"unit": 5}}\'', "devices.fields"),
        ("UPDATE phases SET phase = 'party' WHERE phase = 'measure'", "phases.phase"),
        ("UPDATE phases SET end_ns = 0", "phases.end_ns"),
        ("UPDATE blocks SET end_ns = start_ns", "blocks.end_ns"),
        ("UPDATE blocks SET steps = 0", "blocks.steps"),
        ("UPDATE blocks SET phase = 'evidence'", "blocks.phase"),
        ("UPDATE epochs SET accuracy = 2.0", "epochs.accuracy"),
        ("UPDATE epochs SET tested_ns = 0", "epochs.tested_ns"),
        ("UPDATE kernels SET kind = 'nonsense'", "kernels.kind"),
        ("UPDATE kernels SET occupancy_pct = 101", "kernels.occupancy_pct"),
        ("UPDATE device_times SET host_wait_ns = span_ns - busy_ns - kernel_wait_ns + 1", "device_times.host_wait_ns"),
        ("UPDATE step_kernels SET rank = 99", "step_kernels.rank"),
        ("DELETE FROM step_streams WHERE stream = 1", "step_kernels.stream"),
        ("UPDATE evidence SET asked = '{\"a\": {}}'", "evidence.asked"),
        ("UPDATE evidence SET sources = '[1]'", "evidence.sources"),
        ("UPDATE evidence SET state = 'splendid'", "evidence.state"),
        (f"UPDATE evidence SET notes = '{'[' * 900}{']' * 900}'", "evidence.notes"),
        ("UPDATE equality SET baseline = json_set(baseline, '$.batch_size', 0)", "equality.baseline"),
    ],
)
def test_values_that_we_do_not_write_are_refused_by_name(ours: Path, theirs: Path, change: str, where: str) -> None:
    assert f"holds what VariantScope does not write ({where} is " in refused(ours, changed(theirs, change))


def test_every_text_of_every_table_is_checked_for_nul(theirs: Path) -> None:
    with Store.open(theirs) as store:
        store.queue.add(name="entry", preset="preset", plan="{}")
        save_experiment(Library(store._db, theirs), [1], name="an experiment", preset=None, plan="{}")
        connection = store._db.conn
        for table in TRANSFERRED:
            (sql,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table.name,)).fetchone()
            for name in (each.name for each in columns(connection, table.name) if each.type == "TEXT"):
                if f"{name} TEXT AS " in sql or f"CHECK ({name} IN" in sql:
                    continue
                value = """'{"a": "\\u0000"}'""" if f"json_valid({name})" in sql else "'a' || char(0)"
                connection.execute("SAVEPOINT whole")
                connection.execute(f"UPDATE OR REPLACE {table.name} SET {name} = {value}")
                with pytest.raises(DatabaseError, match=rf"\({table.name}\.{name} is '"):
                    check_values(connection, theirs)
                connection.execute("ROLLBACK TO whole")


def test_source_text_may_be_long_and_hold_what_an_editor_writes(tmp_path: Path, theirs: Path) -> None:
    text = "\x0c# " + "x" * 60_000
    changed(
        theirs,
        "UPDATE runs SET environment = json_object('own_source', char(12) || '# ' || printf('%.*c', 60000, 'x'))",
    )
    done = import_runs(tmp_path / "new.db", theirs)
    with Store.open(tmp_path / "new.db") as store:
        assert store.load(done.runs[0]).environment["own_source"] == text


def test_what_a_worker_says_does_not_keep_a_run_from_being_imported(tmp_path: Path) -> None:
    mine, new = tmp_path / "mine.db", tmp_path / "new.db"
    with Store.open(mine) as store:
        run = begin(store)
        store.write(run, [LogLine(1, "50\xa0%\r\0\x1b[1m100\xa0%")])
        said = Outcome(name="failed", reason="ValueError: \x1b[31mno\0", detail="a\0b")
        store.finish(run, outcome=said, summary=Summary(), t_ns=2, utc_ns=UTC_NS)
    assert import_runs(new, mine).runs == (1,)
    with Store.open(new) as store:
        stored = store.load(1)
    assert [line.text for line in stored.log] == ["50\xa0%\r\ufffd\x1b[1m100\xa0%"]
    assert stored.row.outcome == replace(said, reason=r"ValueError: \u001b[31mno\u0000", detail="a\ufffdb")


def test_a_run_with_a_nul_in_its_uid_that_an_older_version_imported_can_be_deleted(theirs: Path) -> None:
    other = weights_path(theirs, "a")
    other.parent.mkdir()
    other.touch()
    changed(theirs, "UPDATE runs SET uid = 'a' || char(0) || '/../../../x' || hex(zeroblob(300)) WHERE run = 1")
    for words in (["list"], ["show", "1"], ["delete", "1"], ["delete", "1", "--for-good"]):
        assert main([*words, "--db", str(theirs)]) == 0
    with Store.open(theirs) as store:
        assert [row.run for row in store.list_runs()] == [2]
    assert other.exists(), "the weights of another run stay"


LOOSE = "UPDATE sqlite_schema SET sql = {} WHERE type = 'table'"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE blocks SET steps = 'many'", "cannot store TEXT value in INTEGER column blocks.steps"),
        ("UPDATE log_lines SET text = x'ff00'", "cannot store BLOB value in TEXT column log_lines.text"),
        ("UPDATE evidence SET notes = '{'", "CHECK constraint failed: json_valid(notes)"),
        ("UPDATE runs SET outcome = 'splendid'", "CHECK constraint failed"),
        ("UPDATE runs SET uid = 'same'", "UNIQUE constraint failed: runs.uid"),
        ("UPDATE phases SET energy_mj = 1.0, phase = NULL", "NOT NULL constraint failed: phases.phase"),
        ("UPDATE log_lines SET text = CAST(x'ff' AS TEXT)", "Could not decode to UTF-8"),
        ("UPDATE runs SET detail = CAST(zeroblob(5000000) AS TEXT)", "holds a text of more than 4,000,000 bytes"),
    ],
)
def test_rows_that_no_table_of_ours_takes_are_refused(
    ours: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch, change: str, sentence: str
) -> None:
    """Write rows while the schema has no types, then restore the schema's statements."""
    with contextlib.closing(sqlite3.connect(theirs)) as connection:
        schema = connection.execute("SELECT sql, rowid FROM sqlite_schema WHERE type = 'table'").fetchall()
    loose = "sql"
    for word in (" STRICT", " UNIQUE", " NOT NULL"):
        loose = f"replace({loose}, '{word}', '')"
    loose = f"replace({loose}, '), WITHOUT', ') WITHOUT')"
    changed(theirs, LOOSE.format(loose), "DELETE FROM sqlite_schema WHERE name = 'sqlite_autoindex_runs_1'")
    changed(theirs, "PRAGMA ignore_check_constraints = ON", "DROP TRIGGER runs_changed", change)
    with contextlib.closing(sqlite3.connect(theirs)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("UPDATE sqlite_schema SET sql = ? WHERE rowid = ?", schema)
        connection.commit()
    # What the look for damage finds first, the private database must find as well.
    monkeypatch.setattr(import_export, "check_damage", lambda *_: None)
    assert sentence in refused(ours, theirs)


def test_a_valid_file_of_10_gb_of_which_little_is_taken_is_read(
    tmp_path: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_export, "disk_space", lambda path: DiskSpace(path, 1_000_000_000))
    with theirs.open("r+b") as file:
        file.truncate(10_000_000_000)
    assert import_runs(tmp_path / "new.db", theirs).runs == (1, 2)


def test_without_room_for_it_nothing_is_begun(
    ours: Path, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed_bytes = 3 * theirs.stat().st_size + 20_000_000
    monkeypatch.setattr(import_export, "disk_space", lambda path: DiskSpace(path, needed_bytes - 1))
    assert "for a while; the disk that holds" in refused(ours, theirs)
    monkeypatch.setattr(import_export, "disk_space", lambda path: DiskSpace(path, needed_bytes))
    assert import_runs(tmp_path / "new.db", theirs).runs == (1, 2)


def test_what_unfolds_to_more_than_the_file_holds_is_refused(
    ours: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let many rows share the pages of one long text."""
    with Store.open(theirs) as store:
        store.write(1, [LogLine(n, "x" * 1000) for n in range(10_000)], first_log_line=10)
    monkeypatch.setattr(import_export, "MIN_FREE_BYTES", 0)
    monkeypatch.setattr(
        import_export, "inspect_file", lambda path: replace(source_file.inspect_file(path), bytes=2_500_000)
    )
    assert "needs more room than the disk has, or than its own size" in refused(ours, theirs)


def test_a_write_ahead_log_of_rubbish_adds_nothing(tmp_path: Path, theirs: Path) -> None:
    theirs.with_name(f"{theirs.name}-wal").write_bytes(random.Random(3).randbytes(50_000))
    assert import_runs(tmp_path / "new.db", theirs).runs == (1, 2)


def test_looking_for_damage_ends_in_time_and_reading_goes_on(
    tmp_path: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_file, "VM_STEPS", 10)
    monkeypatch.setattr(source_file, "_CHECK_TIMEOUT_S", -1.0)
    assert import_runs(tmp_path / "new.db", theirs).runs == (1, 2)


def test_rows_of_runs_and_devices_that_are_not_there_stay_behind(tmp_path: Path, theirs: Path) -> None:
    changed(
        theirs,
        "INSERT INTO phases (run, phase, start_ns) VALUES (99, 'measure', 1)",
        "INSERT INTO samples (device_id, t_ns) VALUES (99, 1)",
        "INSERT INTO devices (run, device, kind, device_index, name) VALUES (99, 'GPU-9', 'gpu', 0, 'nobody')",
    )
    new = tmp_path / "new.db"
    assert import_runs(new, theirs).runs == (1, 2)
    with contextlib.closing(sqlite3.connect(new)) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("SELECT count(*) FROM devices WHERE device = 'GPU-9'").fetchone() == (0,)


def test_an_experiment_that_is_not_there_is_refused(ours: Path, theirs: Path) -> None:
    changed(theirs, "INSERT INTO experiment_runs (experiment, run, place) VALUES (99, 1, 0)")
    assert "FOREIGN KEY constraint failed" in refused(ours, theirs)


def test_too_many_runs_are_refused(ours: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_export, "MAX_RUNS", 1)
    assert "holds 2 runs; at most 1 can be imported" in refused(ours, theirs)


def test_what_looks_like_sql_or_html_stays_text(tmp_path: Path, theirs: Path) -> None:
    evil = "'); DROP TABLE runs; -- <script>alert(1)</script> {{7*7}} %s"
    with Store.open(theirs) as store:
        Library(store._db, theirs).set_note(1, evil)
        for change in ("runs SET workload = :it, reason = :it", "devices SET name = :it", "kernels SET name = :it"):
            store._db.execute(f"UPDATE {change}", {"it": evil})
        store._db.conn.commit()
    done = import_runs(tmp_path / "new.db", theirs)
    with Store.open(tmp_path / "new.db") as store:
        run = store.load(done.runs[0])
        assert len(store.list_runs()) == 2
    assert (run.row.note, run.row.spec.workload, run.samples[0].device.name) == (evil, evil, evil)
    assert present(run.evidence).kernels[0].name == evil


FLIPS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@example(flips=[(0.28515625, 128)], share=1.0)  # a column's name that is no UTF-8
@given(flips=FLIPS, share=st.sampled_from([1.0, 1.0, 1.0, 0.99, 0.5]))
def test_random_damage_is_refused_or_gives_sound_runs(
    whole: Path, clean: Path, flips: list[tuple[float, int]], share: float
) -> None:
    content = bytearray(whole.read_bytes())
    del content[int(len(content) * share) :]
    for place, bits in flips:
        content[int(place * len(content))] ^= bits
    with tempfile.TemporaryDirectory() as folder:
        ours, file = Path(folder) / "profiles.db", Path(folder) / "f.db"
        shutil.copyfile(clean, ours)
        file.write_bytes(content)
        try:
            done = import_runs(ours, file).runs
        except DatabaseError:
            assert contents(ours) == contents(clean)
            done = ()
        assert sorted(path.name for path in Path(folder).iterdir()) == ["f.db", "profiles.db"]
        with Store.open(ours) as store:
            assert store._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert store._db.execute("PRAGMA foreign_key_check").fetchall() == []
            assert store.load(1).row.uid == "mine"
            for run in done:
                json.dumps(run_document(store.load(run)), allow_nan=False)
