"""What the command line prints: aligned tables, strict JSON, progress where somebody looks."""

import json
import sys

import pytest

from app.cli.terminal import ProgressSink, StatusLine, print_json, print_table, print_text
from app.records import Outcome, RunEnded, RunEvent, RunStarted, Summary, Waiting
from tests.fakes.runs import SPEC
from workloads.protocol import Block, PhaseStarted, Progress

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


WIDE = [("a variant with a long name", "1,000", "12.5 ms"), ("another", "2", "0.3 ms")]


def test_what_a_terminal_has_no_room_for_stands_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "27")
    print_table(("name", "value", "step"), WIDE, right=frozenset({1, 2}))
    assert capsys.readouterr().out.splitlines() == [
        *("name         value     step", "a variant    1,000  12.5 ms"),
        *("  with a", "  long name", "another          2   0.3 ms"),
    ]
    monkeypatch.setenv("COLUMNS", "18")
    print_table(("name", "value", "step"), WIDE[1:], right=frozenset({1, 2}))
    assert capsys.readouterr().out.splitlines() == [
        *("name     value", "another      2", ""),
        *("name       step", "another  0.3 ms"),
    ]
    monkeypatch.setenv("COLUMNS", "44")
    print_table(("name", "value", "step"), WIDE, right=frozenset({1, 2}))
    assert capsys.readouterr().out.splitlines()[1] == "a variant with a long name  1,000  12.5 ms"


def test_long_heads_of_numbers_are_broken_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    table = ("Batch size", "1 GPU NHWC: images/s", "gain"), [("128", "31,510", "+4.7 %"), ("256", "35,526", "+7.8 %")]
    monkeypatch.setenv("COLUMNS", "32")
    print_table(*table, right=frozenset({0, 1, 2}))
    assert capsys.readouterr().out.splitlines() == [
        *("               1 GPU", "               NHWC:", "Batch size  images/s    gain"),
        *("       128    31,510  +4.7 %", "       256    35,526  +7.8 %"),
    ]
    monkeypatch.setenv("COLUMNS", "40")
    print_table(*table, right=frozenset({0, 1, 2}))
    assert capsys.readouterr().out.splitlines()[0] == "Batch size  1 GPU NHWC: images/s    gain"


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


def test_progress_is_a_line_a_phase_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ProgressSink("[1/2] ")
    for event in EVENTS:
        sink.handle(event)
    out, err = capsys.readouterr()
    assert out == ""
    first, second, third, fourth = err.splitlines()
    assert first == "[1/2] Another run uses this device."
    assert second.startswith("[1/2] run 7: cnn10 Native NCHW")
    assert (third, fourth) == ("[1/2] measure", "[1/2] completed"), "of several runs the other phases are left out"


def test_progress_is_painted_over_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    sink = ProgressSink()
    for event in EVENTS:
        sink.handle(event)
    err = capsys.readouterr().err
    assert "\r\x1b[Kmeasure" in err
    assert err.endswith("\r\x1b[K"), "the last painting is taken away"


def test_several_runs_share_one_line_and_what_is_said_stands_above_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    line = StatusLine()
    one, other = ProgressSink("[1/2] ", line), ProgressSink("[2/2] ", line)
    one.handle(PhaseStarted(phase="import", t_ns=1))
    other.handle(PhaseStarted(phase="build", t_ns=2))
    line.say("Something else.")
    one.handle(EVENTS[-1])
    both, clear = "[1/2] import  │  [2/2] build ", "\r\x1b[K"
    painted = capsys.readouterr().err.split(clear)[1:]
    rest = "[2/2] build    "
    assert painted == ["[1/2] import   ", both, "Something else.\n", both, rest, "[1/2] completed\n", rest]
    assert all(len(text) < 30 for text in painted), "a line that wraps cannot be painted over"
