"""`python -m app`: which words open the window and which are commands, in fresh processes."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from app.__main__ import main
from app.storage.store import Store

ROOT = Path(__file__).resolve().parents[2]
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
WITHOUT_QT = """
import sys
class NoQt:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "PySide6":
            raise ImportError("libEGL.so.1: cannot open shared object file", name="PySide6.QtGui")
sys.meta_path.insert(0, NoQt())
from app.__main__ import main
sys.exit(main({words!r}))
"""


def start(*words: str) -> "subprocess.CompletedProcess[str]":
    code = WITHOUT_QT.format(words=list(words))
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def test_without_qt_the_window_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for words in ((), ("--db", str(tmp_path / "a.db")), (f"--db={tmp_path / 'a.db'}",), ("--sample-ms", "20")):
        done = start(*words)
        assert done.returncode == 1
        assert done.stderr.startswith("The window needs Qt, which cannot be loaded here (libEGL.so.1")
        assert done.stderr.count("\n") == 1


def test_a_word_is_a_command_which_the_database_may_precede_and_needs_no_qt(tmp_path: Path) -> None:
    database = ("--db", str(tmp_path / "a.db"))
    Store.open(tmp_path / "a.db").close()
    for words in (("list", "--json", *database), (*database, "list", "--json")):
        done = start(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert '"runs"' in done.stdout


def test_a_wrong_word_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["lsit"], ["--db"], ["--sample-ms"], ["--sample-ms", "5"]):
        assert main(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "Invalid value for '--sample-ms': 5.0 is not in the range 10<=x<=1000."


def test_a_python_without_the_packages_is_told_what_to_use() -> None:
    command = [sys.executable, "-S", "-m", "app", "list"]
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=paths, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("This Python lacks what VariantScope needs: use `python3 start.py`")


def test_the_window_without_a_display_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("There is no display here to open the window on: use a command")


@pytest.mark.skipif(sys.platform != "linux", reason="X11 and Wayland")
@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"DISPLAY": ":77"}, "could not connect to display :77"),
        ({"DISPLAY": "localhost:99"}, "could not connect to display localhost:99"),
        ({"WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": "/nonexistent"}, "Failed to create wl_display"),
        ({"DISPLAY": ":77", "QT_QPA_PLATFORM": "nonsense"}, 'Could not find the Qt platform plugin "nonsense"'),
    ],
)
def test_a_display_that_cannot_be_reached_is_one_sentence(named: dict[str, str], reason: str, tmp_path: Path) -> None:
    others = {name: value for name, value in os.environ.items() if name not in DISPLAYS}
    command = [sys.executable, "-m", "app", "--db", str(tmp_path / "a.db")]
    done = subprocess.run(
        command, cwd=ROOT, env={**others, **named}, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith(f"The window cannot be shown here ({reason}")


def test_ctrl_c_ends_a_command_quietly_while_its_words_are_read_or_it_is_still_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    class CutOff(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setattr("app.cli.commands.ProgramCommand.parse_args", interrupted)
    assert main(["list"]) == 130
    monkeypatch.setitem(sys.modules, "app.cli.main", CutOff("app.cli.main"))
    assert main(["list"]) == 130


@pytest.mark.skipif(sys.platform != "linux", reason="X11")
def test_a_library_that_qt_would_end_the_program_for_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    for name in ("WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    assert main([]) == 1
    said = capsys.readouterr().err
    assert said.startswith("The window needs Qt, which cannot be loaded here (libxcb-cursor.so.0: cannot open shared")
    assert "`sudo apt-get install libgl1 libqt6gui6 libxcb-cursor0`" in said
