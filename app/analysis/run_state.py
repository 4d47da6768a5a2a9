"""When compared runs were measured and in which state: their order, drift, clocks, temperature, host load."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.analysis.comparability import used_gpus
from app.analysis.energy import gpu_columns, measured_values, measured_window, values_in_window
from app.analysis.intervals import LEVEL, Estimate, student_t
from app.analysis.steps import gpu_step_ms
from app.analysis.verdict import throughputs
from app.values.environment_keys import CPU_COUNT_KEY, environment_number
from app.values.records import Floats, StoredRun

ORDER_LIMIT = 0.6
"""Variants with at least this `RunOrder.separation` were not interleaved.

With 2 to 5 runs each, a linear drift of 5 % and 1 % noise, intervals of an order at the limit cover 91 to 95 %, of one
variant after the other 15 to 92 %, and below the limit 95 % or more (docs/internals/statistics.md).
"""

GAP_S = 3600.0
"""Variants this far apart in time may have met the machine in different states, even with one run each."""

MAX_EXTRAPOLATION = 4.0
"""Drift within variants says nothing about times this many times farther apart than one variant's runs."""

_MIN_DRIFT_DEGREES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """The order in time of a variant's runs and the baseline's.

    Attributes:
        separation: 1 if all are later than the baseline's, -1 if earlier, 0 if interleaved: the share of pairs in one
            order minus the share in the other (Cliff's delta).
        gap_s: Seconds between the end of the earlier runs and the start of the later ones; 0 if they overlap.
        same_boot: Whether runs of both were made without a restart in between, on one machine.
    """

    separation: float
    gap_s: float
    same_boot: bool

    @property
    def is_apart(self) -> bool:
        """Return whether they were measured long apart, or on a machine restarted in between."""
        return abs(self.separation) == 1 and (self.gap_s >= GAP_S or not self.same_boot)


def run_order(runs: Sequence[StoredRun], baseline: Sequence[StoredRun]) -> RunOrder:
    starts, base_starts = (np.array([run.row.started_utc_ns for run in group]) for group in (runs, baseline))
    ends, base_ends = (
        max(run.row.ended_utc_ns or run.row.started_utc_ns for run in group) for group in (runs, baseline)
    )
    gap_ns = max(int(starts.min()) - base_ends, int(base_starts.min()) - ends, 0)
    return RunOrder(
        separation=float(np.sign(starts[:, None] - base_starts[None, :]).mean()),
        gap_s=gap_ns / 1e9,
        same_boot=not {run.boot_id for run in runs}.isdisjoint(run.boot_id for run in baseline),
    )


def drifts_between(
    groups: Sequence[Sequence[StoredRun]], variants: Sequence[Sequence[StoredRun]], baseline: Sequence[StoredRun]
) -> list[Estimate | None]:
    """Return the factor by which the drift seen within groups changed the speed from the baseline to each variant.

    The slope of the logarithm of the throughput over time, common to all groups, each of which has its own level
    (analysis of covariance), times the distance of the two mean times; Student's t interval. None if the runs do not
    show it, or only by extrapolating too far.
    """
    times_s, logs = zip(*(_centred(group) for group in groups), strict=True)
    all_s, all_logs = np.concatenate(times_s), np.concatenate(logs)
    degrees = len(all_s) - len(groups) - 1
    widest_s = max(float(np.ptp(times)) for times in times_s)
    if degrees < _MIN_DRIFT_DEGREES or not widest_s:
        return [None] * len(variants)
    sum_squares = float((all_s**2).sum())
    slope = float((all_s * all_logs).sum()) / sum_squares
    variance = float(((all_logs - slope * all_s) ** 2).sum()) / degrees
    error = student_t(degrees, 0.5 + LEVEL / 2) * (variance / sum_squares) ** 0.5
    base_s = _mean_time_s(baseline)

    def over(distance_s: float) -> Estimate | None:
        if abs(distance_s) > MAX_EXTRAPOLATION * widest_s:
            return None
        centre, half = slope * distance_s, error * abs(distance_s)
        low, high = np.exp([centre - half, centre + half])
        return Estimate(float(np.exp(centre)), float(low), float(high), len(all_s))

    return [over(_mean_time_s(runs) - base_s) for runs in variants]


def _centred(runs: Sequence[StoredRun]) -> tuple[Floats, Floats]:
    times_s = np.array([run.row.started_utc_ns for run in runs], dtype=np.float64) / 1e9
    logs = np.log(throughputs([run.row for run in runs]))
    return times_s - times_s.mean(), logs - logs.mean()


def _mean_time_s(runs: Sequence[StoredRun]) -> float:
    return float(np.mean([run.row.started_utc_ns for run in runs])) / 1e9


def mean_clock_mhz(run: StoredRun) -> float | None:
    """Return the mean SM clock in the measured part of the run's slowest GPU; None if not recorded."""
    return min((float(values.mean()) for values in measured_values(run, "sm_clock_mhz")), default=None)


def highest_clock_mhz(runs: Sequence[StoredRun]) -> float | None:
    """Return the highest SM clock in any sample of these runs, inside or outside their measured parts."""
    clocks = [gpu.present("sm_clock_mhz")[2] for run in runs for gpu in gpu_columns(run)]
    return max((float(values.max()) for values in clocks if values.size), default=None)


def start_temperature_c(run: StoredRun) -> float | None:
    """Return the temperature of the run's hottest GPU at its start; None if not recorded."""
    temperatures = [gpu.present("temperature_c")[2] for gpu in gpu_columns(run)]
    return max((float(values[0]) for values in temperatures if values.size), default=None)


def other_processes_load_pct(run: StoredRun) -> float | None:
    """Return the percentage of all processors that programs other than the run's worker used while it measured.

    None if its worker's load was not recorded, as during concurrent runs, or covers only one of its processes.
    """
    variant = run.row.spec.variant
    if variant.get("framework") == "pytorch" and int(variant.get("gpus", 1)) > 1:
        return None
    host = next((columns for columns in run.samples if columns.device.kind == "host"), None)
    window = measured_window(run)
    processors = environment_number(run.environment, CPU_COUNT_KEY)
    if host is None or window is None or not processors:
        return None
    worker_pct = host.fields.get("worker_load_pct", np.array([]))
    if worker_pct.size != host.t_ns.size:
        return None
    load_pct = values_in_window(host.t_ns, host.fields["load_pct"] - worker_pct / processors, *window)
    return max(0.0, float(load_pct.mean())) if load_pct.size else None


def host_bound_share(run: StoredRun) -> float | None:
    """Return the share of the run's steps that other load on the host can stretch, 0 to 1; None if unknown.

    On the CPU this is all of a step, on GPUs the time without a kernel, by the traced kernels.
    """
    if not used_gpus(run):
        return 1.0
    gpu_ms, step_ms = gpu_step_ms(run), run.row.summary.step_ms_p50
    return float(np.clip(1 - gpu_ms / step_ms, 0.0, 1.0)) if gpu_ms and step_ms else None
