"""The articles that some runs repeat, as a piece of HTML: for each its title, on what was measured, and its tables."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.records import StoredRun
from app.report.article import article_document, article_sections, is_measured
from app.report.contents import Section
from app.report.html import section_html
from app.report.markup import escaped
from app.runs.article_runs import ArticleRuns
from app.storage.reference import is_reference
from app.viewmodels import units
from app.viewmodels.environment import fact_name

_VERSIONS = ("driver", "tensorflow", "program_version")


def repeated_sections(repeated: Sequence[ArticleRuns]) -> tuple[Section, ...]:
    """The tables of all these articles; their sources say on what was measured here too."""
    return tuple(
        replace(section, source=f"{section.source} {where_words(each.runs)}.")
        for each in repeated
        for section in _sections(each)
    )


def articles_html(repeated: Sequence[ArticleRuns]) -> str:
    """The pieces one after another; every text in them is escaped."""
    return "".join(part for each in repeated for part in _parts(each))


def _parts(repeated: ArticleRuns) -> Iterator[str]:
    article = repeated.article
    theirs = [f"The article measured on {article.machine}."] if article.machine else []
    yield f"<h1>{escaped(article.title)}</h1>"
    yield from (f'<p class="quiet">{escaped(words)}</p>' for words in (*theirs, where_words(repeated.runs)))
    yield from (section_html(replace(section, source="")) for section in _sections(repeated))


def _sections(repeated: ArticleRuns) -> tuple[Section, ...]:
    """Without the tables of which nothing is among the runs: only some of an article's may have been chosen."""
    tables = article_document(repeated.article, repeated.plan, repeated.runs)
    return article_sections([table for table in tables if is_measured(table)])


def where_words(runs: Sequence[StoredRun]) -> str:
    """On what runs of the same surroundings were made and when, and whether they came with the program."""
    cards = sorted({name for run in runs for name in run.row.gpu_names})
    cpus = dict.fromkeys(run.environment["cpu"] for run in runs if "cpu" in run.environment)
    days = sorted({units.utc_time(run.row.started_utc_ns)[:10] for run in runs})
    told = [
        f"{'Reference, measured' if is_reference(runs[0].row) else 'Measured'} on {', '.join(cards or cpus)}",
        *_versions(runs),
        " to ".join(dict.fromkeys((days[0], days[-1]))),
        f"{len(runs)} {units.plural('run', len(runs))}",
    ]
    return " · ".join(filter(None, told))


def _versions(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Those that are known; the runs share them."""
    for key in _VERSIONS:
        known = {run.environment[key] for run in runs if run.environment.get(key)}
        if known:
            yield f"{fact_name(key)} {' and '.join(sorted(known))}"
