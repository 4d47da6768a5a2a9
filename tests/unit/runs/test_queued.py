"""What is asked for, as it enters the queue."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from app.runs.queued import Asked, enter
from app.runs.schedule import Plan
from app.storage.store import Store
from workloads.catalog import Machine, complete

_PROGRAMS = 6
_ROUNDS = 4
PLAN = Plan(
    name="two batches",
    variants=tuple(complete("dummy", {"gpus": 0, "batch_size": batch}, Machine()) for batch in (8, 16)),
    repeats=2,
)


def test_programs_that_ask_for_the_same_at_the_same_instant_get_one_entry(database_path: Path) -> None:
    together = threading.Barrier(_PROGRAMS)

    def ask(_: int) -> list[tuple[int, bool]]:
        found = []
        with Store.open(database_path) as store:
            for number in range(_ROUNDS):
                together.wait()
                entry, is_new = enter(store, Asked.of(replace(PLAN, name=f"experiment {number}")))
                found.append((entry.entry, is_new))
        return found

    Store.open(database_path).close()
    with ThreadPoolExecutor(_PROGRAMS) as programs:
        answers = list(programs.map(ask, range(_PROGRAMS)))
    for answered in zip(*answers, strict=True):
        assert len({entry for entry, _ in answered}) == 1
        assert [is_new for _, is_new in answered].count(True) == 1


def test_an_unfinished_one_waits_again_as_it_is_asked_for_now(store: Store) -> None:
    first, _ = enter(store, Asked.of(PLAN))
    store.queue.set_state(first.entry, "paused")
    again, is_new = enter(store, Asked.of(replace(PLAN, repeats=5)))
    assert (again.entry, again.state, is_new) == (first.entry, "waiting", False)
    assert '"repeats":5' in again.plan


def test_one_that_is_made_at_this_moment_stays_as_it_is_and_more_of_it_goes_beside_it_once(store: Store) -> None:
    first, _ = enter(store, Asked.of(PLAN))
    store.queue.take(first.entry)
    more = Asked.of(replace(PLAN, repeats=5))
    assert enter(store, more) == (store.queue.entry(first.entry), False)
    assert '"repeats":2' in store.queue.entry(first.entry).plan
    assert enter(store, Asked.of(PLAN), beside=True) == (store.queue.entry(first.entry), False)
    second, is_new = enter(store, more, beside=True)
    assert is_new
    assert enter(store, more, beside=True) == (store.queue.entry(second.entry), False)
