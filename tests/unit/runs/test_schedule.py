"""An experiment's order: every variant equally often, none always later; what is left, and how long a run takes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.records import RunRow
from app.runs.schedule import Plan, done, expected_s, interleaved, left
from tests.fakes.experiments import result
from workloads.catalog import Machine, complete
from workloads.protocol import OutcomeName, RunSpec

CPU = Machine(cpu_count=4)
SMALL, LARGE = (complete("cnn10", {"gpus": 0, "batch_size": size, "seconds": 10}, CPU) for size in (8, 16))
OTHER = complete("lstm", {"gpus": 0, "seconds": 4}, CPU)
PLAN = Plan(name="two", variants=(SMALL, LARGE), repeats=3)


def test_forwards_and_backwards_in_turn() -> None:
    assert interleaved(2, 3) == [0, 1, 1, 0, 0, 1]
    assert interleaved(3, 2) == [0, 1, 2, 2, 1, 0]
    assert interleaved(1, 2) == [0, 0]


@given(st.integers(1, 12), st.integers(1, 12))
def test_every_variant_runs_as_often_as_asked_and_drift_falls_on_all_alike(variants: int, repeats: int) -> None:
    order = interleaved(variants, repeats)
    places = [[place for place, index in enumerate(order) if index == variant] for variant in range(variants)]
    assert [len(where) for where in places] == [repeats] * variants
    if repeats % 2 == 0:
        assert len({sum(where) for where in places}) == 1, "the same mean place for all"


def rows(*made: tuple[RunSpec, OutcomeName, float]) -> list[RunRow]:
    return [
        result(number, spec, outcome=outcome, seconds=seconds).row
        for number, (spec, outcome, seconds) in enumerate(made, 1)
    ]


@given(st.integers(0, 6))
def test_cut_off_anywhere_it_goes_on_in_the_same_order(made: int) -> None:
    order = left(PLAN, [])
    before = rows(*((spec, "completed", 20.0) for spec in order[:made]))
    assert left(PLAN, before) == order[made:]
    assert done(PLAN, before) == made


@pytest.mark.parametrize(
    ("outcomes", "still", "results"),
    [
        (("failed", "crashed", "stopped"), 3, 0),
        (("completed", "failed"), 2, 1),
        (("out_of_memory",), 0, 1),
        (("completed", "out_of_memory"), 0, 2),
        (("refused",), 0, 1),
        (("completed",) * 5, 0, 3),
    ],
)
def test_only_a_result_counts_and_some_are_enough_once(
    outcomes: Sequence[OutcomeName], still: int, results: int
) -> None:
    made = rows(*((SMALL, outcome, 20.0) for outcome in outcomes))
    assert left(PLAN, made).count(SMALL) == still
    assert done(PLAN, made) == results


def test_what_cannot_run_here_has_one_turn_only() -> None:
    on_gpu = complete("cnn10", {"gpus": 1}, CPU)
    plan = Plan(name="refused", variants=(SMALL, on_gpu), repeats=3)
    assert left(plan, [], CPU) == [SMALL, on_gpu, SMALL, SMALL]


def test_a_run_takes_what_the_longest_of_its_variant_took() -> None:
    assert expected_s(SMALL, []) == 10.0, "nothing is known but what it is to measure"
    assert expected_s(SMALL, rows((SMALL, "completed", 21.0), (SMALL, "completed", 24.0))) == 24.0
    assert expected_s(LARGE, rows((SMALL, "completed", 21.0))) == 21.0, "as much beside the measured part"
    assert expected_s(OTHER, rows((SMALL, "completed", 21.0))) == 15.0, "of another workload where there is no other"
    assert expected_s(OTHER, rows((SMALL, "completed", 50.0), (OTHER, "completed", 9.0))) == 9.0
    assert expected_s(SMALL, rows((SMALL, "failed", 90.0))) == 10.0
