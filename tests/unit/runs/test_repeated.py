"""Which runs count where some were throttled: at once, and when an experiment goes on."""

from pathlib import Path

import pytest

from app.facts import THROTTLED_PCT
from app.records import StoredRun
from app.runs.counted import counted_as_newest, counted_here, surroundings_of
from app.runs.repeated import Repeated
from app.runs.schedule import Plan
from app.storage.store import Store
from tests.fakes.experiments import ENVIRONMENT, result
from tests.unit.viewmodels.stored import keep
from workloads.catalog import Machine, complete
from workloads.protocol import OutcomeName

CPU = Machine(cpu_count=4)
SMALL, LARGE = (complete("cnn10", {"gpus": 0, "batch_size": size, "seconds": 10}, CPU) for size in (8, 16))


def made(number: int, pct: float, *, large: bool = False, outcome: OutcomeName = "completed") -> StoredRun:
    environment = {**ENVIRONMENT, **({THROTTLED_PCT: f"{pct:.1f}"} if pct else {})}
    return result(number, LARGE if large else SMALL, environment=environment, outcome=outcome)


@pytest.mark.parametrize(
    ("throttled_pct", "counts"),
    [
        ([0, 0], [True, True]),
        ([5, 5.1], [True, False]),
        ([12, 0, 0], [False, True, True]),
        ([12, 12, 0], [False, True, True]),
        ([12, 12, 12, 12], [False, True, False, True]),
    ],
)
def test_a_throttled_run_counts_only_if_it_repeats_one(throttled_pct: list[float], counts: list[bool]) -> None:
    repeated = Repeated()
    assert [repeated.counts(made(number, pct)) for number, pct in enumerate(throttled_pct)] == counts


def test_each_variant_is_repeated_for_itself() -> None:
    repeated = Repeated(20.0)
    runs = [made(1, 30), made(2, 30, large=True), made(3, 30), made(4, 19, large=True)]
    assert [repeated.counts(run) for run in runs] == [False, False, True, True]


def test_what_measured_nothing_is_not_judged() -> None:
    repeated = Repeated()
    runs = [made(1, 30), made(2, 30, outcome="failed"), made(3, 30, outcome="out_of_memory"), made(4, 30)]
    assert [repeated.counts(run) for run in runs] == [False, True, True, True]


def test_an_experiment_that_goes_on_knows_what_is_still_to_be_repeated(database_path: Path) -> None:
    plan = Plan(name="two", variants=(SMALL, LARGE), repeats=2)
    repeated = Repeated()
    with Store.open(database_path) as store:
        for run in (made(1, 0), made(2, 30, large=True)):
            keep(store, run)
        found = counted_here(store, plan, surroundings_of(made(1, 0)), CPU, repeated)
    assert [run.row.run for run in found.runs] == [1]
    assert found.elsewhere == 0
    assert repeated.counts(made(3, 30, large=True))


def test_what_is_only_shown_is_judged_alike(database_path: Path) -> None:
    plan = Plan(name="one", variants=(SMALL,), repeats=2)
    with Store.open(database_path) as store:
        for run in (made(1, 3), made(2, 0)):
            keep(store, run)
        assert [run.row.run for run in counted_as_newest(store, plan).runs] == [1, 2]
        assert [run.row.run for run in counted_as_newest(store, plan, Repeated(2.0)).runs] == [2]
