"""The command line of benchmarks: a parameter is an option, a missed limit a status."""

import json
from collections.abc import Sequence

import pytest

from benchmarks.harness import Result, main


def rates(times: int = 2, on: str = "here", sizes: Sequence[int] = ()) -> Sequence[Result]:
    return [Result(name=on, value=times, unit="times", baseline=2.0, limit=1.0)]


def test_a_missed_limit_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("program", {"rates": rates}, ["rates"]) == 0
    assert main("program", {"rates": rates}, ["rates", "--times", "3", "--on", "there"]) == 1
    assert capsys.readouterr().out.splitlines()[1].split() == (
        ["there", "3", "times", "baseline", "2", "ratio", "1.500", "at", "most", "1:", "MISSED"]
    )


def test_without_a_name_all_are_made_and_json_has_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("program", {"one": rates, "two": rates}, ["--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["name"] == "all"
    assert [(result["ratio"], result["pass"]) for result in document["results"]] == [(1.0, True)] * 2
    assert document["machine"]


def test_only_numbers_and_words_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main("program", {"rates": rates}, ["rates", "--sizes", "3"])
    assert "--sizes" in capsys.readouterr().err
