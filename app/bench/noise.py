"""Made-up step times with the noise of real machines, for judging methods that compare variants.

Sizes are of the order seen in the blocks of stored runs on an H200 (docs/measurements): within a process blocks differ
by 1 to 9 %, and neighbours are alike; processes of one variant are taken to differ by about 1 %. In every kind a
variant may be up to twice or only half as noisy as said.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from app.records import Floats
from app.runs.schedule import interleaved

STEPS = 100
"""Steps a process."""


class Shape(NamedTuple):
    """How many step times to make: each of these has `STEPS`."""

    cases: int
    variants: int
    processes: int


Noise = Callable[[np.random.Generator, Shape], Floats]
"""Gives the logarithm of step times, the same for all variants in the long run; `STEPS` is its last axis."""


def process_to_process(random: np.random.Generator, shape: Shape) -> Floats:
    """Each process has its own luck (memory layout, autotuning): 1 %; its steps differ by 3 %."""
    return _noisiness(random, shape) * (_luck(random, shape, 0.01) + _steps(random, shape, 0.03))


def autocorrelation(random: np.random.Generator, shape: Shape) -> Floats:
    """Steps differ by 5 % and each is much like the one before, as clocks wander; luck of 0.5 %."""
    likeness = 0.9
    steps = _steps(random, shape, 0.05)
    for step in range(1, STEPS):
        steps[..., step] = likeness * steps[..., step - 1] + np.sqrt(1 - likeness**2) * steps[..., step]
    return np.asarray(_noisiness(random, shape) * (_luck(random, shape, 0.005) + steps), dtype=np.float64)


def outliers(random: np.random.Generator, shape: Shape) -> Floats:
    """One step in 50 takes twice as long, and one process in ten is slower throughout, by 2 % on average."""
    slow_steps = np.log(2) * (random.random((*shape, STEPS)) < 0.02)
    slow_processes = random.exponential(0.02, (*shape, 1)) * (random.random((*shape, 1)) < 0.1)
    usual = _luck(random, shape, 0.005) + _steps(random, shape, 0.03)
    return np.asarray(_noisiness(random, shape) * usual + slow_steps + slow_processes, dtype=np.float64)


def drift(random: np.random.Generator, shape: Shape) -> Floats:
    """The machine gets slower or faster by and by, 0.3 % from run to run and 1 % within one; luck of 0.5 %.

    Runs are made in the order of an experiment, interleaved, so that a drift meets all variants alike.
    """
    machine = np.cumsum(random.normal(0, 0.003, (shape.cases, shape.variants * shape.processes)), axis=1)
    met = np.empty((*shape, 1))
    for place, variant in enumerate(interleaved(shape.variants, shape.processes)):
        met[:, variant, place // shape.variants, 0] = machine[:, place]
    within = random.normal(0, 0.01, (*shape, 1)) * np.linspace(-0.5, 0.5, STEPS)
    return _noisiness(random, shape) * (_luck(random, shape, 0.005) + _steps(random, shape, 0.03)) + met + within


NOISES: Mapping[str, Noise] = {
    "process to process": process_to_process,
    "autocorrelation": autocorrelation,
    "outliers": outliers,
    "drift": drift,
}


def _noisiness(random: np.random.Generator, shape: Shape) -> Floats:
    """A factor for each variant, from a half to two."""
    return np.asarray(2 ** random.uniform(-1, 1, (shape.cases, shape.variants, 1, 1)))


def _luck(random: np.random.Generator, shape: Shape, sd: float) -> Floats:
    return random.normal(0, sd, (*shape, 1))


def _steps(random: np.random.Generator, shape: Shape, sd: float) -> Floats:
    return random.normal(0, sd, (*shape, STEPS))
