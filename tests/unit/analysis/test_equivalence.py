"""Equality within a margin, by simulation: how often it is said wrongly, and that too few runs never show it."""

from dataclasses import replace

import numpy as np
import pytest

from app.analysis.verdict import Equivalence, VariantResult, judge, throughputs
from app.values.records import RunRow
from tests.present import present
from tests.unit.viewmodels.stored import run_row
from workloads.protocol import RunSpec

MARGIN_PCT = 2.0
LOWEST = 0.98


def rows(rates: list[float], layout: str, first: int) -> list[RunRow]:
    made = [run_row(number, workload="cnn10", throughput=rate) for number, rate in enumerate(rates, first)]
    return [
        replace(
            row, spec=RunSpec(workload="cnn10", variant={**row.spec.variant, "layout": layout}), planned=str(len(rates))
        )
        for row in made
    ]


def compared(values: list[float], baseline: list[float], margin_pct: float = MARGIN_PCT) -> VariantResult:
    """The verdict on values against a baseline."""
    _, found = judge([*rows(baseline, "NHWC", 1), *rows(values, "NCHW", 101)], 1, margin_pct)
    return found


def simulated(truth: float, repeats: int, sd: float, cases: int = 400) -> list[Equivalence]:
    random = np.random.default_rng(20_261_122)
    found = []
    for a, b in np.exp(random.normal(0, sd, (cases, 2, repeats))):
        result = compared((truth * a).tolist(), b.tolist())
        found.append(present(result.equivalence))
    return found


@pytest.mark.parametrize("truth", [LOWEST, 1 / LOWEST])
@pytest.mark.parametrize("repeats", [3, 10])
def test_variants_that_differ_by_the_margin_are_called_equal_in_five_percent_at_most(
    truth: float, repeats: int
) -> None:
    found = simulated(truth, repeats, sd=0.004)
    share = sum(each.decision == "equal" for each in found) / len(found)
    assert 0.005 < share < 0.07, "3 % at the first look: the test is neither too lax nor idle"


def test_one_that_is_slower_by_the_margin_is_rarely_called_not_slower_or_slower() -> None:
    found = simulated(LOWEST, 5, sd=0.01)
    assert sum(each.is_not_slower for each in found) / len(found) < 0.07
    assert sum(each.decision == "slower" for each in found) / len(found) < 0.05


def test_identical_variants_are_called_equal_once_the_runs_suffice_and_never_before() -> None:
    assert all(each.decision == "equal" for each in simulated(1.0, 10, sd=0.004, cases=50))
    noisy = simulated(1.0, 3, sd=0.1, cases=200)
    assert sum(each.decision == "equal" for each in noisy) == 0
    assert all(each.decision == "cannot tell" for each in noisy if not each.is_not_slower and each.decision != "slower")
    assert sum(each.decision == "cannot tell" for each in noisy) > 190


def test_what_is_slower_or_faster_for_sure_is_so_by_the_verdicts_own_interval() -> None:
    slower = compared([90.0, 90.1, 89.9], [100.0, 100.1, 99.9])
    assert slower.equivalence is not None
    assert (slower.decision, slower.equivalence.decision, slower.equivalence.is_not_slower) == (
        "slower",
        "slower",
        False,
    )
    faster = compared([110.0, 110.1, 109.9], [100.0, 100.1, 99.9])
    assert faster.equivalence is not None
    assert (faster.equivalence.decision, faster.equivalence.is_not_slower) == ("faster", True)
    small = compared([99.5, 99.51, 99.49], [100.0, 100.01, 99.99])
    assert small.equivalence is not None
    assert (small.decision, small.equivalence.decision) == ("slower", "equal"), "a real difference, and a small one"
    assert present(present(small.speedup).interval)[0] < present(small.equivalence.interval)[0], (
        "the test's interval is the narrower one"
    )


def test_it_is_the_same_seen_from_either_side() -> None:
    a, b = [100.0, 101.0, 99.5, 100.2], [101.0, 100.0, 102.0, 101.5]
    one, other = present(compared(a, b).equivalence), present(compared(b, a).equivalence)
    assert present(one.interval) == pytest.approx([1 / end for end in reversed(present(other.interval))])
    assert one.decision == other.decision


def test_one_run_each_tells_nothing_and_without_a_margin_nothing_is_tested() -> None:
    alone = compared([100.0], [100.0])
    assert alone.equivalence is not None
    assert (alone.equivalence.decision, alone.equivalence.interval, alone.equivalence.is_not_slower) == (
        "cannot tell",
        None,
        False,
    )
    results = judge([*rows([1.0, 2.0], "NHWC", 1), *rows([1.0, 2.0], "NCHW", 101)], 1)
    assert [result.equivalence for result in results] == [None, None]
    assert throughputs(results[0].runs) == [1.0, 2.0]
