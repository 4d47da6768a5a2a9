"""Comparisons and experiments as JSON documents."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from app import units
from app.analysis.intervals import LEVEL
from app.analysis.verdict import VariantResult, operations_per_example
from app.metrics import RunMetrics, aggregate_metrics, put_json, run_metrics
from app.plan import Plan
from app.records import StoredRun
from app.report.article.tables import MeasuredTable
from app.report.documents import combined_match, estimate_document
from app.report.scaling import scaling_document
from app.runs.experiment.schedule import runs_of_variant, stopping_rule
from app.runs.experiment.session import Experiment
from app.viewmodels.compare.table import COMPARED
from app.viewmodels.compare.verdict import METHOD, compute_verdict, describe_method
from app.viewmodels.compare.warnings import ComparisonWarning, comparison_warnings
from app.viewmodels.format.cells import example_word
from app.viewmodels.format.naming import short_name, variant_names


def compare_document(runs: Sequence[StoredRun], baseline_run: int, older: Sequence[StoredRun] = ()) -> dict[str, Any]:
    """The `compare` document: rows by variant, the verdict in words, and every reason to doubt it.

    `older` are earlier runs of the baseline's variant, to see whether it has drifted. Of power, memory and the like a
    row has what the window's table shows: the median of its runs, of peaks the highest; its `label` is what tells it
    from the others, `operations_per_example` is by formula, `outcomes` and `reasons` have one for each run. `scaling`
    has every pair of runs that differ in their GPUs alone.
    """
    verdict = compute_verdict([run.row for run in runs], baseline_run)
    figures = {run.row.run: run_metrics(run) for run in runs}
    return {
        "baseline": baseline_run,
        "method": describe_method(verdict.results),
        "level": LEVEL,
        "rows": [
            _variant_row(result, name, [figures[row.run] for row in result.runs])
            for result, name in zip(verdict.results, verdict.names, strict=True)
        ],
        "verdict": {"decision": verdict.decision, "text": verdict.text},
        "warnings": [_warning_document(warning) for warning in comparison_warnings(runs, older)],
        "scaling": scaling_document(runs)["scaling"],
    }


def _warning_document(warning: ComparisonWarning) -> dict[str, Any]:
    values = {str(run): value for run, value in warning.values.items()}
    return {"key": warning.key, "text": warning.sentence, "severity": warning.severity, "values": values}


def _variant_row(result: VariantResult, name: str, runs: Sequence[RunMetrics]) -> dict[str, Any]:
    spec = result.runs[0].spec
    speedup, energy_ratio = estimate_document(result.speedup), estimate_document(result.energy_ratio)
    amounts = aggregate_metrics(runs)
    document = {
        "variant": {"workload": spec.workload, **spec.variant},
        "name": short_name(spec),
        "label": name,
        "runs": [row.run for row in result.runs],
        "n": result.throughput.n if result.throughput else 0,
        "outcomes": [row.outcome.name if row.outcome else "running" for row in result.runs],
        "reasons": [row.outcome.reason if row.outcome else None for row in result.runs],
        "operations_per_example": operations_per_example(result.runs),
        "throughput": {**estimate_document(result.throughput), "unit": units.rate_unit(example_word(spec))},
        "speedup": {"ratio": speedup["value"], "interval": speedup["interval"]},
        "energy_mj_per_example": estimate_document(result.energy),
        "energy_ratio": energy_ratio["value"],
        "energy_ratio_interval": energy_ratio["interval"],
        "decision": "baseline" if result.is_baseline else result.decision,
        "match": combined_match(result.runs),
    }
    for metric in COMPARED:
        put_json(document, metric, amounts[metric.key])
    return document


_EMPTY_COMPARISON: dict[str, Any] = {
    "baseline": None,
    "method": METHOD,
    "level": LEVEL,
    "rows": [],
    "verdict": {"decision": "nothing to compare", "text": "No run of this experiment has a result yet."},
    "warnings": [],
}


def experiment_document(
    found: Experiment, runs: Sequence[StoredRun], tables: Sequence[MeasuredTable]
) -> dict[str, Any]:
    """What `compare` says of its runs, and `experiment`, `state`, `planned`, `done` (runs), `article` (tables).

    `repeats` are complete rounds of all variants, `half_widths_pct` how narrowly each speed-up is known after them,
    `until_pct` how narrowly was asked.

    Args:
        found: The experiment.
        runs: The runs that it compares, as `runs_in_order` returns them.
        tables: Those of the article that it replicates, if any.
    """
    made = stopping_rule(found.plan, [run.row for run in found.runs])
    compared = compare_document(runs, runs[0].row.run) if runs else _EMPTY_COMPARISON
    if words := _single_variant_text(found.plan, runs):
        compared = {**compared, "verdict": {**compared["verdict"], "text": words}}
    return {
        "experiment": found.plan.name,
        "state": found.state,
        "planned": found.planned,
        "done": found.done,
        "repeats": made.repeats,
        "until_pct": found.plan.until_pct,
        "half_widths_pct": made.half_widths_pct(),
        "article": [table.document for table in tables],
        **compared,
    }


def _single_variant_text(plan: Plan, runs: Sequence[StoredRun]) -> str:
    """That one variant has runs and the others have none yet; "" where it is otherwise."""
    tried = [run.row.spec for run in runs]
    names = [name for name, spec in zip(variant_names(plan.variants), plan.variants, strict=True) if spec in tried]
    if len(names) != 1 or len(plan.variants) < 2:
        return ""
    return f"Only {names[0]} has runs yet: there is nothing to compare it with so far."


def runs_in_order(found: Experiment, load: Callable[[int], StoredRun]) -> list[StoredRun]:
    """Return the runs compared, those of the baseline first, each variant's in the order they were made.

    Each has the spec of the variant it counts as: where that leaves the GPUs open, other GPUs are no other variant.

    Args:
        found: The experiment.
        load: Returns the stored run of a number.
    """
    rows = [run.row for run in found.runs]
    return [
        replace(load(row.run), row=replace(row, spec=spec))
        for spec in found.plan.variants
        for row in runs_of_variant(spec, rows)
    ]
