"""Energy of a window of time from a GPU's counter or its power, and the means and extremes of the measured part.

The counter misses nothing between readings, so it is preferred, except in a run with an implausible reading of it,
which may have jumped any distance, and when it stood still while power was drawn. Either way the ends of a window are
uncertain: a value may be as old as the driver's update period, and the nearest reading may lie slightly off the edge.
`Energy.error_mj` bounds this error with the highest power seen around each end: power x distance at both ends, and
power x period once, because a value that is old at both ends is too low at both. The integral of power adds the highest
power x the time without readings, when any power may have been used.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.analysis.align import GAP_PERIODS, TimeSeries, combine, with_gaps
from app.values.records import Floats, Ints, SampleColumns, StoredRun

COUNTER_SOURCE = "energy counter"
INTEGRAL_SOURCE = "integral of power"
STILL_SOURCE = f"{INTEGRAL_SOURCE}, as the energy counter stood still"

_TYPICAL_PERIOD_NS = 100e6
"""How often drivers usually update power and energy, for a field not observed long enough to know its period."""
_GAP_S = 1.0
"""Shorter times without a reading, or a few usual intervals, occur on a busy machine."""
_STILL_NS = 2e9
"""A counter that is constant for longer, or for a few of its periods if these are longer, stands still."""
_MAX_ABSENT_SHARE = 0.05
"""If more of a window's samples have no (plausible) power, there is no integral of it."""


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy in millijoules, a bound on its error, and its source."""

    energy_mj: float
    error_mj: float
    source: str

    @property
    def error_pct(self) -> float | None:
        """Return the bound in percent of the energy; None without energy."""
        return 100 * self.error_mj / self.energy_mj if self.energy_mj else None


def total_energy(gpus: Sequence[SampleColumns], start_ns: int, end_ns: int) -> Energy | None:
    energies = [gpu_energy(gpu, start_ns, end_ns) for gpu in gpus]
    measured = [energy for energy in energies if energy is not None]
    if not measured or len(measured) < len(energies):
        return None
    sources = dict.fromkeys(energy.source for energy in measured)
    return Energy(
        energy_mj=sum(energy.energy_mj for energy in measured),
        error_mj=sum(energy.error_mj for energy in measured),
        source=" and ".join(sources),
    )


def gpu_energy(gpu: SampleColumns, start_ns: int, end_ns: int) -> Energy | None:
    """Return one GPU's energy over a window, from its counter if that covers it, else from its power; else None.

    A window shorter than the update period has no energy: the counter may not have moved.
    """
    by_counter, by_power = (read(gpu, start_ns, end_ns) for read in (_energy_by_counter, _energy_by_power))
    if by_counter is None:
        return by_power
    _, t_ns, energy_mj = gpu.present("energy_mj")
    times = np.clip(t_ns, start_ns, end_ns)
    longest_ns = float((times - times[np.searchsorted(energy_mj, energy_mj)]).max())
    if not (longest_ns >= min(end_ns - start_ns, max(_STILL_NS, GAP_PERIODS * _period_ns(gpu, "energy_mj")))):
        return by_counter
    if by_power and by_power.energy_mj - by_counter.energy_mj <= by_power.error_mj + by_counter.error_mj:
        return by_counter
    return by_power and replace(by_power, source=STILL_SOURCE)


def _energy_by_counter(gpu: SampleColumns, start_ns: int, end_ns: int) -> Energy | None:
    if "energy_mj" in gpu.device.implausible:
        return None
    _, t_ns, energy_mj = gpu.present("energy_mj")
    period_ns = _period_ns(gpu, "energy_mj")
    if t_ns.size < 2 or end_ns - start_ns <= period_ns or np.any(np.diff(energy_mj) < 0):
        return None
    slack_ns = min(period_ns, (end_ns - start_ns) / 5)
    if t_ns[0] > start_ns + slack_ns or t_ns[-1] < end_ns - slack_ns:
        return None
    at_start, at_end = np.interp([0, end_ns - start_ns], t_ns - start_ns, energy_mj)
    used_mj = float(at_end - at_start)
    edges = [_edge_uncertainty(gpu, t_ns, edge_ns, period_ns) for edge_ns in (start_ns, end_ns)]
    return Energy(used_mj, _error_mj(edges, period_ns, used_mj / ((end_ns - start_ns) / 1e9)), COUNTER_SOURCE)


def _energy_by_power(gpu: SampleColumns, start_ns: int, end_ns: int) -> Energy | None:
    """Integrate the power over a window with the trapezoid rule.

    Returns None if the samples miss the edges by more than a fifth of the window, or too many of them have no power.
    """
    _, t_ns, power_mw = gpu.present("power_mw")
    inside = (t_ns > start_ns) & (t_ns < end_ns)
    needed = max(2.0, (1 - _MAX_ABSENT_SHARE) * int(((gpu.t_ns > start_ns) & (gpu.t_ns < end_ns)).sum()))
    slack_ns = (end_ns - start_ns) / 5
    if inside.sum() < needed or t_ns[0] > start_ns + slack_ns or t_ns[-1] < end_ns - slack_ns:
        return None
    period_ns = _period_ns(gpu, "power_mw")
    if end_ns - start_ns <= period_ns:
        return None
    t_s = (t_ns - start_ns) / 1e9
    length_s = (end_ns - start_ns) / 1e9
    edges = np.interp([0.0, length_s], t_s, power_mw)
    times = np.concatenate(([0.0], t_s[inside], [length_s]))
    used_mj = float(np.trapezoid(np.concatenate((edges[:1], power_mw[inside], edges[1:])), times))
    ends = [_edge_uncertainty(gpu, t_ns, edge_ns, period_ns) for edge_ns in (start_ns, end_ns)]
    gaps_s = np.diff(times)
    unread_mj = float(gaps_s[gaps_s > max(_GAP_S, GAP_PERIODS * float(np.median(gaps_s)))].sum()) * float(
        power_mw[inside].max()
    )
    return Energy(used_mj, _error_mj(ends, period_ns, used_mj / length_s) + unread_mj, INTEGRAL_SOURCE)


def _period_ns(gpu: SampleColumns, field: str) -> float:
    """Return how often the driver updates the field: as observed, else as usual."""
    facts = gpu.device.fields.get(field)
    return _TYPICAL_PERIOD_NS if facts is None or facts.period_ms is None else facts.period_ms * 1e6


def _edge_uncertainty(gpu: SampleColumns, t_ns: Ints, edge_ns: int, period_ns: float) -> tuple[float, float]:
    """Return how far (ns) a window's edge is from its nearest reading, and the highest power (mW) sampled around it."""
    next_reading = min(int(np.searchsorted(t_ns, edge_ns)), len(t_ns) - 1)
    last_reading = max(int(np.searchsorted(t_ns, edge_ns, side="right")) - 1, 0)
    _, power_t_ns, power_mw = gpu.present("power_mw")
    around = (power_t_ns >= t_ns[last_reading] - period_ns) & (power_t_ns <= t_ns[next_reading] + period_ns)
    distance_ns = min(abs(edge_ns - t_ns[last_reading]), abs(edge_ns - t_ns[next_reading]))
    return float(distance_ns), float(power_mw[around].max(initial=0.0))


def _error_mj(ends: Sequence[tuple[float, float]], period_ns: float, mean_mw: float) -> float:
    """See the module; the power at an end is the window's mean at least, because it may not have been sampled there."""
    distances = [(distance_ns, max(power_mw, mean_mw)) for distance_ns, power_mw in ends]
    distance_mj = sum(distance_ns * power_mw for distance_ns, power_mw in distances) / 1e9
    return distance_mj + period_ns * max(power_mw for _, power_mw in distances) / 1e9


def gpu_columns(run: StoredRun) -> list[SampleColumns]:
    return [columns for columns in run.samples if columns.device.kind == "gpu"]


def measured_window(run: StoredRun) -> tuple[int, int] | None:
    """Return when `measure` began and ended, for a running run with its newest sample; None for an empty window."""
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
    arrays = (field_in_window(gpu, field, window) for gpu in gpu_columns(run))
    return [values for values in arrays if values.size]


def measured_means(run: StoredRun, field: str) -> Iterator[float]:
    return (float(values.mean()) for values in measured_values(run, field))


_BANDWIDTHS_TB_PER_S = {
    "GH200 480GB": 4.0,
    "GH200 144G": 4.9,
    "H200": 4.8,
    "H100 NVL": 3.9,
    "H100 PCIe": 2.0,
    "H100": 3.35,
    "B200": 8.0,
}
"""Memory bandwidth by part of a GPU's name, first match first: nvidia.com/data-center, data sheets of each."""
DRAM = "dram_active_pct"
"""The field with the used share of the memory bandwidth."""


def memory_bandwidth(gpu_names: Sequence[str]) -> float | None:
    """Return the total memory bandwidth of some GPUs in bytes/s; None if one is unknown."""
    per_gpu = [next((bw for key, bw in _BANDWIDTHS_TB_PER_S.items() if key in name), None) for name in gpu_names]
    bandwidths = [bandwidth for bandwidth in per_gpu if bandwidth is not None]
    return sum(bandwidths) * 1e12 if bandwidths and len(bandwidths) == len(per_gpu) else None


def traffic_bytes_per_step(run: StoredRun) -> float | None:
    """Return the memory traffic of a step on all GPUs: the used share of their bandwidth, times the step's time."""
    shares, bandwidth = list(measured_means(run, DRAM)), memory_bandwidth(run.row.gpu_names)
    throughput, batch = run.row.summary.throughput, run.row.spec.variant.get("batch_size")
    if not (shares and bandwidth and throughput and batch):
        return None
    return sum(shares) / len(shares) / 100 * bandwidth * int(batch) / throughput


def field_in_window(columns: SampleColumns, name: str, window: tuple[int, int]) -> Floats:
    """Return the values of a fast or slow field that were read in a window."""
    return values_in_window(*columns.readings(name), *window)


def values_in_window(t_ns: Ints, values: Floats, start_ns: int, end_ns: int) -> Floats:
    """Return the values read in (start_ns, end_ns], without absent ones.

    Times and values are of shape (n,), in the order of time.
    """
    first, last = np.searchsorted(t_ns, (start_ns, end_ns), side="right")
    within = values[first:last]
    return within[np.isfinite(within)]


def peak_power_mw(run: StoredRun) -> float | None:
    """Return the highest total power of the run's GPUs in `measure`, by the samples."""
    window = measured_window(run)
    if window is None:
        return None
    power = combine([with_gaps(TimeSeries(gpu.t_ns, gpu.fields["power_mw"])) for gpu in _used_gpus(run)], "sum")
    return _highest([values_in_window(power.t_ns, power.y, *window)])


def peak_temperature_c(run: StoredRun) -> float | None:
    """Return the temperature of the run's hottest GPU in `measure`, by the samples."""
    window = measured_window(run)
    if window is None:
        return None
    return _highest([field_in_window(gpu, "temperature_c", window) for gpu in _used_gpus(run)])


def _used_gpus(run: StoredRun) -> list[SampleColumns]:
    """Return the samples of the run's GPUs; none for a run on the CPU."""
    return [] if run.row.spec.variant.get("gpus") == 0 else gpu_columns(run)


def _highest(tracks: Sequence[Floats]) -> float | None:
    return max((float(track.max()) for track in tracks if track.size), default=None)
