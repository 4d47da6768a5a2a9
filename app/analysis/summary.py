"""The figures of one run, from its stored blocks, phases and samples."""

import numpy as np

from app.records import BlockColumns, Floats, SampleColumns, StoredRun, Summary


def summarise(run: StoredRun, *, allocator_peak_bytes: int | None = None) -> Summary:
    """Throughput, step times, loss, power, energy and memory over the run's `measure` phase."""
    blocks = run.blocks
    measured = _only(blocks, blocks.measured)
    gpus = [columns for columns in run.samples if columns.device.kind == "gpu"]
    window = _window(measured)
    energy_mj = _energy_mj(gpus, window)
    examples = int(measured.examples.sum())
    seconds = float((measured.end_ns - measured.start_ns).sum()) / 1e9
    p50, p95, p99 = _step_ms_percentiles(measured)
    return Summary(
        throughput=examples / seconds if seconds else None,
        blocks=len(measured.steps),
        measured_steps=int(measured.steps.sum()),
        measured_examples=examples,
        measured_s=seconds or None,
        step_ms_p50=p50,
        step_ms_p95=p95,
        step_ms_p99=p99,
        loss_first=_first(blocks.loss),
        loss_last=_first(blocks.loss[::-1]),
        compile_s=_compile_s(run),
        mean_power_mw=energy_mj / ((window[1] - window[0]) / 1e9) if energy_mj is not None and window else None,
        energy_mj_per_example=energy_mj / examples if energy_mj is not None and examples else None,
        energy_source="integral of power" if energy_mj is not None else None,
        device_peak_bytes=_peak_bytes(run.samples),
        allocator_peak_bytes=allocator_peak_bytes,
    )


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


def _energy_mj(gpus: list[SampleColumns], window: tuple[int, int] | None) -> float | None:
    """Energy of all GPUs over the window by the trapezoid rule on their power; None where one does not cover it.

    A sample may miss the window's edges by at most a fifth of its length: a shorter window has no energy rather than a
    made-up one.
    """
    if not gpus or window is None:
        return None
    parts = [_integral_mj(columns.t_ns, columns.fields["power_mw"], *window) for columns in gpus]
    present = [part for part in parts if part is not None]
    return sum(present) if len(present) == len(parts) else None


def _integral_mj(t_ns: np.ndarray, power_mw: Floats, start_ns: int, end_ns: int) -> float | None:
    there = ~np.isnan(power_mw)
    t_s, power = t_ns[there] / 1e9, power_mw[there]
    start_s, end_s = start_ns / 1e9, end_ns / 1e9
    inside = (t_s > start_s) & (t_s < end_s)
    slack_s = (end_s - start_s) / 5
    if inside.sum() < 2 or t_s[0] > start_s + slack_s or t_s[-1] < end_s - slack_s:
        return None
    edges = np.interp([start_s, end_s], t_s, power)
    times = np.concatenate(([start_s], t_s[inside], [end_s]))
    return float(np.trapezoid(np.concatenate((edges[:1], power[inside], edges[1:])), times))


def _peak_bytes(samples: tuple[SampleColumns, ...]) -> int | None:
    """The highest memory use on one of the run's GPUs, or of the worker where it ran on the CPU."""
    gpus = [columns.fields["memory_bytes"] for columns in samples if columns.device.kind == "gpu"]
    worker = [columns.fields["worker_memory_bytes"] for columns in samples if columns.device.kind == "host"]
    peaks = [float(np.nanmax(values)) for values in gpus or worker if values.size and not np.isnan(values).all()]
    return int(max(peaks)) if peaks else None
