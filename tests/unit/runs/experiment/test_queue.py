"""What is asked for, as it enters the queue."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from app.runs.experiment.queue import add_plan, enqueue, entry_plan
from app.storage.store import Store
from app.values.plan import Plan, encode_plan
from workloads.catalog import Machine, complete, with_defaults

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
                entry, is_new = enqueue(store, structs.replace(PLAN, variants=variants))
                found.append((entry.entry, is_new))
        return found

    Store.open(database_path).close()
    with ThreadPoolExecutor(_PROGRAMS) as programs:
        answers = list(programs.map(ask, range(_PROGRAMS)))
    for answered in zip(*answers, strict=True):
        assert len({entry for entry, _ in answered}) == 1
        assert [is_new for _, is_new in answered].count(True) == 1


def test_an_unfinished_one_waits_again_as_it_is_asked_for_now(store: Store) -> None:
    first, _ = enqueue(store, PLAN)
    store.queue.set_state(first.entry, "paused")
    again, is_new = enqueue(store, structs.replace(PLAN, repeats=5))
    assert (again.entry, again.state, is_new) == (first.entry, "waiting", False)
    assert '"repeats":5' in again.plan


@pytest.mark.parametrize("seed", [None, 5])
def test_an_unfinished_one_keeps_its_order(store: Store, seed: int | None) -> None:
    add_plan(store, structs.replace(PLAN, order_seed=seed))
    again, is_new = enqueue(store, structs.replace(PLAN, repeats=5))
    assert (entry_plan(again).order_seed, entry_plan(again).repeats, is_new) == (seed, 5, False)


def test_every_new_one_gets_an_order_of_its_own(store: Store) -> None:
    seeds = []
    for _ in range(3):
        entry, is_new = enqueue(store, PLAN)
        seeds.append(entry_plan(entry).order_seed)
        assert is_new
        store.queue.remove(entry.entry)
    assert None not in seeds
    assert len(set(seeds)) == 3


def test_it_is_the_same_whatever_it_is_called_and_in_whatever_order_but_not_of_another_baseline(store: Store) -> None:
    a, b = PLAN.variants
    c = complete("dummy", {"gpus": 0, "batch_size": 64}, Machine())
    first, _ = enqueue(store, structs.replace(PLAN, variants=(a, b, c)))
    same = structs.replace(PLAN, name="typed the other way round", variants=(a, c, b))
    assert enqueue(store, same)[0].entry == first.entry
    for other, preset in (((b, a, c), None), ((a, b), None), ((a, b, c), "quick")):
        assert enqueue(store, structs.replace(PLAN, variants=other, preset=preset))[1]
    assert enqueue(store, structs.replace(same, again=True))[1]


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
    first, _ = enqueue(store, structs.replace(PLAN, budget_s=60.0))
    store.queue.claim(first.entry)
    entry, is_new = enqueue(store, structs.replace(PLAN, **wanted))
    assert (entry.entry, entry.state, is_new) == (first.entry, "running", False)
    assert entry_plan(entry) == structs.replace(entry_plan(first), **made)


def test_of_as_many_repeats_the_narrower_width_is_made(store: Store) -> None:
    narrow, wide = (structs.replace(PLAN, until_pct=width) for width in (0.5, 2.0))
    first, _ = enqueue(store, wide)
    store.queue.claim(first.entry)
    for plan, width in ((narrow, 0.5), (wide, 0.5), (PLAN, None)):
        assert entry_plan(enqueue(store, plan)[0]).until_pct == width


def test_an_entry_of_the_version_before_goes_on_with_every_limit(store: Store) -> None:
    spec = '{"workload":"dummy","variant":{"gpus":0,"batch_size":8}}'
    written = (
        f'{{"name":"old","variants":[{spec}],"repeats":3,"until_pct":0.5,'
        f'"carried":[{{"spec":{spec},"into":["fused"],"gpus":0}}],"notes":["smaller"],"budget_s":60.0,"parallel":2,'
        '"again":true,"gate_s":0.0,"max_throttled_pct":2.0}'
    )
    entry = store.queue.entry(store.queue.add(name="old", preset="quick", plan=written))
    plan = entry_plan(entry)
    assert plan.variants == (with_defaults(PLAN.variants[0]),)
    (transfer,) = plan.weight_transfers
    assert (transfer.into, transfer.gpus, transfer.spec) == (("fused",), 0, with_defaults(PLAN.variants[0]))
    assert (plan.repeats, plan.until_pct, plan.notes, plan.preset) == (3, 0.5, ("smaller",), "quick")
    assert (plan.budget_s, plan.parallel, plan.again) == (60.0, 2, True)
    assert (plan.max_idle_wait_s, plan.max_throttled_pct) == (0.0, 2.0)
    again, before = msgspec.json.decode(encode_plan(plan)), msgspec.json.decode(written)
    assert again.keys() - before.keys() == {
        *("preset", "asked", "has_baseline", "check_equality", "host", "order_seed", "reuse")
    }
    complete = {name: before[name] for name in ("variants", "carried")}
    assert {**again, **complete} == {
        **before,
        "preset": "quick",
        "asked": "",
        "has_baseline": False,
        "check_equality": None,
        "host": "",
        "order_seed": None,
        "reuse": False,
    }
