"""An experiment going on, with runs made up at once: which it makes, and with what it ends."""

from collections.abc import Callable

from app.records import StoredRun
from app.runs.experiment import ExperimentSession
from app.runs.schedule import Plan
from tests.fakes.experiments import result
from workloads.catalog import Machine, complete
from workloads.protocol import OutcomeName, RunSpec

CPU = Machine(cpu_count=4)
SMALL, LARGE = (complete("cnn10", {"gpus": 0, "batch_size": size, "seconds": 10}, CPU) for size in (8, 16))
PLAN = Plan(name="two", variants=(SMALL, LARGE), repeats=2)


class Maker:
    """Makes runs, keeps what it was asked for, and does something after each."""

    def __init__(self, large: OutcomeName = "completed", then: Callable[[], None] = lambda: None) -> None:
        self.asked: list[tuple[RunSpec, int, int]] = []
        self.then = then
        self._large = large

    def __call__(self, spec: RunSpec, place: int, planned: int) -> StoredRun:
        self.asked.append((spec, place, planned))
        self.then()
        return result(len(self.asked), spec, outcome="completed" if spec == SMALL else self._large)


def test_it_makes_every_run_in_its_order() -> None:
    maker = Maker()
    found = ExperimentSession(PLAN, (), CPU, maker).run()
    assert maker.asked == [(SMALL, 1, 4), (LARGE, 2, 4), (LARGE, 3, 4), (SMALL, 4, 4)]
    assert (found.state, found.planned, found.done, found.next_s) == ("complete", 4, 4, None)


def test_it_makes_only_what_is_not_stored() -> None:
    maker = Maker()
    found = ExperimentSession(PLAN, [result(8, SMALL), result(9, LARGE)], CPU, maker).run()
    assert maker.asked == [(LARGE, 3, 4), (SMALL, 4, 4)]
    assert [run.row.run for run in found.runs] == [8, 9, 1, 2]


def test_a_variant_that_ran_out_of_memory_is_not_repeated() -> None:
    maker = Maker("out_of_memory")
    found = ExperimentSession(PLAN, (), CPU, maker).run()
    assert [spec for spec, *_ in maker.asked] == [SMALL, LARGE, SMALL]
    assert (found.state, found.planned, found.done) == ("complete", 3, 3)


def test_what_failed_is_not_made_again_at_once() -> None:
    maker = Maker("failed")
    found = ExperimentSession(PLAN, (), CPU, maker).run()
    assert len(maker.asked) == 4
    assert (found.state, found.planned, found.done) == ("failed", 4, 2)


def test_a_stop_between_two_runs_starts_no_other() -> None:
    maker = Maker()
    session = ExperimentSession(PLAN, (), CPU, maker)
    maker.then = session.stop
    found = session.run()
    assert (len(maker.asked), found.state, found.done) == (1, "stopped", 1)


def test_a_run_the_user_stopped_ends_it() -> None:
    maker = Maker("stopped")
    found = ExperimentSession(PLAN, (), CPU, maker).run()
    assert (len(maker.asked), found.state, found.done) == (2, "stopped", 1)


def test_a_budget_is_not_begun_that_does_not_suffice() -> None:
    maker = Maker()
    assert ExperimentSession(PLAN, (), CPU, maker, budget_s=9.0).run().state == "out of budget"
    assert maker.asked == [], "a run that measures for ten seconds"
    found = ExperimentSession(PLAN, (), CPU, maker, budget_s=19.0).run()
    assert [spec for spec, *_ in maker.asked] == [SMALL], "it took 20 s by the clock it was stored with"
    assert (found.state, found.done) == ("out of budget", 1)
    assert found.next_s is not None
    assert found.next_s > 19
