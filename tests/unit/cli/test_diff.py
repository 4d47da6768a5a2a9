"""`compare --diff` in a terminal, from a real database."""

import json
from functools import partial
from pathlib import Path

import pytest

from app.storage.store import Store
from tests.fakes.command_line import Run
from tests.fakes.evidence import AS_REQUESTED
from tests.unit.viewmodels.stored import keep_all, run_row, stored_run


@pytest.fixture
def diff(run: Run, database_path: Path) -> Run:
    rows = (run_row(number, gpus=1, xla=number == 2) for number in (1, 2))
    keep_all(database_path, (stored_run(row, evidence=AS_REQUESTED) for row in rows))
    return partial(run, "compare", "--diff")


def test_diff_prints_what_differs_and_all_only_where_asked(diff: Run) -> None:
    said = diff("1", "2")
    assert ["XLA", "off", "on"] in [line.split() for line in said.splitlines()]
    assert "Layers" not in said
    assert "no line differs" in said
    assert "Layers" in diff("1", "2", "--all")
    assert json.loads(diff("2", "1", "--json"))["parameters"] == {"xla": [True, False]}


def test_diff_of_a_run_with_itself_is_refused(diff: Run) -> None:
    assert "takes two runs" in diff("1", "1", status=2)


@pytest.mark.parametrize("suffix", [".html", ".md"])
def test_a_diff_is_written_as_a_page(diff: Run, database_path: Path, tmp_path: Path, suffix: str) -> None:
    with Store.open(database_path) as store:
        store.library.set_note(2, "<b>|hot|</b>")
    page = tmp_path / f"diff{suffix}"
    diff("1", "2", "--report", str(page))
    text = page.read_text(encoding="utf-8")
    assert "Runs 1 and 2" in text
    assert "1 differs, " in text
    assert "XLA" in text
    assert "<b>|hot|</b>" not in text, "a note is no mark-up"
