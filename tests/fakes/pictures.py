"""Made-up runs for every chart: layouts, batches, GPUs, and a batch that is too large."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from app.values.records import StoredRun
from app.viewmodels.charts.model import Chart
from app.viewmodels.compare.comparison import draw_charts
from app.viewmodels.compare.verdict import compute_verdict
from tests.fakes.experiments import result
from tests.unit.viewmodels.stored import S
from workloads.protocol import RunSpec

REPEATS = 3
BATCHES, GPUS, LAYOUTS = (256, 512, 1024), (1, 2, 4), ("NHWC", "NCHW")
_LUCK = (0.99, 1.0, 1.01)
FLOPS_A_STEP, PEAK, MEMORY_PCT = 10**12, 4e14, 20.0
"""The operations are per step of the smallest batch."""


def spec_of(layout: str, gpus: int, batch: int, workload: str = "cnn10") -> RunSpec:
    return RunSpec(
        workload=workload,
        variant={"implementation": "native", "layout": layout, "gpus": gpus, "batch_size": batch, "precision": "tf32"},
    )


def rate_of(layout: str, gpus: int, batch: int) -> float:
    """Return images/s: NCHW is a tenth faster, each further GPU adds 90 %, larger batches are faster."""
    return (11.0 if layout == "NCHW" else 10.0) * math.sqrt(batch) * 100 * (1 + 0.9 * (gpus - 1))


def grid(workload: str = "cnn10") -> list[StoredRun]:
    """Return three runs per variant; the largest batch does not fit on one GPU. Run 1 is NHWC, 1 GPU, batch 256."""
    made: list[StoredRun] = []
    for luck in _LUCK:
        for batch in BATCHES:
            for gpus in GPUS:
                for layout in LAYOUTS:
                    made.append(_run(len(made) + 1, spec_of(layout, gpus, batch, workload), luck))
    return made


def _run(number: int, spec: RunSpec, luck: float) -> StoredRun:
    layout, gpus, batch = str(spec.variant["layout"]), int(spec.variant["gpus"]), int(spec.variant["batch_size"])
    if gpus == 1 and batch == max(BATCHES):
        return result(number, spec, outcome="out_of_memory")
    rate = rate_of(layout, gpus, batch) * luck
    run = result(number, spec, rate)
    summary = replace(
        run.row.summary,
        energy_mj_per_example=4e5 * gpus / rate,
        flops_per_step=FLOPS_A_STEP * batch // min(BATCHES),
        measured_steps=1000,
        measured_s=10.0,
        peak_flops_per_s=PEAK * gpus,
    )
    return replace(run, row=replace(run.row, summary=summary))


def with_memory_traffic(run: StoredRun, percent: float = MEMORY_PCT) -> StoredRun:
    """Return the run with a counter of the GPU memory's load, which is 0 before the measured part."""
    t_ns = run.anchor_t_ns + np.arange(1, 13, dtype=np.int64) * S
    values = np.where(t_ns > run.anchor_t_ns + 4 * S, percent, 0.0)
    samples = tuple(
        replace(columns, slow_t_ns=t_ns, slow={"dram_active_pct": values}) if columns.device.kind == "gpu" else columns
        for columns in run.samples
    )
    return replace(run, samples=samples)


def charts_of(runs: Sequence[StoredRun], baseline: int, styles: Mapping[int, int] | None = None) -> tuple[Chart, ...]:
    """Return the charts of these runs against the variant of run `baseline`."""
    return draw_charts(runs, compute_verdict([run.row for run in runs], baseline), styles)
