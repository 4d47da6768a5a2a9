"""An experiment going on, with runs made up at once: which it makes, and with what it ends."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from app.queries import ExperimentProgress, TimeLeft
from app.runs.experiment.session import PlannedRun, QueueListener
from app.runs.leases import Lease
from app.values.events import Outcome
from app.values.plan import Plan, WeightTransfer
from app.values.records import RunHeader
from tests.fakes.experiments import FakeSession, Make, header
from tests.present import present
from workloads.catalog import Machine, check, complete
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
        self.requests: list[tuple[RunSpec, int, int]] = []
        self.facts: list[Mapping[str, str]] = []
        self.then = then
        self._large = large
        self._luck = luck

    def __call__(self, turn: PlannedRun) -> RunHeader:
        spec = turn.spec
        self.requests.append((spec, turn.position, turn.total))
        self.facts.append(turn.environment)
        self.then()
        outcome = self._large if spec == LARGE else "completed"
        return header(
            len(self.requests), spec, 1000.0 * self._luck[len(self.requests) % len(self._luck)], outcome=outcome
        )


def lend(spec: RunSpec, _devices: Sequence[str], _stopped: Callable[[float], bool]) -> Lease:
    """Devices that are always free; none for what cannot run."""
    return Lease() if check(spec, CPU) else Lease(("cpu",))


def session(
    plan: Plan,
    stored: Sequence[RunHeader],
    machine: Machine,
    make: Make,
    wait: Callable[[PlannedRun, Callable[[], bool]], Mapping[str, str]] = lambda *_: {},
    accept: Callable[[RunHeader], bool] = lambda _: True,
) -> FakeSession:
    return FakeSession(plan, stored, machine, make, lend, wait, accept)


def test_it_makes_every_run_in_its_order() -> None:
    maker = Maker()
    found = session(PLAN, (), CPU, maker).run()
    assert maker.requests == [(SMALL, 1, 4), (LARGE, 2, 4), (LARGE, 3, 4), (SMALL, 4, 4)]
    assert (found.state, found.planned, found.done, found.next_s) == ("complete", 4, 4, None)


def test_it_makes_only_what_is_not_stored() -> None:
    maker = Maker()
    found = session(PLAN, [header(8, SMALL), header(9, LARGE)], CPU, maker).run()
    assert maker.requests == [(LARGE, 3, 4), (SMALL, 4, 4)]
    assert [run.row.run for run in found.runs] == [8, 9, 1, 2]


def test_a_variant_that_fails_twice_for_one_reason_is_given_up_until_it_is_asked_for_again() -> None:
    five = structs.replace(PLAN, repeats=5)
    maker = Maker("failed")
    found = session(five, (), CPU, maker).run()
    assert [spec for spec, *_ in maker.requests] == [SMALL, LARGE, LARGE, SMALL, SMALL, SMALL, SMALL]
    assert (found.state, found.planned, found.done) == ("failed", 10, 5)
    assert found.describe_given_up() == ("1 variant was skipped for now: its last runs all failed.")
    results = [run for run in found.runs if run.row.spec == SMALL]
    again = session(five, results, CPU, Maker()).run()
    assert (again.state, again.done, again.describe_given_up()) == ("complete", 10, "")


@pytest.mark.parametrize(("lost", "made"), [(3, 5), (99, 5)])
def test_a_run_that_was_lost_with_its_link_is_made_again_at_once_five_times_at_most(lost: int, made: int) -> None:
    maker = Maker()

    def unlucky(turn: PlannedRun) -> RunHeader:
        run = maker(turn)
        is_lost = turn.spec == LARGE and [spec for spec, *_ in maker.requests].count(LARGE) <= lost
        gone = Outcome(name="crashed", reason="The link to gpu1 was lost.")
        return replace(run, row=replace(run.row, outcome=gone)) if is_lost else run

    found = session(PLAN, (), CPU, unlucky).run()
    assert [spec for spec, *_ in maker.requests].count(LARGE) == made
    assert found.state == ("complete" if lost < made else "failed")


def test_a_variant_that_fails_for_another_reason_each_time_has_all_its_turns() -> None:
    maker = Maker("failed")

    def unlucky(turn: PlannedRun) -> RunHeader:
        made = maker(turn)
        outcome = present(made.row.outcome)
        return replace(made, row=replace(made.row, outcome=replace(outcome, reason=f"Out of luck {made.row.run}.")))

    found = session(structs.replace(PLAN, repeats=4), (), CPU, unlucky).run()
    assert ([spec for spec, *_ in maker.requests].count(LARGE), found.describe_given_up()) == (4, "")
    assert session(PLAN, (), CPU, Maker("failed")).run().describe_given_up() == "", "both turns were had"


def test_an_experiment_ends_early_without_the_variant_that_was_given_up_and_has_failed_then() -> None:
    middle = complete("cnn10", {"gpus": 0, "batch_size": 12, "seconds": 10}, CPU)
    maker = Maker("failed")
    found = session(
        structs.replace(PLAN, variants=(SMALL, middle, LARGE), repeats=20, until_pct=0.5), (), CPU, maker
    ).run()
    made = [spec for spec, *_ in maker.requests]
    assert (made.count(LARGE), found.state) == (2, "failed")
    assert 3 <= made.count(SMALL) == made.count(middle) < 10


def test_a_stop_between_two_runs_starts_no_other() -> None:
    maker = Maker()
    making = session(PLAN, (), CPU, maker)
    maker.then = making.stop
    found = making.run()
    assert (len(maker.requests), found.state, found.done) == (1, "stopped", 1)


def test_a_budget_is_not_begun_that_does_not_suffice() -> None:
    maker = Maker()
    assert session(structs.replace(PLAN, budget_s=9.0), (), CPU, maker).run().state == "out of budget"
    assert maker.requests == [], "a run that measures for ten seconds"
    found = session(structs.replace(PLAN, budget_s=19.0), (), CPU, maker).run()
    assert [spec for spec, *_ in maker.requests] == [SMALL], "it took 20 s by the clock it was stored with"
    assert (found.state, found.done) == ("out of budget", 1)
    assert present(found.next_s) > 19


def test_it_ends_early_once_the_speed_ups_are_known_and_then_makes_nothing() -> None:
    plan = structs.replace(PLAN, repeats=9, until_pct=0.5)
    maker = Maker()
    found = session(plan, (), CPU, maker).run()
    assert (found.state, found.planned, found.done, found.next_s) == ("settled", 6, 6, None), "three rounds of two"
    assert session(plan, found.runs, CPU, Maker()).run().state == "settled"
    again = Maker()
    session(plan, found.runs, CPU, again).run()
    assert again.requests == []
    assert session(structs.replace(plan, until_pct=None), found.runs, CPU, again).run().done == 18


def test_a_run_whose_weights_are_tried_is_made_once_and_last() -> None:
    transfer = WeightTransfer(
        spec=complete("lstm", {"gpus": 0, "save_weights": True}, CPU), into=("block_fused",), gpus=0
    )
    plan = structs.replace(PLAN, weight_transfers=(transfer,))
    maker = Maker()
    found = session(plan, (), CPU, maker).run()
    assert [spec for spec, *_ in maker.requests] == [SMALL, LARGE, LARGE, SMALL, transfer.spec]
    assert (found.state, found.planned, found.done) == ("complete", 5, 5)
    early = Maker()
    found = session(structs.replace(plan, repeats=9, until_pct=0.5), (), CPU, early).run()
    assert (found.state, len(early.requests), early.requests[-1][0]) == ("settled", 7, transfer.spec)


def test_nothing_is_begun_after_it_once_it_was_stopped_or_its_time_is_spent() -> None:
    making = session(structs.replace(PLAN, budget_s=3600.0), (), CPU, Maker())
    making.run()
    assert making.may_continue()
    making.stop()
    assert not making.may_continue()
    spent = session(structs.replace(PLAN, budget_s=0.0), (), CPU, Maker())
    spent.run()
    assert not spent.may_continue()


def test_a_run_that_does_not_count_is_made_once_more_in_its_place() -> None:
    maker, judged = Maker(), iter([True, False, True, True, True])
    found = session(PLAN, (), CPU, maker, accept=lambda _: next(judged)).run()
    assert maker.requests == [(SMALL, 1, 4), (LARGE, 2, 4), (LARGE, 2, 4), (LARGE, 3, 4), (SMALL, 4, 4)]
    assert (found.state, found.done, [run.row.run for run in found.runs]) == ("complete", 4, [1, 3, 4, 5])


def test_a_repeat_is_not_begun_once_it_was_stopped() -> None:
    def counts(_: RunHeader) -> bool:
        making.stop()
        return False

    maker = Maker()
    making = session(PLAN, (), CPU, maker, accept=counts)
    found = making.run()
    assert (found.state, found.planned, found.done, len(maker.requests)) == ("stopped", 4, 0, 1)


def test_it_waits_before_every_run_that_is_possible_here() -> None:
    impossible = complete("cnn10", {"gpus": 2, "seconds": 10}, CPU)
    waited: list[RunSpec] = []
    plan = structs.replace(PLAN, variants=(SMALL, impossible))

    def wait(turn: PlannedRun, _may_go_on: Callable[[], bool]) -> Mapping[str, str]:
        waited.append(turn.spec)
        return {"waited": "for nothing"}

    maker = Maker()
    session(plan, (), CPU, maker, wait=wait).run()
    assert waited == [SMALL, SMALL]
    assert maker.facts == [{"waited": "for nothing"}, {}, {"waited": "for nothing"}]


def test_no_run_follows_a_wait_in_which_it_was_stopped() -> None:
    maker = Maker()

    def wait(_turn: PlannedRun, may_go_on: Callable[[], bool]) -> Mapping[str, str]:
        assert may_go_on()
        making.stop()
        assert not may_go_on()
        return {}

    making = session(PLAN, (), CPU, maker, wait=wait)
    assert (making.run().state, maker.requests) == ("stopped", [])


class Heard(QueueListener):
    """Keeps what is reported to it."""

    def __init__(self) -> None:
        self.all: list[ExperimentProgress] = []

    def progressed(self, progress: ExperimentProgress) -> None:
        self.all.append(progress)


def test_how_far_it_is_is_told_as_every_run_begins_and_ends() -> None:
    heard, judged = Heard(), iter([True, False, True, True, True])
    making = FakeSession(PLAN, (), CPU, Maker(), lend, counts=lambda _: next(judged), listener=heard)
    making.end("complete", making.run())
    reported = [(now.state, now.position, len(now.specs), now.done) for now in heard.all]
    assert reported == [
        ("running", 0, 0, 0),
        *[("running", 1, 1, 0), ("running", 1, 0, 1)],
        *[("running", 2, 1, 1), ("running", 2, 0, 1), ("running", 2, 1, 1), ("running", 2, 0, 2)],
        *[("running", 3, 1, 2), ("running", 3, 0, 3)],
        *[("running", 4, 1, 3), ("running", 4, 0, 4)],
        ("complete", 4, 0, 4),
    ]
    assert (heard.all[-1].left, heard.all[-1].timing_runs) == (TimeLeft(), 4)
