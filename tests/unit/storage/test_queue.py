"""The stored queue: its order, the owner of an entry, and the experiment that an entry's runs make up."""

import pytest

from app.errors import UserError
from app.storage.owner import Owner, boot_id, this_process
from app.storage.store import Store
from tests.fakes.runs import keep

GONE = Owner(1, -5.0, boot_id())
"""Process 1 did not start before the machine did."""


def add(store: Store, *names: str) -> list[int]:
    return [store.queue.add(name=name, preset=None, plan='{"variants": []}') for name in names]


def names(store: Store) -> str:
    return "".join(entry.name for entry in store.queue.entries())


def test_entries_keep_the_order_they_are_given(store: Store) -> None:
    a, b, c = add(store, "a", "b", "c")
    assert names(store) == "abc"
    store.queue.move(c, a)
    assert names(store) == "cab"
    store.queue.move(c, None)
    assert names(store) == "abc"
    store.queue.move(a, c)
    store.queue.move(b, b)
    assert names(store) == "bac"
    add(store, "d")
    assert names(store) == "bacd"


def test_what_is_not_there_cannot_be_moved(store: Store) -> None:
    (a,) = add(store, "a")
    for entry, before in ((9, None), (a, 9)):
        with pytest.raises(UserError, match="no entry 9"):
            store.queue.move(entry, before)
    with pytest.raises(UserError, match="no entry 9"):
        store.queue.entry(9)


def test_a_number_is_never_given_twice(store: Store) -> None:
    (a,) = add(store, "a")
    store.queue.remove(a)
    assert add(store, "b") != [a]


def test_an_entry_belongs_to_one_living_process(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (a,) = add(store, "a")
    assert store.queue.claim(a)
    assert (store.queue.entry(a).state, store.queue.entry(a).owned) == ("running", True)
    us = this_process()
    monkeypatch.setattr("app.storage.queue.this_process", lambda: Owner(us.pid + 1, 5.0, us.boot_id))
    assert not store.queue.claim(a)
    store.queue.release(a)
    assert store.queue.entry(a).owned
    monkeypatch.undo()
    store.queue.release(a)
    assert (store.queue.entry(a).state, store.queue.entry(a).owned) == ("waiting", False)


def test_an_entry_whose_owner_is_gone_waits_and_can_be_taken(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (a,) = add(store, "a")
    monkeypatch.setattr("app.storage.queue.this_process", lambda: GONE)
    assert store.queue.claim(a)
    monkeypatch.undo()
    assert (store.queue.entry(a).state, store.queue.entry(a).owned) == ("waiting", False)
    assert store.queue.claim(a)


def test_one_that_is_paused_while_it_runs_is_still_owned(store: Store) -> None:
    (a,) = add(store, "a")
    store.queue.claim(a)
    store.queue.set_state(a, "paused")
    assert (store.queue.entry(a).state, store.queue.entry(a).owned) == ("paused", True)
    assert not store.queue.claim(a + 1)


def test_its_runs_make_up_one_experiment_which_outlives_it(store: Store) -> None:
    (a,) = add(store, "a")
    first, second = keep(store, uid="uid-1"), keep(store, uid="uid-2")
    assert store.queue.add_runs(a, []) is None
    experiment = store.queue.add_runs(a, [first])
    assert store.queue.add_runs(a, [first, second]) == experiment == store.queue.entry(a).experiment
    assert store.library.experiments()[0].runs == (first, second)
    plan = '{"variants": [], "repeats": 5}'
    again = store.queue.add_or_update(
        name="a", preset=None, plan=plan, is_same=lambda entry: entry.name == "a", merged_plan=lambda _: plan
    )
    assert again == (store.queue.entry(a), False)
    assert store.library.experiments()[0].plan == store.queue.entry(a).plan == plan
    store.queue.remove_runs(a, [first])
    store.queue.remove(a)
    assert store.library.experiments()[0].runs == (second,)
    assert store.queue.add_runs(a, [first]) is None


def test_one_of_which_more_is_asked_meanwhile_is_not_finished(store: Store) -> None:
    (a,) = add(store, "a")
    assert store.queue.claim(a)
    made, more = store.queue.entry(a).plan, '{"variants": [], "repeats": 5}'
    store.queue.add_or_update(name="a", preset=None, plan="{}", is_same=lambda _: True, merged_plan=lambda _: more)
    assert not store.queue.finish(a, made)
    assert (store.queue.entry(a).plan, store.queue.entry(a).state) == (more, "running")
    assert store.queue.finish(a, more)
    assert store.queue.entries() == ()
    assert store.queue.finish(a, more), "whoever took it out meanwhile"


def test_an_experiment_of_which_every_run_is_purged_leaves_the_entry(store: Store) -> None:
    (a,) = add(store, "a")
    run = keep(store)
    store.queue.add_runs(a, [run])
    store.library.delete([run])
    store.library.purge([run])
    assert store.queue.entry(a).experiment is None
