"""A comparison of stored runs as a JSON document and as words: the same numbers for terminal, file and window."""

from collections.abc import Sequence
from typing import Any

from app.analysis.intervals import LEVEL
from app.analysis.verdict import VariantResult
from app.analysis.work import operations
from app.records import StoredRun
from app.report.estimates import estimate_document
from app.report.evidence import match_of
from app.report.scaling import scaling_document
from app.viewmodels import units
from app.viewmodels.cells import example_word
from app.viewmodels.compare_figures import FIGURES, RunFigures, run_figures
from app.viewmodels.doubts import Doubt, doubts
from app.viewmodels.naming import short_name
from app.viewmodels.verdict import method_words, verdict_of


def compare_document(runs: Sequence[StoredRun], baseline_run: int, older: Sequence[StoredRun] = ()) -> dict[str, Any]:
    """The `compare` document: rows by variant, the verdict in words, and every reason to doubt it.

    `older` are earlier runs of the baseline's variant, to see whether it has drifted. Of power, memory and the like a
    row has what the window's table shows: the median of its runs, of peaks the highest; its `label` is what tells it
    from the others, `operations_per_example` is by formula, `outcomes` and `reasons` have one for each run. `scaling`
    has every pair of runs that differ in their GPUs alone.
    """
    verdict = verdict_of([run.row for run in runs], baseline_run)
    figures = {run.row.run: run_figures(run) for run in runs}
    return {
        "baseline": baseline_run,
        "method": method_words(verdict.results),
        "level": LEVEL,
        "rows": [
            _row(result, name, [figures[row.run] for row in result.runs])
            for result, name in zip(verdict.results, verdict.names, strict=True)
        ],
        "verdict": {"decision": verdict.decision, "text": verdict.text},
        "warnings": [_warning(doubt) for doubt in doubts(runs, older)],
        "scaling": scaling_document(runs)["scaling"],
    }


def _warning(doubt: Doubt) -> dict[str, Any]:
    values = {str(run): value for run, value in doubt.values.items()}
    return {"key": doubt.key, "text": doubt.sentence, "severity": doubt.severity, "values": values}


def _row(result: VariantResult, name: str, runs: Sequence[RunFigures]) -> dict[str, Any]:
    spec = result.runs[0].spec
    speedup, energy_ratio = estimate_document(result.speedup), estimate_document(result.energy_ratio)
    amounts = {figure.key: figure.amount(runs) for figure in FIGURES}
    return {
        "variant": {"workload": spec.workload, **spec.variant},
        "name": short_name(spec),
        "label": name,
        "runs": [row.run for row in result.runs],
        "n": result.throughput.n if result.throughput else 0,
        "outcomes": [row.outcome.name if row.outcome else "running" for row in result.runs],
        "reasons": [row.outcome.reason if row.outcome else None for row in result.runs],
        "operations_per_example": operations(result.runs),
        "throughput": {**estimate_document(result.throughput), "unit": units.rate_unit(example_word(spec))},
        "speedup": {"ratio": speedup["value"], "interval": speedup["interval"]},
        "energy_mj_per_example": estimate_document(result.energy),
        "energy_ratio": energy_ratio["value"],
        "energy_ratio_interval": energy_ratio["interval"],
        "step_ms": {name: amounts[f"step_{name}"] for name in ("p50", "p95", "p99")},
        "power": {"mean_mw": amounts["mean_power"], "peak_mw": amounts["peak_power"]},
        "memory": {
            "device_peak_bytes": amounts["device_memory"],
            "allocator_peak_bytes": amounts["allocator_memory"],
        },
        "utilisation_pct": amounts["utilisation"],
        "compile_s": amounts["compile"],
        "temperature_c": amounts["temperature"],
        "throttled_s": amounts["throttled"],
        "decision": "baseline" if result.is_baseline else result.decision,
        "match": match_of(result.runs),
    }
