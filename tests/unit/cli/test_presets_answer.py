"""A prepared question has one answer: on its card, with `experiment --show`, and in Compare, opened from either."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.gui.experiment.stored import estimated_lines, preset_runs, reference_questions
from app.runs.experiment.presets import load_preset
from app.storage.store import Store
from app.viewmodels.compare.verdict import compute_verdict
from tests.unit.viewmodels.events import GPU_INVENTORY


@pytest.fixture(scope="module")
def cards(reference_database: Path) -> dict[str, str]:
    """The answer on each card, by preset."""
    return {line.key: line.answer for line in estimated_lines(reference_database, GPU_INVENTORY)}


@pytest.mark.parametrize("preset", ["article-a", "article-b", "article-c", "frameworks", "layout-advice", "quick"])
def test_card_terminal_and_compare_have_one_answer_and_baseline(
    reference_database: Path, cards: dict[str, str], preset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, question = preset_runs(reference_database, preset, GPU_INVENTORY, of_reference=True)
    documents: list[dict[str, Any]] = []
    for words in (["experiment", "--preset", preset, "--show"], ["compare", *map(str, runs)]):
        asked = ["--asked", question.asked] if documents and question.asked else []
        assert main([*words, *asked, "--json", "--db", str(reference_database)]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    show, compare = documents
    with Store.open(reference_database) as store:
        offered = reference_questions(store.list_runs())
    title = load_preset(preset).title
    assert [([row.run for row in rows], asks) for name, rows, asks in offered if name == title] == [(runs, question)]
    assert question.asked in ("", show["verdict"]["asked"])
    assert (show["verdict"], show["baseline"]) == (compare["verdict"], compare["baseline"])
    with Store.open(reference_database) as store:
        answer = compute_verdict(store.library.run_rows(runs), asked=question.asked).answer
    assert cards[preset] == f"H200 reference: {answer}"
    assert show["verdict"]["text"].startswith(answer)
    workloads = {row["variant"]["workload"] for row in show["rows"]}
    answered = {statement["facts"].get("workload") for statement in show["verdict"]["statements"]}
    assert len(workloads) == 1 or workloads <= answered, "each workload has its answer"
