"""When repeating may end: every speed-up known to the target precision, counted in complete rounds."""

from dataclasses import replace

import pytest

from app.runs.experiment.schedule import (
    StoppingRule,
    is_precision_reached,
    parse_precision_pct,
    remaining_runs,
    stopping_rule,
)
from app.values.plan import Plan
from app.values.records import RunRow
from tests.fakes.experiments import result
from workloads.catalog import Machine, complete
from workloads.protocol import RunSpec

CPU = Machine(cpu_count=4)
SMALL, LARGE, HUGE = (complete("cnn10", {"gpus": 0, "batch_size": size}, CPU) for size in (8, 16, 32))
OTHER, ANOTHER = (complete("lstm", {"gpus": 0, "units": units}, CPU) for units in (8, 16))
PLAN = Plan(name="two", variants=(SMALL, LARGE), repeats=9, until_pct=0.5)
STEADY = (1000.0, 1001.0, 999.0)
LUCK = (1000.0, 1100.0, 900.0)


def rows(spec: RunSpec, values: tuple[float, ...], first: int) -> list[RunRow]:
    return [replace(result(number, spec, value).row, planned=PLAN.extent) for number, value in enumerate(values, first)]


@pytest.mark.parametrize(("word", "pct"), [("0.5%", 0.5), ("0.5 %", 0.5), ("2", 2.0), (" 12.25% ", 12.25)])
def test_a_width_is_a_number_of_percent(word: str, pct: float) -> None:
    assert parse_precision_pct(word) == pct


@pytest.mark.parametrize("word", ["", "0%", "100%", "-1%", "half", "1e-3", "5%%"])
def test_anything_else_is_no_width(word: str) -> None:
    with pytest.raises(ValueError, match=r"is not a precision such as 0\.5%, above 0 and below 100"):
        parse_precision_pct(word)


def test_three_narrow_rounds_are_the_least_that_settle() -> None:
    two = rows(SMALL, (1000.0, 1000.0), 1) + rows(LARGE, (1000.0, 1000.0), 11)
    assert not is_precision_reached(PLAN, two), "narrower than any, but two are too few"
    three = rows(SMALL, STEADY, 1) + rows(LARGE, STEADY, 11)
    assert is_precision_reached(PLAN, three)
    assert remaining_runs(PLAN, three) == []
    assert all(half < 0.5 for half in stopping_rule(PLAN, three).half_widths_pct())


def test_what_was_judged_before_has_to_be_known_better_than_the_first_time() -> None:
    by_hand = [replace(row, planned=None) for row in rows(SMALL, STEADY, 1) + rows(LARGE, STEADY, 11)]
    more = rows(SMALL, (1000.5,), 4) + rows(LARGE, (1000.5,), 14)
    first, second = ([*by_hand, *more], [*rows(SMALL, STEADY, 1), *rows(LARGE, STEADY, 11), *more])
    assert stopping_rule(PLAN, first).half_widths_pct() > stopping_rule(PLAN, second).half_widths_pct()


def test_a_round_that_is_not_complete_is_not_looked_at() -> None:
    begun = rows(SMALL, STEADY, 1) + rows(LARGE, STEADY[:2], 11)
    assert (stopping_rule(PLAN, begun).repeats, is_precision_reached(PLAN, begun)) == (2, False)
    more = rows(SMALL, (*STEADY, 500.0), 1) + rows(LARGE, STEADY, 11)
    assert is_precision_reached(PLAN, more), "what a fourth round began with counts when that is complete"


def test_every_speed_up_has_to_be_narrow() -> None:
    plan = Plan(name="three", variants=(SMALL, LARGE, HUGE), repeats=9, until_pct=0.5)
    noisy = rows(SMALL, STEADY, 1) + rows(LARGE, STEADY, 11) + rows(HUGE, LUCK, 21)
    assert not is_precision_reached(plan, noisy)
    assert len(remaining_runs(plan, noisy)) == 18
    low, high = stopping_rule(plan, noisy).half_widths_pct()
    assert low < 0.5 < 5 < high


def test_without_a_width_nothing_ends_early() -> None:
    plan = Plan(name="two", variants=(SMALL, LARGE), repeats=9)
    assert not is_precision_reached(plan, rows(SMALL, STEADY, 1) + rows(LARGE, STEADY, 11))


def test_what_ran_out_of_memory_is_not_waited_for() -> None:
    plan = Plan(name="three", variants=(SMALL, LARGE, HUGE), repeats=9, until_pct=0.5)
    made = rows(SMALL, STEADY, 1) + rows(LARGE, STEADY, 11)
    assert not is_precision_reached(plan, made), "the third was not tried yet"
    assert is_precision_reached(plan, [*made, result(21, HUGE, outcome="out_of_memory").row])


def test_each_workload_has_a_baseline_of_its_own() -> None:
    rule = StoppingRule.from_runs([rows(spec, STEADY, 1) for spec in (SMALL, OTHER, LARGE, ANOTHER)])
    specs = [[made[0].spec for made in variants] for variants in rule.by_workload]
    assert specs == [[SMALL, LARGE], [OTHER, ANOTHER]]
    assert len(rule.half_widths_pct()) == 2
    assert not StoppingRule.from_runs([rows(SMALL, STEADY, 1), rows(OTHER, STEADY, 1)]).is_met(0.5), (
        "nothing to compare"
    )
    assert StoppingRule.from_runs([]).half_widths_pct() == []
