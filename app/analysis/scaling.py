"""Scaling to more GPUs: efficiency, the parts of a step on each device, and the likely cause of lost time.

Efficiency is throughput on many GPUs over the few GPUs' throughput times the ratio of their numbers. Strong scaling
keeps the global batch, weak scaling the batch of each GPU (Gustafson 1988, "Reevaluating Amdahl's law"). The loss is
accounted for in time: each part of the longer step against the same part of an ideal one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

import numpy as np

from app.analysis.energy import measured_means
from app.analysis.intervals import Estimate, mean
from app.analysis.steps import (
    StepParts,
    TracedStep,
    imbalance,
    mean_present,
    mean_step,
    run_traced_step,
    step_examples,
    step_parts,
    straggler_ms,
)
from app.analysis.verdict import family_ratios, throughputs
from app.values.records import StoredRun
from workloads.catalog import parameter_names
from workloads.protocol import Kernel

ScalingKind = Literal["strong", "weak"]
Cause = Literal[
    "loss not known",
    "few runs",
    "small loss",
    "shorter step",
    "data",
    "communication",
    "launching",
    "imbalance",
    "computing",
    "not known",
    "not traced",
    "trace does not fit",
]

NEGLIGIBLE_LOSS = 0.05
"""A smaller loss has no named cause: processes of one variant often differ by a few percent."""
DOMINANT_SHARE = 0.5
"""A part is named as the cause only if it makes up more of the lost time than all others together."""
IMBALANCE_THRESHOLD = 0.05
"""Devices whose computing times differ by more than this differ by more than equal GPUs' clocks from run to run."""

VARYING_PARAMETERS = frozenset(parameter_names(lambda parameter: parameter.scales or not parameter.affects_step))
"""Parameters that may differ between runs that are compared by their GPUs; the all-reduce is compared separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCountResult:
    """The runs on one number of GPUs; every figure is per GPU and step, None if unknown.

    `parts` are the measured step's, None if the `traced` step does not fit. `communication_share` is a share of all
    kernels' time, `gap_us` the mean time between two kernels, `straggler_ms` how much longer the slowest GPU computes
    than the fastest, `data_ms` a step's wait for data from the host; link bytes are those that one GPU sends.
    """

    gpus: int
    batch_size: int
    runs: tuple[StoredRun, ...]
    throughput: Estimate
    step_ms: float
    traced: TracedStep | None = None
    parts: StepParts | None = None
    communication_share: float | None = None
    gap_us: float | None = None
    imbalance: float | None = None
    straggler_ms: float | None = None
    data_ms: float | None = None
    nvlink_bytes: float | None = None
    pcie_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """From few GPUs to many: `efficiency` is 1 if nothing is lost.

    `lost` is a step's time beyond the ideal one, which for one global batch is the few GPUs' time divided among more;
    `lost_data_ms` is the part spent waiting for data. The intervals of `comparisons` numbers of GPUs, over the same
    few, hold together.
    """

    kind: ScalingKind
    few: GpuCountResult
    many: GpuCountResult
    speedup: Estimate
    efficiency: Estimate
    lost: StepParts | None
    lost_data_ms: float
    cause: Cause
    comparisons: int


def scalings(runs: Sequence[StoredRun]) -> list[Scaling]:
    """Return every pair of groups of runs that differ only in GPUs, at the same global or per-GPU batch.

    The few are the fewest GPUs of their kind. Runs without measurements, and runs on the CPU, do not count.
    """
    sides = _gpu_count_results(runs)
    pairs: list[tuple[ScalingKind, GpuCountResult, GpuCountResult]] = []
    for many in sides:
        fewer = [few for few in sides if few.gpus < many.gpus and _are_comparable(few.runs[0], many.runs[0])]
        for kind in ("strong", "weak"):
            few = min(
                (side for side in fewer if _scaling_kind(side, many) == kind), key=lambda side: side.gpus, default=None
            )
            if few is not None:
                pairs.append((kind, few, many))
    return [_scaling(kind, few, many, [side for _, base, side in pairs if base is few]) for kind, few, many in pairs]


def _gpu_count_results(runs: Sequence[StoredRun]) -> list[GpuCountResult]:
    groups: dict[tuple[object, ...], list[StoredRun]] = {}
    for run in runs:
        variant, examples = run.row.spec.variant, step_examples(run.row.spec, run.row.summary)
        if variant.get("gpus") and examples and throughputs([run.row]):
            key = (_fixed_settings(run), variant["gpus"], variant.get("batch_size"), variant.get("all_reduce"))
            groups.setdefault(key, []).append(run)
    return [_gpu_count_result(group) for group in groups.values()]


def _fixed_settings(run: StoredRun) -> tuple[object, ...]:
    """Return what must be equal: the rest of the variant, and the GPU model."""
    full = run.row.spec
    fixed = (setting for setting in sorted(full.variant.items()) if setting[0] not in VARYING_PARAMETERS)
    return (full.workload, frozenset(run.row.gpu_names), *fixed)


def _are_comparable(few: StoredRun, many: StoredRun) -> bool:
    """Return whether two runs differ only in their GPUs; a single GPU exchanges nothing, so any all-reduce matches."""
    few_variant, many_variant = (run.row.spec.variant for run in (few, many))
    same_all_reduce = few_variant["gpus"] == 1 or few_variant.get("all_reduce") == many_variant.get("all_reduce")
    return same_all_reduce and _fixed_settings(few) == _fixed_settings(many)


def _scaling_kind(few: GpuCountResult, many: GpuCountResult) -> ScalingKind | None:
    if few.batch_size == many.batch_size:
        return "strong"
    return "weak" if few.batch_size * many.gpus == many.batch_size * few.gpus else None


def _gpu_count_result(group: Sequence[StoredRun]) -> GpuCountResult:
    rows = [run.row for run in group]
    throughput, batch_size = mean(throughputs(rows)), median_low(step_examples(row.spec, row.summary) for row in rows)
    assert throughput is not None, "only runs that measured something are grouped"
    step_ms = 1000 * batch_size / throughput.value
    traced = mean_step([step for run in group if (step := run_traced_step(run)) is not None])
    parts = step_parts(traced, step_ms)
    evidence = [run.evidence for run in group if run.evidence is not None and run.evidence.devices]
    return GpuCountResult(
        gpus=int(rows[0].spec.variant["gpus"]),
        batch_size=batch_size,
        runs=tuple(group),
        throughput=throughput,
        step_ms=step_ms,
        traced=traced,
        parts=parts,
        communication_share=mean_present(_communication_share(traces.kernels) for traces in evidence if traces.kernels),
        gap_us=1000 * parts.idle_ms / traced.kernels if parts and traced and traced.kernels else None,
        imbalance=mean_present(imbalance(traces.devices) for traces in evidence),
        straggler_ms=mean_present(straggler_ms(traces.devices, traces.steps) for traces in evidence),
        data_ms=mean_present(pct / 100 * step_ms for run in group if (pct := run.row.summary.waiting_pct) is not None),
        nvlink_bytes=_link_bytes_per_step(group, "nvlink_tx_bytes_per_s", step_ms),
        pcie_bytes=_link_bytes_per_step(group, "pcie_tx_bytes_per_s", step_ms),
    )


def _communication_share(kernels: Sequence[Kernel]) -> float:
    total = sum(kernel.time_ns for kernel in kernels)
    return sum(kernel.time_ns for kernel in kernels if kernel.kind == "communication") / total if total else 0.0


def _scaling(kind: ScalingKind, few: GpuCountResult, many: GpuCountResult, family: Sequence[GpuCountResult]) -> Scaling:
    """Return how a step scales; the intervals of the family, all numbers of GPUs over the same few, hold together."""
    rows = [[run.row for run in side.runs] for side in family]
    ratios = family_ratios(rows, [run.row for run in few.runs], throughputs)
    speedup = ratios[next(index for index, side in enumerate(family) if side is many)]
    assert speedup is not None, "both sides have a throughput"
    factor = few.gpus / many.gpus
    efficiency = speedup.scaled(factor)
    ideal = factor if kind == "strong" else 1.0
    lost = None
    if few.parts and many.parts:
        lost = StepParts(*(ms - ideal * few_ms for few_ms, ms in zip(few.parts, many.parts, strict=True)))
    lost_data_ms = (many.data_ms or 0.0) - ideal * (few.data_ms or 0.0)
    return Scaling(
        kind=kind,
        few=few,
        many=many,
        speedup=speedup,
        efficiency=efficiency,
        lost=lost,
        lost_data_ms=lost_data_ms,
        cause=_cause(efficiency, lost, lost_data_ms, few, many),
        comparisons=sum(estimate is not None and estimate.interval is not None for estimate in ratios),
    )


def _cause(
    efficiency: Estimate, lost: StepParts | None, lost_data_ms: float, few: GpuCountResult, many: GpuCountResult
) -> Cause:
    """Return the cause of most of the lost time, or why none is named.

    Data come first, as their wait looks like a gap between kernels; then a straggler, as its wait looks like exchange.
    """
    is_small = efficiency.value > 1 - NEGLIGIBLE_LOSS
    if efficiency.interval and efficiency.interval[0] <= 1 <= efficiency.interval[1]:
        return "loss not known"
    if is_small:
        return "few runs" if not efficiency.interval else "small loss" if efficiency.value < 1 else "shorter step"
    if lost is None:
        return "trace does not fit" if few.traced and many.traced else "not traced"
    threshold_ms = DOMINANT_SHARE * lost.step_ms
    if lost_data_ms > threshold_ms:
        return "data"
    if (many.imbalance or 0.0) >= IMBALANCE_THRESHOLD and (many.straggler_ms or 0.0) > threshold_ms:
        return "imbalance"
    by_cause: dict[Cause, float] = {
        "communication": lost.communication_ms,
        "launching": lost.idle_ms,
        "computing": lost.compute_ms,
    }
    cause = max(by_cause, key=lambda name: by_cause[name])
    return cause if by_cause[cause] > threshold_ms else "not known"


def _link_bytes_per_step(group: Sequence[StoredRun], field: str, step_ms: float) -> float | None:
    """Return the bytes that one GPU sends per step over a link, by telemetry in the measured part."""
    rates = [rate for run in group for rate in measured_means(run, field)]
    return float(np.mean(rates)) * step_ms / 1000 if rates else None
