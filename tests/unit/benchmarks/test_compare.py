"""The simulation of `compare` with few cases: our interval has its nominal coverage, simpler ones do not."""

import numpy as np
import pytest

from benchmarks.compare import (
    BOOTSTRAP,
    NOISES,
    OVER_STEPS,
    PROGRAM,
    STEPS,
    Shape,
    Tally,
    many_variants,
    repeat_until_narrow,
    throughputs,
    two_variants,
)

CASES = 300


def random() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.mark.parametrize("name", NOISES)
def test_every_noise_is_of_a_size_a_real_machine_shows_and_favours_no_variant(name: str) -> None:
    shape = Shape(cases=200, variants=2, processes=5)
    log_steps = NOISES[name](random(), shape)
    assert log_steps.shape == (*shape, STEPS)
    rates = np.log(throughputs(log_steps))
    assert 0.003 < rates.std(axis=-1, ddof=1).mean() < 0.03
    assert abs(rates[:, 0].mean() - rates[:, 1].mean()) < 0.003


@pytest.mark.parametrize("name", ["process to process", "autocorrelation", "drift"])
def test_the_interval_over_processes_covers_and_one_over_steps_does_not(name: str) -> None:
    tallies = two_variants(NOISES[name], random(), 3, CASES)
    assert tallies[PROGRAM].coverage_pct >= 93.0
    assert tallies[PROGRAM].false_alarms_pct < 5.0
    assert tallies[OVER_STEPS].coverage_pct < 80.0
    assert tallies[OVER_STEPS].false_alarms_pct > 5.0
    assert tallies[BOOTSTRAP].coverage_pct < tallies[PROGRAM].coverage_pct


def test_a_false_alarm_is_one_in_either_direction() -> None:
    tally = Tally()
    for interval in ((0.8, 0.9), (1.1, 1.2), (0.9, 1.1), (0.95, 1.2)):
        tally.add(1.0, interval)
    tally.add(1.05, (1.01, 1.1))
    assert tally.false_alarms_pct == 50.0


def test_repeating_until_it_is_narrow_takes_fewer_processes_than_allowed_and_still_covers() -> None:
    tally, processes = repeat_until_narrow(NOISES["drift"], random(), 1.0, CASES)
    assert tally.coverage_pct >= 93.0
    assert 4 <= processes < 15


def test_twelve_variants_judged_together_seldom_have_a_false_winner_and_judged_alone_often() -> None:
    corrected, alone = many_variants(NOISES["process to process"], random(), 3, CASES)
    assert corrected.false_alarms_pct < 5.0 < alone.false_alarms_pct
    assert corrected.coverage_pct >= 93.0 > alone.coverage_pct
