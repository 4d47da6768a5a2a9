"""How well runs scale to more GPUs, as a JSON document."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.scaling import Scaling, Side, scalings
from app.records import StoredRun
from app.report.estimates import estimate_document
from app.viewmodels.scaling import cause_words


def scaling_document(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Every pair among the runs; link bytes are what one GPU sends in a step, times of a step are in milliseconds."""
    return {"level": LEVEL, "scaling": [_document(found) for found in scalings(runs)]}


def _document(found: Scaling) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "speedup": _estimate(found.speedup),
        "efficiency": _estimate(found.efficiency),
        "cause": found.cause,
        "text": cause_words(found),
        "lost_ms": asdict(found.lost) if found.lost else None,
        "few": _side(found.few),
        "many": _side(found.many),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {**estimate_document(estimate), "n": estimate.n}


def _side(side: Side) -> dict[str, Any]:
    return {
        "gpus": side.gpus,
        "batch_size": side.batch_size,
        "runs": [run.row.run for run in side.runs],
        "throughput": _estimate(side.throughput),
        "step_ms": side.step_ms,
        "parts_ms": asdict(side.parts) if side.parts else None,
        "communication_share": side.communication_share,
        "kernels_per_step": side.kernels,
        "gap_us": side.gap_us,
        "imbalance": side.imbalance,
        "behind_ms": side.behind_ms,
        "data_ms": side.data_ms,
        "nvlink_bytes_per_step": side.nvlink_bytes,
        "pcie_bytes_per_step": side.pcie_bytes,
    }
