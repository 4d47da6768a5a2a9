"""An experiment going on, with runs made up at once: which it makes, and with what it ends."""

from collections.abc import Callable
from dataclasses import replace

from app.records import StoredRun
from app.runs.experiment import ExperimentSession
from app.runs.schedule import Carried, Plan
from tests.fakes.experiments import result
from workloads.catalog import Machine, complete
from workloads.protocol import OutcomeName, RunSpec

CPU = Machine(cpu_count=4)
SMALL, LARGE = (complete("cnn10", {"gpus": 0, "batch_size": size, "seconds": 10}, CPU) for size in (8, 16))
PLAN = Plan(name="two", variants=(SMALL, LARGE), repeats=2)


class Maker:
    """Makes runs, keeps what it was asked for, and does something after each."""

    def __init__(
        self,
        large: OutcomeName = "completed",
        then: Callable[[], None] = lambda: None,
        luck: tuple[float, ...] = (1.0, 1.001, 0.999),
    ) -> None:
        self.asked: list[tuple[RunSpec, int, int]] = []
        self.then = then
        self._large = large
        self._luck = luck

    def __call__(self, spec: RunSpec, place: int, planned: int) -> StoredRun:
        self.asked.append((spec, place, planned))
        self.then()
        outcome = self._large if spec == LARGE else "completed"
        return result(len(self.asked), spec, 1000.0 * self._luck[len(self.asked) % len(self._luck)], outcome=outcome)


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


def test_it_ends_early_once_the_speed_ups_are_known_and_then_makes_nothing() -> None:
    plan = replace(PLAN, repeats=9, until_pct=0.5)
    maker = Maker()
    found = ExperimentSession(plan, (), CPU, maker).run()
    assert (found.state, found.planned, found.done, found.next_s) == ("settled", 8, 8, None), "four rounds of two"
    assert ExperimentSession(plan, found.runs, CPU, Maker()).run().state == "settled"
    again = Maker()
    ExperimentSession(plan, found.runs, CPU, again).run()
    assert again.asked == []
    assert ExperimentSession(replace(plan, until_pct=None), found.runs, CPU, again).run().done == 18


def test_where_speed_ups_stay_wide_repeats_are_the_limit() -> None:
    maker = Maker(luck=(1.0, 1.3, 0.8))
    found = ExperimentSession(replace(PLAN, repeats=5, until_pct=0.5), (), CPU, maker).run()
    assert (found.state, found.done, len(maker.asked)) == ("complete", 10, 10)


def test_a_run_whose_weights_are_tried_is_made_once_and_last() -> None:
    carried = Carried(spec=complete("lstm", {"gpus": 0, "save_weights": True}, CPU), into=("block_fused",), gpus=0)
    plan = replace(PLAN, carried=(carried,))
    maker = Maker()
    found = ExperimentSession(plan, (), CPU, maker).run()
    assert [spec for spec, *_ in maker.asked] == [SMALL, LARGE, LARGE, SMALL, carried.spec]
    assert (found.state, found.planned, found.done) == ("complete", 5, 5)
    early = Maker()
    found = ExperimentSession(replace(plan, repeats=9, until_pct=0.5), (), CPU, early).run()
    assert (found.state, len(early.asked), early.asked[-1][0]) == ("settled", 9, carried.spec)


def test_nothing_is_begun_after_it_once_it_was_stopped_or_its_time_is_spent() -> None:
    session = ExperimentSession(PLAN, (), CPU, Maker(), budget_s=3600.0)
    session.run()
    assert session.may_go_on()
    session.stop()
    assert not session.may_go_on()
    spent = ExperimentSession(PLAN, (), CPU, Maker(), budget_s=0.0)
    spent.run()
    assert not spent.may_go_on()


def test_a_run_that_does_not_count_is_made_once_more_in_its_place() -> None:
    maker, judged = Maker(), iter([True, False, True, True, True])
    found = ExperimentSession(PLAN, (), CPU, maker, counts=lambda _: next(judged)).run()
    assert maker.asked == [(SMALL, 1, 4), (LARGE, 2, 4), (LARGE, 2, 4), (LARGE, 3, 4), (SMALL, 4, 4)]
    assert (found.state, found.done, [run.row.run for run in found.runs]) == ("complete", 4, [1, 3, 4, 5])


def test_a_repeat_is_not_begun_once_it_was_stopped() -> None:
    def counts(_: StoredRun) -> bool:
        session.stop()
        return False

    maker = Maker()
    session = ExperimentSession(PLAN, (), CPU, maker, counts=counts)
    found = session.run()
    assert (found.state, found.planned, found.done, len(maker.asked)) == ("stopped", 4, 0, 1)


def test_it_waits_before_every_run_that_is_possible_here() -> None:
    impossible = complete("cnn10", {"gpus": 2, "seconds": 10}, CPU)
    waited: list[RunSpec] = []
    plan = replace(PLAN, variants=(SMALL, impossible))
    ExperimentSession(plan, (), CPU, Maker(), wait=lambda spec, _: waited.append(spec)).run()
    assert waited == [SMALL, SMALL]


def test_no_run_follows_a_wait_in_which_it_was_stopped() -> None:
    maker = Maker()

    def wait(_spec: RunSpec, may_go_on: Callable[[], bool]) -> None:
        assert may_go_on()
        session.stop()
        assert not may_go_on()

    session = ExperimentSession(PLAN, (), CPU, maker, wait=wait)
    assert (session.run().state, maker.asked) == ("stopped", [])
