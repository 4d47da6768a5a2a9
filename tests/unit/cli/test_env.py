"""`env`: what it asks before a download, prints and refuses."""

import json
from pathlib import Path

import pytest

from app.cli.main import main
from tests.fakes.wheels import FRAMEWORK_VERSION, use_wheels
from workloads.catalog import environments_folder


def test_env_asks_before_it_downloads_then_makes_lists_and_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_wheels(monkeypatch, tmp_path)
    assert main(["env"]) == 0
    assert "No environment has been made yet" in capsys.readouterr().out
    assert main(["env", "add", "tf221", "--cpu"]) == 1
    said = capsys.readouterr().err
    assert "tf221: 5 packages, " in said
    assert said.endswith("Nobody can be asked here whether to download that: add --yes.\n")
    assert list(environments_folder().glob("*/")) == []
    assert main(["env", "add", "tf221", "--cpu", "--yes"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"tf221 is complete: TensorFlow {FRAMEWORK_VERSION}, Python 3.")
    assert main(["env", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["environments"]
    assert (listed["name"], listed["state"], listed["framework"]) == ("tf221", "complete", FRAMEWORK_VERSION)
    assert main(["env", "remove", "tf221"]) == 0
    assert list(environments_folder().glob("*/")) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("add", "env add needs a name"),
        ("list tf221", "env list takes no name"),
        ("remove tf221 --yes", "--packages, --cuda, --cpu and --yes go with `env add`"),
        ("make tf221", "must be one of list, add, remove"),
    ],
)
def test_wrong_use_of_env_says_what_is_right(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", *words.split()]) == 2
    assert sentence in capsys.readouterr().err
