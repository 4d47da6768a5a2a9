"""What is left of a plan, in which order and on which GPUs at the same time, and how long it takes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from app.runs.experiment.schedule import (
    Concurrency,
    count_done,
    plan_concurrency,
    remaining_runs,
    results_by_variant,
    run_order,
)
from app.values.plan import Plan, decode_plan, encode_plan
from app.values.records import RunRow
from benchmarks.orders import coverages_pct
from tests.fakes.experiments import result
from workloads.catalog import Gpu, Machine, complete
from workloads.protocol import OutcomeName, RunSpec

CPU_MACHINE = Machine(cpu_count=4)
TWO = Concurrency(parallel=2, gpus=2)


def on(gpus: int) -> RunSpec:
    return complete("dummy", {"gpus": gpus}, CPU_MACHINE)


@pytest.mark.parametrize(
    ("count", "going", "may"),
    [
        (1, (), True),
        (1, (1,), True),
        (1, (1, 1), False),
        (2, (), True),
        (2, (1,), False),
        (1, (2,), False),
        (0, (1,), False),
        (1, (0,), False),
        (0, (), True),
    ],
)
def test_each_run_has_its_own_gpus_and_one_on_the_cpu_is_alone(count: int, going: tuple[int, ...], may: bool) -> None:
    spec, *others = map(on, (count, *going))
    assert TWO.admits(spec, others) is may


def test_no_variant_is_beside_itself_where_an_experiment_may_end_early() -> None:
    one, other = (complete("dummy", {"gpus": 1, "step_ms": ms}, CPU_MACHINE) for ms in (1.0, 2.0))
    early = replace(TWO, may_end_early=True)
    assert TWO.admits(one, [one])
    assert not early.admits(one, [one])
    assert early.admits(one, [other])


def test_no_more_go_on_than_were_asked_for() -> None:
    assert not Concurrency(parallel=2, gpus=8).admits(on(1), [on(1), on(1)])
    assert not Concurrency().admits(on(1), [on(1)])


def test_a_cluster_s_scheduler_places_as_many_as_were_asked_for() -> None:
    node = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="H200"),))
    plan = Plan(name="some", variants=(on(1),), repeats=4, parallel=3, max_idle_wait_s=0.0)
    assert not plan_concurrency(plan, node).admits(on(1), [on(1)])
    cluster = plan_concurrency(plan, structs.replace(node, scheduled=True))
    assert [cluster.admits(on(1), [on(1)] * count) for count in (2, 3)] == [True, False]


@pytest.mark.parametrize(
    ("room", "gpus", "lasting_s", "together_s"),
    [
        (Concurrency(), (1, 1, 1), (4.0, 3.0, 2.0), 9.0),
        (TWO, (), (), 0.0),
        (TWO, (1, 1, 1), (4.0, 3.0, 2.0), 5.0),
        (TWO, (1, 2, 1), (4.0, 3.0, 2.0), 9.0),
        (TWO, (1, 0, 1, 1), (4.0, 3.0, 2.0, 2.0), 9.0),
    ],
)
def test_runs_beside_each_other_take_less_time_together(
    room: Concurrency, gpus: tuple[int, ...], lasting_s: tuple[float, ...], together_s: float
) -> None:
    assert room.total_s([on(count) for count in gpus], lasting_s) == together_s


CPU = Machine(cpu_count=4)
SMALL, LARGE = (complete("cnn10", {"gpus": 0, "batch_size": size, "seconds": 10}, CPU) for size in (8, 16))
OTHER = complete("lstm", {"gpus": 0, "seconds": 4}, CPU)
PLAN = Plan(name="two", variants=(SMALL, LARGE), repeats=3)


def test_an_entry_of_before_goes_on_forwards_and_backwards_in_turn() -> None:
    assert run_order(2, 3, None) == (0, 1, 1, 0, 0, 1)
    assert run_order(3, 2, None) == (0, 1, 2, 2, 1, 0)
    assert (
        decode_plan('{"name": "old", "variants": [{"workload": "dummy", "variant": {}}], "repeats": 3}').order_seed
        is None
    )


def test_an_order_is_kept_and_that_of_fewer_repeats_is_its_beginning() -> None:
    """The figures are those of the program: another order would not go on where an experiment was cut off."""
    assert run_order(3, 4, 7) == run_order(3, 9, 7)[:12]
    assert run_order(2, 4, 7) == (0, 1, 0, 1, 1, 0, 1, 0)
    assert len({run_order(2, 12, seed) for seed in range(50)}) > 20, "not one order for all"
    assert len({run_order(4, 4, seed) for seed in range(50)}) > 20


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32) | st.none())
def test_every_variant_runs_once_a_round(variants: int, repeats: int, seed: int | None) -> None:
    order = run_order(variants, repeats, seed)
    rounds = [sorted(order[start : start + variants]) for start in range(0, len(order), variants)]
    assert rounds == [list(range(variants))] * repeats


@pytest.mark.parametrize("variants", [2, 3])
@pytest.mark.parametrize("rounds", [3, 4, 7, 10])
def test_no_order_is_one_that_a_machine_which_repeats_itself_can_imitate(variants: int, rounds: int) -> None:
    covered = coverages_pct(variants, rounds, range(60), (2, 3, 4, 8))
    assert min(map(min, covered)) >= 93


def test_forwards_and_backwards_in_turn_is_imitated_by_a_cycle_of_four() -> None:
    assert coverages_pct(2, 10, [None], [4]) == [[pytest.approx(50, abs=3)]]


def test_a_pair_never_alternates_and_never_mirrors_itself_alone() -> None:
    """Of three rounds that begin with the baseline, the other two are what a cycle of 2 or of 4 runs imitates."""
    assert {run_order(2, 3, seed) for seed in range(120)} == {(0, 1, 0, 1, 1, 0), (0, 1, 1, 0, 1, 0)}


def rows(*made: tuple[RunSpec, OutcomeName, float]) -> list[RunRow]:
    return [
        result(number, spec, outcome=outcome, seconds=seconds).row
        for number, (spec, outcome, seconds) in enumerate(made, 1)
    ]


@given(st.integers(0, 6), st.integers(0, 99) | st.none())
def test_cut_off_anywhere_it_goes_on_in_the_same_order(made: int, seed: int | None) -> None:
    plan = structs.replace(PLAN, order_seed=seed)
    order = remaining_runs(plan, [])
    before = rows(*((spec, "completed", 20.0) for spec in order[:made]))
    assert remaining_runs(decode_plan(encode_plan(plan)), before) == order[made:]
    assert count_done(plan, results_by_variant(before)) == made


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
    assert remaining_runs(PLAN, made).count(SMALL) == still
    assert count_done(PLAN, results_by_variant(made)) == results


def test_what_cannot_run_here_has_one_turn_only() -> None:
    on_gpu = complete("cnn10", {"gpus": 1}, CPU)
    plan = Plan(name="refused", variants=(SMALL, on_gpu), repeats=3)
    assert remaining_runs(plan, [], CPU) == [SMALL, on_gpu, SMALL, SMALL]
