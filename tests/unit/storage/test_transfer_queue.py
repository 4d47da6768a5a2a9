"""Unfinished experiments are transferred to another database with their runs, and continue there."""

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from app.errors import DatabaseError, UserError
from app.queries import QueueEntry
from app.runs.experiment.queue import entry_plan
from app.storage.store import Store
from app.storage.transfer.import_export import export_database, import_runs
from app.values.plan import REPEATS_LIMIT, Plan, encode_plan
from tests.fakes.runs import SPEC, keep
from tests.present import present
from tests.unit.storage.contents import changed, contents
from tests.unit.storage.two_processes import twice_at_once
from workloads.catalog import MAX_VARIANTS, Machine, combinations, with_defaults, workload

PLAN = Plan(name="two", variants=(with_defaults(SPEC),), repeats=2, budget_s=60.0)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A database of three runs, two of which were made of the first of two entries."""
    path = tmp_path / "theirs" / "profiles.db"
    with Store.open(path) as store:
        runs = [keep(store, uid=f"uid-{n}") for n in (1, 2, 3)]
        first, second = (store.queue.add(name=name, preset=name, plan=encode_plan(PLAN)) for name in ("two", "later"))
        store.queue.add_runs(first, runs[1:])
        store.queue.claim(first)
        store.queue.move(second, first)
    return path


def entries(path: Path) -> tuple[QueueEntry, ...]:
    with Store.open(path) as store:
        return store.queue.entries()


def runs_of(path: Path, entry: QueueEntry) -> list[str]:
    with Store.open(path) as store:
        return [store.load(run).row.uid for run in store.library.runs_of_experiment(present(entry.experiment))]


def test_a_whole_database_brings_its_queue_in_its_order_paused_and_nobodys(theirs: Path, database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store, uid="mine")
        store.queue.add(name="ours", preset=None, plan=encode_plan(PLAN))
    done = import_runs(database_path, theirs)
    ours, later, two = entries(database_path)
    assert (done.entries, [entry.name for entry in (ours, later, two)]) == ((2, 3), ["ours", "later", "two"])
    assert [(entry.state, entry.owned) for entry in (later, two)] == [("paused", False)] * 2
    assert (later.experiment, runs_of(database_path, two)) == (None, ["uid-2", "uid-3"])
    assert entry_plan(two) == structs.replace(PLAN, preset="two")
    again = import_runs(database_path, theirs)
    assert (again.entries, len(entries(database_path))) == ((), 3), "nothing comes twice"


def test_two_imports_at_once_bring_everything_once(theirs: Path, database_path: Path) -> None:
    code = f"from app.storage.transfer.import_export import import_runs\nimport_runs(path, Path({str(theirs)!r}))"
    # How far the first one is when the second begins varies.
    for number in range(3):
        database = database_path.with_name(f"{number}.db")
        assert twice_at_once(code, database) == [("", "")] * 2
        assert {**contents(database), "queue": []} == {**contents(theirs), "queue": []}
        assert [entry.uid for entry in entries(database)] == [entry.uid for entry in entries(theirs)]


def test_an_export_takes_the_entries_it_is_told_along(theirs: Path, tmp_path: Path, database_path: Path) -> None:
    target = tmp_path / "q.db"
    two = entries(theirs)[1]
    assert export_database(theirs, [2, 3], target, entries=[two.entry]).entries == 1
    (there,) = entries(target)
    assert (there.uid, runs_of(target, there)) == (two.uid, ["uid-2", "uid-3"])
    import_runs(database_path, target)
    assert {**contents(database_path), "queue": []} == {**contents(target), "queue": []}
    export_database(theirs, [2, 3], tmp_path / "runs.db")
    assert entries(tmp_path / "runs.db") == ()


def test_runs_made_elsewhere_come_back_to_the_entry(theirs: Path, tmp_path: Path) -> None:
    """Also the one without a run: by its uid it is the same experiment everywhere."""
    there, back = tmp_path / "there.db", tmp_path / "back.db"
    later = entries(theirs)[0]
    export_database(theirs, [], there, entries=[later.entry])
    with Store.open(there) as store:
        store.queue.add_runs(1, [keep(store, uid="uid-9")])
    export_database(there, [1], back, entries=[1])
    assert import_runs(theirs, back).entries == ()
    assert runs_of(theirs, entries(theirs)[0]) == ["uid-9"]


def test_a_file_with_nothing_but_an_entry(tmp_path: Path, database_path: Path) -> None:
    theirs = tmp_path / "theirs.db"
    with Store.open(theirs) as store:
        store.queue.add(name="two", preset=None, plan=encode_plan(PLAN))
    done = import_runs(database_path, theirs)
    assert (done.runs, done.entries) == ((), (1,))


@pytest.mark.parametrize(
    "plan",
    [
        '{"variants": [], "repeats": 3}',
        '{"variants": [{"workload": "lstm", "variant": {"gpus": 1000000000}}], "repeats": 1}',
        '{"variants": [{"workload": "lstm", "variant": {"layers": []}}], "repeats": 1}',
    ],
)
def test_what_asks_for_something_that_nobody_can_ask_for_is_refused(
    theirs: Path, database_path: Path, plan: str
) -> None:
    changed(theirs, f"UPDATE queue SET plan = '{plan}' WHERE name = 'two'")
    with pytest.raises(DatabaseError, match=r"holds what VariantScope does not write .queue\.plan is "):
        import_runs(database_path, theirs)
    assert entries(database_path) == ()


@pytest.mark.parametrize(("variants", "repeats"), [(1, 0), (0, 1)])
def test_the_most_that_can_be_asked_for_anywhere_moves_and_no_more(
    tmp_path: Path, database_path: Path, variants: int, repeats: int
) -> None:
    most = combinations(workload("lstm"), {"gpus": [0], "seed": range(MAX_VARIANTS)}, Machine())
    largest = Plan(name="most", variants=tuple(most), repeats=REPEATS_LIMIT)
    beyond = structs.replace(
        largest, variants=(*largest.variants, *largest.variants[:variants]), repeats=REPEATS_LIMIT + repeats
    )
    for name, each in (("most", largest), ("beyond", beyond)):
        with Store.open(tmp_path / f"{name}.db") as store:
            store.queue.add(name=name, preset=None, plan=encode_plan(each))
    assert import_runs(database_path, tmp_path / "most.db").entries == (1,)
    with pytest.raises(DatabaseError, match=r"queue\.plan is"):
        import_runs(database_path, tmp_path / "beyond.db")


def test_its_uid_is_looked_at_too(theirs: Path, database_path: Path) -> None:
    changed(theirs, "UPDATE queue SET uid = '../x' WHERE name = 'two'")
    with pytest.raises(DatabaseError, match=r"holds what VariantScope does not write .queue"):
        import_runs(database_path, theirs)


def test_an_entry_of_another_version_is_told_when_it_is_to_be_made(database_path: Path) -> None:
    newer = msgspec.json.decode(encode_plan(PLAN))
    newer["variants"][0]["workload"] = "transformer"
    with Store.open(database_path) as store:
        none, endless = (structs.replace(PLAN, **change) for change in ({"variants": ()}, {"repeats": 10**8}))
        for plan in (msgspec.json.encode(newer).decode(), '{"variants": []}', encode_plan(none), encode_plan(endless)):
            number = store.queue.add(name="newer", preset=None, plan=plan)
            with pytest.raises(
                UserError, match=rf"Entry {number} of the queue cannot be read by this version .*update"
            ):
                entry_plan(store.queue.entry(number))


def test_a_queue_without_end_is_refused(theirs: Path, database_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(theirs)) as connection:
        connection.executemany(
            "INSERT INTO queue (uid, name, plan, place, added_utc_ns) VALUES (?, 'x', '{}', 1, 1)",
            ((f"e-{n}",) for n in range(1001)),
        )
        connection.commit()
    with pytest.raises(DatabaseError, match="has more than 1,000 experiments in its queue"):
        import_runs(database_path, theirs)
