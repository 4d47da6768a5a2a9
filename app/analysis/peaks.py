"""The extremes of a run's GPUs while it measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.analysis.align import Series, combine, with_gaps
from app.analysis.measured import measured_window, within
from app.records import Floats, SampleColumns, StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Power of all GPUs together and the temperature of the hottest; None is "not said"."""

    power_mw: float | None = None
    temperature_c: float | None = None


def peaks(run: StoredRun, gpus: Sequence[SampleColumns]) -> Peaks:
    """The highest values of these GPUs during the run's `measure`, by the samples taken then."""
    window = measured_window(run)
    if window is None:
        return Peaks()
    power = combine([with_gaps(Series(gpu.t_ns, gpu.fields["power_mw"])) for gpu in gpus], "sum")
    degrees = [within(gpu.t_ns, gpu.fields["temperature_c"], *window) for gpu in gpus]
    return Peaks(
        power_mw=_highest([within(power.t_ns, power.y, *window)]),
        temperature_c=_highest(degrees),
    )


def _highest(parts: Sequence[Floats]) -> float | None:
    return max((float(part.max()) for part in parts if part.size), default=None)
