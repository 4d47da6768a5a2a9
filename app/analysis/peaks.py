"""The extremes of a run's GPUs while it measured."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.analysis.align import Series, combine, with_gaps
from app.records import Floats, Ints, SampleColumns, StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Power of all GPUs together and the temperature of the hottest; None is "not said"."""

    power_mw: float | None = None
    temperature_c: float | None = None


def peaks(run: StoredRun, gpus: Sequence[SampleColumns]) -> Peaks:
    """The highest values of these GPUs during the run's `measure`, by the samples taken then."""
    window = next(((phase.start_ns, phase.end_ns) for phase in run.phases if phase.name == "measure"), None)
    if window is None:
        return Peaks()
    power = combine([with_gaps(Series(gpu.t_ns, gpu.fields["power_mw"])) for gpu in gpus], "sum")
    degrees = [_within(gpu.t_ns, gpu.fields["temperature_c"], *window) for gpu in gpus]
    return Peaks(
        power_mw=_highest([_within(power.t_ns, power.y, *window)]),
        temperature_c=_highest(degrees),
    )


def _within(t_ns: Ints, values: Floats, start_ns: int, end_ns: int | None) -> Floats:
    """The values from `start_ns` on, while a run goes on to the newest."""
    inside = t_ns >= start_ns
    return values[inside if end_ns is None else inside & (t_ns <= end_ns)]


def _highest(parts: Sequence[Floats]) -> float | None:
    return max((float(np.nanmax(part)) for part in parts if not np.isnan(part).all()), default=None)
