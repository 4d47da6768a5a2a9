"""What really ran and how fast it computed, as parts of JSON documents."""

from collections.abc import Sequence
from typing import Any

import msgspec

from app.analysis.step_parts import imbalance
from app.records import Portability, RunRow, Summary
from app.viewmodels import flops, kernels
from workloads.protocol import Evidence


def evidence_document(evidence: Evidence | None) -> dict[str, Any] | None:
    """A run's evidence; None where none was kept. `busy_share` is the share of traced time in which a kernel ran.

    Of `devices` all times are over the traced steps; `imbalance` is how much longer the slowest computes, of the mean.
    """
    if evidence is None:
        return None
    return {
        "asked": evidence.asked,
        "ran": evidence.ran,
        "match": evidence.match,
        "reason": evidence.reason,
        "sources": list(evidence.sources),
        "notes": list(evidence.notes),
        "steps": evidence.steps,
        "span_ns": evidence.span_ns,
        "busy_share": kernels.busy_share(evidence),
        "kernels": [msgspec.to_builtins(kernel) for kernel in evidence.kernels],
        "devices": [msgspec.to_builtins(device) for device in evidence.devices],
        "imbalance": imbalance(evidence.devices),
    }


def flops_document(summary: Summary) -> dict[str, Any]:
    """Operations a step by formula, a second, what the devices can do, and the share of it."""
    return {
        "per_step": summary.flops_per_step,
        "per_s": flops.flops_per_s(summary),
        "peak_per_s": summary.peak_flops_per_s,
        "utilisation": flops.utilisation(summary),
    }


def portability_document(checks: Sequence[Portability]) -> list[dict[str, Any]]:
    """What the run's weights gave elsewhere, one entry a trial."""
    return [
        {
            "implementation": check.implementation,
            "device": check.device,
            "device_name": check.device_name,
            "precision": check.precision,
            "max_difference": check.max_difference,
            "max_output": check.max_output,
        }
        for check in checks
    ]


def match_of(rows: Sequence[RunRow]) -> bool | None:
    """Whether the runs of a variant ran as asked: false where one did not, None where that is not known of all."""
    matches = {row.match for row in rows}
    if False in matches:
        return False
    return True if matches == {True} else None
