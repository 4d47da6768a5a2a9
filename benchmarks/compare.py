"""Benchmark `compare`: how often a verdict is wrong, on synthetic runs whose true speed-up is known.

Sizes are of the order seen in the blocks of stored runs on an H200 (docs/internals/measurements): within a process
blocks differ by 1 to 9 %, and consecutive ones are alike; processes of one variant are taken to differ by about 1 %. In
every kind of noise a variant may be up to twice or only half as noisy as given.

Two variants that truly differ by 0, 1 or 5 %, and 12 variants that are all alike, under four kinds of noise; with a
fixed number of processes, and repeated until the interval is narrow. Intervals and stopping rule are the program's own;
other common methods are measured for comparison.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from app.analysis.intervals import LEVEL, MIN_REPEATS, PLANNED_LEVEL, level_at, precision_reached, ratio
from app.runs.experiment.schedule import run_order
from app.values.records import Floats
from benchmarks import looks, orders
from benchmarks.harness import Result

Interval = tuple[float, float]
_RESAMPLES = 400


def throughputs(log_steps: Floats) -> Floats:
    """Return the throughput that the program measures per process: steps over their total time.

    The last axis of `log_steps` is the steps.
    """
    return np.asarray(1 / np.exp(log_steps).mean(axis=-1))


def process_interval(values: Sequence[float], baseline: Sequence[float], level: float = PLANNED_LEVEL) -> Interval:
    """Return the program's own interval of a speed-up.

    Args:
        values: Throughput of each process of the variant.
        baseline: Throughput of each process of the baseline.
        level: Confidence level.
    """
    found = ratio(values, baseline, level)
    assert found is not None
    assert found.interval is not None, "two processes or more a side"
    return found.interval


def step_interval(log_steps: Floats, baseline: Floats) -> Interval:
    """Return the interval as if every step were a process of its own; shapes (processes, steps)."""
    return process_interval(np.exp(-log_steps).ravel().tolist(), np.exp(-baseline).ravel().tolist(), LEVEL)


def bootstrap_interval(random: np.random.Generator, log_steps: Floats, baseline: Floats) -> Interval:
    """Return the percentile interval of a hierarchical bootstrap: processes are resampled, and steps within each.

    Davison and Hinkley (1997), "Bootstrap Methods and their Application", section 3.8. The mean of a process's
    resampled steps is taken as normal around the process's own, which saves drawing each.

    Args:
        random: Random numbers.
        log_steps: Logarithm of the variant's step times; shape (processes, steps).
        baseline: The same of the baseline.
    """
    drawn = np.log(_mean_times(random, baseline)) - np.log(_mean_times(random, log_steps))
    low, high = np.exp(np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    return float(low), float(high)


def _mean_times(random: np.random.Generator, log_steps: Floats) -> Floats:
    """Return the mean step time of each resample."""
    times = np.exp(log_steps)
    means, errors = times.mean(axis=-1), times.std(axis=-1) / np.sqrt(times.shape[-1])
    chosen = random.integers(len(means), size=(_RESAMPLES, len(means)))
    return np.asarray((means[chosen] + errors[chosen] * random.normal(size=chosen.shape)).mean(axis=1))


STEPS = 100
"""Steps per process."""


class Shape(NamedTuple):
    """How many processes to simulate; each has `STEPS` steps."""

    cases: int
    variants: int
    processes: int


Noise = Callable[[np.random.Generator, Shape], Floats]
"""Returns the logarithm of step times, in the long run the same for all variants; the last axis is the steps."""


def process_to_process(random: np.random.Generator, shape: Shape) -> Floats:
    """Simulate processes that differ by 1 % (memory layout, autotuning) and steps that differ by 3 %."""
    return _noise_scale(random, shape) * (_process_offsets(random, shape, 0.01) + _steps(random, shape, 0.03))


def autocorrelation(random: np.random.Generator, shape: Shape) -> Floats:
    """Simulate steps that differ by 5 %, each much like the one before, as clocks wander; processes by 0.5 %."""
    likeness = 0.9
    steps = _steps(random, shape, 0.05)
    for step in range(1, STEPS):
        steps[..., step] = likeness * steps[..., step - 1] + np.sqrt(1 - likeness**2) * steps[..., step]
    return np.asarray(_noise_scale(random, shape) * (_process_offsets(random, shape, 0.005) + steps), dtype=np.float64)


def outliers(random: np.random.Generator, shape: Shape) -> Floats:
    """Simulate one step in 50 that takes twice as long, and one process in ten that is slower, by 2 % on average."""
    slow_steps = np.log(2) * (random.random((*shape, STEPS)) < 0.02)
    slow_processes = random.exponential(0.02, (*shape, 1)) * (random.random((*shape, 1)) < 0.1)
    typical = _process_offsets(random, shape, 0.005) + _steps(random, shape, 0.03)
    return np.asarray(_noise_scale(random, shape) * typical + slow_steps + slow_processes, dtype=np.float64)


def drift(random: np.random.Generator, shape: Shape) -> Floats:
    """Simulate a machine that gets slower or faster, 0.3 % from run to run and 1 % within one; processes by 0.5 %.

    Runs are interleaved as in an experiment, so that drift affects all variants alike.
    """
    machine = np.cumsum(random.normal(0, 0.003, (shape.cases, shape.variants * shape.processes)), axis=1)
    met = np.empty((*shape, 1))
    for index, variant in enumerate(run_order(shape.variants, shape.processes, _SEED)):
        met[:, variant, index // shape.variants, 0] = machine[:, index]
    trend = random.normal(0, 0.01, (*shape, 1)) * np.linspace(-0.5, 0.5, STEPS)
    return (
        _noise_scale(random, shape) * (_process_offsets(random, shape, 0.005) + _steps(random, shape, 0.03))
        + met
        + trend
    )


NOISES: Mapping[str, Noise] = {
    "process to process": process_to_process,
    "autocorrelation": autocorrelation,
    "outliers": outliers,
    "drift": drift,
}


def _noise_scale(random: np.random.Generator, shape: Shape) -> Floats:
    """Return a factor for each variant, from a half to two."""
    return np.asarray(2 ** random.uniform(-1, 1, (shape.cases, shape.variants, 1, 1)))


def _process_offsets(random: np.random.Generator, shape: Shape, sd: float) -> Floats:
    return random.normal(0, sd, (*shape, 1))


def _steps(random: np.random.Generator, shape: Shape, sd: float) -> Floats:
    return random.normal(0, sd, (*shape, STEPS))


CASES = 2000
EFFECTS = (1.0, 1.01, 1.05)
PROCESSES = (3, 5)
MAX_PROCESSES = 20
UNTIL_PCT = 1.5
VARIANTS = 12

MAX_COVERAGE_PCT = 99.0
PROGRAM, OVER_STEPS, BOOTSTRAP = "our interval", "t over all steps", "hierarchical bootstrap"

_SEED = 20_261_121


@dataclass(slots=True)
class Tally:
    """Counts of cases by their true speed-up: all, those whose interval covers it, those that say a difference."""

    cases: dict[float, int] = field(default_factory=dict)
    covered: dict[float, int] = field(default_factory=dict)
    different: dict[float, int] = field(default_factory=dict)

    def add(self, truth: float, *intervals: Interval) -> None:
        """Count one case: it covers where all its intervals do, and says a difference where one is beside 1."""
        for counts, counted in (
            (self.cases, True),
            (self.covered, all(low <= truth <= high for low, high in intervals)),
            (self.different, any(low > 1 or high < 1 for low, high in intervals)),
        ):
            counts[truth] = counts.get(truth, 0) + counted

    @property
    def coverage_pct(self) -> float:
        """Percent of all cases that cover the truth."""
        return 100 * sum(self.covered.values()) / sum(self.cases.values())

    @property
    def false_alarms_pct(self) -> float:
        """Percent of the cases of identical variants that say either is faster."""
        return 100 * self.different[1.0] / self.cases[1.0]


def measure(cases: int = CASES) -> Sequence[Result]:
    """Measure coverage and false verdicts in percent, by noise and number of processes.

    Those of one number per process are quick to simulate: ten times as many cases.
    """
    steps = [result for name, noise in NOISES.items() for result in _noise_results(name, noise, cases)]
    return [*steps, *looks.measure(np.random.default_rng(_SEED), 10 * cases), *orders.measure()]


def _noise_results(name: str, noise: Noise, cases: int) -> Iterator[Result]:
    random = np.random.default_rng(_SEED)
    for processes in PROCESSES:
        label = f"{name}, {processes} processes"
        tallies = two_variants(noise, random, processes, cases)
        coverage = tallies[PROGRAM].coverage_pct
        yield Result(name=f"{label}: covers", value=coverage, unit="%", limit=looks.MIN_COVERAGE_PCT, at_least=True)
        if processes >= 5:
            yield Result(name=f"{label}: covers no more than it says", value=coverage, unit="%", limit=MAX_COVERAGE_PCT)
        for method in (OVER_STEPS, BOOTSTRAP):
            yield Result(name=f"{label}: {method} covers", value=tallies[method].coverage_pct, unit="%")
        for method, tally in tallies.items():
            limit = looks.MAX_FALSE_PCT if method == PROGRAM else None
            yield Result(
                name=f"{label}: {method} falsely different", value=tally.false_alarms_pct, unit="%", limit=limit
            )
    yield from _stopping_results(f"{name}, repeated until ± {UNTIL_PCT:g} %", noise, random, cases)
    for processes in PROCESSES:
        label = f"{name}, {VARIANTS} variants, {processes} processes"
        corrected, alone = many_variants(noise, random, processes, cases)
        yield Result(
            name=f"{label}: any falsely different",
            value=corrected.false_alarms_pct,
            unit="%",
            limit=looks.MAX_FALSE_PCT,
        )
        yield Result(name=f"{label}: the same, each judged alone", value=alone.false_alarms_pct, unit="%")


def _stopping_results(label: str, noise: Noise, random: np.random.Generator, cases: int) -> Iterator[Result]:
    tally, processes = repeat_until_narrow(noise, random, UNTIL_PCT, cases)
    yield Result(
        name=f"{label}: covers", value=tally.coverage_pct, unit="%", limit=looks.MIN_COVERAGE_PCT, at_least=True
    )
    yield Result(name=f"{label}: falsely different", value=tally.false_alarms_pct, unit="%", limit=looks.MAX_FALSE_PCT)
    yield Result(name=f"{label}: takes", value=processes, unit="processes")


def two_variants(noise: Noise, random: np.random.Generator, processes: int, cases: int) -> dict[str, Tally]:
    """Count each method's intervals on two variants that differ by each of `EFFECTS`.

    Args:
        noise: Kind of noise.
        random: Random numbers.
        processes: Processes per variant.
        cases: Cases per effect.
    """
    tallies = {PROGRAM: Tally(), OVER_STEPS: Tally(), BOOTSTRAP: Tally()}
    for truth in EFFECTS:
        for base, other in _pairs(noise, random, processes, cases, truth):
            rates = (throughputs(other).tolist(), throughputs(base).tolist())
            tallies[PROGRAM].add(truth, process_interval(*rates))
            tallies[OVER_STEPS].add(truth, step_interval(other, base))
            tallies[BOOTSTRAP].add(truth, bootstrap_interval(random, other, base))
    return tallies


def repeat_until_narrow(noise: Noise, random: np.random.Generator, until_pct: float, cases: int) -> tuple[Tally, float]:
    """Count the program's intervals where processes are added until the target precision is reached.

    After `MAX_PROCESSES` the interval counts as it is.

    Args:
        noise: Kind of noise.
        random: Random numbers.
        until_pct: Target precision in percent.
        cases: Cases per effect.

    Returns:
        The counts, and the mean number of processes per variant.
    """
    tally, taken = Tally(), 0
    for truth in EFFECTS:
        for base, other in _pairs(noise, random, MAX_PROCESSES, cases, truth):
            rates, base_rates = throughputs(other).tolist(), throughputs(base).tolist()
            stops = (
                n for n in range(MIN_REPEATS, MAX_PROCESSES) if precision_reached(rates[:n], base_rates[:n], until_pct)
            )
            n = next(stops, MAX_PROCESSES)
            tally.add(truth, process_interval(rates[:n], base_rates[:n]))
            taken += n
    return tally, taken / (cases * len(EFFECTS))


def many_variants(noise: Noise, random: np.random.Generator, processes: int, cases: int) -> tuple[Tally, Tally]:
    """Count intervals of `VARIANTS` that are all alike, the first being the baseline.

    Args:
        noise: Kind of noise.
        random: Random numbers.
        processes: Processes per variant.
        cases: Number of cases.

    Returns:
        The counts with intervals corrected for several comparisons, and without the correction.
    """
    corrected, alone = Tally(), Tally()
    rates = throughputs(noise(random, Shape(cases, VARIANTS, processes))).tolist()
    for baseline, *others in rates:
        for tally, level in ((corrected, level_at(1, len(others))), (alone, level_at(1))):
            tally.add(1.0, *(process_interval(other, baseline, level) for other in others))
    return corrected, alone


def _pairs(
    noise: Noise, random: np.random.Generator, processes: int, cases: int, truth: float
) -> Iterator[tuple[Floats, Floats]]:
    """Yield log step times of a baseline and of a variant `truth` times as fast; shapes (processes, steps)."""
    for base, other in noise(random, Shape(cases, 2, processes)):
        yield base, other - np.log(truth)
