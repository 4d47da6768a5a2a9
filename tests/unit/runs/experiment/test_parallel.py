"""Several runs of an experiment at once: made-up runs that last until the test has seen who goes on beside whom."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import UserError
from app.runs.experiment.session import PlannedRun
from app.runs.leases import Lease, Leases
from app.values.plan import Plan
from app.values.records import RunHeader
from tests.fakes.experiments import FakeSession, Lend, Make, header
from tests.present import present
from tests.unit.viewmodels.events import GPU_INVENTORY
from workloads.catalog import complete
from workloads.protocol import OutcomeName, RunSpec

LIMIT_S = 120.0
MACHINE = GPU_INVENTORY.machine
UUIDS = [gpu.uuid for gpu in MACHINE.gpus]
SMALL, LARGE, LARGEST = (complete("cnn10", {"gpus": 1, "batch_size": n, "seconds": 10}, MACHINE) for n in (8, 16, 32))
ON_BOTH, ON_CPU = (complete("cnn10", {"gpus": gpus, "batch_size": 8, "seconds": 10}, MACHINE) for gpus in (2, 0))


class Maker:
    """Makes runs; none of the first `together` ends before all of them go on."""

    def __init__(self, together: int = 1, outcome: OutcomeName = "completed") -> None:
        self.specs: list[RunSpec] = []
        self.devices: list[tuple[str, ...]] = []
        self.at_once: list[int] = []
        self._together = together
        self._outcome = outcome
        self._going: list[tuple[str, ...]] = []
        self._changed = threading.Condition()

    def __call__(self, turn: PlannedRun) -> RunHeader:
        with self._changed:
            self._going.append(turn.lease.devices)
            held = [device for devices in self._going for device in devices]
            assert len(held) == len(set(held)), "two runs on one device"
            self.specs.append(turn.spec)
            self.devices.append(turn.lease.devices)
            self.at_once.append(len(self._going))
            number = len(self.specs)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: len(self.specs) >= self._together, LIMIT_S), "it is alone"
            self._going.remove(turn.lease.devices)
        return header(number, turn.spec, outcome=self._outcome)


class InTurn(Maker):
    """Makes runs two at once, of which the one of `quick` ends first, of two of one variant the older."""

    def __init__(self, quick: RunSpec, planned: int) -> None:
        super().__init__()
        self._quick = quick
        self._planned = planned
        self._on: list[tuple[RunSpec, str]] = []
        self._begun = threading.Condition()

    def __call__(self, turn: PlannedRun) -> RunHeader:
        (card,) = turn.lease.devices
        own = (turn.spec, card)
        with self._begun:
            self.specs.append(turn.spec)
            self.devices.append((card,))
            self._on.append(own)
            number = len(self.specs)
            self._begun.notify_all()
            assert self._begun.wait_for(lambda: self._ends_next(own), LIMIT_S), "no other run began"
            self._on.remove(own)
            self._begun.notify_all()
        return header(number, turn.spec)

    def _ends_next(self, own: tuple[RunSpec, str]) -> bool:
        if len(self._on) < 2 and len(self.specs) < self._planned:
            return False
        return own == next((each for each in self._on if each[0] == self._quick), self._on[0])


def lender(leases: Leases, on_wait: Callable[[], None] = lambda: None) -> Lend:
    def lend(spec: RunSpec, devices: Sequence[str], stopped: Callable[[float], bool]) -> Lease | None:
        return leases.wait(devices, int(spec.variant["gpus"]) or 1, on_wait=on_wait, wait_for_stop=stopped)

    return lend


def making(
    lend: Lend, variants: Sequence[RunSpec], maker: Make, counts: Callable[[RunHeader], bool] = lambda _: True
) -> FakeSession:
    plan = Plan(name="some", variants=tuple(variants), repeats=1, parallel=2)
    return FakeSession(plan, (), MACHINE, maker, lend, counts=counts)


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path)


def test_three_runs_on_two_gpus_begin_in_their_order_each_on_its_own(leases: Leases) -> None:
    maker = Maker(together=2)
    found = making(lender(leases), (SMALL, LARGE, LARGEST), maker).run()
    assert maker.specs[2] == LARGEST
    assert {*maker.devices[:2]} == {("GPU-0",), ("GPU-1",)}
    assert max(maker.at_once) == 2
    assert (found.state, found.done) == ("complete", 3)


@pytest.mark.parametrize("between", [ON_BOTH, ON_CPU])
def test_a_run_on_all_gpus_or_on_the_cpu_is_alone(leases: Leases, between: RunSpec) -> None:
    maker = Maker()
    found = making(lender(leases), (SMALL, between, LARGE), maker).run()
    assert maker.specs == [SMALL, between, LARGE]
    assert maker.at_once == [1, 1, 1]
    assert found.state == "complete"


@pytest.mark.parametrize("quick", [SMALL, LARGE])
def test_every_variant_meets_every_card_whichever_is_quicker(leases: Leases, quick: RunSpec) -> None:
    maker = InTurn(quick, planned=6)
    plan = Plan(name="some", variants=(SMALL, LARGE), repeats=3, parallel=2)
    found = FakeSession(plan, (), MACHINE, maker, lender(leases)).run()
    assert (found.state, found.done) == ("complete", 6)
    assert cards_met(maker) == {(spec, (card,)) for spec in ("8", "16") for card in UUIDS}
    rounds = [maker.specs[n : n + 2] for n in (0, 2, 4)]
    assert all(SMALL in each and LARGE in each for each in rounds), "none overtakes another round's"


def cards_met(maker: Maker) -> set[tuple[str, tuple[str, ...]]]:
    pairs = zip(maker.specs, maker.devices, strict=True)
    return {(str(spec.variant["batch_size"]), devices) for spec, devices in pairs}


@pytest.mark.parametrize("earlier", [("GPU-0", "GPU-1"), ("GPU-1", "GPU-0")])
def test_an_experiment_that_goes_on_knows_on_which_cards_its_runs_were(
    leases: Leases, earlier: tuple[str, str]
) -> None:
    runs = zip((SMALL, LARGE), earlier, strict=True)
    stored = [replace(header(1, spec), gpu_uuids=frozenset({card})) for spec, card in runs]
    maker = Maker(together=2)
    plan = Plan(name="some", variants=(SMALL, LARGE), repeats=2, parallel=2)
    FakeSession(plan, stored, MACHINE, maker, lender(leases)).run()
    then = {("8", (earlier[1],)), ("16", (earlier[0],))}
    assert cards_met(maker) == then


def test_a_gpu_that_another_program_holds_is_left_to_it(leases: Leases) -> None:
    held = present(leases.take(["GPU-1"], 1))
    maker = Maker()
    found = making(lender(leases), (SMALL, LARGE), maker).run()
    assert (maker.devices, found.state) == ([("GPU-0",), ("GPU-0",)], "complete")
    held.release()


def test_a_wait_for_gpus_ends_when_the_experiment_is_stopped(leases: Leases) -> None:
    held = present(leases.take(UUIDS, 2))
    maker = Maker()

    def on_wait() -> None:
        session.stop()

    session = making(lender(leases, on_wait), (SMALL, LARGE), maker)
    assert (session.run().state, maker.specs) == ("stopped", [])
    held.release()


def test_none_begins_after_one_that_was_stopped(leases: Leases) -> None:
    maker = Maker(together=2, outcome="stopped")
    found = making(lender(leases), (SMALL, LARGE, LARGEST), maker).run()
    assert (found.state, len(maker.specs), len(found.runs)) == ("stopped", 2, 2)
    assert leases.take(UUIDS, 2) is not None, "what they held is free again"


def test_a_run_that_cannot_be_stored_ends_it_and_holds_nothing(leases: Leases) -> None:
    maker = Maker(together=2)

    def failing(turn: PlannedRun) -> RunHeader:
        made = maker(turn)
        if turn.spec == LARGE:
            raise UserError("The disk is full.")
        return made

    with pytest.raises(UserError, match="disk is full"):
        making(lender(leases), (SMALL, LARGE), failing).run()
    assert leases.take(UUIDS, 2) is not None


def test_a_run_that_does_not_count_is_made_again_on_the_same_gpu(leases: Leases) -> None:
    maker, judged = Maker(together=2), iter([False, True, True])
    found = making(lender(leases), (SMALL, LARGE), maker, lambda _: next(judged)).run()
    again = maker.specs.index(maker.specs[2])
    assert maker.devices[2] == maker.devices[again]
    assert (found.state, found.done, len(maker.specs)) == ("complete", 2, 3)
