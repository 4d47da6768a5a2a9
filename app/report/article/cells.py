"""Parts shared by all tables of an article: head, claims, source and formatted cells."""

from collections.abc import Mapping, Sequence
from typing import Any

from app import units
from app.records import RunRow
from app.report.documents import combined_match
from app.runs.experiment.article import Article, Claim
from app.viewmodels.format.cells import OUTCOMES
from workloads.protocol import OutcomeName


def head_document(article: Article, kind: str, title: str, claims: Sequence[Claim]) -> dict[str, Any]:
    """What a table of any kind begins with."""
    return {
        "kind": kind,
        "title": title,
        "article": article.title,
        "article_machine": article.machine,
        "article_says": [{"about": claim.about, "says": claim.says} for claim in claims],
    }


def cell_runs_document(runs: Sequence[RunRow]) -> dict[str, Any]:
    """The runs of a cell, how they ended, and whether they ran as asked."""
    return {"runs": [row.run for row in runs], "outcome": _cell_outcome(runs), "match": combined_match(runs)}


def _cell_outcome(runs: Sequence[RunRow]) -> OutcomeName | None:
    """How the runs of a cell ended: `completed` where one did, else the last one's; None before the first."""
    names = [row.outcome.name for row in runs if row.outcome is not None]
    return "completed" if "completed" in names else names[-1] if names else None


def format_figure(cell: Mapping[str, Any], value: float | None, digits: int) -> str:
    """The number, or how the runs ended that gave none; ✘ where one did not run as asked."""
    if value is None:
        return OUTCOMES[cell["outcome"]].word if cell["outcome"] else units.ABSENT
    return units.number(value, digits) + (" ✘" if cell["match"] is False else "")


def format_ratio(ratio: Mapping[str, Any]) -> str:
    """A ratio with its interval: `1.56× (1.50 to 1.62)`."""
    return units.ratio(ratio["value"]) + format_interval([f"{end:.2f}" for end in ratio["interval"] or ()])


def format_interval(ends: Sequence[str]) -> str:
    """Both ends of an interval in brackets; nothing without them."""
    return f" ({' to '.join(ends)})" if ends else ""


def claim_lines(table: Mapping[str, Any]) -> tuple[str, ...]:
    """What the article says, one line a figure."""
    return tuple(f"The article, {claim['about']}: {claim['says']}." for claim in table["article_says"])


def source_line(table: Mapping[str, Any]) -> str:
    """Which article it is, and what it measured on."""
    machine = f" It measured on {table['article_machine']}." if table["article_machine"] else ""
    return f"The article: {table['article']}.{machine}"
