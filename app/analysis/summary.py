"""The figures of one run, from its stored blocks, phases and samples."""

from dataclasses import replace

import numpy as np

from app.analysis import energy
from app.analysis.audit import audit
from app.analysis.measured import gpu_columns
from app.analysis.warmup import blocks_to_cut
from app.records import BlockColumns, Floats, Ints, Phase, SampleColumns, StoredRun, Summary


def summarise(
    run: StoredRun,
    *,
    allocator_peak_bytes: int | None = None,
    flops_per_step: int | None = None,
    peak_flops_per_s: float | None = None,
    ready_step_ms: float | None = None,
) -> Summary:
    """Throughput, step times, loss, power, energy and memory over the run's `measure` phase.

    Measured blocks that still belong to a warm-up (`app.analysis.warmup`) are cut and counted. What is given is kept as
    it is: only the worker and the store know it.
    """
    blocks = run.blocks
    cut = blocks_to_cut(blocks.throughput[blocks.measured])
    measured = _only(blocks, np.flatnonzero(blocks.measured)[cut:])
    window = _window(measured)
    used = energy.of_gpus(gpu_columns(run), *window) if window else None
    telemetry = audit(run.samples)
    examples, steps = int(measured.examples.sum()), int(measured.steps.sum())
    seconds = float((measured.end_ns - measured.start_ns).sum()) / 1e9
    p50, p95, p99 = _step_ms_percentiles(measured)
    return Summary(
        throughput=examples / seconds if seconds else None,
        blocks=len(measured.steps),
        blocks_cut=cut if window else None,
        measured_steps=steps,
        measured_examples=examples,
        measured_s=seconds or None,
        step_ms_p50=p50,
        step_ms_p95=p95,
        step_ms_p99=p99,
        loss_first=_first(blocks.loss),
        loss_last=_first(blocks.loss[::-1]),
        compile_s=_compile_s(run),
        mean_power_mw=used.energy_mj / ((window[1] - window[0]) / 1e9) if used and window else None,
        energy_mj_per_example=used.energy_mj / examples if used and examples else None,
        energy_source=used.source if used else None,
        energy_error_pct=100 * used.error_mj / used.energy_mj if used and used.energy_mj else None,
        device_peak_bytes=_peak_bytes(run),
        allocator_peak_bytes=allocator_peak_bytes,
        sample_hz=telemetry.hz,
        sample_jitter_ms_p50=telemetry.jitter_ms_p50,
        sample_jitter_ms_p99=telemetry.jitter_ms_p99,
        samples_missed=telemetry.missed,
        sampler_cpu_pct=telemetry.sampler_cpu_pct,
        flops_per_step=flops_per_step,
        peak_flops_per_s=peak_flops_per_s,
        ready_step_ms=ready_step_ms,
        waiting_pct=waiting_pct(ready_step_ms, steps, seconds),
    )


def waiting_pct(ready_step_ms: float | None, steps: int, seconds: float) -> float | None:
    """What steps took beyond the time of steps whose data were there already, in percent of all; None if not known."""
    if ready_step_ms is None or not seconds:
        return None
    return 100 * max(0.0, 1 - ready_step_ms / 1e3 * steps / seconds)


def phases_with_energy(run: StoredRun) -> list[Phase]:
    """The run's ended phases, each with the energy its GPUs used in it."""
    return [_with_energy(phase, gpu_columns(run)) for phase in run.phases if phase.end_ns is not None]


def _with_energy(phase: Phase, gpus: list[SampleColumns]) -> Phase:
    used = energy.of_gpus(gpus, phase.start_ns, phase.end_ns) if phase.end_ns is not None else None
    return replace(phase, energy_mj=used.energy_mj, energy_error_mj=used.error_mj) if used else phase


def step_ms(blocks: BlockColumns) -> Floats:
    """Milliseconds a step of each block."""
    return np.asarray((blocks.end_ns - blocks.start_ns) / 1e6 / blocks.steps, dtype=np.float64)


def _only(blocks: BlockColumns, rows: np.ndarray) -> BlockColumns:
    return BlockColumns(
        first_step=blocks.first_step[rows],
        steps=blocks.steps[rows],
        examples=blocks.examples[rows],
        start_ns=blocks.start_ns[rows],
        end_ns=blocks.end_ns[rows],
        loss=blocks.loss[rows],
        measured=blocks.measured[rows],
        allocator_bytes=blocks.allocator_bytes[rows] if blocks.allocator_bytes.size else blocks.allocator_bytes,
    )


def _window(measured: BlockColumns) -> tuple[int, int] | None:
    return (int(measured.start_ns[0]), int(measured.end_ns[-1])) if len(measured.steps) else None


def _step_ms_percentiles(measured: BlockColumns) -> tuple[float | None, float | None, float | None]:
    """p50, p95 and p99 of the step time, each block weighing as many steps as it holds."""
    if not len(measured.steps):
        return None, None, None
    values = np.percentile(np.repeat(step_ms(measured), measured.steps), [50, 95, 99])
    return float(values[0]), float(values[1]), float(values[2])


def _first(values: Floats) -> float | None:
    present = values[~np.isnan(values)]
    return float(present[0]) if present.size else None


def _compile_s(run: StoredRun) -> float | None:
    found = next((phase for phase in run.phases if phase.name == "compile"), None)
    return (found.end_ns - found.start_ns) / 1e9 if found and found.end_ns is not None else None


def _peak_bytes(run: StoredRun) -> int | None:
    """The highest memory use on one of the run's GPUs, or of the worker where it ran on the CPU.

    What comes after the measured part (the profiler, a calibration) uses memory of its own and does not count.
    """
    after = (phase.start_ns for phase in run.phases if phase.name in ("evidence", "finish"))
    end_ns = min(after, default=None)
    kind, name = ("gpu", "memory_bytes") if gpu_columns(run) else ("host", "worker_memory_bytes")
    values = [
        _before(columns.t_ns, columns.fields[name], end_ns) for columns in run.samples if columns.device.kind == kind
    ]
    peaks = [float(np.nanmax(of_one)) for of_one in values if not np.isnan(of_one).all()]
    return int(max(peaks)) if peaks else None


def _before(t_ns: Ints, values: Floats, end_ns: int | None) -> Floats:
    return values if end_ns is None else values[t_ns < end_ns]
