"""The margin and the gate on the command line: options, summaries, statuses, and the page about them."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest

from app.cli.compare import STEP_SUMMARY
from app.runs.experiment.presets import load_preset
from tests.fakes.command_line import ROOT, Run, parse_arguments
from tests.fakes.experiments import result
from tests.unit.viewmodels.stored import keep_all
from workloads.catalog import Machine, Workload, complete, workload

PAGE = (ROOT / "docs" / "comparing.md").read_text("utf-8").partition("## Fail a CI job")[2].partition("\n## ")[0]
PRESET_PAGE = (ROOT / "docs" / "custom-workloads.md").read_text("utf-8")
CPU = Machine(cpu_count=4)
BASE, SLOW = (complete("cnn10", {"gpus": 0, "batch_size": size}, CPU) for size in (8, 16))
RATES = ((BASE, 1000.0), (BASE, 1001.0), (BASE, 999.0), (SLOW, 900.0), (SLOW, 901.0), (SLOW, 899.0))


@pytest.fixture
def compare(run: Run, database_path: Path) -> Run:
    """Compares three runs of a baseline, and three of a variant that is 10 % slower."""
    numbers = keep_all(database_path, (result(number, spec, rate) for number, (spec, rate) in enumerate(RATES, 1)))
    return partial(run, "compare", *map(str, numbers))


@pytest.mark.parametrize(("margin", "status"), [("2%", 3), ("10%", 4), ("50", 0)])
def test_the_status_is_that_of_the_gate(compare: Run, margin: str, status: int) -> None:
    document = json.loads(compare("--fail-if-slower", margin, "--json", status=status))
    assert document["gate"]["exit_status"] == status
    assert document["gate"]["margin_pct"] == document["margin_pct"] == float(margin.removesuffix("%"))
    base, slow = document["rows"]
    assert base["equivalence"] is None
    assert slow["equivalence"]["decision"] == {0: "equal", 3: "slower", 4: "cannot tell"}[status]
    assert slow["equivalence"]["is_not_slower"] == (status == 0)


def test_a_margin_changes_what_is_said_and_not_the_status(compare: Run) -> None:
    said = {margin: compare("--margin", margin).splitlines()[0] for margin in ("2%", "10%", "20\xa0%")}
    assert "With a margin of 2 %: 1 slower by more." in said["2%"]
    assert "With a margin of 10 %: 1 undecided." in said["10%"]
    assert "With a margin of 20 %: 1 equal to the baseline." in said["20\xa0%"]
    document = json.loads(compare("--json"))
    assert (document["margin_pct"], [row["equivalence"] for row in document["rows"]]) == (None, [None, None])
    assert "gate" not in document


def test_summaries_are_written_to_the_file_and_added_to_the_jobs(
    compare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, step = tmp_path / "speed.md", tmp_path / "step.md"
    step.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv(STEP_SUMMARY, str(step))
    for _ in range(2):
        compare("--fail-if-slower", "2%", "--summary", str(summary), status=3)
    text = summary.read_text("utf-8")
    assert text.startswith("## Failed: slower by more than 2\xa0%\n")
    assert step.read_text("utf-8") == f"before\n{text}{text}"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--margin", "0%"], "Invalid value for '--margin': 0.0 is not in the range 0<x<100."),
        (["--fail-if-slower", "2", "--margin", "1"], "--fail-if-slower already sets a margin: leave out --margin."),
        (["--summary", "a.md"], "--summary goes with --fail-if-slower."),
        (
            ["--fail-if-slower", "2", "--summary", "/nowhere/a.md"],
            "--summary takes a file in an existing folder; /nowhere is not one.",
        ),
    ],
)
def test_wrong_use_is_one_sentence(compare: Run, run: Run, words: list[str], sentence: str) -> None:
    assert compare(*words, status=2) == f"{sentence}\n"
    queued = run("experiment", "--queue", "cnn10", "--fail-if-slower", "2%", status=2)
    assert "leave out --fail-if-slower" in queued


def test_the_commands_of_the_page_are_commands() -> None:
    lines = re.findall(r"^python -m app (.*?)(?:   .*)?$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    parsed = [parse_arguments(*shlex.split(line)) for line in lines]
    assert [each.fail_if_slower for each in parsed] == [2.0, 2.0, 2.0]


def test_the_preset_of_the_page_reads_two_versions_of_a_file_the_main_branchs_first(tmp_path: Path) -> None:
    preset = tmp_path / "speed.toml"
    preset.write_text(PRESET_PAGE.partition("```toml")[2].partition("```")[0], encoding="utf-8")
    read: list[str] = []

    def find(word: str) -> Workload:
        read.append(word)
        return workload("cnn10")

    plan = load_preset(str(preset), find).plan(CPU)
    assert plan.repeats == 10
    assert [Path(word).relative_to(tmp_path) for word in dict.fromkeys(read)] == [
        Path("main/workload.py:model"),
        Path("workload.py:model"),
    ]
