"""The search of the command palette."""

import pytest

from app.viewmodels.shell.palette import RECENT, Entry, run_entries, search
from tests.unit.viewmodels.stored import run_row

ENTRIES = [
    Entry(key="stop", title="Stop the run", group="Everywhere", keys="Ctrl+."),
    Entry(key="values", title="Compare several values", group="Run", keys="Ctrl+E"),
    Entry(key="compare", title="Show Compare", group="Everywhere", keys="Ctrl+4"),
    *run_entries(
        [run_row(12, batch_size=64), run_row(112, batch_size=512, precision="bfloat16"), run_row(5, outcome="failed")]
    ),
]


def found(query: str, *recent: str) -> list[str]:
    return [match.entry.key for match in search(ENTRIES, query, recent)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("compare", ["values", "compare"]),
        ("cv", ["values"]),
        ("comp sev", ["values"]),
        ("ctrl+4", ["compare"]),
        ("12", ["run 12", "run 112"]),
        ("#112", ["run 112"]),
        ("512", ["run 112"]),
        ("512 bf16", ["run 112"]),
        ("failed", ["run 5"]),
        ("lstm", ["run 12", "run 112", "run 5"]),
        ("run", ["stop", "values", "run 12", "run 112", "run 5"]),
        ("nothing like this", []),
    ],
)
def test_words_are_found_in_the_best_place_first(query: str, expected: list[str]) -> None:
    assert found(query)[: len(expected)] == expected
    assert bool(found(query)) == bool(expected)


def test_what_was_used_last_comes_first_under_a_heading_of_its_own() -> None:
    assert found("", "run 5", "stop")[:3] == ["run 5", "stop", "values"]
    assert [match.entry.group for match in search(ENTRIES, "", ["run 5"])][:2] == [RECENT, "Everywhere"]
    assert found("compare", "compare") == ["compare", "values"]


def test_the_letters_that_matched_are_known() -> None:
    (match,) = search(ENTRIES, "co sev")
    assert "".join(match.entry.title[at] for at in match.positions) == "Cosev"
