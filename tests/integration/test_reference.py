"""The reference runs as a newcomer without a GPU has them on the command line."""

from pathlib import Path

from tests.fakes.command_line import CommandLine, dummy_words


def test_an_own_run_is_compared_with_one_of_an_h200_and_it_is_said_what_differs(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    mine = line.json("run", *dummy_words())["run"]
    added = line.json("reference", "--add")
    assert sum(file["runs"] for file in added["files"]) == len(added["runs"]) > 60
    assert all(file["cards"] == ["NVIDIA H200"] for file in added["files"])
    theirs = added["runs"][0]
    warnings = {found["key"]: found["values"] for found in line.json("compare", str(mine), str(theirs))["warnings"]}
    assert set(warnings["kernel"]) == {str(mine), str(theirs)}
    shown = line("experiment", "--preset", "article-b", "--show")
    assert "2.5× to 3×" in shown.stdout
    assert "10.53×" in shown.stdout
    assert "No run of your own is stored: these are the reference runs" in shown.stderr
    assert "goes on from here" not in shown.stderr
    removed = line("reference", "--remove")
    assert (removed.returncode, removed.stdout) == (0, f"Removed {len(added['runs'])} runs of the reference.\n")
