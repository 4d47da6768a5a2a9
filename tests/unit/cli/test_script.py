"""A command of the user's behind `--`: what is refused before anything starts, and what would run."""

import json
import sys
from pathlib import Path

import pytest

from app.cli.main import main
from app.grants import read_grants

NEEDS_A_COMMAND = (
    "-C, -e, --rev, --link, --examples, --loop and --dry-run go with your own command after --, such as -- python "
    "train.py."
)
ALONE = "--largest-batch goes with a workload, not with your own command."
THE_FIRST = "A command after -- determines what runs: leave out --preset and --variants-of."


@pytest.mark.parametrize(
    ("options", "command", "sentence"),
    [
        (
            ["run", "lstm"],
            ["python", "t.py"],
            "lstm before the -- is a workload, and what follows it is a command: give one.",
        ),
        (["run", "-e", "A=1"], [], NEEDS_A_COMMAND),
        (["run", "-C", "/"], [], NEEDS_A_COMMAND),
        (["experiment", "--dry-run"], [], NEEDS_A_COMMAND),
        (["run", "--largest-batch"], ["python", "t.py"], ALONE),
        (["experiment", "--preset", "quick"], ["python", "t.py"], THE_FIRST),
        (
            ["experiment", "--baseline", "x=1", "-s", "x=2,3"],
            ["python", "t.py", "{x}"],
            "No variant of this experiment has x=1.",
        ),
        (["run"], ["python", "t.py", "{x}"], "{x} has no value: add -s x=… before the --."),
        (["run", "-s", "x"], ["python", "{x}"], "-s takes name=value, not 'x'."),
        (["run", "-e", "x"], ["python", "x"], "-e takes name=value, not 'x'."),
        (["run", "-s", "x=1", "-s", "x=2"], ["python", "{x}"], "x is given twice."),
        (
            ["run", "-s", "x=maybe"],
            ["python", "{x?1}"],
            "x is on or off (true or false), not 'maybe'.",
        ),
        (["run", "-s", "gpus=-1"], ["python"], "gpus must be from 0 to 64, not -1."),
        (["run", "-C", "/nosuch"], ["python"], "/nosuch is not a folder."),
        (["run", "--examples", "none"], ["python"], "The examples of a step are a formula"),
        (["experiment", "-s", "x=1"], ["python", "{x}"], "An experiment needs two variants or more"),
        (["run", "-s", "x=1,2"], ["python", "{x}"], "These are 2 variants: `python -m app experiment` runs several."),
    ],
)
def test_wrong_use_of_a_command_is_one_sentence(
    options: list[str],
    command: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = read_grants()
    assert main(["--db", str(tmp_path / "x.db"), *options, *(("--", *command) if command else ())]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(sentence)
    assert read_grants() == before


def test_a_dry_run_prints_each_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = tmp_path / "marker"
    program = f"open({str(marker)!r}, 'w')"
    words = ["--dry-run", "-C", str(tmp_path), "-s", "a=off,on", "-e", "N=,x y", "--", sys.executable, "-c", program]
    for option in ((), ("--json",)):
        assert main(["--db", str(tmp_path / "x.db"), "experiment", *option, *words, "{a?-a}"]) == 0
    *lines, document = capsys.readouterr().out.split("\n", 5)
    assert lines[0] == f"cd {tmp_path}"
    assert [line.endswith(" -a") for line in lines[1:]] == [False, False, True, True]
    assert [line.startswith("N='x y' ") for line in lines[1:]] == [False, True, False, True]
    assert json.loads(document) == {"commands": lines[1:]}
    assert not marker.exists()
