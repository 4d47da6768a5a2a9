"""Telemetry of a run's measured phase: its time window, GPU values, means and peaks."""

from collections.abc import Iterator, Sequence

import numpy as np

from app.analysis.align import TimeSeries, combine, with_gaps
from app.records import Floats, Ints, SampleColumns, StoredRun


def gpu_columns(run: StoredRun) -> list[SampleColumns]:
    """Return the samples of the GPUs that the run used."""
    return [columns for columns in run.samples if columns.device.kind == "gpu"]


def measured_window(run: StoredRun) -> tuple[int, int] | None:
    """Return when `measure` began and ended, of a running run its newest sample; None for an empty window."""
    measure_phase = next((phase for phase in run.phases if phase.name == "measure"), None)
    if measure_phase is None:
        return None
    newest = (int(times[-1]) for device in run.samples for times in (device.t_ns, device.slow_t_ns) if times.size)
    end_ns = measure_phase.end_ns or max(newest, default=measure_phase.start_ns)
    return (measure_phase.start_ns, end_ns) if end_ns > measure_phase.start_ns else None


def measured_values(run: StoredRun, field: str) -> list[Floats]:
    """Return the values of a telemetry field in `measure`, one array per GPU that reported it."""
    window = measured_window(run)
    if window is None:
        return []
    gpus = gpu_columns(run)
    fast = [(gpu.t_ns, gpu.fields[field]) for gpu in gpus if field in gpu.fields]
    slow = [(gpu.slow_t_ns, gpu.slow[field]) for gpu in gpus if field in gpu.slow]
    found = (values_in_window(t_ns, values, *window) for t_ns, values in (*fast, *slow))
    return [values for values in found if values.size]


def measured_means(run: StoredRun, field: str) -> Iterator[float]:
    """Yield the mean of one field in `measure` for each GPU that reported it."""
    return (float(values.mean()) for values in measured_values(run, field))


def values_in_window(t_ns: Ints, values: Floats, start_ns: int, end_ns: int) -> Floats:
    """Return the values read in (start_ns, end_ns], without absent ones.

    Args:
        t_ns: Times of the readings, shape (n,).
        values: The readings, shape (n,), NaN if absent.
        start_ns: Start of the window, excluded.
        end_ns: End of the window, included.
    """
    return np.asarray(values[(t_ns > start_ns) & (t_ns <= end_ns) & ~np.isnan(values)])


def peak_power_mw(run: StoredRun) -> float | None:
    """Return the highest power of the run's GPUs together in its `measure`, by the samples taken then."""
    window = measured_window(run)
    if window is None:
        return None
    power = combine([with_gaps(TimeSeries(gpu.t_ns, gpu.fields["power_mw"])) for gpu in _used_gpus(run)], "sum")
    return _highest([values_in_window(power.t_ns, power.y, *window)])


def peak_temperature_c(run: StoredRun) -> float | None:
    """Return the temperature of the run's hottest GPU in its `measure`, by the samples taken then."""
    window = measured_window(run)
    if window is None:
        return None
    return _highest([values_in_window(gpu.t_ns, gpu.fields["temperature_c"], *window) for gpu in _used_gpus(run)])


def _used_gpus(run: StoredRun) -> list[SampleColumns]:
    """Return the samples of its GPUs; none of a run on the CPU, whatever else the machine has."""
    return [] if run.row.spec.variant.get("gpus") == 0 else gpu_columns(run)


def _highest(parts: Sequence[Floats]) -> float | None:
    return max((float(part.max()) for part in parts if part.size), default=None)
