"""`hosts`: the user's list of machines, changed and printed."""

import json
from pathlib import Path

import pytest

from app.cli.main import main
from app.hosts.book import FILE_VARIABLE, HostEntry, add_host, read_hosts


@pytest.fixture(autouse=True)
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hosts.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


def test_hosts_are_added_listed_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hosts"]) == 0
    assert "hosts add gpu1 ssh://me@gpu1" in capsys.readouterr().out
    assert main(["hosts", "add", "gpu1", "ssh://me@gpu1:2222"]) == 0
    assert main(["hosts", "add", "lab", "slurm+ssh://login?gres=gpu:2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-2:] == ["gpu1  ssh://me@gpu1:2222", "lab   slurm+ssh://login?gres=gpu:2"]
    assert main(["hosts", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hosts"][0] == {
        "name": "gpu1",
        "address": "ssh://me@gpu1:2222",
    }
    assert main(["hosts", "remove", "gpu1", "x"]) == 2
    assert [entry.name for entry in read_hosts()] == ["gpu1", "lab"], "none is removed where one is not there"
    capsys.readouterr()
    assert main(["hosts", "remove", "gpu1", "lab"]) == 0
    assert "No hosts yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["add"], "hosts add takes a name and an address"),
        (["add", "gpu1"], "hosts add takes a name and an address"),
        (["add", "ssh://gpu1", "gpu1"], "'ssh://gpu1' is not a host name"),
        (["remove"], "hosts remove needs the name of a host"),
        (["remove", "gpu1"], "There is no host 'gpu1'."),
        (["list", "gpu1"], "hosts list shows all hosts"),
    ],
)
def test_wrong_use_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], book: Path
) -> None:
    assert main(["hosts", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(sentence)
    assert err.count("\n") == 1
    assert not book.exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gpus", "--on", "gpu"], "There is no host 'gpu'. Did you mean gpu1?"),
        (["experiment", "--preset", "quick", "--show", "--on", "gpu1"], "--show runs nothing: leave out --on."),
        (["run", "lstm", "--on", "gpu1", "--on", "gpu1"], "--on names one host: give it once."),
    ],
)
def test_a_host_that_is_none_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    add_host(HostEntry(name="gpu1", address="ssh://gpu1"))
    assert main([*words, "--db", str(tmp_path / "profiles.db")]) == 2
    assert capsys.readouterr().err.startswith(sentence)
