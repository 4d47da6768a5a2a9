"""Comparisons as JSON documents, and experiments with the comparison of their runs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from app.analysis.effects import Effect
from app.analysis.intervals import LEVEL
from app.analysis.verdict import TESTS_LEVEL, operations_per_example
from app.metrics import put_json
from app.queries import plan_question
from app.report.documents import (
    equality_document,
    estimate_document,
    statements_document,
    verification_document,
    why_document,
)
from app.report.scaling import scaling_document
from app.runs.experiment.estimates import Experiment
from app.runs.experiment.schedule import runs_of_variant, stopping_rule
from app.values import units
from app.values.plan import Publication
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import Comparison, compare, prepare_comparison
from app.viewmodels.compare.pivot import Pivot, figure_of, make_pivots
from app.viewmodels.compare.statements import Statement
from app.viewmodels.compare.table import COMPARED, ComparedVariant
from app.viewmodels.compare.verdict import METHOD, Verdict
from app.viewmodels.format.cells import group_example_word
from app.viewmodels.format.naming import SEPARATOR, names_in_parts, short_name
from workloads.catalog import own_variant


def compare_document(comparison: Comparison, pivots: Sequence[Pivot] = ()) -> dict[str, Any]:
    """Return the `compare` document: a row per variant, the verdict in words, and every warning.

    A row has the table's value of each metric, at the metric's path. `label` distinguishes a row from the others,
    `operations_per_example` is by formula; `hosts`, `outcomes` and `reasons` have one entry per run, with null for this
    machine. `effects` has the ratio of throughput by each parameter alone, `scaling` every pair of runs that differ
    only in their GPUs, `why` every variant except the baseline, `equality` every checked one, `pivot` the effects of
    settings by two others.
    """
    return {
        "baseline": comparison.baseline or None,
        "method": comparison.method,
        "level": LEVEL,
        "margin_pct": comparison.margin_pct,
        "rows": list(map(_variant_row, comparison.variants)),
        "verdict": {
            "decision": comparison.verdict.decision,
            "text": comparison.verdict.text,
            "asked": comparison.verdict.asked or None,
            "statements": statements_document(comparison.verdict.statements),
        },
        "effects": list(map(_effect_document, comparison.verdict.effects)),
        "pivot": list(map(_pivot_document, pivots)),
        "warnings": statements_document(comparison.warnings),
        "notes": statements_document(comparison.notes),
        "scaling": scaling_document(comparison.scaling)["scaling"],
        "why": why_document(comparison.why),
        "equality": [
            {"label": SEPARATOR.join(variant.name), "runs": list(variant.runs), **equality_document(variant.equality)}
            for variant in comparison.equality
        ],
    }


def _effect_document(effect: Effect) -> dict[str, Any]:
    pairs = [
        {
            "before": [row.run for row in pair.before],
            "after": [row.run for row in pair.after],
            **estimate_document(pair.ratio, "ratio"),
        }
        for pair in effect.pairs
    ]
    document = {field.name: getattr(effect, field.name) for field in fields(effect)}
    spans = [
        {"values": span.values, "decision": span.decision, **estimate_document(span.ratio, "ratio")}
        for span in effect.spans
    ]
    return {**document, **estimate_document(effect.ratio, "ratio"), "pairs": pairs, "spans": spans}


def _pivot_document(pivot: Pivot) -> dict[str, Any]:
    """Return cells with the figures of both sides in the metric's unit; `article` is what is published about them."""

    def side_document(variant: ComparedVariant | None) -> dict[str, Any]:
        runs = [row.run for row in variant.result.runs] if variant else []
        return {"runs": runs, "figure": figure_of(variant, pivot.figure)}

    cells = [
        {
            "workload": cell.spec.workload,
            "settings": {name: cell.spec.variant.get(name) for name in dict.fromkeys((pivot.asked, *pivot.axes))},
            **estimate_document(cell.ratio, "ratio"),
            "state": cell.state or None,
            "before": side_document(cell.before),
            "after": side_document(cell.after),
            "article": [
                {"before": effect.before_figure, "after": value.figure, "ratio": list(value.ends) or None}
                for _, effect, value in cell.quotes
            ],
        }
        for cell in pivot.cells
    ]
    document = {name: getattr(pivot, name) for name in ("asked", "before", "rows_by", "columns_by", "figure")}
    return {**document, "cells": cells}


def _variant_row(variant: ComparedVariant) -> dict[str, Any]:
    result, equivalence = variant.result, variant.result.equivalence
    spec = result.runs[0].spec
    document = {
        "variant": {"workload": spec.workload, **own_variant(spec)},
        "name": short_name(spec),
        "label": variant.name,
        "runs": [row.run for row in result.runs],
        "hosts": [row.host for row in result.runs],
        "n": result.throughput.n if result.throughput else 0,
        "outcomes": [row.outcome.name if row.outcome else "running" for row in result.runs],
        "reasons": [row.outcome.reason if row.outcome else None for row in result.runs],
        "operations_per_example": operations_per_example(result.runs),
        "throughput": {
            **estimate_document(result.throughput),
            "unit": units.rate_unit(group_example_word(result.runs)),
        },
        "speedup": estimate_document(result.speedup, "ratio"),
        "energy_mj_per_example": estimate_document(result.energy),
        **estimate_document(result.energy_ratio, "energy_ratio", "energy_ratio_interval"),
        "decision": "baseline" if result.is_baseline else result.decision,
        "looks": result.looks,
        "comparisons": result.comparisons,
        "equivalence": equivalence
        and {**asdict(equivalence), "level": TESTS_LEVEL, "is_not_slower": equivalence.is_not_slower},
        **verification_document(result.runs),
    }
    for metric in COMPARED:
        put_json(document, metric, variant.metrics[metric.key])
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResult:
    """An experiment with the comparison of its runs, and the publication that its preset repeats, if any."""

    experiment: Experiment
    comparison: Comparison
    published: Sequence[Publication] = ()


def experiment_result(
    experiment: Experiment,
    runs: Sequence[StoredRun],
    published: Sequence[Publication] = (),
    margin_pct: float | None = None,
) -> ExperimentResult:
    """Compare an experiment's runs so far, with its baseline, else the default one.

    The runs are as `runs_in_order` returns them.
    """
    if not runs:
        none = Verdict(statements=(Statement("no runs"),))
        comparison = Comparison(method=METHOD, verdict=none)
        return ExperimentResult(experiment=experiment, comparison=comparison, published=published)
    question = plan_question(experiment.plan, [run.row for run in runs])
    comparison = compare(prepare_comparison(runs, asked=question.asked), question.baseline, margin_pct=margin_pct)
    tried = [run.row.spec for run in runs]
    variants = experiment.plan.variants
    names = [name for name, spec in zip(names_in_parts(variants), variants, strict=True) if spec in tried]
    if len(names) == 1 and len(variants) > 1:
        only = Statement("only one", {"variant": names[0]})
        comparison = replace(comparison, verdict=replace(comparison.verdict, statements=(only,)))
    return ExperimentResult(experiment=experiment, comparison=comparison, published=published)


def experiment_document(result: ExperimentResult) -> dict[str, Any]:
    """Return the `compare` document of its runs, with `experiment`, `state`, `planned`, `done` (runs).

    `repeats` are complete rounds of all variants, `half_widths_pct` how narrowly each speed-up is known after them,
    `until_pct` the target precision.
    """
    experiment = result.experiment
    rule = stopping_rule(experiment.plan, [run.row for run in experiment.runs])
    return {
        "experiment": experiment.plan.name,
        "state": experiment.state,
        "planned": experiment.planned,
        "done": experiment.done,
        "repeats": rule.repeats,
        "until_pct": experiment.plan.until_pct,
        "half_widths_pct": rule.half_widths_pct(),
        **compare_document(result.comparison, make_pivots(result.comparison, result.published)),
    }


def runs_in_order(experiment: Experiment, load: Callable[[int], StoredRun]) -> list[StoredRun]:
    """Return the compared runs, the baseline's first, each variant's in the order they ran.

    Each has the spec of the variant as which it counts: if that leaves the GPUs open, other GPUs are not another
    variant.
    """
    rows = [run.row for run in experiment.runs]
    return [
        replace(load(row.run), row=replace(row, spec=spec))
        for spec in experiment.plan.variants
        for row in runs_of_variant(spec, rows)
    ]
