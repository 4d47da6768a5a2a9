"""The wheel of this very version, and the script that starts the program from it on a host, run by a real sh."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from app.environments.packages import find_uv
from app.errors import UserError
from app.hosts import wheel
from app.hosts.book import parse_address
from app.hosts.process import HostProcess
from app.hosts.wheel import MARK, Start, build_wheel
from app.paths import program_version
from tests.fakes.hosts import HERE


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose user has nothing yet, and no uv."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "head", "mv", "mkdir", "sha256sum", "uname", "chmod", "cat", "env", "rm", "wc"):
        (folder / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(folder))
    return tmp_path


def start(address: str) -> tuple[list[str], str]:
    """Start the program there; return what the script asked for, and why it ended."""
    asked: list[str] = []

    class Noted(Start):
        def requested(self, name: str) -> tuple[str, bytes]:
            asked.append(name)
            return super().requested(name)

    process = HostProcess(Noted(address=parse_address(address)), "lab")
    with pytest.raises(UserError) as error:
        process.wait_hello()
    process.cut()
    return asked, str(error.value)


def test_it_is_the_same_for_the_same_sources_and_has_no_window() -> None:
    again = build_wheel.__wrapped__()
    assert again == build_wheel()
    with zipfile.ZipFile(io.BytesIO(again)) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {"app/cli/main.py", "workloads/worker.py", "variantscope/__init__.py"} <= set(names)
    assert not [name for name in names if "/gui/" in name]
    assert "Requires-Dist: numpy" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "PySide6" not in metadata


def test_uv_installs_it_as_a_wheel(tmp_path: Path) -> None:
    path = tmp_path / f"variantscope-{program_version()}-py3-none-any.whl"
    path.write_bytes(build_wheel())
    words = ["pip", "install", "--offline", "--no-deps", "--target", str(tmp_path / "there"), str(path), "--python"]
    subprocess.run([find_uv(), *words, sys.executable], check=True, capture_output=True)
    code = "import app.hosts.serve; print(app.hosts.serve.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "there"), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(str(tmp_path / "there"))


def test_it_is_sent_once_and_anew_where_it_was_changed(home: Path) -> None:
    failing = HERE.replace(sys.executable, str(home / "python"))
    (home / "python").write_text('#!/bin/sh\n[ "$1" = -c ] || { echo its words: "$*" >&2; exit 7; }\n')
    (home / "python").chmod(0o700)
    (home / "bin" / "mv").unlink()  # unpacking is played, too
    (home / "bin" / "mv").write_text(f'#!/bin/sh\nexec {shutil.which("mv", path="/usr/bin:/bin")} "$@"\n')
    (home / "bin" / "mv").chmod(0o700)
    asked, why = start(failing)
    assert (asked, "free some space in ~/.cache there" in why) == (["wheel"], True)
    (sent,) = (home / "cache" / "variantscope").glob("*/*.whl")
    assert hashlib.sha256(sent.read_bytes()).hexdigest() == sent.parent.name
    assert sent.stat().st_mode & 0o077 == 0
    (sent.parent / "py").mkdir()
    asked, why = start(failing)
    assert asked == []
    assert why.endswith("exit status 7: its words: -m app run --events.")
    sent.write_bytes(sent.read_bytes()[:-1])
    assert start(failing)[0] == ["wheel"]


def test_uv_runs_it_and_is_sent_where_it_is_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = home / "uv"
    played.write_text('#!/bin/sh\necho "$@" >&2\nexit 3\n')
    monkeypatch.setattr(wheel, "find_uv", lambda: str(played))
    asked, why = start("sh:")
    assert asked == ["wheel", "uv"]
    assert f"exit status 3: tool run --quiet --from {home}/cache/variantscope/" in why
    assert start("sh:")[0] == [], "both are there"


def test_what_a_cut_link_left_in_part_is_not_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "uv").write_bytes(bytes(1000))
    monkeypatch.setattr(wheel, "find_uv", lambda: str(home / "uv"))
    script, sent = Start(address=parse_address("sh:")).script(), build_wheel() + bytes(999)
    done = subprocess.run(["sh", "-c", script], input=sent, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"variantscope: full\n")
    assert [path.suffix for path in (home / "cache").rglob("*") if path.is_file()] == [".whl"]


def test_what_a_host_lacks_is_one_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    assert start("sh:")[1].startswith("sh: has no uv, and another processor or system than this machine")
    (home / "old").write_text("#!/bin/sh\nexit 1\n")
    (home / "old").chmod(0o700)
    assert "sh: needs Python 3.11 or newer, and " in start(f"sh:?python={home}/old")[1]
    (home / "cache").mkdir(exist_ok=True)
    shutil.rmtree(home / "cache")
    (home / "cache").write_text("no folder")
    assert start("sh:")[1].startswith("The program cannot be stored on sh:")


def test_the_interpreter_of_runs_is_told_there() -> None:
    address = replace(parse_address(HERE), interpreter="~/env")
    assert 'export VARIANTSCOPE_INTERPRETER="$HOME"/env\n' in Start(address=address).script()
    assert MARK in Start(address=address).script()
