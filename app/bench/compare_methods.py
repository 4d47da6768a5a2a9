"""Three ways to an interval on the ratio of two variants' throughput, from the step times of their processes."""

from collections.abc import Sequence

import numpy as np

from app.analysis.intervals import LEVEL, ratio
from app.records import Floats

Interval = tuple[float, float]
_RESAMPLES = 400


def throughputs(log_steps: Floats) -> Floats:
    """What the program measures of a process: steps over the time they took together. The last axis is the steps."""
    return np.asarray(1 / np.exp(log_steps).mean(axis=-1))


def of_processes(values: Sequence[float], baseline: Sequence[float], level: float = LEVEL) -> Interval:
    """The program's own interval, of one number a process."""
    found = ratio(values, baseline, level)
    assert found is not None
    assert found.interval is not None, "two processes or more a side"
    return found.interval


def over_all_steps(log_steps: Floats, baseline: Floats) -> Interval:
    """The same as if every step were a process of its own; shapes (processes, steps)."""
    return of_processes(np.exp(-log_steps).ravel().tolist(), np.exp(-baseline).ravel().tolist())


def bootstrap(random: np.random.Generator, log_steps: Floats, baseline: Floats) -> Interval:
    """The percentile interval of a hierarchical bootstrap: processes drawn again, and steps within each.

    Davison and Hinkley (1997), "Bootstrap Methods and their Application", section 3.8. The mean of the steps drawn of a
    process is taken as normal around the process's own, which spares drawing each.
    """
    drawn = np.log(_mean_times(random, baseline)) - np.log(_mean_times(random, log_steps))
    low, high = np.exp(np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    return float(low), float(high)


def _mean_times(random: np.random.Generator, log_steps: Floats) -> Floats:
    """The mean step time of each resample."""
    times = np.exp(log_steps)
    means, errors = times.mean(axis=-1), times.std(axis=-1) / np.sqrt(times.shape[-1])
    chosen = random.integers(len(means), size=(_RESAMPLES, len(means)))
    return np.asarray((means[chosen] + errors[chosen] * random.normal(size=chosen.shape)).mean(axis=1))
