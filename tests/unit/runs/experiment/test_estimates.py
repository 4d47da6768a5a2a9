"""How long the runs of an experiment take, by stored runs, and by what the program ships."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from app.analysis.comparability import STEADY_S
from app.queries import TimeLeft
from app.runs.experiment.estimates import expected_s, time_left
from app.values.plan import Plan
from app.values.records import RunRow
from tests.fakes.experiments import result
from workloads.catalog import Gpu, Machine, complete
from workloads.protocol import RunSpec

CPU = Machine(cpu_count=4)
S = 1_000_000_000
SMALL, LARGE = (complete("cnn10", {"gpus": 0, "batch_size": size, "seconds": 10}, CPU) for size in (8, 16))
XLA = complete("cnn10", {"gpus": 0, "batch_size": 8, "seconds": 10, "xla": True}, CPU)
OTHER = complete("lstm", {"gpus": 0, "seconds": 4}, CPU)
TWELVE_STEPS, MANY_STEPS = (complete("cnn10", {"gpus": 0, "steps": steps}, CPU) for steps in (12, 9000))


def ended(*runs: tuple[RunSpec, float, float]) -> list[RunRow]:
    """Runs of these variants, each with the second of its start and its length in seconds."""
    rows = (result(number, spec, seconds=seconds).row for number, (spec, _, seconds) in enumerate(runs, 1))
    return [
        replace(row, started_utc_ns=round(at * S), ended_utc_ns=round((at + seconds) * S))
        for row, (_, at, seconds) in zip(rows, runs, strict=True)
    ]


def of_one(spec: RunSpec, alike: Sequence[RunRow]) -> TimeLeft:
    return time_left(Plan(name="one", variants=(spec,), repeats=1, again=True), [], alike, CPU)[0]


def test_a_run_takes_at_most_a_tenth_more_than_the_longest_set_up_like_its_own() -> None:
    assert expected_s(SMALL, []) == 10.0, "nothing is known but what it is to measure"
    assert expected_s(SMALL, ended((SMALL, 0, 21.0), (SMALL, 30, 24.0))) == pytest.approx(10 + 1.1 * 14)
    assert expected_s(LARGE, ended((SMALL, 0, 21.0))) == pytest.approx(10 + 1.1 * 11), "the same set-up"
    assert expected_s(OTHER, ended((SMALL, 0, 50.0), (OTHER, 60, 9.0))) == pytest.approx(4 + 1.1 * 5)
    failed = [result(1, SMALL, outcome="failed", seconds=90.0).row]
    assert expected_s(SMALL, failed) == 10.0


def test_a_run_that_ended_before_it_began_tells_nothing() -> None:
    """As older versions stored it after a clock was set back."""
    assert expected_s(SMALL, ended((SMALL, 0, 21.0), (SMALL, 30, -3600.0))) == expected_s(
        SMALL, ended((SMALL, 0, 21.0))
    )
    assert expected_s(SMALL, ended((SMALL, 0, -1.0))) == 10.0
    assert expected_s(SMALL, ended((SMALL, 0, 4.0))) == 10.0, "set back by less than the run took"
    assert of_one(SMALL, ended((SMALL, 0, -3600.0))) == of_one(SMALL, [])


def test_of_another_workload_it_learns_this_machine_s_pace() -> None:
    fast, slow = (expected_s(OTHER, ended((SMALL, 0, seconds))) for seconds in (21.0, 32.0))
    assert slow - 4 == pytest.approx(2 * (fast - 4))


def test_where_none_like_it_is_stored_the_set_up_may_be_half_as_long_again() -> None:
    least, likely, most = (seconds - 10.0 - 1.0 for seconds in of_one(SMALL, []))
    assert (likely / least, most / likely) == pytest.approx((1.5, 1.5))


def test_the_set_up_is_that_of_the_runs_most_like_it() -> None:
    alike = ended((SMALL, 0, 15.0), (XLA, 16, 30.0))
    assert of_one(XLA, alike).likely_s - of_one(SMALL, alike).likely_s == pytest.approx(15.0)
    assert of_one(LARGE, alike) == of_one(SMALL, alike)


@pytest.mark.parametrize(("slow_s", "most_s"), [(15.0, 1.1 * 15.0), (15.1, 1.1 * 5.0)])
def test_a_set_up_three_times_as_long_as_usual_was_held_up(slow_s: float, most_s: float) -> None:
    alike = ended((SMALL, 0, 15.0), (SMALL, 16, 15.0), (SMALL, 32, 10.0 + slow_s))
    assert of_one(SMALL, alike).most_s == pytest.approx(1.0 + 10.0 + most_s)


def test_a_run_that_counts_steps_takes_what_the_same_one_took() -> None:
    alike = ended((TWELVE_STEPS, 0, 8.0), (MANY_STEPS, 9, 300.0))
    assert of_one(MANY_STEPS, alike).likely_s - of_one(TWELVE_STEPS, alike).likely_s == pytest.approx(292.0)


@pytest.mark.parametrize(("apart_s", "likely_s"), [(3599.0, (30.0 + 20.0) / 2), (3600.0, 20.0)])
def test_runs_an_hour_before_the_newest_do_not_tell_where_newer_ones_do(apart_s: float, likely_s: float) -> None:
    alike = ended((SMALL, 0, 30.0), (SMALL, apart_s, 20.0))
    assert of_one(SMALL, alike).likely_s == pytest.approx(1.0 + likely_s)


@pytest.mark.parametrize(("gap_s", "between_s"), [(29.9, 29.9), (30.0, 1.0)])
def test_the_time_between_two_runs_is_that_of_an_experiment(gap_s: float, between_s: float) -> None:
    alike = ended((SMALL, 0, 20.0), (SMALL, 20.0 + gap_s, 20.0))
    assert of_one(SMALL, alike).likely_s == pytest.approx(20.0 + between_s)


def test_the_times_of_runs_one_after_the_other_add_up() -> None:
    alike = ended((SMALL, 0, 20.0), (SMALL, 21, 20.0))
    one = of_one(SMALL, alike)
    plan = structs.replace(Plan(name="three", variants=(SMALL,), repeats=3), again=True)
    assert time_left(plan, [], alike, CPU) == (TimeLeft.total([one] * 3), 2)
    assert one.plus(-1000.0) == TimeLeft()


def test_the_first_run_on_a_gpu_waits_until_it_rests() -> None:
    machine = Machine(cpu_count=4, gpus=(Gpu(index=0, uuid="GPU-0", name="H200", compute_capability=(9, 0)),))
    on_gpu = complete("cnn10", {"gpus": 1, "seconds": 10}, machine)
    plan = Plan(name="one", variants=(on_gpu,), repeats=2, again=True)
    counted = [result(1, on_gpu).row]
    first, without, later = (
        time_left(each, rows, counted, machine)[0]
        for each, rows in ((plan, []), (structs.replace(plan, max_idle_wait_s=0.0), []), (plan, counted))
    )
    assert first == without.plus(STEADY_S)
    assert TimeLeft.total([later, later]) == without
