"""What is asked for, as it enters the queue."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from app.runs.experiment.queue import ExperimentRequest, decode_request, enqueue
from app.runs.experiment.schedule import Plan
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
                variants = (PLAN.variants[0], complete("dummy", {"gpus": 0, "batch_size": number + 20}, Machine()))
                entry, is_new = enqueue(store, ExperimentRequest.from_plan(replace(PLAN, variants=variants)))
                found.append((entry.entry, is_new))
        return found

    Store.open(database_path).close()
    with ThreadPoolExecutor(_PROGRAMS) as programs:
        answers = list(programs.map(ask, range(_PROGRAMS)))
    for answered in zip(*answers, strict=True):
        assert len({entry for entry, _ in answered}) == 1
        assert [is_new for _, is_new in answered].count(True) == 1


def test_an_unfinished_one_waits_again_as_it_is_asked_for_now(store: Store) -> None:
    first, _ = enqueue(store, ExperimentRequest.from_plan(PLAN))
    store.queue.set_state(first.entry, "paused")
    again, is_new = enqueue(store, ExperimentRequest.from_plan(replace(PLAN, repeats=5)))
    assert (again.entry, again.state, is_new) == (first.entry, "waiting", False)
    assert '"repeats":5' in again.plan


def test_it_is_the_same_whatever_it_is_called_and_in_whatever_order_but_not_of_another_baseline(store: Store) -> None:
    a, b = PLAN.variants
    c = complete("dummy", {"gpus": 0, "batch_size": 64}, Machine())
    first, _ = enqueue(store, ExperimentRequest.from_plan(replace(PLAN, variants=(a, b, c))))
    other_words = ExperimentRequest.from_plan(replace(PLAN, name="typed the other way round", variants=(a, c, b)))
    assert enqueue(store, other_words)[0].entry == first.entry
    for other, preset in (((b, a, c), None), ((a, b), None), ((a, b, c), "quick")):
        assert enqueue(store, ExperimentRequest.from_plan(replace(PLAN, variants=other)), preset)[1]
    assert enqueue(store, msgspec.structs.replace(other_words, again=True))[1]


@pytest.mark.parametrize(
    ("wanted", "made"),
    [
        ({"repeats": 5}, {"repeats": 5}),
        ({"repeats": 1}, {}),
        ({"repeats": 1, "until_pct": 0.5}, {}),
        ({"repeats": 5, "until_pct": 0.5}, {"repeats": 5, "until_pct": 0.5}),
    ],
)
def test_one_that_is_made_at_this_moment_is_asked_for_more_but_never_for_less(
    store: Store, wanted: dict[str, float], made: dict[str, float]
) -> None:
    first, _ = enqueue(store, ExperimentRequest.from_plan(PLAN, budget_s=60.0))
    store.queue.claim(first.entry)
    entry, is_new = enqueue(store, ExperimentRequest.from_plan(replace(PLAN, **wanted)))  # type: ignore[arg-type]
    assert (entry.entry, entry.state, is_new) == (first.entry, "running", False)
    assert decode_request(entry) == ExperimentRequest.from_plan(replace(PLAN, **made), budget_s=60.0)  # type: ignore[arg-type]


def test_of_as_many_repeats_the_narrower_width_is_made(store: Store) -> None:
    narrow, wide = (ExperimentRequest.from_plan(replace(PLAN, until_pct=width)) for width in (0.5, 2.0))
    first, _ = enqueue(store, wide)
    store.queue.claim(first.entry)
    for asked, width in ((narrow, 0.5), (wide, 0.5), (ExperimentRequest.from_plan(PLAN), None)):
        assert decode_request(enqueue(store, asked)[0]).until_pct == width
