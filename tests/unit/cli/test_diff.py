"""`compare --diff` in a terminal, from a real database."""

import json
from pathlib import Path

import pytest

from app.cli.main import main
from app.storage.store import Store
from tests.fakes.evidence import AS_REQUESTED
from tests.unit.viewmodels.stored import keep, run_row, stored_run


@pytest.fixture
def database(database_path: Path) -> Path:
    with Store.open(database_path) as store:
        for number, xla in enumerate((False, True), 1):
            keep(store, stored_run(run_row(number, gpus=1, xla=xla), evidence=AS_REQUESTED))
    return database_path


def printed(capsys: pytest.CaptureFixture[str], database: Path, *words: str) -> str:
    assert main(["compare", "--diff", *words, "--db", str(database)]) == 0
    return capsys.readouterr().out


def test_diff_prints_what_differs_and_all_only_where_asked(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    said = printed(capsys, database, "1", "2")
    assert ["XLA", "off", "on"] in [line.split() for line in said.splitlines()]
    assert "Layers" not in said
    assert "no line differs" in said
    assert "Layers" in printed(capsys, database, "1", "2", "--all")
    assert json.loads(printed(capsys, database, "2", "1", "--json"))["parameters"] == {"xla": [True, False]}


def test_diff_of_a_run_with_itself_is_refused(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert main(["compare", "--diff", "1", "1", "--db", str(database)]) == 2
    assert "takes two runs" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".html", ".md"])
def test_a_diff_is_written_as_a_page(
    capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path, suffix: str
) -> None:
    with Store.open(database) as store:
        store.library.set_note(2, "<b>|hot|</b>")
    page = tmp_path / f"diff{suffix}"
    printed(capsys, database, "1", "2", "--report", str(page))
    text = page.read_text(encoding="utf-8")
    assert "Runs 1 and 2" in text
    assert "1 differs, " in text
    assert "XLA" in text
    assert "<b>|hot|</b>" not in text, "a note is no mark-up"
