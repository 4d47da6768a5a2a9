"""Earlier runs of a variant, which the database gives a comparison."""

from pathlib import Path

from app.storage.store import Store
from tests.unit.viewmodels.stored import keep, run_row, stored_run


def test_earlier_runs_are_those_of_the_same_variant_that_completed_newest_first(database_path: Path) -> None:
    with Store.open(database_path) as store:
        for n in range(1, 5):
            keep(store, stored_run(run_row(n)))
        keep(store, stored_run(run_row(5, units=128)))
        keep(store, stored_run(run_row(6, outcome="stopped")))
        keep(store, stored_run(run_row(7)))
        keep(store, stored_run(run_row(8)))
        store.library.delete([3])
        assert store.library.earlier_runs(7, [], 10) == [4, 2, 1]
        assert store.library.earlier_runs(7, [4], 1) == [2]
        (loaded,) = [store.load(number, ()) for number in store.library.earlier_runs(7, [4], 1)]
        assert loaded.row.run == 2
        assert store.load(2).samples[0].t_ns.size > 0
        assert all(one.t_ns.size == 0 for one in loaded.samples)
        assert store.library.earlier_runs(1, [], 10) == []
