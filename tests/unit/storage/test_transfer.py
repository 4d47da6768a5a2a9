"""Transfer of runs from one database to another: everything, nothing twice, nothing partially."""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from app.errors import DatabaseError, UserError
from app.paths import weights_path
from app.storage.database import known_migrations
from app.storage.library import Library
from app.storage.owner import Owner, boot_id
from app.storage.store import Store
from app.storage.transfer.copying import TRANSFERRED
from app.storage.transfer.import_export import ExistingRun, export_database, import_runs
from app.storage.transfer.progress import StoppedError, TransferProgress
from tests.fakes.runs import GPU, LOST, UTC_NS, S, begin, keep
from tests.unit.storage.contents import changed, contents, older


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of three runs with notes, tags and an experiment of two of them."""
    path = tmp_path_factory.mktemp("original") / "full.db"
    with Store.open(path) as store:
        runs = [keep(store, uid=f"uid-{n}") for n in (1, 2, 3)]
        db = store._db
        db.execute(
            "INSERT INTO experiments (uid, name, preset, created_utc_ns, plan) VALUES ('e-1', 'two', NULL, ?, '{}')",
            (UTC_NS,),
        )
        db.conn.executemany("INSERT INTO experiment_runs VALUES (1, ?, ?)", [(runs[0], 0), (runs[2], 1)])
        db.conn.commit()
        library = Library(db, path)
        library.set_note(runs[0], "warm room <b>'; DROP TABLE runs; --")
        library.add_tag(runs[:2], "nightly")
    return path


@pytest.fixture
def full(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copyfile(original, tmp_path / "full.db"))


def test_every_table_is_carried_or_left_on_purpose(full: Path) -> None:
    of_one_machine_or_computed = {"settings", "filters", "calibrations", "run_words"}
    with contextlib.closing(sqlite3.connect(full)) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB '*sqlite_*'")
        assert {name for (name,) in found} == {table.name for table in TRANSFERRED} | of_one_machine_or_computed


def test_all_of_a_database_moves_into_a_new_one(full: Path, database_path: Path) -> None:
    done = import_runs(database_path, full)
    assert (done.runs, done.already, done.unfinished, done.in_trash) == ((1, 2, 3), (), (), ())
    assert contents(database_path) == contents(full)
    with Store.open(database_path) as here, Store.open(full) as there:
        assert [here.load(run).row for run in done.runs] == [there.load(run).row for run in done.runs]


def test_numbers_are_new_and_uids_stay(full: Path, database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store, uid="mine")
    assert import_runs(database_path, full).runs == (2, 3, 4)
    with Store.open(database_path) as store:
        assert [store.load(run).row.uid for run in (1, 2, 3, 4)] == ["mine", "uid-1", "uid-2", "uid-3"]
        assert store.load(3).samples[0].fields["power_mw"].tolist()[0] == 688_123
        assert Library(store._db, database_path).runs_of_experiment(1) == (2, 4)


def test_twice_imports_nothing(full: Path, database_path: Path) -> None:
    import_runs(database_path, full)
    before = contents(database_path)
    again = import_runs(database_path, full)
    assert (again.runs, again.already) == ((), (ExistingRun(1), ExistingRun(2), ExistingRun(3)))
    assert contents(database_path) == before


def test_our_notes_and_tags_stay_and_the_difference_is_told(full: Path, database_path: Path) -> None:
    import_runs(database_path, full)
    with Store.open(database_path) as store:
        library = Library(store._db, database_path)
        library.set_note(1, "mine")
        library.add_tag([2], "ours")
        library.delete([3])
    before = contents(database_path)
    already = import_runs(database_path, full).already
    assert already == (ExistingRun(1, ("note",)), ExistingRun(2, ("tags",)), ExistingRun(3, in_trash=True))
    assert contents(database_path) == before


def test_an_experiment_gets_the_runs_it_lacks(full: Path, tmp_path: Path, database_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    export_database(full, [1], first)
    export_database(full, [3], second)
    import_runs(database_path, first)
    import_runs(database_path, second)
    with Store.open(database_path) as store:
        (experiment,) = Library(store._db, database_path).experiments()
    assert (experiment.uid, experiment.runs) == ("e-1", (1, 2))


def test_runs_still_going_on_and_runs_in_the_trash_stay_there(full: Path, database_path: Path) -> None:
    with Store.open(full) as store:
        begin(store, uid="uid-4", owner=Owner(1, -5.0, boot_id()))
        Library(store._db, full).delete([2])
    done = import_runs(database_path, full)
    assert (done.runs, done.unfinished, done.in_trash) == ((1, 2), (4,), (2,))
    with Store.open(database_path) as store:
        assert [row.uid for row in store.list_runs()] == ["uid-3", "uid-1"]


@pytest.mark.parametrize("version", [1, len(known_migrations()) - 1])
def test_older_versions_are_brought_up_to_date_and_their_file_stays(
    full: Path, tmp_path: Path, database_path: Path, version: int
) -> None:
    old = tmp_path / "old.db"
    older(full, old, version)
    before = old.read_bytes()
    assert import_runs(database_path, old).runs == (1, 2, 3)
    assert old.read_bytes() == before
    assert [path.name for path in tmp_path.glob("old.db*")] == ["old.db"], "nor is anything made beside it"
    reference = tmp_path / "reference.db"
    shutil.copyfile(old, reference)
    Store.open(reference).close()
    assert contents(database_path) == contents(reference)


def test_measured_runs_of_an_older_version_import(database_path: Path) -> None:
    measured = Path(__file__).with_name("older.db")
    before = measured.read_bytes()
    done = import_runs(database_path, measured)
    assert done.runs
    assert measured.read_bytes() == before
    with Store.open(database_path) as store:
        loaded = [store.load(run) for run in done.runs]
        assert sum(columns.t_ns.size for run in loaded for columns in run.samples) > 1000
    with contextlib.closing(sqlite3.connect(f"file:{measured}?mode=ro&immutable=1", uri=True)) as plain:
        assert [(uid,) for uid in (run.row.uid for run in loaded)] == plain.execute(
            "SELECT uid FROM runs ORDER BY run"
        ).fetchall()


def test_an_exported_database_is_complete_and_opens(full: Path, tmp_path: Path, database_path: Path) -> None:
    target = tmp_path / "out" / "two.db"
    target.parent.mkdir()
    done = export_database(full, [3, 1], target)
    assert (done.files, done.runs, done.bytes) == ((target,), 2, target.stat().st_size)
    assert [path.name for path in target.parent.iterdir()] == ["two.db"], "nothing lies beside it"
    both = contents(full)
    assert contents(target) == {
        name: [row for row in rows if not any(str(value).startswith("uid-2") for value in row)]
        for name, rows in both.items()
    }
    with Store.open(target) as store:
        assert [row.uid for row in store.list_runs()] == ["uid-1", "uid-3"]
    assert import_runs(database_path, target).runs == (1, 2)
    assert contents(database_path) == contents(target)


def test_saved_weights_stay_where_they_are_and_are_named(full: Path, tmp_path: Path) -> None:
    weights = weights_path(full, "uid-2")
    weights.parent.mkdir()
    weights.write_bytes(b"weights")
    assert export_database(full, [1, 2], tmp_path / "out.db").weights == (weights,)


@pytest.mark.parametrize(
    ("prepare", "runs", "sentence"),
    [
        (lambda store: None, [7], "There is no run 7 in"),
        (lambda store: begin(store, uid="uid-4"), [1, 4], "Run 4 is still in progress; export it when it has ended."),
        (lambda store: Library(store._db, store.path).delete([2]), [2], "Run 2 is in the trash; `python -m app res"),
    ],
)
def test_what_cannot_be_taken_away_leaves_no_file(
    full: Path, tmp_path: Path, prepare: Callable[[Store], object], runs: list[int], sentence: str
) -> None:
    with Store.open(full) as store:
        prepare(store)
    target = tmp_path / "out" / "two.db"
    target.parent.mkdir()
    with pytest.raises(UserError) as caught:
        export_database(full, runs, target)
    assert str(caught.value).startswith(sentence)
    assert list(target.parent.iterdir()) == []


def test_a_file_that_is_there_is_not_written_over(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine.db"
    target.write_text("mine")
    with pytest.raises(UserError, match=r"mine.db already exists; name another place, or delete it first."):
        export_database(full, [1], target)
    with pytest.raises(UserError, match="cannot be written"):
        export_database(full, [1], tmp_path / "nowhere" / "f.db")
    assert target.read_text() == "mine"


def test_how_far_it_is_is_told(full: Path, tmp_path: Path, database_path: Path) -> None:
    for work in (
        lambda watch: export_database(full, [1, 2, 3], tmp_path / "out.db", watch),
        lambda watch: import_runs(database_path, full, watch),
    ):
        shares: list[float] = []
        work(TransferProgress(report=shares.append))
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


@pytest.mark.parametrize("after", [0, 1, 2, 20, 40])
def test_stopped_at_any_time_it_leaves_nothing(full: Path, tmp_path: Path, database_path: Path, after: int) -> None:
    with Store.open(database_path) as store:
        keep(store, uid="mine")
    before, files = contents(database_path), sorted(tmp_path.iterdir())
    checks = iter(range(1_000_000))
    with pytest.raises(StoppedError, match="Stopped; nothing was written"):
        import_runs(database_path, full, TransferProgress(should_stop=lambda: next(checks) >= after))
    with pytest.raises(StoppedError):
        export_database(full, [1], tmp_path / "out.db", TransferProgress(should_stop=lambda: True))
    assert contents(database_path) == before
    assert [path for path in sorted(tmp_path.iterdir()) if path not in files] == []


def test_nothing_is_imported_while_a_run_goes_on(full: Path, database_path: Path) -> None:
    with Store.open(database_path) as store:
        begin(store, uid="mine")
        with pytest.raises(DatabaseError, match=r"A run is in progress in .* would disturb what it measures"):
            import_runs(database_path, full)


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_database_copied_while_it_was_open_brings_its_write_ahead_log(
    full: Path, tmp_path: Path, database_path: Path, is_writable: bool
) -> None:
    copy = tmp_path / "server" / "full.db"
    copy.parent.mkdir()
    with Store.open(full) as store:
        keep(store, uid="uid-9")
        shutil.copyfile(full, copy)
        shutil.copyfile(f"{full}-wal", f"{copy}-wal")
    if not is_writable:
        copy.chmod(0o400)
        copy.parent.chmod(0o500)
    before = {path.name: path.read_bytes() for path in copy.parent.iterdir()}
    try:
        assert import_runs(database_path, copy).runs == (1, 2, 3, 4)
        assert {path.name: path.read_bytes() for path in copy.parent.iterdir()} == before, "nothing of it is touched"
    finally:
        copy.parent.chmod(0o700)
    assert contents(database_path) == contents(full)
    copy.chmod(0o600)
    with Store.open(copy) as store:
        assert len(store.list_runs()) == 4, "and it opens by itself, its shared-memory file missing"


def test_a_file_alone_whose_log_is_missing_opens_with_what_it_holds(full: Path, tmp_path: Path) -> None:
    with Store.open(full) as store:
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        keep(store, uid="uid-9")
        alone = tmp_path / "alone.db"
        shutil.copyfile(full, alone)
    assert import_runs(tmp_path / "new.db", alone).runs == (1, 2, 3)


def test_a_file_written_to_meanwhile_is_not_imported(full: Path, database_path: Path) -> None:
    def write(_share: float) -> None:
        with full.open("ab") as file:
            file.write(b"\0")

    with pytest.raises(DatabaseError, match="is being written to; import it when"):
        import_runs(database_path, full, TransferProgress(report=write))
    with Store.open(database_path) as store:
        assert store.list_runs() == []


def test_a_link_and_a_name_with_odd_letters_are_followed(full: Path, tmp_path: Path, database_path: Path) -> None:
    odd = tmp_path / "a?b#c%20 'ü'.db"
    full.rename(odd)
    link = tmp_path / "link.db"
    link.symlink_to(odd)
    assert import_runs(database_path, link).runs == (1, 2, 3)


def test_an_exported_database_is_for_others_as_any_file(full: Path, tmp_path: Path) -> None:
    export_database(full, [1], tmp_path / "one.db")
    (tmp_path / "any").touch()
    assert (tmp_path / "one.db").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_long_runs_move_whole(full: Path, database_path: Path) -> None:
    with Store.open(full) as store:
        store._db.conn.executemany(
            "INSERT INTO samples (device_id, t_ns, power_mw) VALUES (3, ?, ?)",
            ((10 * S + n, n) for n in range(1, 50_001)),
        )
        store._db.conn.commit()
    shares: list[float] = []
    import_runs(database_path, full, TransferProgress(report=shares.append))
    assert len(set(shares)) > 20, "progress is told while one run is read"
    assert any(share == pytest.approx(0.5, abs=0.01) for share in shares), "reading the file is half of it"
    with Store.open(database_path) as store:
        (gpu, _) = store.load(2).samples
        assert gpu.device == msgspec.structs.replace(GPU, lost=LOST.reason)
        assert gpu.t_ns.size == 50_002


def test_the_database_itself_is_no_file_to_import(full: Path) -> None:
    with pytest.raises(DatabaseError, match="is the very database that runs would be imported into"):
        import_runs(full, full)


def test_triggers_and_tables_of_others_stay_behind(full: Path, database_path: Path) -> None:
    changed(
        full,
        "CREATE TABLE mine (n)",
        "CREATE TRIGGER bad AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
        "CREATE VIEW shown AS SELECT * FROM runs",
        "CREATE INDEX quick ON runs (reason)",
    )
    assert import_runs(database_path, full).runs == (1, 2, 3)
    with contextlib.closing(sqlite3.connect(database_path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE name IN ('mine', 'bad', 'shown', 'quick')")
        assert found.fetchall() == []
