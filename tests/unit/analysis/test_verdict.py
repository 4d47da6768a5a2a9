"""Which runs count, who is compared with whom, and what may be said."""

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.analysis.intervals import level_at, ratio, required_repeats
from app.analysis.verdict import (
    count_looks,
    energies,
    family_ratios,
    fastest_result,
    gpu_spread,
    group_by_variant,
    judge,
    may_be_as_fast,
    rank_results,
    speed_bias_pct,
    throughputs,
)
from app.values.events import Outcome, Summary
from app.values.records import RunRow
from tests.present import present
from workloads.catalog import with_defaults
from workloads.protocol import OutcomeName, RunSpec, Value


def row(
    run: int,
    throughput: float | None = 100.0,
    *,
    outcome: OutcomeName | None = "completed",
    energy: float | None = None,
    workload: str = "cnn10",
    **variant: Value,
) -> RunRow:
    return RunRow(
        run=run,
        uid=f"uid-{run}",
        started_utc_ns=run,
        ended_utc_ns=None,
        spec=with_defaults(RunSpec(workload=workload, variant=variant)),
        outcome=Outcome(name=outcome) if outcome else None,
        summary=Summary(throughput=throughput, energy_mj_per_example=energy),
    )


def rows(first: int, values: list[float], **variant: Value) -> list[RunRow]:
    spec = with_defaults(RunSpec(workload="cnn10", variant=variant))
    return [replace(row(first + place, value), spec=spec) for place, value in enumerate(values)]


BASE = rows(1, [100.0, 101.0, 99.0], layout="NHWC")


@pytest.mark.parametrize(
    ("values", "decision"),
    [
        ([110.0, 111.0, 109.0], "faster"),
        ([90.0, 91.0, 89.0], "slower"),
        ([100.0, 102.0, 98.0], "no difference seen"),
        ([150.0, 60.0, 120.0], "no difference seen"),
        ([110.0], "one run each"),
        ([110.0, 111.0], "too few runs"),
    ],
)
def test_a_decision_is_only_as_strong_as_its_interval(values: list[float], decision: str) -> None:
    base, other = judge([*BASE, *rows(4, values, layout="NCHW")], 1)
    assert (base.is_baseline, other.is_baseline) == (True, False)
    assert other.decision == decision
    assert (present(other.speedup).interval is None) == (len(values) < 3)


def test_runs_of_one_variant_are_one_row_in_order_of_appearance() -> None:
    a, b, c = row(1, layout="NHWC"), row(2, layout="NCHW"), row(3, layout="NHWC")
    assert group_by_variant([b, a, c]) == [(b,), (a, c)]
    assert group_by_variant([a, row(4, workload="lstm", layout="NHWC")])[1][0].run == 4


@pytest.mark.parametrize("outcome", ["stopped", "failed", "crashed", "out_of_memory", "refused", None])
def test_only_completed_runs_count(outcome: OutcomeName | None) -> None:
    bad = row(4, 1.0, outcome=outcome, energy=1.0, layout="NHWC")
    (alone,) = judge([*BASE, bad], 1)
    assert [run.run for run in alone.runs] == [1, 2, 3, 4], "it keeps its place"
    assert alone.throughput is not None
    assert alone.throughput.n == 3
    assert alone.throughput.value == pytest.approx(100, rel=1e-3)
    assert alone.energy_ratio is None, "nor does its energy count"


def test_a_stopped_run_is_no_look_at_the_others() -> None:
    others = rows(4, [102.2, 103.2, 104.2], layout="NCHW")
    stopped = row(9, 50.0, outcome="stopped", layout="NCHW")
    assert [count_looks([*others, more], BASE) for more in (stopped, replace(stopped, outcome=others[0].outcome))] == [
        1,
        2,
    ]


@pytest.mark.parametrize("wild", [None, 0.0, -5.0, math.inf, math.nan])
def test_figures_no_machine_can_have_do_not_count(wild: float | None) -> None:
    assert throughputs([row(1, wild), row(2, 70.0)]) == [70.0]
    assert energies([row(1, energy=wild), row(2, energy=3.0)]) == [3.0]


def test_what_never_ran_cannot_be_compared_but_keeps_its_row() -> None:
    refused = row(4, None, outcome="refused", layout="NCHW")
    _, other = judge([*BASE, refused], 1)
    assert (other.decision, other.speedup, other.throughput) == ("nothing to compare", None, None)
    _, base = judge([*BASE, refused], 4)
    assert base.is_baseline
    assert judge([*BASE, refused], 4)[0].speedup is None


def test_different_workloads_have_no_ratio() -> None:
    other = row(4, 500.0, workload="lstm", energy=1.0)
    base = row(1, 100.0, energy=2.0)
    result = judge([base, other], 1)[1]
    assert (result.decision, result.speedup, result.energy_ratio) == ("different workloads", None, None)
    assert result.throughput is not None


def test_the_energy_ratio_is_of_energy_an_example() -> None:
    _, other = judge([row(1, energy=4.0, xla=False), row(2, energy=3.0, xla=True)], 1)
    assert present(other.energy_ratio).value == pytest.approx(0.75)


def test_a_run_older_than_a_parameter_is_of_the_variant_with_its_default() -> None:
    old, new, other = (
        row(1, gpus=0, layout="NCHW"),
        row(2, gpus=0, layout="NCHW", xla=False),
        row(3, gpus=0, xla=True),
    )
    assert [[run.run for run in group] for group in group_by_variant([old, new, other])] == [[1, 2], [3]]


def test_several_variants_are_judged_together_and_a_pair_alone() -> None:
    one, two = rows(4, [102.2, 103.2, 104.2], layout="NCHW"), rows(7, [97.0, 96.0, 98.0], xla=True)
    _, alone = judge([*BASE, *one], 1)
    _, first, second = judge([*BASE, *one, *two], 1)
    base = throughputs(BASE)
    assert alone.speedup == ratio(throughputs(one), base)
    assert (first.speedup, second.speedup) == tuple(ratio(throughputs(g), base, level_at(1, 2)) for g in (one, two))
    assert (alone.decision, first.decision) == ("faster", "no difference seen"), "two chances to be wrong ask for more"


def test_a_family_has_the_intervals_of_the_verdict_in_whatever_order_it_is_given() -> None:
    one, two = rows(4, [102.2, 103.2, 104.2], layout="NCHW"), rows(7, [97.0, 96.0, 98.0], xla=True)
    _, first, second = judge([*BASE, *one, *two], 1)
    assert family_ratios([two, one], BASE, throughputs) == [second.speedup, first.speedup]
    assert (first.comparisons, second.comparisons) == (2, 2)
    assert family_ratios([one[:2], BASE], BASE, throughputs)[0] != first.speedup


ONE, OTHER = ("GPU-1",), ("GPU-2",)


def on_gpus(first: int, energies_mj: Sequence[float], gpus: Sequence[tuple[str, ...]], layout: str) -> list[RunRow]:
    return [
        replace(row(first + n, 100.0 + n, energy=energy, layout=layout), gpus=used)
        for n, (energy, used) in enumerate(zip(energies_mj, gpus, strict=True))
    ]


@pytest.mark.parametrize(
    ("gpus", "spread"),
    [
        ((ONE, OTHER, OTHER), "uneven"),
        ((ONE, ONE, OTHER), "even"),
        ((ONE, ONE, ONE), "apart"),
        ((OTHER, OTHER, OTHER), "apart"),
        (((*ONE, *OTHER),) * 3, "even"),
    ],
)
def test_only_energy_of_variants_that_are_spread_unevenly_over_the_same_gpus_is_compared_within_them(
    gpus: Sequence[tuple[str, ...]], spread: str
) -> None:
    base = on_gpus(1, (50.0, 50.2, 47.5), (ONE, ONE, OTHER), layout="NHWC")
    other = on_gpus(4, (40.0, 38.0, 38.1), gpus, layout="NCHW")
    assert gpu_spread(other, base, energies) == spread
    _, found = judge([*base, *other], 1)
    whole = ratio(energies(other), energies(base))
    assert found.speedup == ratio(throughputs(other), throughputs(base))
    assert (found.energy_ratio == whole) == (spread != "uneven")
    if spread == "uneven":
        assert present(found.energy_ratio).value == pytest.approx(0.7997, abs=1e-4)


def test_only_variants_with_an_interval_share_it() -> None:
    other = rows(4, [103.0, 104.0, 105.0], layout="NCHW")
    without = [row(7, 90.0, xla=True), row(8, None, outcome="refused", precision="tf32"), row(9, 5.0, workload="lstm")]
    results = judge([*BASE, *other, *without], 1)
    assert results[1].speedup == ratio(throughputs(other), throughputs(BASE))
    assert [result.decision for result in results[2:]] == ["one run each", "nothing to compare", "different workloads"]


@pytest.mark.parametrize(("slower", "biased"), [(0.95, True), (0.9999, False)])
def test_a_speed_up_is_biased_where_gpus_differ_by_more_than_their_noise(slower: float, biased: bool) -> None:
    def rates(first: int, gpus: Sequence[tuple[str, ...]], speed: float, layout: str = "NCHW") -> list[RunRow]:
        luck = (1.0, 1.001, 0.999)
        return [
            replace(row(first + n, speed * luck[n] * (slower if used == OTHER else 1), layout=layout), gpus=used)
            for n, used in enumerate(gpus)
        ]

    base, other = rates(1, (ONE, ONE, OTHER), 100.0), rates(4, (OTHER, ONE, OTHER), 110.0, layout="NHWC")
    assert (speed_bias_pct(other, base) > 1) == biased
    assert speed_bias_pct(base, base) == 0.0


def test_energy_has_an_estimate_and_a_ratio_with_an_interval_of_its_own() -> None:
    base = [row(run, energy=energy, xla=False) for run, energy in ((1, 4.0), (2, 4.1), (3, 3.9))]
    other = [row(run, energy=energy, xla=True) for run, energy in ((4, 3.0), (5, 3.1))]
    _, found = judge([*base, *other, row(6, energy=None, xla=True)], 1)
    assert found.energy is not None
    assert found.energy.n == 2
    assert found.energy.value == pytest.approx(3.05, rel=1e-3)
    assert found.energy_ratio == ratio([3.0, 3.1], [4.0, 4.1, 3.9])
    assert present(found.speedup).n == 3, "a run without energy counts for its speed"


def test_where_no_difference_is_seen_it_is_told_what_more_repeats_would_tell() -> None:
    same, faster = rows(4, [100.0, 102.0, 98.0], layout="NCHW"), rows(7, [150.0, 151.0, 149.0], xla=True)
    base, first, second = judge([*BASE, *same, *faster], 1)
    assert first.required_repeats == required_repeats(throughputs(same), throughputs(BASE), 1, 2)
    assert first.required_repeats is not None
    assert (base.required_repeats, second.required_repeats) == (None, None)


def planned(made: list[RunRow], *plans: str | None) -> list[RunRow]:
    return [replace(row, planned=plan) for row, plan in zip(made, plans, strict=True)]


def interleaved(*plans: str | None) -> tuple[list[RunRow], list[RunRow]]:
    """Return as many runs of two variants, one of each in turn, by these plans."""
    values = [100.0 + n % 2 for n in range(len(plans))]
    both = (rows(start, values, layout=layout) for start, layout in ((0, "NHWC"), (1000, "NCHW")))
    a, b = ([replace(row, started_utc_ns=row.run % 1000) for row in planned(made, *plans)] for made in both)
    return a, b


HAND = None


@pytest.mark.parametrize(
    ("plans", "looks"),
    [
        (["3"] * 3, 1),
        (["10"] * 10, 1),
        ([HAND, HAND], 1),
        ([HAND] * 3, 1),
        ([HAND] * 5, 3),
        (["3"] * 3 + ["11"] * 8, 2),
        (["3"] * 3 + ["5"] * 2 + ["20"] * 15, 3),
        ([HAND] * 3 + ["8"] * 5, 2),
        (["3"] * 3 + [HAND] * 2, 3),
        (["3"] * 6, 3),
        (["10"] * 5, 3),
        (["until ± 2 %"] * 7, 1),
        (["until ± 2 %"] * 5 + ["until ± 0.5 %"] * 9, 2),
        ([HAND] * 4 + ["until ± 2 %"] * 3, 3),
    ],
)
def test_a_plan_is_one_look_and_every_run_that_was_added_is_another(plans: list[str | None], looks: int) -> None:
    a, b = interleaved(*plans)
    assert count_looks(a, b) == count_looks(b, a) == looks


def test_a_plan_is_carried_out_though_a_run_of_it_failed() -> None:
    a, b = interleaved(*["5"] * 5)
    failed = replace(a[1], outcome=Outcome(name="crashed"))
    assert count_looks([a[0], failed, *a[2:]], b) == 1


def test_looks_at_one_variant_before_the_other_was_run_do_not_count_and_those_after_do() -> None:
    earlier = planned(rows(1, [100.0] * 8, layout="NHWC"), *[HAND] * 8)
    later = planned(rows(20, [100.0] * 3, layout="NCHW"), *["3"] * 3)
    assert count_looks(earlier, later) == count_looks(later, earlier) == 1
    more = planned(rows(30, [100.0] * 2, layout="NHWC"), HAND, HAND)
    assert count_looks([*earlier, *more], later) == count_looks(later, [*earlier, *more]) == 2


def test_runs_added_after_a_look_have_to_show_more() -> None:
    def verdict(*plans: str | None) -> tuple[str, int]:
        a, b = interleaved(*plans)
        faster = [replace(row, summary=Summary(throughput=1.008 * (row.summary.throughput or 0))) for row in b]
        result = judge([*a, *faster], a[0].run)[1]
        return result.decision, result.looks

    assert verdict(*["10"] * 10) == ("faster", 1)
    assert verdict(*[HAND] * 10) == ("no difference seen", 8)


GROUPS = st.lists(st.lists(st.floats(10.0, 1000.0), min_size=1, max_size=4), min_size=2, max_size=5)


@given(GROUPS, st.integers(-10, 10))
def test_a_verdict_knows_no_unit_and_turns_round_with_its_baseline(groups: list[list[float]], power: int) -> None:
    runs = [row(10 * place + n, value, channels=place) for place, g in enumerate(groups) for n, value in enumerate(g)]
    scaled = [replace(run, summary=Summary(throughput=(run.summary.throughput or 0) * 2.0**power)) for run in runs]
    results = judge(runs, 0)
    assume(not any(abs(end - 1) < 1e-9 for each in results if each.speedup for end in each.speedup.interval or ()))
    for one, other in zip(results, judge(scaled, 0), strict=True):
        assert one.decision == other.decision
        assert (one.speedup and one.speedup.value) == pytest.approx(other.speedup and other.speedup.value)
    pair = [run for run in runs if run.run < 20]
    there, back = judge(pair, 0)[1], judge(pair, 10)[0]
    opposite = {"faster": "slower", "slower": "faster"}
    assert back.decision == opposite.get(there.decision, there.decision)


@pytest.mark.parametrize(("second", "is_sure"), [([200.0, 201.0, 199.0], True), ([297.0, 303.0, 299.0], False)])
def test_a_baseline_whose_runs_differ_hides_not_which_variant_is_the_fastest(
    second: list[float], is_sure: bool
) -> None:
    noisy = rows(1, [85.0, 100.0, 115.0], batch_size=1)
    rivals = [*rows(4, [300.0, 301.0, 299.0], batch_size=2), *rows(7, second, batch_size=3)]
    ranked = rank_results(judge([*noisy, *rivals], 1))
    intervals = [result.speedup.interval for result in ranked if result.speedup]
    assert present(intervals[1])[1] > present(intervals[0])[0], "against the baseline they overlap"
    unsure = [result.runs[0].run for result in may_be_as_fast(ranked)]
    assert unsure == ([] if is_sure else [7])
    assert (fastest_result(ranked) is ranked[0]) is is_sure


def simulated(random: Random, speeds: Sequence[float], baseline_noise: float) -> list[RunRow]:
    """Return three runs of each variant, from their true speeds; the first one is the baseline."""
    noises = [baseline_noise, *(0.01 * 2 ** random.uniform(-1, 1) for _ in speeds[1:])]
    return [
        run
        for number, (speed, noise) in enumerate(zip(speeds, noises, strict=True))
        for run in rows(1 + 3 * number, [speed * random.lognormvariate(0, noise) for _ in range(3)], batch_size=number)
    ]


def test_of_variants_that_are_alike_one_in_twenty_at_most_is_called_the_fastest() -> None:
    random = Random(1)
    called = [fastest_result(judge(simulated(random, [100.0] * 6, 0.01), 1)) for _ in range(200)]
    assert len(called) - called.count(None) <= 10


def test_a_variant_that_is_faster_is_called_so_beside_a_baseline_whose_runs_differ() -> None:
    random = Random(1)
    cases = [judge(simulated(random, [50.0, 100.0, 100.0, 150.0, 100.0, 100.0], 0.1), 1) for _ in range(50)]
    called = [fastest_result(results) for results in cases]
    assert called.count(None) <= 10
    assert {result.runs[0].run for result in called if result} == {10}
