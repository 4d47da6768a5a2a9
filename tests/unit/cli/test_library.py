"""`list` with its filters, `note`, `tag`, `delete` and `restore` on stored runs."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.storage.store import Store
from tests.fakes.command_line import Run
from tests.fakes.runs import SPEC, begin, keep
from tests.fakes.saved_experiments import save_experiment
from tests.fakes.terminal import use_terminal
from workloads.protocol import RunSpec


@pytest.fixture
def run(run: Run, database_path: Path) -> Run:
    """A command on a database of three runs: 1 and 3 failed in NCHW, 2 goes on in NHWC."""
    with Store.open(database_path) as store:
        keep(store)
        begin(store, uid="uid-2", spec=RunSpec(workload="cnn10", variant={**SPEC.variant, "layout": "NHWC"}))
        keep(store, uid="uid-3")
    return run


@pytest.mark.parametrize(("columns", "words"), [(200, ["started", "tags"]), (80, [])])
def test_on_a_terminal_a_list_has_twenty_runs_and_never_loses_its_throughput(
    run: Run, monkeypatch: pytest.MonkeyPatch, database_path: Path, columns: int, words: list[str]
) -> None:
    with Store.open(database_path) as store:
        for number in range(4, 22):
            keep(store, uid=f"uid-{number}")
    assert len(run("list").splitlines()) == 22, "all where nobody reads"
    use_terminal(monkeypatch, sys.stdout, columns)
    head, *lines = run("list").splitlines()
    assert "throughput" in head
    assert [word for word in ("started", "tags") if word in head] == words
    assert len(rows(lines)) == 20
    assert len(rows(run("list", "--limit", "21").splitlines())) == 21


def rows(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if re.match(r" *\d+ ", line)]


def numbers(out: str) -> list[int]:
    return [row["run"] for row in json.loads(out)["runs"]]


def test_list_finds_by_words_tag_outcome_and_workload(run: Run) -> None:
    run("tag", "1", "2", "--add", "paper", "--add", "night")
    run("tag", "1", "--remove", "night")
    run("note", "3", "fan was loud")
    for words, found in (
        (["--search", "nch"], [3, 1]),
        (["--search", "layout=NHW 1024"], [2]),
        (["--search", "fan"], [3]),
        (["--search", "no such words"], []),
        (["--tag", "night"], [2]),
        (["--outcome", "running"], [2]),
        (["--workload", "lstm"], []),
        (["--sort", "run", "--reverse"], [1, 2, 3]),
        (["--sort", "throughput", "--limit", "2"], [3, 1]),
    ):
        assert numbers(run("list", *words, "--json")) == found, words
    assert "paper, night" not in run("list", "--search", "paper")
    assert run("list", "--tag", "nothing") == "No run matches, of 3 runs.\n"


def test_a_note_is_kept_shown_and_removed(run: Run) -> None:
    assert run("note", "1") == "Run 1 has no note.\n"
    run("note", "1", "  after the driver was updated ")
    assert run("note", "1") == "after the driver was updated\n"
    assert "note: after the driver was updated" in run("show", "1")
    run("note", "1", "")
    assert json.loads(run("note", "1", "--json"))["runs"][0]["note"] == ""


def test_deleting_says_how_to_undo_it(run: Run) -> None:
    said = run("delete", "1", "3")
    assert said == "2 runs put into the trash. `python -m app restore 1 3` undoes it.\n"
    assert numbers(run("list", "--json")) == [2]
    assert numbers(run("list", "--deleted", "--json")) == [3, 1]
    assert "in the trash since" in run("show", "1")
    assert run("delete", "3") == "Nothing to do: already in the trash.\n"
    assert run("restore", "1", "3") == "2 runs taken out of the trash.\n"
    assert numbers(run("list", "--json")) == [3, 2, 1]
    assert run("list", "--deleted") == "The trash is empty.\n"
    assert run("restore", "1") == "Nothing to do: the trash has no run 1.\n"


def test_for_good_only_from_the_trash(run: Run) -> None:
    said = run("delete", "--for-good", "1", status=1)
    assert "Run 1 is not in the trash; `python -m app delete 1` puts it there." in said
    run("delete", "1")
    assert run("delete", "--for-good", "1").startswith("1 run deleted for good")
    assert "There is no run 1" in run("show", "1", status=1)
    assert numbers(run("list", "--json")) == [3, 2]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["tag", "1"], 2, "tag needs --add TAG or --remove TAG."),
        (["tag", "1", "99", "--add", "x"], 1, "There is no run 99"),
        (["tag", "1", "--add", "a,b"], 1, "A tag cannot contain a comma; give several tags one by one."),
        (["note", "1", "a\x07b"], 1, "A note cannot contain control characters."),
        (["delete", "2"], 1, "Run 2 is in progress; stop it first, or delete it when it has ended."),
        (["list", "--experiment", "7"], 1, "There is no experiment '7'; `python -m app list experiments`"),
    ],
)
def test_wrong_words_are_told_plainly_and_change_nothing(
    run: Run, words: list[str], status: int, sentence: str
) -> None:
    before = run("list", "--json")
    assert sentence in run(*words, status=status)
    assert run("list", "--json") == before


@pytest.mark.parametrize("page", [1, 2, 3, 4])
def test_a_list_is_the_same_however_many_runs_are_read_at_a_time(
    run: Run, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    whole, document = run("list"), run("list", "--json")
    monkeypatch.setattr("app.cli.library._PAGE_RUNS", page)
    assert run("list", "--json") == document
    assert [line.split() for line in run("list").splitlines()] == [line.split() for line in whole.splitlines()]
    assert json.loads(run("list", "--tag", "nothing", "--json")) == {"runs": []}


def test_experiments_are_listed_and_open_by_number_name_or_preset(run: Run, database_path: Path) -> None:
    assert run("list", "experiments").startswith("No experiments yet.")
    with Store.open(database_path) as store:
        save_experiment(store.library, [3, 1], name="layouts", preset="advice", plan='{"variants": []}', utc_ns=0)
    listed: list[dict[str, Any]] = json.loads(run("list", "experiments", "--json"))["experiments"]
    assert [(found["name"], found["runs"]) for found in listed] == [("layouts", [3, 1])]
    assert "layouts     2" in run("list", "experiments")
    assert numbers(run("list", "--experiment", "layouts", "--json")) == [3, 1]
    assert numbers(run("list", "--experiment", "advice", "--json")) == [3, 1]
    assert numbers(run("list", "--experiment", "1", "--json")) == [3, 1]
