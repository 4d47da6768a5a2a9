"""Completion by the shell: what is offered for a line, and the script that bash reads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.main import main
from app.paths import ROOT
from app.storage.store import Store
from tests.fakes.runs import SPEC, begin, keep
from workloads.protocol import RunSpec


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("variantscope por", ["portability"]),
        ("python -m app por", ["portability"]),
        (f"python3 {ROOT}/start.py por", ["portability"]),
        ("python another.py por", []),
        ("python -m pip por", []),
        ("python ~nobody-of-these-tests/start.py por", []),
        ("variantscope run l", ["lstm"]),
        ("variantscope run lstm --par", ["--parameters"]),
        ("variantscope run lstm -s xl", ["xla="]),
        ("variantscope run lstm --json -s xla=", ["xla=false", "xla=true"]),
        ("variantscope experiment cnn10 -s layout=NCHW,", ["layout=NCHW,NHWC"]),
        ("variantscope run -s xl", []),
        ("variantscope experiment --preset qu", ["quick"]),
        ("variantscope list --sort=thr", ["--sort=throughput"]),
        ("variantscope queue go", ["go-on"]),
        ("variantscope env add tf21", ["tf219", "tf218", "tf217", "tf216"]),
        ("variantscope completion in", ["install"]),
        ("variantscope completion install z", ["zsh"]),
    ],
)
def test_a_line_is_completed(line: str, offers: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "candidates", "fish", line]) == 0
    assert [text.partition("\t")[0] for text in capsys.readouterr().out.splitlines()] == offers


def test_a_loop_of_links_is_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    assert main(["completion", "candidates", "fish", f"python {loop} por"]) == 0
    assert capsys.readouterr().out == ""


def test_bash_gets_what_is_behind_the_last_equals_sign(capsys: pytest.CaptureFixture[str]) -> None:
    """It takes `=` as the end of a word, and replaces the last word alone."""
    assert main(["completion", "candidates", "bash", "variantscope run lstm -s xla=t"]) == 0
    assert capsys.readouterr().out == "true\n"


def test_runs_are_those_of_the_database_newest_first(database_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"variantscope show --db {database_path} "
    assert main(["completion", "candidates", "zsh", line]) == 0
    assert capsys.readouterr().out == ""
    assert not database_path.exists(), "completion makes no database"
    with Store.open(database_path) as store:
        keep(store)
        keep(store, uid="uid-2")
    assert main(["completion", "candidates", "zsh", line]) == 0
    assert [text.partition("\t")[0] for text in capsys.readouterr().out.splitlines()] == ["2", "1"]


def test_no_run_s_author_makes_a_candidate(database_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(database_path) as store:
        variant = {**SPEC.variant, "interpreter": "/a\n7;$(id)\tx", "implementation": "b\n8\u009b"}
        begin(store, spec=RunSpec(workload="lstm\n9", variant=variant))
    assert main(["completion", "candidates", "zsh", f"variantscope show --db {database_path} "]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("1\t")
    assert line.count("\t") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_is_installed_once(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = tmp_path / f".{shell}rc"
    start.write_text("alias l=ls")
    for name in ("XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert main(["completion", "install"]) == 0
    assert main(["completion", "install", shell]) == 0
    script = tmp_path / ".config" / "variantscope" / f"completion.{shell}"
    assert capsys.readouterr().out.startswith(f"Written to {script}, which {start} reads: ")
    assert start.read_text() == f"alias l=ls\n\n# VariantScope: completion of commands\n. {script}\n"
    assert main(["completion", "show", shell]) == 0
    assert script.read_text() == capsys.readouterr().out


def test_fish_reads_its_script_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["completion", "install", "fish"]) == 0
    assert sys.executable in (tmp_path / "fish" / "conf.d" / "variantscope.fish").read_text()


def test_another_shell_is_wrong_use(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["completion", "install"]) == 2
    assert capsys.readouterr().err == "bash|zsh|fish must be one of bash, zsh, fish, not 'tcsh'.\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_by_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "completion.bash"
    assert main(["completion", "show", "bash"]) == 0
    script.write_text(capsys.readouterr().out)
    ask = f"""
        . {script}
        COMP_LINE='python -m app run lstm -s xla=f'
        COMP_POINT=${{#COMP_LINE}}
        _variantscope
        printf '%s\\n' "${{COMPREPLY[@]}}"
        complete -p python
    """
    found = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", ask], env=found, capture_output=True, text=True, timeout=240, check=False)
    offer, registered = done.stdout.splitlines()
    assert offer == "false"
    assert registered.endswith("-F _variantscope python")
