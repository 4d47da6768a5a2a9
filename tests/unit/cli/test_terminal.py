"""Output of the command line: aligned tables, strict JSON, and progress on a terminal."""

import json
import os
import re
import sys

import pytest

from app.cli import progress
from app.cli.progress import ProgressSink, StatusLines
from app.cli.terminal import MessageStream, print_json, print_table, print_text
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.values.samples import Waiting
from tests.fakes.runs import SPEC
from tests.fakes.terminal import screen, use_terminal
from workloads.protocol import Block, PhaseStarted, Progress

_STYLE = re.compile(r"\x1b\[[\d;]*m")
STARTED = RunStarted(run=7, spec=SPEC, t_ns=1, utc_ns=1, devices=())
BLOCK = Block(phase="measure", first_step=0, steps=1, examples=500, start_ns=0, end_ns=500_000_000)
EVENTS: tuple[RunEvent, ...] = (
    Waiting(1, "Another run uses this device."),
    STARTED,
    PhaseStarted(phase="measure", t_ns=2),
    BLOCK,
    Progress(phase="measure", fraction=0.25, t_ns=3),
    RunEnded(run=7, t_ns=4, outcome=Outcome(name="completed"), summary=Summary()),
)


def test_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "Zürich", "value": 1.5}, compact=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"name": "Zürich", "value": 1.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"value": float("nan")})


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "value"), [("a", "1"), ("longer", "1,000")], right=frozenset({1}))
    assert capsys.readouterr().out == "name    value\na           1\nlonger  1,000\n"
    print_table(("", ""), [("a", "b")])
    assert capsys.readouterr().out == "a  b\n", "no empty header"


WIDE = [("a variant with a long name", "1,000", "12.5\xa0ms"), ("another", "2", "0.3\xa0ms")]


def test_what_a_terminal_has_no_room_for_stands_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_terminal(monkeypatch, sys.stdout, 27)
    print_table(("name", "value", "step"), WIDE, right=frozenset({1, 2}))
    assert capsys.readouterr().out.splitlines() == [
        *("name         value     step", "a variant    1,000  12.5\xa0ms"),
        *("with a long", "name", "another          2   0.3\xa0ms"),
    ]
    monkeypatch.setenv("COLUMNS", "18")
    print_table(("name", "value", "step"), WIDE[1:], right=frozenset({1, 2}))
    assert capsys.readouterr().out.splitlines() == [
        *("name     value", "another      2", ""),
        *("name       step", "another  0.3\xa0ms"),
    ]
    monkeypatch.setenv("COLUMNS", "44")
    print_table(("name", "value", "step"), WIDE, right=frozenset({1, 2}))
    assert capsys.readouterr().out.splitlines()[1] == "a variant with a long name  1,000  12.5\xa0ms"


def test_a_number_in_a_head_keeps_its_unit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use_terminal(monkeypatch, sys.stdout, 12)
    print_table(("name", "95\xa0% CI"), [("a", "1")], right=frozenset({1}))
    assert capsys.readouterr().out.splitlines() == ["        95\xa0%", "name      CI", "a          1"]


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100])
def test_no_column_is_lost_and_no_number_broken_on_any_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    heads = ("variant", *(f"figure {n} of\xa0all" for n in range(8)))
    use_terminal(monkeypatch, sys.stdout, columns)
    monkeypatch.delenv("NO_COLOR")
    print_table(heads, [("one of several", *(f"{n}23,456,789" for n in range(8)))], right=frozenset(range(1, 9)))
    styled = capsys.readouterr().out
    out = _STYLE.sub("", styled)
    assert out != styled, "heads are bold, and the style reaches to the end of the line"
    assert all(f"{n}23,456,789" in out for n in range(8))
    assert out.count("figure") == 8
    assert max(map(len, out.splitlines())) <= columns


@pytest.mark.parametrize(
    ("columns", "heads"), [(42, "name value step"), (41, "name value"), (33, "name value"), (32, "name")]
)
def test_what_can_be_spared_gives_way_before_anything_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, heads: str
) -> None:
    use_terminal(monkeypatch, sys.stdout, columns)
    print_table(("name", "value", "step"), WIDE, right=frozenset({1, 2}), spare=("step", "value"))
    head, *lines = capsys.readouterr().out.splitlines()
    assert (head.split(), len(lines)) == (heads.split(), 2)


def test_where_results_go_elsewhere_nothing_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table(("name", "value", "step"), WIDE)
    print_text("One sentence. And another one.")
    out = capsys.readouterr().out
    assert "a variant with a long name  1,000" in out
    assert out.endswith("One sentence. And another one.\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_text("One sentence. And another one.")
    assert capsys.readouterr().out == "One sentence. And\nanother one.\n"


def test_progress_is_a_line_per_phase_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ProgressSink("[1/2] ")
    for event in EVENTS:
        sink.handle(event)
    out, err = capsys.readouterr()
    assert out == ""
    first, second, third, fourth = err.splitlines()
    assert first == "[1/2] Another run uses this device."
    assert second.startswith("[1/2] run 7: cnn10 TensorFlow Native NCHW")
    assert (third, fourth) == ("[1/2] measure", "[1/2] completed"), "of several runs the other phases are left out"


def test_progress_is_painted_over_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_terminal(monkeypatch, sys.stderr, 80)
    sink = ProgressSink()
    for event in EVENTS[:-1]:
        sink.handle(event)
    painted = capsys.readouterr().err
    above, below = screen(painted)[-2:]
    assert above.startswith("run 7: cnn10 TensorFlow Native NCHW")
    assert below.split()[0] == "measure"
    sink.handle(EVENTS[-1])
    assert screen(painted + capsys.readouterr().err)[-1] == above, "the last painting is taken away"
    assert "\x1b[?25" not in painted, "the cursor stays, for a program that is killed cannot bring it back"


def test_a_bar_shows_how_far_the_phase_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use_terminal(monkeypatch, sys.stderr, 80)
    monkeypatch.setattr(progress, "_REPAINT_S", 0.0)
    sink = ProgressSink("[1/2] ")
    for event in EVENTS[1:5]:
        sink.handle(event)
    (line,) = (line for line in screen(capsys.readouterr().err) if "measure" in line)
    assert line == f"[1/2] measure {'━' * 5}{' ' * 15}  25\xa0%  1,000\xa0images/s"


def test_several_runs_have_a_line_each_and_what_is_said_stands_above_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_terminal(monkeypatch, sys.stderr, 30)
    line = StatusLines()
    one, other = ProgressSink("[1/2] ", line), ProgressSink("[2/2] ", line)
    one.handle(PhaseStarted(phase="import", t_ns=1))
    other.handle(PhaseStarted(phase="build", t_ns=2))
    line.say("Something else.")
    written = capsys.readouterr().err
    assert [shown.split("  ")[0][:14].rstrip(" ━") for shown in screen(written)] == [
        "Something else"[:14],
        "[1/2] import",
        "[2/2] build",
    ]
    assert all(len(shown) <= 30 for shown in screen(written)), "a line that wraps cannot be painted over"
    one.handle(EVENTS[-1])
    written += capsys.readouterr().err
    shown = screen(written)
    assert (shown[:2], shown[2][:11], len(shown)) == (["Something else.", "[1/2] completed"], "[2/2] build", 3)
    other.handle(EVENTS[-1])
    assert screen(written + capsys.readouterr().err) == ["Something else.", "[1/2] completed", "[2/2] completed"]


def test_a_terminal_that_can_only_append_gets_a_line_per_phase(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    ProgressSink().handle(PhaseStarted(phase="import", t_ns=1))
    assert capsys.readouterr().err == "import\n"


def test_a_table_on_a_terminal_has_a_bold_header_unless_the_user_wants_no_styles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "44")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_table(("name", "match"), [("a", "✔"), ("b", "[bold]")])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.startswith("\x1b[1mname")
    assert "\x1b[32m✔" in first
    assert second.rstrip() == "b     [bold]"
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("name", "match"), [("a", "✔")])
    assert capsys.readouterr().out == "name  match\na     ✔\n"


def test_messages_that_nobody_can_read_are_dropped_and_end_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1, encoding="utf-8") as unread:
        MessageStream(unread).writelines(["warm-up\n", "measure\n"])
        MessageStream(unread).flush()
