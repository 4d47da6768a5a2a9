"""Changes of stored things, undone and made again by what was recorded of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import UserError
from app.queries import RunQuery
from app.storage.changes import NO_CHANGES
from app.storage.store import Store
from tests.unit.viewmodels.stored import keep, run_row, stored_run


@pytest.fixture(autouse=True)
def three_runs(store: Store) -> None:
    for number in (1, 2, 3):
        keep(store, stored_run(run_row(number), measured=False))
    store.library.add_tag([1], "Night")
    store.library.set_note(2, "It's too hot.\nRepeat it.")
    store.library.delete([3], utc_ns=5)
    for name in ("first", "second"):
        store.queue.add(name=name, preset=None, plan="{}")


def contents(store: Store) -> tuple[object, ...]:
    rows = store.library.run_rows([1, 2, 3])
    return (
        [(row.tags, row.note, row.deleted_utc_ns) for row in rows],
        store.queue.entries(),
        store.library.find(RunQuery(text="hot")),
    )


def note(store: Store, text: str) -> None:
    for run in (1, 2):
        store.library.set_note(run, text)


def empty_queue(store: Store) -> None:
    for entry in store.queue.entries():
        store.queue.remove(entry.entry)


CHANGES: dict[str, Callable[[Store], object]] = {
    "a tag is added to runs that have it and that do not": lambda store: store.library.add_tag([1, 2], "night"),
    "a tag is removed": lambda store: store.library.remove_tag([1, 2], "night"),
    "one note replaces others": lambda store: note(store, "Same"),
    "runs are deleted": lambda store: store.library.delete([1, 3]),
    "a run is restored": lambda store: store.library.restore([3]),
    "an entry is moved": lambda store: store.queue.move(2, 1),
    "an entry is paused": lambda store: store.queue.set_state(1, "paused"),
    "entries are removed": empty_queue,
    "an entry is added": lambda store: store.queue.add(name="third", preset=None, plan="{}"),
}


def test_what_has_changed_since_is_known_to_be_no_more_undone(store: Store) -> None:
    entry, changes = store.library.record(lambda: store.queue.add(name="third", preset=None, plan="{}"))
    before = contents(store)
    assert store.library.can_undo(changes)
    assert contents(store) == before, "only tried"
    store.queue.set_state(entry, "paused")
    assert not store.library.can_undo(changes)


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_change_is_undone_and_made_again(store: Store, change: Callable[[Store], object]) -> None:
    before = contents(store)
    _, changes = store.library.record(lambda: change(store))
    after = contents(store)
    assert after != before
    again = store.library.undo(changes)
    assert contents(store) == before
    store.library.undo(again)
    assert contents(store) == after


def test_what_changes_nothing_cannot_be_undone(store: Store) -> None:
    _, changes = store.library.record(lambda: store.library.set_note(2, "It's too hot.\nRepeat it."))
    assert changes == NO_CHANGES


def test_what_another_program_changed_since_stays(store: Store, database_path: Path) -> None:
    _, changes = store.library.record(lambda: note(store, "Mine"))
    with Store.open(database_path) as other:
        other.library.set_note(2, "Theirs")
    store.library.undo(changes)
    assert [row.note for row in store.library.run_rows([1, 2])] == ["", "Theirs"]
    with pytest.raises(UserError, match="changed since"):
        store.library.undo(changes)


def test_an_entry_that_a_program_runs_is_not_taken_away(store: Store) -> None:
    entry, changes = store.library.record(lambda: store.queue.add(name="third", preset=None, plan="{}"))
    store.queue.claim(entry)
    with pytest.raises(UserError, match="not undone"):
        store.library.undo(changes)
    assert len(store.queue.entries()) == 3


def test_a_tag_of_a_run_that_is_gone_for_good_is_not_brought_back(store: Store) -> None:
    _, changes = store.library.record(lambda: store.library.remove_tag([1], "Night"))
    store.library.delete([1])
    store.library.purge([1])
    with pytest.raises(UserError, match="not undone"):
        store.library.undo(changes)
