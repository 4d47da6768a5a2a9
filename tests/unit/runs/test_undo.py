"""Undoing what is no single edit: an import, the reference runs, a preset in the list, a cancelled experiment."""

import gzip
from pathlib import Path

import pytest

from app.errors import UserError
from app.runs.experiment.presets import list_user_preset_file, user_preset_files
from app.runs.experiment.queue import import_with_queue
from app.runs.undo import CancelledEntry, Edit, Import, PresetFile, ReferenceRuns, Reversal, drop_stale
from app.storage import reference
from app.storage.reference import add_reference
from app.storage.store import Store
from app.storage.transfer.progress import NO_PROGRESS
from app.values.plan import Plan, encode_plan
from app.values.records import REFERENCE_TAG
from tests.unit.viewmodels.stored import keep, run_row, stored_run

PLAN = Plan(name="two", variants=(run_row(1).spec,), repeats=2)


def add_run(store: Store, number: int) -> int:
    """Store a run with the uid `uid-<number>`, and return its number here."""
    return keep(store, stored_run(run_row(number), measured=False))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with two runs of an experiment that is in its queue."""
    path = tmp_path / "theirs" / "runs.db"
    with Store.open(path) as store:
        runs = [add_run(store, number) for number in (1, 2)]
        store.queue.add_runs(store.queue.add(name="two", preset=None, plan=encode_plan(PLAN)), runs[:1])
    return path


def contents(database: Path) -> tuple[list[str], list[str]]:
    """The uids of the runs, and the names of the entries."""
    with Store.open(database) as store:
        return sorted(row.uid for row in store.list_runs()), [entry.name for entry in store.queue.entries()]


def test_an_import_goes_with_its_queue_and_comes_again(database_path: Path, file: Path) -> None:
    with Store.open(database_path) as store:
        add_run(store, 9)
    undo: Reversal = Import(database_path, file, import_with_queue(database_path, file))
    imported = contents(database_path)
    assert imported == (["uid-1", "uid-2", "uid-9"], ["two"])
    again = undo()
    assert contents(database_path) == (["uid-9"], [])
    undo = again()
    assert contents(database_path) == imported
    undo()
    file.unlink()
    with pytest.raises(UserError, match=r"runs\.db"):
        again()


def test_what_an_import_completed_is_in_the_queue_again(database_path: Path, file: Path, tmp_path: Path) -> None:
    import_with_queue(database_path, file)
    rest = tmp_path / "rest.db"
    import_with_queue(rest, file)
    with Store.open(rest) as store:
        store.queue.add_runs(store.queue.entries()[0].entry, [add_run(store, 3)])
    done = import_with_queue(database_path, rest)
    assert contents(database_path)[1] == []
    Import(database_path, rest, done)()
    assert contents(database_path)[1] == ["two"]


def test_reference_runs_come_back_with_what_the_user_wrote_on_them(
    database_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(file) as store:
        store.library.add_tag([1, 2], REFERENCE_TAG)
    folder = file.parent / "packed"
    folder.mkdir()
    (folder / "runs.db.gz").write_bytes(gzip.compress(file.read_bytes()))
    monkeypatch.setattr(reference, "FOLDER", folder)
    monkeypatch.setattr(reference.add_reference, "__defaults__", (NO_PROGRESS, folder))
    monkeypatch.setattr(reference.reference_runs, "__defaults__", (folder,))
    nothing = ReferenceRuns.of(database_path)
    runs = add_reference(database_path)
    with Store.open(database_path) as store:
        store.library.add_tag(runs[:1], "mine")
        store.library.set_note(runs[1], "Strange.")
    there = nothing()
    assert contents(database_path)[0] == []
    there()
    with Store.open(database_path) as store:
        rows = {row.uid: row for row in store.list_runs()}
    assert rows["uid-1"].tags == ("mine", REFERENCE_TAG)
    assert rows["uid-2"].note == "Strange."


def test_a_preset_leaves_the_list_and_comes_back(database_path: Path) -> None:
    list_user_preset_file(database_path, "/tmp/mine.toml")
    undo = PresetFile(database_path, "/tmp/mine.toml", listed=True)
    again = undo()
    assert user_preset_files(database_path) == []
    again()
    assert user_preset_files(database_path) == ["/tmp/mine.toml"]


def test_a_cancelled_experiment_waits_again_and_is_paused(database_path: Path) -> None:
    again = CancelledEntry(database_path, PLAN)()
    with Store.open(database_path) as store:
        assert [(entry.name, entry.state) for entry in store.queue.entries()] == [("two", "paused")]
    again()
    assert contents(database_path) == ([], [])


def test_an_edit_that_changes_nothing_has_nothing_to_undo(database_path: Path) -> None:
    _, reversal = Edit.make(database_path, lambda store: store.library.delete([]))
    assert reversal is None


def tag(database: Path, run: int) -> Edit:
    _, edit = Edit.make(database, lambda store: store.library.add_tag([run], "night"))
    assert edit is not None
    return edit


def test_all_edits_at_the_end_that_can_undo_nothing_are_dropped(database_path: Path) -> None:
    with Store.open(database_path) as store:
        runs = [add_run(store, number) for number in (1, 2, 3)]
    reversals = [tag(database_path, run) for run in runs]
    with Store.open(database_path) as store:
        store.library.delete(runs[1:])
        store.library.purge(runs[1:])
    assert [edit.is_stale() for edit in reversals] == [False, True, True]
    assert drop_stale(reversals) == 1
    assert drop_stale(reversals[:1]) == 1
