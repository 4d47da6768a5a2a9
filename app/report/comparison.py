"""A comparison of stored runs as a JSON document and as words: the same numbers for terminal, file and window."""

from collections.abc import Sequence
from typing import Any

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.verdict import VariantResult
from app.records import RunRow, StoredRun
from app.report.evidence import match_of
from app.report.scaling import scaling_document
from app.viewmodels import units
from app.viewmodels.cells import example_word
from app.viewmodels.environment import comparable_facts
from app.viewmodels.naming import short_name
from app.viewmodels.verdict import verdict_of

METHOD = "Welch's t on the logarithm of each process's throughput"
MISLABELLED = "evidence"
"""The key of the warning that some runs did not run what was asked."""


def compare_document(runs: Sequence[StoredRun], baseline_run: int) -> dict[str, Any]:
    """The `compare` document: rows by variant, the verdict in words, and what makes the runs differ besides.

    `scaling` has every pair of runs that differ in their GPUs alone; it is empty where there is none.
    """
    verdict = verdict_of([run.row for run in runs], baseline_run)
    wrong = [run.row for run in runs if run.row.match is False]
    return {
        "baseline": baseline_run,
        "method": METHOD,
        "level": LEVEL,
        "rows": [_row(result) for result in verdict.results],
        "verdict": {"decision": verdict.decision, "text": verdict.text},
        "warnings": [*_mislabelled(wrong), *differing_facts(runs)],
        "scaling": scaling_document(runs)["scaling"],
    }


def _mislabelled(wrong: Sequence[RunRow]) -> list[dict[str, Any]]:
    """The warning that some runs did not run what was asked, with each one's reason."""
    return [{"key": MISLABELLED, "values": {str(row.run): row.mismatch_reason for row in wrong}}] if wrong else []


def _row(result: VariantResult) -> dict[str, Any]:
    spec = result.runs[0].spec
    return {
        "variant": {"workload": spec.workload, **spec.variant},
        "name": short_name(spec),
        "runs": [row.run for row in result.runs],
        "n": result.throughput.n if result.throughput else 0,
        "outcomes": [row.outcome.name if row.outcome else "running" for row in result.runs],
        "throughput": {**_estimate(result.throughput), "unit": units.rate_unit(example_word(result.runs[0].spec))},
        "speedup": {"ratio": result.speedup.value if result.speedup else None, "interval": _interval(result.speedup)},
        "energy_mj_per_example": _estimate(result.energy),
        "energy_ratio": result.energy_ratio.value if result.energy_ratio else None,
        "energy_ratio_interval": _interval(result.energy_ratio),
        "decision": "baseline" if result.is_baseline else result.decision,
        "match": match_of(result.runs),
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any]:
    return {"value": estimate.value if estimate else None, "interval": _interval(estimate)}


def _interval(estimate: Estimate | None) -> list[float] | None:
    return list(estimate.interval) if estimate and estimate.interval else None


def differing_facts(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """The facts of the environment that differ between the runs, with each run's value."""
    values = {key: {str(run.row.run): run.environment.get(key) for run in runs} for key in comparable_facts(runs)}
    return [{"key": key, "values": told} for key, told in values.items() if len(set(told.values()) - {None}) > 1]
