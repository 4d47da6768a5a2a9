"""Scaling to more GPUs as a JSON document and as sections of a report."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.scaling import GpuCountResult, Scaling
from app.report.charts.scaling import draw_scaling
from app.report.documents import estimate_document
from app.viewmodels.charts.palette import Palette
from app.viewmodels.compare.scaling import ScalingView, describe_cause, scaling_mismatches
from app.viewmodels.format.cells import TextTable


def scaling_document(views: Sequence[ScalingView]) -> dict[str, Any]:
    """Return every pair among the runs, and which runs did not run as requested; null where all did.

    Link bytes are what one GPU sends per step, step times are in milliseconds.
    """
    return {
        "level": LEVEL,
        "mismatch": scaling_mismatches(views) or None,
        "scaling": [_scaling_entry(view.scaling) for view in views],
    }


def _scaling_entry(scaling: Scaling) -> dict[str, Any]:
    return {
        "kind": scaling.kind,
        "speedup": _estimate(scaling.speedup),
        "efficiency": _estimate(scaling.efficiency),
        "comparisons": scaling.comparisons,
        "cause": scaling.cause,
        "text": describe_cause(scaling),
        "lost_ms": asdict(scaling.lost) if scaling.lost else None,
        "few": _side(scaling.few),
        "many": _side(scaling.many),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {**estimate_document(estimate), "n": estimate.n}


def _side(side: GpuCountResult) -> dict[str, Any]:
    return {
        "gpus": side.gpus,
        "batch_size": side.batch_size,
        "runs": [run.row.run for run in side.runs],
        "throughput": _estimate(side.throughput),
        "step_ms": side.step_ms,
        "gpu_ms": side.traced.busy_ms if side.traced else None,
        "parts_ms": asdict(side.parts) if side.parts else None,
        "communication_share": side.communication_share,
        "kernels_per_step": side.traced.kernels if side.traced else None,
        "gap_us": side.gap_us,
        "imbalance": side.imbalance,
        "behind_ms": side.straggler_ms,
        "data_ms": side.data_ms,
        "nvlink_bytes_per_step": side.nvlink_bytes,
        "pcie_bytes_per_step": side.pcie_bytes,
    }


def scaling_sections(views: Sequence[ScalingView], palette: Palette) -> list[dict[str, Any]]:
    """Return what the templates show of each pair of runs that differ only in their GPUs, drawn in these colours."""
    return [
        {
            "title": view.title,
            "text": f"{efficiency_headline(view)} {view.cause}",
            "drawing": draw_scaling(view, palette),
            "figures": TextTable(head=("", *view.sides), rows=view.rows, numeric=frozenset({1, 2})),
        }
        for view in views
    ]


def efficiency_headline(view: ScalingView) -> str:
    """Return efficiency and speed-up as a sentence."""
    return f"Efficiency {view.efficiency} ({view.interval}), speed-up {view.speedup}."
