"""An experiment as a JSON document: the comparison of its runs, how far it is, and the article it repeats."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.analysis.intervals import LEVEL
from app.records import StoredRun
from app.report.article import article_document
from app.report.comparison import compare_document
from app.runs.article import Article
from app.runs.experiment import Experiment
from app.runs.schedule import Plan, of_variant, rounds
from app.viewmodels.variants import variant_names
from app.viewmodels.verdict import METHOD

_NOTHING: dict[str, Any] = {
    "baseline": None,
    "method": METHOD,
    "level": LEVEL,
    "rows": [],
    "verdict": {"decision": "nothing to compare", "text": "No run of this experiment has a result yet."},
    "warnings": [],
}


def experiment_document(found: Experiment, article: Article | None) -> dict[str, Any]:
    """What `compare` says of its runs, and `experiment`, `state`, `planned`, `done` (runs), `article` (tables).

    `repeats` are complete rounds of all variants, `half_widths_pct` how narrowly each speed-up is known after them,
    `until_pct` how narrowly was asked.
    """
    runs = in_order(found)
    made = rounds(found.plan, [run.row for run in found.runs])
    compared = compare_document(runs, runs[0].row.run) if runs else _NOTHING
    if words := _alone_words(found.plan, runs):
        compared = {**compared, "verdict": {**compared["verdict"], "text": words}}
    return {
        "experiment": found.plan.name,
        "state": found.state,
        "planned": found.planned,
        "done": found.done,
        "repeats": made.repeats,
        "until_pct": found.plan.until_pct,
        "half_widths_pct": made.half_widths_pct(),
        "article": article_document(article, found.plan, found.runs) if article else [],
        **compared,
    }


def _alone_words(plan: Plan, runs: Sequence[StoredRun]) -> str:
    """That one variant has runs and the others have none yet; "" where it is otherwise."""
    tried = [run.row.spec for run in runs]
    names = [name for name, spec in zip(variant_names(plan.variants), plan.variants, strict=True) if spec in tried]
    if len(names) != 1 or len(plan.variants) < 2:
        return ""
    return f"Only {names[0]} has runs yet: there is nothing to compare it with so far."


def in_order(found: Experiment) -> list[StoredRun]:
    """The runs compared, those of the baseline first, each variant's in the order they were made.

    Each is of the variant it counts as: where that leaves the cards open, which they were makes no other variant.
    """
    by_number = {run.row.run: run for run in found.runs}
    rows = [run.row for run in found.runs]
    return [
        replace(by_number[row.run], row=replace(row, spec=spec))
        for spec in found.plan.variants
        for row in of_variant(spec, rows)
    ]
