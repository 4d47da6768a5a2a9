"""The tables of the article that a preset repeats, from stored runs: as numbers, and as words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.records import StoredRun
from app.report.article_cells import head_document
from app.report.article_layouts import layouts_document, layouts_section
from app.report.article_portability import portability_rows, portability_section
from app.report.article_ratios import ratios_document, ratios_section
from app.report.contents import Section
from app.runs.article import Article, LayoutTable, PortabilityTable, RatioTable, Table
from app.runs.schedule import Plan

_SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], Section]] = {
    "layouts": layouts_section,
    "ratios": ratios_section,
    "portability": portability_section,
}


def article_document(article: Article, plan: Plan, runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Its tables with what was measured, as far as the experiment has something of them."""
    found = ((table, _measured(table, plan, runs)) for table in article.tables)
    return [{**_head(article, table), **measured} for table, measured in found if measured is not None]


def _measured(table: Table, plan: Plan, runs: Sequence[StoredRun]) -> dict[str, Any] | None:
    rows = [run.row for run in runs]
    match table:
        case LayoutTable():
            return layouts_document(table, plan.variants, rows)
        case RatioTable():
            return ratios_document(table, plan.variants, rows)
        case PortabilityTable():
            return portability_rows(plan.carried, runs)


def _head(article: Article, table: Table) -> dict[str, Any]:
    title = table.workload if isinstance(table, LayoutTable) else table.title
    return head_document(article, str(table.__struct_config__.tag), title, table.claims)


def is_measured(table: Mapping[str, Any]) -> bool:
    """Whether a run stands behind anything in the table."""
    return any(row.get("run") or any(cell["runs"] for cell in row.get("cells", ())) for row in table["rows"])


def article_sections(tables: Sequence[Mapping[str, Any]]) -> tuple[Section, ...]:
    """The same in words, for terminal and report alike."""
    return tuple(_SECTIONS[table["kind"]](table) for table in tables)
