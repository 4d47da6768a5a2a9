"""Files that are no database, foreign, newer, locked, damaged or missing: one sentence, and nothing is lost."""

import hashlib
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from sqlite_utils import Database

from app.errors import DatabaseError, DatabaseMissingError, DatabaseReplacedError
from app.storage import database
from app.storage.database import open_database
from app.storage.files import KnownDatabase
from app.storage.migrations import APPLICATION_ID, migrations
from app.storage.store import Store
from tests.fakes.runs import begin, keep
from tests.unit.storage.contents import changed
from tests.unit.storage.two_processes import twice_at_once


def refusal(path: Path) -> str:
    """Return the sentence with which the database is refused; its bytes stay the same."""
    before = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    with pytest.raises(DatabaseError) as caught:
        Store.open(path, busy_s=0.1)
    after = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    assert after == before, "a refused file stays as it was"
    sentence = str(caught.value)
    assert str(path) in sentence or str(path.parent) in sentence
    return sentence


def test_a_new_database_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "profiles.db"
    Store.open(path).close()
    assert path.is_file()


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_a_new_database_is_its_users_alone(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "profiles.db"
    before = os.umask(mask)
    try:
        with Store.open(path) as store:
            begin(store)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("profiles.db", "profiles.db-wal", "profiles.db-shm"), 0o600)


def test_one_that_is_shared_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "profiles.db"
    path.touch()
    path.chmod(0o660)
    with Store.open(path) as store:
        begin(store)
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o660}


def test_a_name_like_an_address_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Store.open(Path("file:new.db")).close()
    assert [path.name for path in tmp_path.glob("*.db")] == ["file:new.db"]


def test_a_text_file_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are notes, long enough to be taken for a header of a database. " * 10)
    assert "is not an SQLite database; choose another file with --db." in refusal(path)


def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = changed(tmp_path / "other.db", "CREATE TABLE recipes (name TEXT)", "INSERT INTO recipes VALUES ('soup')")
    before = path.read_bytes()
    assert "is a database of another program" in refusal(path)
    assert path.read_bytes() == before


def test_a_database_of_a_newer_version(database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store)
    values = "('variantscope', 'm999_later', 'x')"
    changed(database_path, f"INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES {values}")
    assert "was written by a newer version of VariantScope; update the program" in refusal(database_path)


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder, not a database file" in refusal(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot be created (Not a directory)" in refusal(tmp_path / "file" / "below" / "profiles.db")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make a file")
def test_a_folder_in_which_nothing_can_be_made() -> None:
    assert "cannot be opened or created; check that its folder exists and is writable." in refusal(Path("/proc/x.db"))


def test_a_damaged_file(database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store)
    content = bytearray(database_path.read_bytes())
    content[100:4096] = b"\xff" * 3996
    database_path.write_bytes(content)
    assert "is damaged; restore a copy of it" in refusal(database_path)


def test_an_empty_file_becomes_a_database(database_path: Path) -> None:
    database_path.touch()
    with Store.open(database_path) as store:
        assert store.list_runs() == []


def test_a_new_file_that_another_program_keeps_locked(database_path: Path) -> None:
    connection = sqlite3.connect(database_path)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        assert "is locked by another program" in refusal(database_path)
    finally:
        connection.close()


def test_a_write_while_another_program_writes_on_and_on(database_path: Path) -> None:
    with Store.open(database_path, busy_s=0.1) as store:
        run = keep(store)
        other = sqlite3.connect(database_path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="is locked by another program"):
            begin(store, uid="uid-2")
        assert store.load(run).row.uid == "uid-1", "reading goes on meanwhile"
        other.close()
        begin(store, uid="uid-2")
        assert len(store.list_runs()) == 2


def test_migrations_are_applied_once(database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store)
    before = _applied(database_path)
    with Store.open(database_path) as store:
        assert len(store.list_runs()) == 1
    assert _applied(database_path) == before
    assert [name for name, _ in before] == list(database.known_migrations())


def _applied(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name, applied_at FROM _sqlite_migrations ORDER BY id").fetchall()
    connection.close()
    return found


@pytest.mark.parametrize("is_new", [True, False])
def test_a_failing_migration_leaves_nothing(database_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool) -> None:
    if not is_new:
        with Store.open(database_path) as store:
            keep(store)
    with monkeypatch.context() as later_version:
        later_version.setattr(migrations, "_migrations", list(migrations._migrations))
        migrations()(_m999_fails)
        database.known_migrations.cache_clear()
        with pytest.raises(RuntimeError, match="a bug in a migration"):
            Store.open(database_path)
    database.known_migrations.cache_clear()
    with Database(database_path) as db:
        assert "half_done" not in db.table_names()
        assert bool(db.table_names()) is not is_new, "of a new file not even the first migration stays"
    with Store.open(database_path) as store:
        assert len(store.list_runs()) == (0 if is_new else 1)


def _m999_fails(db: Database) -> None:
    db.execute("CREATE TABLE half_done (n INTEGER)")
    raise RuntimeError("a bug in a migration")


def test_many_open_one_new_file_at_once(tmp_path: Path) -> None:
    """Eight connections on eight threads, ten files: all but the first wait and find the file migrated."""
    for number in range(10):
        path = tmp_path / f"{number}.db"
        faults = _open_together(path, 8)
        assert faults == []
        assert len(_applied(path)) == len(database.known_migrations())


def _open_together(path: Path, count: int) -> list[BaseException]:
    gate = threading.Barrier(count)
    faults: list[BaseException] = []

    def open_one() -> None:
        gate.wait(120)
        try:
            Store.open(path).close()
        except (DatabaseError, sqlite3.Error) as error:
            faults.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return faults


def test_two_processes_open_one_new_file(database_path: Path) -> None:
    code = "Store.open(path, busy_s=120).close(); print('opened')"
    assert twice_at_once(code, database_path) == [("opened\n", "")] * 2


def test_the_file_says_whose_it_is(database_path: Path) -> None:
    Store.open(database_path).close()
    assert int.from_bytes(database_path.read_bytes()[68:72], "big") == APPLICATION_ID


@pytest.mark.parametrize("code", ["SQLITE_IOERR_WRITE", "SQLITE_CORRUPT_INDEX", "SQLITE_PERM", "SQLITE_AUTH"])
def test_extended_result_codes_are_understood(code: str) -> None:
    assert "profiles.db" in str(database._known_error(Path("profiles.db"), code, "text"))


def test_our_own_bugs_pass_through(database_path: Path) -> None:
    with (
        Store.open(database_path) as store,
        pytest.raises(sqlite3.OperationalError, match="no such table"),
        database.translate_sqlite_errors(database_path),
    ):
        store._db.execute("SELECT * FROM nowhere")


def test_a_known_database_is_made_once_and_has_to_stay_the_same(database_path: Path, tmp_path: Path) -> None:
    known, copy = KnownDatabase(database_path), tmp_path / "copy.db"
    open_database(known).close()
    copy.write_bytes(database_path.read_bytes())
    database_path.unlink()
    with pytest.raises(DatabaseMissingError):
        open_database(known)
    assert not database_path.exists()
    database_path.touch()
    with pytest.raises(DatabaseReplacedError):
        open_database(known)
    assert database_path.stat().st_size == 0, "nothing is made in an empty file either"
    copy.rename(database_path)
    open_database(known).close()
    open_database(tmp_path / "other.db").close()
    (tmp_path / "other.db").rename(database_path)
    with pytest.raises(DatabaseReplacedError):
        open_database(known)
