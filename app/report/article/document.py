"""The tables of an article from stored runs, as a document and as report sections."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app import units
from app.plan import Plan, WeightTransfer
from app.records import RunHeader
from app.report.article.cells import claim_lines, head_document, source_line
from app.report.article.layouts import layouts_document, layouts_section
from app.report.article.ratios import ratios_document, ratios_section
from app.report.model import ArticleSection, TextTable
from app.runs.experiment.article import Article, ArticleTable, LayoutTable, PortabilityTable, RatioTable
from app.runs.experiment.article_runs import ArticleRuns
from app.runs.experiment.transfer_trials import latest_trial, run_to_transfer
from app.storage.reference import is_reference
from app.viewmodels.format.environment import environment_label
from app.viewmodels.format.naming import choice_label, short_name


def portability_rows(transfers: Sequence[WeightTransfer], runs: Sequence[RunHeader]) -> dict[str, Any] | None:
    """One row a trial, those to come too; None where the experiment tries no weights.

    `max_difference` is the largest absolute difference of an answer to the trained model's own, None before it was
    tried.
    """
    rows = [row for each in transfers for row in _rows(each, run_to_transfer(each, runs))]
    return {"rows": rows} if rows else None


def _rows(transfer: WeightTransfer, run: RunHeader | None) -> list[dict[str, Any]]:
    tried = {name: latest_trial(run, name, transfer.gpus) if run else None for name in transfer.into}
    return [
        {
            "trained": short_name(transfer.spec),
            "run": run.row.run if run else None,
            "implementation": name,
            "label": choice_label(transfer.spec, "implementation", name),
            "device_name": trial.device_name if trial else None,
            "max_difference": trial.max_difference if trial else None,
            "max_output": trial.max_output if trial else None,
        }
        for name, trial in tried.items()
    ]


def portability_section(table: Mapping[str, Any]) -> ArticleSection:
    """The same in words."""
    head = ("Trained", "Weights tried in", "On", "Largest difference of an answer", "Largest answer")
    rows = tuple(
        (
            row["trained"],
            row["label"],
            row["device_name"] or units.ABSENT,
            units.ABSENT if row["max_difference"] is None else f"{row['max_difference']:.1e}",
            units.number(row["max_output"]),
        )
        for row in table["rows"]
    )
    shown = TextTable(head=head, rows=rows, numeric=frozenset({3, 4}))
    caption = "How much answers to the same sequences differ from those of the trained model itself"
    return ArticleSection(
        title=table["title"], tables=((caption, shown),), claims=claim_lines(table), source=source_line(table)
    )


_SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], ArticleSection]] = {
    "layouts": layouts_section,
    "ratios": ratios_section,
    "portability": portability_section,
}


def article_document(article: Article, plan: Plan, runs: Sequence[RunHeader]) -> list[dict[str, Any]]:
    """Its tables with what was measured, as far as the experiment has something of them."""
    found = ((table, _table_document(table, plan, runs)) for table in article.tables)
    return [{**_head(article, table), **measured} for table, measured in found if measured is not None]


def _table_document(table: ArticleTable, plan: Plan, runs: Sequence[RunHeader]) -> dict[str, Any] | None:
    rows = [run.row for run in runs]
    match table:
        case LayoutTable():
            return layouts_document(table, plan.variants, rows)
        case RatioTable():
            return ratios_document(table, plan.variants, rows)
        case PortabilityTable():
            return portability_rows(plan.weight_transfers, runs)


def _head(article: Article, table: ArticleTable) -> dict[str, Any]:
    title = table.workload if isinstance(table, LayoutTable) else table.title
    return head_document(article, str(table.__struct_config__.tag), title, table.claims)


def is_measured(table: Mapping[str, Any]) -> bool:
    """Whether a run stands behind anything in the table."""
    return any(row.get("run") or any(cell["runs"] for cell in row.get("cells", ())) for row in table["rows"])


def article_sections(tables: Sequence[Mapping[str, Any]]) -> tuple[ArticleSection, ...]:
    """The same in words, for terminal and report alike."""
    return tuple(_SECTIONS[table["kind"]](table) for table in tables)


_VERSIONS = ("driver", "tensorflow", "program_version")


def repeated_sections(repeated: Sequence[ArticleRuns]) -> tuple[ArticleSection, ...]:
    """The tables of all these articles; their sources say on what was measured here too."""
    return tuple(
        replace(section, source=f"{section.source} {describe_origin(each.runs)}.")
        for each in repeated
        for section in measured_sections(each)
    )


def measured_sections(repeated: ArticleRuns) -> tuple[ArticleSection, ...]:
    """Return the sections of the tables that the runs measured something of."""
    tables = article_document(repeated.article, repeated.plan, repeated.runs)
    return article_sections([table for table in tables if is_measured(table)])


def describe_origin(runs: Sequence[RunHeader]) -> str:
    """On what runs of the same surroundings were made and when, and whether they came with the program."""
    gpus = sorted({name for run in runs for name in run.row.gpu_names})
    cpus = dict.fromkeys(run.environment["cpu"] for run in runs if "cpu" in run.environment)
    days = sorted({units.utc_time(run.row.started_utc_ns)[:10] for run in runs})
    parts = [
        f"{'Reference, measured' if is_reference(runs[0].row) else 'Measured'} on {', '.join(gpus or cpus)}",
        *_known_versions(runs),
        " to ".join(dict.fromkeys((days[0], days[-1]))),
        f"{len(runs)} {units.plural('run', len(runs))}",
    ]
    return " · ".join(filter(None, parts))


def _known_versions(runs: Sequence[RunHeader]) -> Iterator[str]:
    """Those that are known; the runs share them."""
    for key in _VERSIONS:
        known = {run.environment[key] for run in runs if run.environment.get(key)}
        if known:
            yield f"{environment_label(key)} {' and '.join(sorted(known))}"
