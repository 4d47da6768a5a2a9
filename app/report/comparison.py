"""A comparison of stored runs as a JSON document and as words: the same numbers for terminal, file and window."""

import statistics
from collections.abc import Sequence
from typing import Any

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.verdict import VariantResult
from app.records import StoredRun
from app.report.evidence import match_of
from app.report.scaling import scaling_document
from app.viewmodels import units
from app.viewmodels.cells import example_word
from app.viewmodels.doubts import Doubt, doubts
from app.viewmodels.naming import short_name
from app.viewmodels.verdict import method_words, verdict_of


def compare_document(runs: Sequence[StoredRun], baseline_run: int, older: Sequence[StoredRun] = ()) -> dict[str, Any]:
    """The `compare` document: rows by variant, the verdict in words, and every reason to doubt it.

    `older` are earlier runs of the baseline's variant, to see whether it has drifted. Of power, memory
    and the like a row has the median of its runs. `scaling` has every pair of runs that differ in their GPUs alone.
    """
    verdict = verdict_of([run.row for run in runs], baseline_run)
    return {
        "baseline": baseline_run,
        "method": method_words(verdict.results),
        "level": LEVEL,
        "rows": [_row(result) for result in verdict.results],
        "verdict": {"decision": verdict.decision, "text": verdict.text},
        "warnings": [_warning(doubt) for doubt in doubts(runs, older)],
        "scaling": scaling_document(runs)["scaling"],
    }


def _warning(doubt: Doubt) -> dict[str, Any]:
    values = {str(run): value for run, value in doubt.values.items()}
    return {"key": doubt.key, "text": doubt.sentence, "severity": doubt.severity, "values": values}


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
        "step_ms": {name: _typical(result, f"step_ms_{name}") for name in ("p50", "p95", "p99")},
        "power": {"mean_mw": _typical(result, "mean_power_mw")},
        "memory": {name: _typical(result, name) for name in ("device_peak_bytes", "allocator_peak_bytes")},
        "compile_s": _typical(result, "compile_s"),
        "decision": "baseline" if result.is_baseline else result.decision,
        "match": match_of(result.runs),
    }


def _typical(result: VariantResult, figure: str) -> float | None:
    """The median of one figure of the variant's runs, those that have it."""
    values = [getattr(row.summary, figure) for row in result.runs]
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _estimate(estimate: Estimate | None) -> dict[str, Any]:
    return {"value": estimate.value if estimate else None, "interval": _interval(estimate)}


def _interval(estimate: Estimate | None) -> list[float] | None:
    return list(estimate.interval) if estimate and estimate.interval else None
