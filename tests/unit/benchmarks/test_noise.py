"""Noise of made-up runs: which run is on which side, and how often a difference is said."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from app.errors import UserError
from app.values.records import RunHeader
from benchmarks.noise import Tally, analyse, assign_sides
from tests.fakes.experiments import header
from tests.present import present
from workloads.catalog import Machine, complete

SPEC = complete("lstm", {"gpus": 0}, Machine(cpu_count=4))
S = 1_000_000_000


def runs(rates: Sequence[float], gpus: Sequence[str] = (), every_s: float = 4.0) -> list[RunHeader]:
    """Runs of one variant in the order of their start, on these GPUs in turn."""
    made = [header(number, SPEC, rate) for number, rate in enumerate(rates, 1)]
    return [
        replace(
            run,
            row=replace(run.row, started_utc_ns=int(place * every_s * S)),
            gpu_uuids=frozenset([gpus[place % len(gpus)]] if gpus else []),
        )
        for place, run in enumerate(made)
    ]


def sides(made: Sequence[RunHeader]) -> str:
    return "".join(str(row.spec.variant["side"]) for each in assign_sides(made) for row in each)


def test_sides_go_forwards_and_backwards_in_turn_in_the_order_of_start() -> None:
    made = runs([1.0] * 9)
    assert sides(made) == "ABBAABBA", "the ninth has no partner"
    assert sides(made[::-1]) == "ABBAABBA"


@pytest.mark.parametrize("gpus", ["01", "0110", "0001", "010011"])
def test_each_gpu_has_as_many_runs_of_both_sides(gpus: str) -> None:
    made = runs([1.0] * 24, gpus)
    placed = list(zip(sides(made), (min(run.gpu_uuids) for run in made), strict=True))
    for gpu in "01":
        assert abs(placed.count(("A", gpu)) - placed.count(("B", gpu))) <= 1


def test_independent_runs_are_said_to_differ_as_often_as_the_interval_says() -> None:
    random = np.random.default_rng(20_261_122)
    analysis = analyse(runs(np.exp(random.normal(0, 0.03, 900)).tolist()))
    tallies = {tally.name: tally for tally in analysis.tallies}
    assert list(tallies) == [
        "3 against 3, interleaved",
        "5 against 5, interleaved",
        "10 against 10, interleaved",
        "all 450 against 450, interleaved",
        "3, then 3, not interleaved",
        "3 against 3, drawn at random",
    ]
    assert [tally.count for tally in analysis.tallies] == [150, 90, 45, 1, 150, 2000]
    for name in ("3 against 3, interleaved", "5 against 5, interleaved", "3, then 3, not interleaved"):
        low, high = tallies[name].share_interval
        assert low <= 0.03 <= high
    assert analysis.sd == pytest.approx(0.03, rel=0.1)
    assert analysis.successive_sd == pytest.approx(analysis.sd, rel=0.1)
    assert abs(analysis.lag1) < 0.1
    assert analysis.seconds == 4.0
    assert present(analysis.resolutions[5]).repeats == 37


def test_a_drift_makes_runs_one_after_the_other_differ_and_interleaved_ones_not() -> None:
    random = np.random.default_rng(3)
    rates = np.exp(random.normal(0, 0.0005, 120) + np.linspace(0, 0.6, 120))
    found = {tally.name: tally for tally in analyse(runs(rates.tolist())).tallies}
    assert found["3 against 3, interleaved"].different <= 1
    assert found["3, then 3, not interleaved"].different >= 15
    assert found["3, then 3, not interleaved"].decisions.count("faster") >= 15, "the later side"


def test_the_share_has_an_exact_interval() -> None:
    none = Tally("none", ("no difference seen",) * 20, 0.1)
    assert none.share_interval == pytest.approx((0.0, 0.1684), abs=1e-4)
    some = Tally("some", ("faster", "slower", *("no difference seen",) * 8), 0.1)
    assert some.share_interval == pytest.approx((0.0252, 0.5561), abs=1e-4)
    assert Tally("all", ("faster",), 0.1).share_interval == pytest.approx((0.025, 1.0))


def test_two_gpus_make_a_run_in_half_the_time() -> None:
    assert analyse(runs([1.0, 1.1] * 6, "01", every_s=2.0), parallel=2).seconds == pytest.approx(2.0)


def test_too_few_runs_are_one_sentence() -> None:
    with pytest.raises(UserError, match="Only 2 pairs of runs were measured: it takes 3 or more"):
        analyse(runs([1.0] * 5))
