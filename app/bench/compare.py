"""`bench compare`: how often a verdict is wrong, on made-up runs whose truth is known.

Two variants that truly differ by 0, 1 or 5 %, and 12 variants that are all alike, under four kinds of noise; with as
many processes as said, and repeated until the interval is narrow. Intervals and stopping are the program's own; what
else is in use is judged beside them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.analysis.intervals import LEVEL, together
from app.analysis.repeats import FIRST_LOOK, settled
from app.bench.compare_methods import Interval, bootstrap, of_processes, over_all_steps, throughputs
from app.bench.noise import NOISES, Noise, Shape
from app.bench.result import Result
from app.records import Floats

CASES = 2000
EFFECTS = (1.0, 1.01, 1.05)
PROCESSES = (3, 5)
MOST_PROCESSES = 20
UNTIL_PCT = 1.5
VARIANTS = 12

LEAST_COVERAGE_PCT, MOST_COVERAGE_PCT = 93.0, 98.0
FALSE_PCT = 5.0
OURS, OVER_STEPS, BOOTSTRAP = "our interval", "t over all steps", "hierarchical bootstrap"

_SEED = 20_261_121


@dataclass(slots=True)
class Tally:
    """Cases by what is true of them: how many there were, how many cover the truth, how many say "faster"."""

    cases: dict[float, int] = field(default_factory=dict)
    covered: dict[float, int] = field(default_factory=dict)
    faster: dict[float, int] = field(default_factory=dict)

    def add(self, truth: float, *intervals: Interval) -> None:
        """Counts one case: it covers where all its intervals do, and says "faster" where one of them does."""
        for counts, counted in (
            (self.cases, True),
            (self.covered, all(low <= truth <= high for low, high in intervals)),
            (self.faster, any(low > 1 for low, _ in intervals)),
        ):
            counts[truth] = counts.get(truth, 0) + counted

    @property
    def coverage_pct(self) -> float:
        """Percent of all cases that cover the truth."""
        return 100 * sum(self.covered.values()) / sum(self.cases.values())

    def faster_pct(self, truth: float) -> float:
        """Percent of the cases of this truth that say "faster"; for a truth of 1 each of them is false."""
        return 100 * self.faster[truth] / self.cases[truth]


def measure() -> Sequence[Result]:
    """Coverage and false verdicts in percent, by noise and number of processes."""
    return [result for name, noise in NOISES.items() for result in _of_noise(name, noise)]


def _of_noise(name: str, noise: Noise) -> Iterator[Result]:
    random = np.random.default_rng(_SEED)
    for processes in PROCESSES:
        of = f"{name}, {processes} processes"
        tallies = two_variants(noise, random, processes, CASES)
        ours = tallies[OURS].coverage_pct
        yield Result(name=f"{of}: covers", value=ours, unit="%", limit=LEAST_COVERAGE_PCT, at_least=True)
        if processes >= 5:
            yield Result(name=f"{of}: covers no more than it says", value=ours, unit="%", limit=MOST_COVERAGE_PCT)
        for method in (OVER_STEPS, BOOTSTRAP):
            yield Result(name=f"{of}: {method} covers", value=tallies[method].coverage_pct, unit="%")
        for method, tally in tallies.items():
            limit = FALSE_PCT if method == OURS else None
            yield Result(name=f"{of}: {method} falsely faster", value=tally.faster_pct(1.0), unit="%", limit=limit)
    yield from _stopped(f"{name}, repeated until ± {UNTIL_PCT:g} %", noise, random)
    for processes in PROCESSES:
        of = f"{name}, {VARIANTS} variants, {processes} processes"
        together_, alone = many_variants(noise, random, processes, CASES)
        yield Result(name=f"{of}: any falsely faster", value=together_.faster_pct(1.0), unit="%", limit=FALSE_PCT)
        yield Result(name=f"{of}: the same, each judged alone", value=alone.faster_pct(1.0), unit="%")


def _stopped(of: str, noise: Noise, random: np.random.Generator) -> Iterator[Result]:
    tally, processes = until_narrow(noise, random, UNTIL_PCT, CASES)
    yield Result(name=f"{of}: covers", value=tally.coverage_pct, unit="%", limit=LEAST_COVERAGE_PCT, at_least=True)
    yield Result(name=f"{of}: falsely faster", value=tally.faster_pct(1.0), unit="%", limit=FALSE_PCT)
    yield Result(name=f"{of}: takes", value=processes, unit="processes")


def two_variants(noise: Noise, random: np.random.Generator, processes: int, cases: int) -> dict[str, Tally]:
    """Each method's intervals on two variants that differ by each of `EFFECTS`, so many cases of each."""
    tallies = {OURS: Tally(), OVER_STEPS: Tally(), BOOTSTRAP: Tally()}
    for truth in EFFECTS:
        for base, other in _pairs(noise, random, processes, cases, truth):
            rates = (throughputs(other).tolist(), throughputs(base).tolist())
            tallies[OURS].add(truth, of_processes(*rates))
            tallies[OVER_STEPS].add(truth, over_all_steps(other, base))
            tallies[BOOTSTRAP].add(truth, bootstrap(random, other, base))
    return tallies


def until_narrow(noise: Noise, random: np.random.Generator, until_pct: float, cases: int) -> tuple[Tally, float]:
    """The program's intervals where pairs are added until it calls them settled, and how many that takes on average.

    Whoever is not settled after `MOST_PROCESSES` is judged as it then is.
    """
    tally, taken = Tally(), 0
    for truth in EFFECTS:
        for base, other in _pairs(noise, random, MOST_PROCESSES, cases, truth):
            rates, base_rates = throughputs(other).tolist(), throughputs(base).tolist()
            looks = range(FIRST_LOOK, MOST_PROCESSES)
            settling = (n for n in looks if settled(rates[:n], base_rates[:n], until_pct))
            n = next(settling, MOST_PROCESSES)
            tally.add(truth, of_processes(rates[:n], base_rates[:n]))
            taken += n
    return tally, taken / (cases * len(EFFECTS))


def many_variants(noise: Noise, random: np.random.Generator, processes: int, cases: int) -> tuple[Tally, Tally]:
    """`VARIANTS` that are all alike, the first the baseline: their intervals together, and each for itself."""
    corrected, alone = Tally(), Tally()
    rates = throughputs(noise(random, Shape(cases, VARIANTS, processes))).tolist()
    for baseline, *others in rates:
        for tally, level in ((corrected, together(LEVEL, len(others))), (alone, LEVEL)):
            tally.add(1.0, *(of_processes(other, baseline, level) for other in others))
    return corrected, alone


def _pairs(
    noise: Noise, random: np.random.Generator, processes: int, cases: int, truth: float
) -> Iterator[tuple[Floats, Floats]]:
    """Log step times of a baseline and of a variant that is `truth` times as fast; shapes (processes, steps)."""
    for base, other in noise(random, Shape(cases, 2, processes)):
        yield base, other - np.log(truth)
