"""What is as usual of every run compared: worth a sentence, and no column of a table."""

from collections.abc import Callable, Mapping, Sequence

from app.records import RunRow
from app.viewmodels.run_numbers import listed

_USUAL: Mapping[str, tuple[Callable[[RunRow], bool], str]] = {
    "outcome": (lambda row: row.completed, "completed"),
    "as_asked": (lambda row: row.match is True, "ran as asked"),
}
"""By column what is usual, and how it is said."""


def usual_columns(rows: Sequence[RunRow]) -> list[str]:
    """The columns that say the usual of every run."""
    return [column for column, (usual, _) in _USUAL.items() if all(map(usual, rows))]


def usual_words(rows: Sequence[RunRow]) -> str:
    """The same in a sentence; "" where there is none."""
    told = [_USUAL[column][1] for column in usual_columns(rows)]
    if not told or len(rows) < 2:
        return ""
    return f"{'Both' if len(rows) == 2 else f'All {len(rows)}'} runs {listed(told)}."
