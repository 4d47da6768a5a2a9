"""An experiment as a JSON document: the comparison of its runs, how far it is, and the article it repeats."""

from typing import Any

from app.analysis.intervals import LEVEL
from app.records import StoredRun
from app.report.article import article_document
from app.report.comparison import compare_document
from app.runs.experiment import Experiment
from app.runs.presets import Article
from app.runs.schedule import of_variant
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
    """What `compare` says of its runs, and `experiment`, `state`, `planned`, `done` (runs), `article` (tables)."""
    runs = in_order(found)
    tables = article_document(article, found.plan.variants, [run.row for run in runs]) if article else []
    return {
        "experiment": found.plan.name,
        "state": found.state,
        "planned": found.planned,
        "done": found.done,
        "article": tables,
        **(compare_document(runs, runs[0].row.run) if runs else _NOTHING),
    }


def in_order(found: Experiment) -> list[StoredRun]:
    """The experiment's runs, those of the baseline first, each variant's in the order they were made."""
    by_number = {run.row.run: run for run in found.runs}
    rows = [run.row for run in found.runs]
    return [by_number[row.run] for spec in found.plan.variants for row in of_variant(spec, rows)]
