"""What a search found, as the list of runs shows it: where each run matched, what is marked, what was left out."""

from collections.abc import Iterable, Mapping, Sequence

from app.queries import FREE_TEXT, RUN_ORDERS, SearchResult, SearchWord, parse_search
from app.records import RunRow
from app.viewmodels.format import naming
from app.viewmodels.format.cells import Cell

_BEFORE, _AFTER = 8, 28
"""Letters around a word that an excerpt shows."""
_COLUMNS: Mapping[str, str] = {"tag": "tags", "note": "tags", "card": "devices"}
"""The columns that show a field of a search, where they are not of its name."""


def match_cell(row: RunRow, fields: Sequence[str], words: Sequence[SearchWord]) -> Cell:
    """Return where a search found its words in a run, with the text around what no other column shows.

    `fields` are those in which each word was found.
    """
    matches = [_describe(row, name, word.text) for name, word in zip(fields, words, strict=False)]
    return Cell(text=", ".join(dict.fromkeys(matches)), tooltip="\n".join(dict.fromkeys(matches)))


def marked_terms(text: str) -> dict[str, tuple[str, ...]]:
    """Return the words of a search that are marked, by the order of the column; "" is every column."""
    terms: dict[str, tuple[str, ...]] = {}
    for word in parse_search(text):
        if word.text:
            column = _COLUMNS.get(word.field, word.field if word.field in RUN_ORDERS else "match" if word.field else "")
            for order in {column, "match"} if column else {""}:
                terms[order] = (*terms.get(order, ()), word.text.lower())
    return terms


def describe_left_out(matches: SearchResult) -> str:
    """Return how many more runs a wider search finds: `148 more in notes`; "" for none."""
    if not matches.left_out:
        return ""
    named = [name for name in FREE_TEXT if f"{name}:" in matches.wider]
    return f"{matches.left_out:,} more in {' and '.join(f'{name}s' for name in sorted(named))}"


def _describe(row: RunRow, name: str, word: str) -> str:
    text = next((line for line in _lines(row, name, word) if word.lower() in line.lower()), "")
    return f"{name}: {excerpt(text, word)}" if text else name


def _lines(row: RunRow, name: str, word: str) -> Sequence[str]:
    """Return the lines of a field that other columns do not show whole."""
    if name == "note":
        return row.note.splitlines()
    if name == "reason":
        return [row.outcome.reason or "" if row.outcome else "", row.evidence_reason or ""]
    if name == "variant":
        items = [f"{key}={naming.value_text(value)}" for key, value in row.spec.variant.items()]
        return [] if word.lower() in naming.short_name(row.spec).lower() else [*items, row.purpose or ""]
    return ()


def excerpt(text: str, word: str) -> str:
    """Return the part of a line around a word."""
    at = text.lower().find(word.lower())
    first, end = max(0, at - _BEFORE), at + len(word) + _AFTER
    return f"{'…' if first else ''}{text[first:end]}{'…' if end < len(text) else ''}"


def from_word(text: str, words: Iterable[str]) -> str:
    """Return where a run matched without what stands between the field and the first of these words."""
    field, colon, rest = text.partition(": ")
    at = min((rest.lower().find(word) for word in words if word in rest.lower()), default=0)
    return f"{field}{colon}…{rest[at:]}" if at > 0 else text
