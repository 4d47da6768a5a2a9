"""Tables of published articles with what was measured next to them, as JSON documents and as sections of a report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app import units
from app.plan import Plan, WeightTransfer
from app.records import RunHeader
from app.report.article.grid import LoadRun, TableContent, ratio_content
from app.report.article.layouts import layout_content
from app.report.article.training import training_content
from app.report.model import ArticleSection, TextTable
from app.runs.experiment.article import Article, ArticleTable, LayoutTable, PortabilityTable, RatioTable, TrainingTable
from app.runs.experiment.article_runs import ArticleRuns
from app.runs.experiment.transfer_trials import latest_trial, run_to_transfer
from app.storage.reference import is_reference
from app.viewmodels.format.environment import environment_label
from app.viewmodels.format.naming import choice_label, short_name
from workloads.catalog import FRAMEWORK

_VERSIONS = ("driver", FRAMEWORK.version_key, "program_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """One table of an article with what was measured: its fields in JSON, and its section of a report.

    `is_measured` is whether the table contains any run.
    """

    document: Mapping[str, Any]
    section: ArticleSection
    is_measured: bool


def measured_tables(
    article: Article | None, plan: Plan, runs: Sequence[RunHeader], load: LoadRun | None = None
) -> tuple[MeasuredTable, ...]:
    """Return the article's tables of which the experiment has variants.

    Args:
        article: None gives no tables.
        plan: The experiment.
        runs: Its runs so far.
        load: Returns a run, to say why figures differ and for its memory traffic; without it these are left out.
    """
    if article is None:
        return ()
    found = (_measured_table(article, table, plan, runs, load) for table in article.tables)
    return tuple(each for each in found if each is not None)


def repeated_sections(repeated: Sequence[ArticleRuns]) -> tuple[ArticleSection, ...]:
    """Return the sections of all these articles; their sources say where the runs were measured, too."""
    return tuple(
        replace(section, source=f"{section.source} {describe_origin(each.runs)}.")
        for each in repeated
        for section in sections_with_runs(each)
    )


def sections_with_runs(repeated: ArticleRuns) -> tuple[ArticleSection, ...]:
    """Return the sections of the tables that contain any of the runs."""
    tables = measured_tables(repeated.article, repeated.plan, repeated.runs, repeated.stored.__getitem__)
    return tuple(table.section for table in tables if table.is_measured)


def describe_origin(runs: Sequence[RunHeader]) -> str:
    """Describe where and when runs of one environment were made, and whether they came with the program."""
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
    for key in _VERSIONS:
        known = {run.environment[key] for run in runs if run.environment.get(key)}
        if known:
            yield f"{environment_label(key)} {' and '.join(sorted(known))}"


def _measured_table(
    article: Article, table: ArticleTable, plan: Plan, runs: Sequence[RunHeader], load: LoadRun | None
) -> MeasuredTable | None:
    rows = [run.row for run in runs]
    match table:
        case PortabilityTable():
            content = _portability_content(plan.weight_transfers, runs)
        case LayoutTable():
            content = layout_content(table, plan.variants, rows, load)
        case RatioTable():
            content = ratio_content(table, plan.variants, rows, load)
        case TrainingTable():
            content = training_content(table, plan.variants, runs)
    if content is None:
        return None
    head = {
        "kind": str(table.__struct_config__.tag),
        "title": table.title,
        "article": article.title,
        "article_machine": article.machine,
        "article_says": [{"about": claim.about, "says": claim.says} for claim in table.claims],
    }
    machine = f" It measured on {article.machine}." if article.machine else ""
    section = ArticleSection(
        title=table.title,
        tables=content.tables,
        reasons=content.reasons,
        claims=tuple(f"The article, {claim.about}: {claim.says}." for claim in table.claims),
        source=f"The article: {article.title}.{machine}",
    )
    return MeasuredTable(document={**head, **content.fields}, section=section, is_measured=content.is_measured)


def _portability_content(transfers: Sequence[WeightTransfer], runs: Sequence[RunHeader]) -> TableContent | None:
    """Return a row per trial, pending ones too; None if the experiment transfers no weights.

    `max_difference` is the largest absolute difference of an output from the trained model's own, None before the
    trial.
    """
    rows = [row for each in transfers for row in _trial_rows(each, run_to_transfer(each, runs))]
    if not rows:
        return None
    shown = TextTable(
        caption="How much answers to the same sequences differ from those of the trained model itself",
        head=("Trained", "Weights tried in", "On", "Largest difference of an answer", "Largest answer"),
        rows=tuple(
            (
                row["trained"],
                row["label"],
                row["device_name"] or units.ABSENT,
                units.ABSENT if row["max_difference"] is None else f"{row['max_difference']:.1e}",
                units.number(row["max_output"]),
            )
            for row in rows
        ),
        numeric=frozenset({3, 4}),
    )
    is_measured = any(row["run"] is not None for row in rows)
    return TableContent(fields={"rows": rows}, tables=(shown,), is_measured=is_measured)


def _trial_rows(transfer: WeightTransfer, run: RunHeader | None) -> list[dict[str, Any]]:
    trials = {name: latest_trial(run, name, transfer.gpus) if run else None for name in transfer.into}
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
        for name, trial in trials.items()
    ]
