"""What every table of an article shares: its head, what it says, and cells as numbers and as words."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.records import RunRow
from app.report.evidence import match_of
from app.runs.article import Article, Claim
from app.viewmodels import units
from app.viewmodels.cells import OUTCOMES
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


def runs_document(runs: Sequence[RunRow]) -> dict[str, Any]:
    """The runs of a cell, how they ended, and whether they ran as asked."""
    return {"runs": [row.run for row in runs], "outcome": _outcome(runs), "match": match_of(runs)}


def _outcome(runs: Sequence[RunRow]) -> OutcomeName | None:
    """How the runs of a cell ended: `completed` where one did, else the last one's; None before the first."""
    names = [row.outcome.name for row in runs if row.outcome is not None]
    return "completed" if "completed" in names else names[-1] if names else None


def figure_words(cell: Mapping[str, Any], value: float | None, digits: int) -> str:
    """The number, or how the runs ended that gave none; ✘ where one did not run as asked."""
    if value is None:
        return OUTCOMES[cell["outcome"]].word if cell["outcome"] else units.ABSENT
    return units.number(value, digits) + (" ✘" if cell["match"] is False else "")


def times_words(ratio: Mapping[str, Any]) -> str:
    """A ratio with its interval: `1.56× (1.50 to 1.62)`."""
    return units.ratio(ratio["value"]) + between([f"{end:.2f}" for end in ratio["interval"] or ()])


def between(ends: Sequence[str]) -> str:
    """Both ends of an interval in brackets; nothing without them."""
    return f" ({' to '.join(ends)})" if ends else ""


def claim_lines(table: Mapping[str, Any]) -> tuple[str, ...]:
    """What the article says, one line a figure."""
    return tuple(f"The article, {claim['about']}: {claim['says']}." for claim in table["article_says"])


def source_line(table: Mapping[str, Any]) -> str:
    """Which article it is, and what it measured on."""
    where = f" It measured on {table['article_machine']}." if table["article_machine"] else ""
    return f"The article: {table['article']}.{where}"
