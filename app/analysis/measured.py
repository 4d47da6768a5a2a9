"""What slow telemetry says of the measured part of a run."""

from collections.abc import Iterator

import numpy as np

from app.records import Floats, SampleColumns, StoredRun


def measured_means(run: StoredRun, field: str) -> Iterator[float]:
    """The mean of one field of `SLOW_FIELDS` in the measured part, for each GPU that gave it."""
    measured = next((phase for phase in run.phases if phase.name == "measure"), None)
    for gpu in run.samples:
        if measured is None or gpu.device.kind != "gpu" or field not in gpu.slow:
            continue
        values = _within(gpu, field, measured.start_ns, measured.end_ns)
        if values.size:
            yield float(values.mean())


def _within(gpu: SampleColumns, field: str, start_ns: int, end_ns: int | None) -> Floats:
    values = gpu.slow[field]
    inside = (gpu.slow_t_ns > start_ns) & (gpu.slow_t_ns <= (end_ns or gpu.slow_t_ns[-1])) & ~np.isnan(values)
    return np.asarray(values[inside])
