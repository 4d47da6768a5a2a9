"""Completion by the shell: what click's own script is answered."""

import os
import shutil
import subprocess
import sys

import pytest

from app.cli.main import main
from app.paths import COMPLETE_VARIABLE, ROOT
from app.storage.store import Store
from tests.fakes.runs import keep


def offers(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash is offered in place of the last word, each behind its kind."""
    monkeypatch.setenv(COMPLETE_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert main([]) == 0
    return list(filter(None, capsys.readouterr().out.splitlines()))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("variantscope por", ["plain,portability"]),
        ("variantscope run l", ["plain,lstm"]),
        ("variantscope run my/", ["file,my/"]),
        ("variantscope run lstm --larg", ["plain,--largest-batch"]),
        ("variantscope run lstm -s xl", ["plain,xla="]),
        ("variantscope run lstm --json -s xla=", ["plain,xla=false", "plain,xla=true"]),
        ("variantscope experiment cnn10 -s layout=NCHW,", ["plain,layout=NCHW,NHWC"]),
        ("variantscope run -s xl", []),
        ("variantscope experiment --preset qu", ["plain,quick"]),
        ("variantscope queue re", ["plain,resume", "plain,remove"]),
    ],
)
def test_a_line_is_completed(
    words: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert offers(words, monkeypatch, capsys) == offered


def test_runs_are_those_of_the_database_newest_first(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(store)
    keep(store, uid="uid-2")
    words = f"variantscope show --db {store.path} "
    assert offers(words, monkeypatch, capsys) == ["plain,2", "plain,1"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_script() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), COMPLETE_VARIABLE: "bash_source"}
    script = subprocess.run(
        [sys.executable, "-m", "app"], env=environment, capture_output=True, text=True, timeout=240, check=True
    )
    ask = f"{script.stdout}\ncomplete -p variantscope"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.endswith("variantscope\n")
