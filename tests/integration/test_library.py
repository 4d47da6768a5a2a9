"""Experiments, reference runs and annotations from the command line, on real databases."""

import json
from pathlib import Path

import pytest

from tests.fakes.command_line import CommandLine, dummy_arguments


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def test_an_own_run_is_compared_with_one_of_an_h200_and_it_is_said_what_differs(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    mine = line.read("run", *dummy_arguments())["run"]
    added = line.read("reference", "add")
    assert sum(file["runs"] for file in added["files"]) == len(added["runs"]) > 60
    assert all(file["cards"] == ["NVIDIA H200"] for file in added["files"])
    theirs = added["runs"][0]
    document = line.read("compare", str(mine), str(theirs))
    differing = {warning["facts"].get("name"): warning["runs"] for warning in document["warnings"]}
    assert set(differing["kernel"]) == {str(mine), str(theirs)}
    piped = line("compare", str(mine), str(theirs)).stdout
    assert "95 % CI" in piped
    assert "\N{NO-BREAK SPACE}" not in piped
    assert "\N{NO-BREAK SPACE}" in json.dumps(document, ensure_ascii=False), "it has texts as they are"
    shown = line.inside("experiment", "--preset", "article-b", "--show")
    assert "2.5–3×" in shown.stdout
    assert "10.7×" in shown.stdout
    assert shown.stdout.count("The article: ") == 1, "of all its rows"
    assert "No run of your own is stored: these are the reference runs" in shown.stderr
    assert "continues from here" not in shown.stderr
    removed = line.inside("reference", "remove")
    assert (removed.returncode, removed.stdout) == (0, f"Removed {len(added['runs'])} reference runs.\n")
