"""The figures of one run, with the detection of its warm-up and an audit of its telemetry."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.analysis import energy
from app.analysis.energy import gpu_columns
from app.analysis.steps import gpu_step_ms, occupancy_pct
from app.values.events import Summary
from app.values.records import BlockColumns, Floats, Ints, Phase, SampleColumns, StoredRun
from app.values.samples import HOST
from workloads.protocol import Epoch


def audit_telemetry(samples: tuple[SampleColumns, ...]) -> Summary:
    """Return the figures of telemetry itself, by the device sampled most often; none with too few samples.

    Jitter is the deviation of intervals from the median. Missed readings are counted on the worst GPU until the end of
    the run, even if the GPU is lost before.
    """
    busiest = max(samples, key=lambda columns: columns.t_ns.size, default=None)
    cpu_pct = _sampler_cpu_pct(samples)
    if busiest is None or busiest.t_ns.size < 3:
        return Summary(sampler_cpu_pct=cpu_pct)
    gpus = [columns for columns in samples if columns.device.kind == "gpu"]
    gaps_ms = np.diff(busiest.t_ns) / 1e6
    typical_ms = float(np.median(gaps_ms))
    p50, p99 = np.percentile(np.abs(gaps_ms - typical_ms), [50, 99])
    return Summary(
        sample_hz=1e3 * len(gaps_ms) / float(gaps_ms.sum()),
        sample_jitter_ms_p50=float(p50),
        sample_jitter_ms_p99=float(p99),
        samples_missed=max(_missed_readings(gpu, busiest.t_ns, typical_ms) for gpu in gpus or [busiest]),
        sampler_cpu_pct=cpu_pct,
    )


def _missed_readings(columns: SampleColumns, all_t_ns: Ints, typical_ms: float) -> int:
    """Return how many readings of a device are missing or empty, between the first and last of all times."""
    absent = [np.isnan(values) for values in columns.fields.values()]
    t_ns = columns.t_ns[~np.logical_and.reduce(absent)] if absent else columns.t_ns
    gaps_ms = np.diff(np.concatenate((all_t_ns[:1], t_ns, all_t_ns[-1:]))) / 1e6
    return int((np.round(gaps_ms / typical_ms) - 1).clip(min=0).sum())


def _sampler_cpu_pct(samples: tuple[SampleColumns, ...]) -> float | None:
    for columns in samples:
        _, t_ns, seconds = columns.present("sampler_cpu_s")
        if columns.device.device == HOST and t_ns.size > 1:
            used_s = np.diff(seconds)
            return float(100 * np.where(used_s < 0, seconds[1:], used_s).sum() / ((t_ns[-1] - t_ns[0]) / 1e9))
    return None


MIN_BLOCKS = 8
"""With fewer blocks a change cannot be distinguished from chance, and none is cut."""
MAX_CUT_FRACTION = 4
"""At most one in this many blocks is cut."""
_PENALTY = 3.0
"""For one change point, in units of log(number of blocks): one for its position, and two for the means."""


def warmup_blocks(rates: Floats) -> int:
    """Return how many of the first blocks belong to a warm-up; 0 if the rates (examples/s) do not change early.

    It is the change of mean that minimises the squares, kept if it lowers Schwarz' criterion and lies in the first
    quarter: a later change is drift, not warm-up. Yao (1988), "Estimating the number of change-points via Schwarz'
    criterion", Statistics & Probability Letters 6; the penalty of three logarithms is that of Zhang and Siegmund
    (2007), "A modified Bayes information criterion with applications to the analysis of comparative genomic
    hybridization data", Biometrics 63.
    """
    n = len(rates)
    if n < MIN_BLOCKS:
        return 0
    residuals = np.array([_squared_deviations(rates[:cut]) + _squared_deviations(rates[cut:]) for cut in range(n)])
    best = int(np.argmin(residuals))
    # If rates are equal except for rounding, there is no change.
    floor = n * (1e-9 * float(np.mean(rates))) ** 2
    gain = n * np.log((residuals[0] + floor) / (residuals[best] + floor))
    return best if best <= n // MAX_CUT_FRACTION and gain > _PENALTY * np.log(n) else 0


def _squared_deviations(values: Floats) -> float:
    return float(np.sum((values - values.mean()) ** 2)) if values.size else 0.0


def summarise(
    run: StoredRun,
    *,
    allocator_peak_bytes: int | None = None,
    flops_per_step: int | None = None,
    peak_flops_per_s: float | None = None,
    ready_step_ms: float | None = None,
) -> Summary:
    """Summarise throughput, step times, loss, power, energy and memory over the run's `measure` phase.

    Measured blocks that still belong to a warm-up (`warmup_blocks`) are cut and counted.

    Args:
        run: The run with its blocks and samples.
        allocator_peak_bytes: The framework's peak, from the worker.
        flops_per_step: Operations of one step by formula, from the worker.
        peak_flops_per_s: The total calibrated rate of the run's devices, from the database.
        ready_step_ms: The time of a step with ready data, from the worker.
    """
    blocks = run.blocks
    cut = warmup_blocks(blocks.throughput[blocks.measured])
    measured = np.flatnonzero(blocks.measured)[cut:]
    start_ns, end_ns, block_steps = blocks.start_ns[measured], blocks.end_ns[measured], blocks.steps[measured]
    window = (int(start_ns[0]), int(end_ns[-1])) if measured.size else None
    energy_used = energy.total_energy(gpu_columns(run), *window) if window else None
    examples, steps = int(blocks.examples[measured].sum()), int(block_steps.sum())
    seconds = float((end_ns - start_ns).sum()) / 1e9
    p50, p95, p99 = _step_ms_percentiles(step_ms(blocks)[measured], block_steps)
    compiling = next((phase for phase in run.phases if phase.name == "compile"), None)
    return replace(
        audit_telemetry(run.samples),
        throughput=examples / seconds if seconds else None,
        blocks=measured.size,
        blocks_cut=cut if window else None,
        measured_steps=steps,
        measured_examples=examples,
        measured_s=seconds or None,
        step_ms_p50=p50,
        step_ms_p95=p95,
        step_ms_p99=p99,
        loss_first=_first_present(blocks.loss),
        loss_last=_first_present(blocks.loss[::-1]),
        compile_s=compiling.seconds if compiling else None,
        mean_power_mw=energy_used.energy_mj / ((window[1] - window[0]) / 1e9) if energy_used and window else None,
        energy_mj_per_example=energy_used.energy_mj / examples if energy_used and examples else None,
        energy_source=energy_used.source if energy_used else None,
        energy_error_pct=energy_used.error_pct if energy_used else None,
        device_peak_bytes=_peak_bytes(run),
        allocator_peak_bytes=allocator_peak_bytes,
        flops_per_step=flops_per_step,
        peak_flops_per_s=peak_flops_per_s,
        ready_step_ms=ready_step_ms,
        waiting_pct=waiting_pct(ready_step_ms, steps, seconds),
        gpu_step_ms=gpu_step_ms(run),
        occupancy_pct=occupancy_pct(run.evidence),
    )


def waiting_pct(ready_step_ms: float | None, steps: int, seconds: float) -> float | None:
    """Return the time of steps beyond that of steps with ready data, in percent of all; None if unknown."""
    if ready_step_ms is None or not seconds:
        return None
    return 100 * max(0.0, 1 - ready_step_ms / 1e3 * steps / seconds)


def phases_with_energy(run: StoredRun, end_ns: int | None = None) -> list[Phase]:
    """Return the phases that have ended, with their energy; `end_ns` is when the run ends, and with it its last one."""
    phases = (replace(phase, end_ns=end_ns) if phase.end_ns is None else phase for phase in run.phases)
    return [_with_energy(phase, gpu_columns(run)) for phase in phases if phase.end_ns is not None]


def _with_energy(phase: Phase, gpus: list[SampleColumns]) -> Phase:
    used = energy.total_energy(gpus, phase.start_ns, phase.end_ns) if phase.end_ns is not None else None
    return replace(phase, energy_mj=used.energy_mj if used else None, energy_error_mj=used.error_mj if used else None)


def step_ms(blocks: BlockColumns) -> Floats:
    return np.asarray((blocks.end_ns - blocks.start_ns) / 1e6 / blocks.steps, dtype=np.float64)


def _step_ms_percentiles(of_blocks: Floats, steps: Ints) -> tuple[float | None, float | None, float | None]:
    """Return p50, p95 and p99 of the step time, each block weighted by its steps."""
    if not of_blocks.size:
        return None, None, None
    values = np.percentile(np.repeat(of_blocks, steps), [50, 95, 99])
    return float(values[0]), float(values[1]), float(values[2])


def _first_present(values: Floats) -> float | None:
    present = values[~np.isnan(values)]
    return float(present[0]) if present.size else None


def _peak_bytes(run: StoredRun) -> int | None:
    """Return the highest memory use on one of the run's GPUs, or of the worker if it ran on the CPU.

    What follows the measured part (the profiler, a calibration) uses additional memory and does not count.
    """
    starts_ns = (phase.start_ns for phase in run.phases if phase.name in ("evidence", "finish"))
    end_ns = min(starts_ns, default=None)
    kind, name = ("gpu", "memory_bytes") if gpu_columns(run) else ("host", "worker_memory_bytes")
    values = [
        columns.fields[name] if end_ns is None else columns.fields[name][columns.t_ns < end_ns]
        for columns in run.samples
        if columns.device.kind == kind
    ]
    peaks = [float(np.nanmax(of_device)) for of_device in values if not np.isnan(of_device).all()]
    return int(max(peaks)) if peaks else None


def flops_per_s(summary: Summary) -> float | None:
    """Return floating-point operations per second: one step's by formula, times steps per second."""
    if summary.flops_per_step is None or not summary.measured_s:
        return None
    return summary.flops_per_step * summary.measured_steps / summary.measured_s


def mfu(summary: Summary) -> float | None:
    """Model FLOP utilization: `flops_per_s` as a share of the calibrated matrix-product rate of the run's devices.

    Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022), appendix B; there the ceiling is the
    data sheet's, here it is measured.
    """
    rate = flops_per_s(summary)
    return rate / summary.peak_flops_per_s if rate is not None and summary.peak_flops_per_s else None


def energy_mj_per_step(summary: Summary) -> float | None:
    """Return the energy of one measured step on all the run's GPUs."""
    if summary.energy_mj_per_example is None or not summary.measured_steps:
        return None
    return summary.energy_mj_per_example * summary.measured_examples / summary.measured_steps


class EpochTotals(NamedTuple):
    """Totals over all epochs: seconds of training and of testing, the last and the best accuracy, from 0 to 1."""

    seconds: float
    testing_seconds: float
    accuracy: float
    best_accuracy: float
    best_epoch: int


def epoch_seconds(epoch: Epoch) -> float:
    return (epoch.end_ns - epoch.start_ns) / 1e9


def epoch_testing_seconds(epoch: Epoch) -> float:
    return (epoch.tested_ns - epoch.end_ns) / 1e9


def epoch_waiting_pct(epoch: Epoch, summary: Summary) -> float | None:
    """Return the time that an epoch's steps waited for data, in percent of its training."""
    return waiting_pct(summary.ready_step_ms, epoch.steps, epoch_seconds(epoch))


def epoch_totals(epochs: Sequence[Epoch]) -> EpochTotals | None:
    if not epochs:
        return None
    best = max(epochs, key=lambda epoch: epoch.accuracy)
    return EpochTotals(
        seconds=sum(map(epoch_seconds, epochs)),
        testing_seconds=sum(map(epoch_testing_seconds, epochs)),
        accuracy=epochs[-1].accuracy,
        best_accuracy=best.accuracy,
        best_epoch=best.epoch,
    )


def seconds_to_accuracy(epochs: Sequence[Epoch], accuracy: float) -> float | None:
    """Return the seconds of training until the end of the first epoch that reaches an accuracy; None if none does.

    Testing does not count, and nothing is interpolated: between two tests the accuracy is unknown.
    """
    reached = next((number for number, epoch in enumerate(epochs, 1) if epoch.accuracy >= accuracy), None)
    return None if reached is None else sum(map(epoch_seconds, epochs[:reached]))
