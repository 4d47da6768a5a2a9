"""Strings from outside command no terminal, forge no line, and name a file anywhere."""

import ast
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import pytest

from app.cli.main import main
from app.cli.progress import StatusLines
from app.cli.terminal import PlainStream, plain_output, print_json, print_table, unfiltered
from app.errors import UserError
from app.storage.files import atomic_output
from app.values.plain import file_name, one_line, plain_text, without_nul
from tests.fakes.hostile import make_hostile_library
from tests.fakes.terminal import use_terminal

HOSTILE = "<img src=x onerror=a()>\x1b]0;x\x07\r\x9b2J\u202e[red]\0"
PLAIN = r"<img src=x onerror=a()>\u001b]0;x\u0007\u000d\u009b2J\u202e[red]\u0000"


def test_what_commands_a_terminal_is_shown_and_all_else_stays() -> None:
    assert plain_text(HOSTILE) == PLAIN
    assert plain_text(PLAIN) == PLAIN
    assert plain_text("zwei Zeilen\n\tmit · 二 – und עברית") == "zwei Zeilen\n\tmit · 二 – und עברית"
    assert one_line("a\n  b\x1b" + "c" * 300, 20) == "a b\\u001bcccccccccc…"
    assert without_nul("a\0b") == "a\ufffdb"


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Speed-up against NHWC · 1 GPU/../x", "speed-up-against-nhwc-1-gpu-x"),
        ("···", "picture"),
        (HOSTILE, "img-src-x-onerror-a-0-x-2j-red"),
        ("../../.ssh/authorized_keys", "ssh-authorized-keys"),
        ("-rf ~", "rf"),
        ("CON", "picture-con"),
        ("LPT1", "picture-lpt1"),
        ("x" * 3000, "x" * 60),
    ],
)
def test_a_title_makes_a_file_name(title: str, name: str) -> None:
    assert file_name(title) == name


def test_json_on_a_plain_stream_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_output():
        print_json({"name": HOSTILE})
    out = capsys.readouterr().out
    assert plain_text(out) == out
    assert json.loads(out) == {"name": HOSTILE}


def test_all_ways_to_write_are_plain_and_the_streams_come_back() -> None:
    below, before = io.StringIO(), (sys.stdout, sys.stderr)
    stream = PlainStream(below)
    stream.writelines([HOSTILE, "\n"])
    print(HOSTILE, file=cast(TextIO, stream))
    assert below.getvalue() == f"{PLAIN}\n" * 2
    with plain_output(), plain_output():
        assert unfiltered(sys.stdout) is before[0]
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize(("is_terminal", "number"), [(False, "1 000 ms"), (True, "1\u202f000\u00a0ms")])
def test_only_a_terminal_gets_no_break_spaces(is_terminal: bool, number: str) -> None:
    below = io.StringIO()
    below.isatty = lambda: is_terminal  # type: ignore[method-assign]
    PlainStream(below).write("1\u202f000\u00a0ms")
    assert below.getvalue() == number


def test_a_cell_is_one_line_and_columns_stay_aligned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("a\x1b[1m\nrun 7  completed", "1"), ("b", "2")]
    lines = [r"a\u001b[1m run 7  completed  1", "b                            2"]
    print_table(("", ""), rows)
    assert capsys.readouterr().out.splitlines() == lines
    use_terminal(monkeypatch, sys.stdout, 80)
    print_table(("", ""), rows)
    assert capsys.readouterr().out.splitlines() == lines


def test_painted_lines_are_plain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use_terminal(monkeypatch, sys.stderr, 200)
    with plain_output():
        lines = StatusLines()
        lines.paint("run", HOSTILE, 0.5, HOSTILE)
        lines.say(HOSTILE)
        lines.clear("run")
    written = capsys.readouterr().err
    assert written.count(PLAIN) >= 3
    assert "\x1b]0;" not in written
    assert "\u202e" not in written
    assert "\x1b[" in written, "our own movements of the cursor reach the terminal"


@pytest.mark.parametrize(
    "words",
    [
        ["export", "1", "--model", "x" * 3000],
        ["export", "1", "--format", "csv", "-o", "x" * 3000],
        ["compare", "1", "2", "--report", "x" * 3000],
        ["import", "x" * 3000],
        ["list", "--db", "x" * 3000],
    ],
)
def test_a_name_that_no_file_can_have_is_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "xxx… cannot be used (File name too long)." in err
    assert err.count("\n") == 1


def test_one_that_leaves_no_room_for_the_temporary_name_is_a_sentence_too(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be written \(File name too long\); name another place\."):
        atomic_output(tmp_path / ("x" * 250)).__enter__()


def test_no_command_prints_what_a_hostile_library_says_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, report = tmp_path / "profiles.db", tmp_path / "found.html"
    make_hostile_library(database)
    said = {}
    for line in (
        "list",
        "list experiments",
        "list --json",
        "show 1 --log",
        "show 4 --log",
        "show 4 --json",
        "note 1",
        "tag 1 --add more",
        "queue",
        "queue --json",
        "compare 1 2 3",
        f"compare 1 2 --json --report {report}",
        "queue run",
    ):
        main([*line.split(), "--db", str(database)])
        said[line] = "".join(capsys.readouterr())
    assert {line: text for line, text in said.items() if plain_text(text) != text} == {}
    quiet = [line for line, text in said.items() if r"\u001b]0;x\u0007" not in text]
    assert quiet == [], "each has something to say of it"
    assert plain_text(report.read_text(encoding="utf-8")) == report.read_text(encoding="utf-8")


ROOT = Path(__file__).parents[2]
RICH = {
    "app/gui/history/screen.py": "a diff of two runs, from a template that escapes",
    "app/gui/history/page.py": "the environment, whose texts are escaped",
    "app/gui/monitor/details.py": "a table of a device's figures, whose texts are escaped",
    "app/gui/run/evidence.py": "a legend with coloured squares, whose names are escaped",
    "app/gui/widgets/basic.py": "a page of what these call `show_html` with",
}
"""Modules of the window that show mark-up, and what it is."""


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Every call in the window's code: its module, the last name of what is called, and the call."""
    for path in sorted((ROOT / "app" / "gui").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield path.relative_to(ROOT).as_posix(), ast.unparse(node.func).rpartition(".")[2], node


def is_ours(text: ast.expr) -> bool:
    """Whether a text is written in the code, or made plain."""
    if isinstance(text, ast.IfExp):
        return is_ours(text.body) and is_ours(text.orelse)
    return isinstance(text, ast.Constant) or ast.unparse(text).startswith(
        ("plain_tooltip(", "self.toolTip(", "_NO_CHART")
    )


def test_what_widgets_show_is_plain() -> None:
    """Qt takes a tooltip, or the text of a label or box of its own, for mark-up where it looks like it."""
    found = list(calls())
    tooltips = [(name, call.args[-1]) for name, called, call in found if called in ("setToolTip", "setTabToolTip")]
    tooltips += [(name, call.args[1]) for name, _, call in found if ast.unparse(call.func) == "QToolTip.showText"]
    assert len(tooltips) > 25
    assert [f"{name}:{text.lineno}" for name, text in tooltips if not is_ours(text)] == []
    made = {(name, called) for name, called, _ in found if called in ("QLabel", "QMessageBox")}
    # Monitor's has a format of its own, and its text is in `RICH`.
    assert made == {("app/gui/widgets/dialogs.py", "QMessageBox"), ("app/gui/monitor/details.py", "QLabel")}
    static = [f"QMessageBox.{name}" for name in ("question", "warning", "information", "critical", "about")]
    assert [name for name, _, call in found if ast.unparse(call.func) in static] == []
    ways = ("setHtml", "insertHtml", "appendHtml", "setMarkdown", "show_html")
    rich = {name for name, called, _ in found if called in ways}
    rich |= {name for name, called, call in found if called == "setTextFormat" and "RichText" in ast.unparse(call)}
    assert rich == RICH.keys()
