"""Part of `compare`: whether a machine that repeats itself every few runs can imitate a difference of two variants.

All variants are alike, and the machine is slower by 5 % in half of every cycle. What an interval covers is counted for
each order by itself: an experiment has one order, so the mean over orders says little of the one that it got.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from app.analysis.intervals import PLANNED_LEVEL
from app.runs.experiment.schedule import run_order
from benchmarks.harness import Result
from benchmarks.looks import MIN_COVERAGE_PCT, welch

CYCLES = (2, 3, 4, 6, 8)
ROUNDS = (3, 4, 5, 7, 10, 20)
SEEDS = range(120)
_DRAWS = 40
"""Experiments for each place in the cycle at which one may begin."""
_SLOWER, _NOISE = 0.05, 0.002


def coverage_pct(order: Sequence[int], variants: int, cycle: int, random: np.random.Generator) -> float:
    """Return how often the intervals of all pairs of variants cover the truth in one order of runs, in percent."""
    begins = np.repeat(np.arange(cycle), _DRAWS)[:, np.newaxis]
    machine = -_SLOWER * ((np.arange(len(order)) + begins) % cycle < cycle / 2)
    logs = machine + random.normal(0, _NOISE, machine.shape)
    sides = [logs[:, np.array(order) == variant] for variant in range(variants)]
    pairs = [welch(a, b) for a, b in combinations(sides, 2)]
    return 100 * float(np.mean([abs(pair.difference) <= pair.half_width(PLANNED_LEVEL) for pair in pairs]))


def coverages_pct(variants: int, rounds: int, seeds: Iterable[int | None], cycles: Iterable[int]) -> list[list[float]]:
    """Return the coverage of every order that one of these seeds draws: a list per cycle."""
    random = np.random.default_rng(20_261_128)
    orders = sorted({run_order(variants, rounds, seed) for seed in seeds})
    return [[coverage_pct(order, variants, cycle, random) for order in orders] for cycle in cycles]


def measure() -> Iterator[Result]:
    """Measure the worst and the mean coverage of the program's orders; below the limit are only those of many variants.

    Of four variants or more no order of three rounds is without a cycle that imitates a difference of some two.
    """
    for variants in (2, 3, 4, 8):
        for rounds in ROUNDS:
            for cycle, covered in zip(CYCLES, coverages_pct(variants, rounds, SEEDS, CYCLES), strict=True):
                label = f"orders of {variants} variants, {rounds} rounds, a cycle of {cycle} runs"
                limit = MIN_COVERAGE_PCT if variants <= 3 else None
                yield Result(name=f"{label}: covers at worst", value=min(covered), unit="%", limit=limit, at_least=True)
                yield Result(name=f"{label}: covers on average", value=float(np.mean(covered)), unit="%")
    for cycle, covered in zip(CYCLES, coverages_pct(2, 10, [None], CYCLES), strict=True):
        yield Result(name=f"forwards and backwards, a cycle of {cycle} runs: covers", value=covered[0], unit="%")
