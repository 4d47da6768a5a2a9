"""What telemetry says of the measured part of a run."""

from collections.abc import Iterator

import numpy as np

from app.records import Floats, Ints, SampleColumns, StoredRun


def gpu_columns(run: StoredRun) -> list[SampleColumns]:
    """The samples of the GPUs that the run used."""
    return [columns for columns in run.samples if columns.device.kind == "gpu"]


def measured_window(run: StoredRun) -> tuple[int, int] | None:
    """When `measure` began and ended; of a run that goes on, the newest of its samples. None where it has no length."""
    measured = next((phase for phase in run.phases if phase.name == "measure"), None)
    if measured is None:
        return None
    newest = (int(times[-1]) for device in run.samples for times in (device.t_ns, device.slow_t_ns) if times.size)
    end_ns = measured.end_ns or max(newest, default=measured.start_ns)
    return (measured.start_ns, end_ns) if end_ns > measured.start_ns else None


def while_measuring(run: StoredRun, field: str) -> list[Floats]:
    """What each GPU said of a field of `SAMPLE_FIELDS` or `SLOW_FIELDS` then; one that said nothing is left out."""
    window = measured_window(run)
    if window is None:
        return []
    gpus = gpu_columns(run)
    quick = [(gpu.t_ns, gpu.fields[field]) for gpu in gpus if field in gpu.fields]
    slow = [(gpu.slow_t_ns, gpu.slow[field]) for gpu in gpus if field in gpu.slow]
    found = (within(t_ns, values, *window) for t_ns, values in (*quick, *slow))
    return [values for values in found if values.size]


def measured_means(run: StoredRun, field: str) -> Iterator[float]:
    """The mean of one field in the measured part, for each GPU that gave it."""
    return (float(values.mean()) for values in while_measuring(run, field))


def within(t_ns: Ints, values: Floats, start_ns: int, end_ns: int) -> Floats:
    """The values read in (start_ns, end_ns], absent ones left out."""
    return np.asarray(values[(t_ns > start_ns) & (t_ns <= end_ns) & ~np.isnan(values)])
