"""Waits and notifications on the terminal."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.main import main
from app.cli.progress import ProgressSink, WaitLine, notify, run_with_notification
from app.runs.experiment.idle_wait import WaitStatus
from app.values.events import Outcome, RunEvent
from app.values.samples import DeviceLost, TelemetryGap
from tests.fakes.terminal import screen, use_terminal
from tests.unit.viewmodels.events import GPU_INVENTORY, ended, ns, samples, started


def held(waited_s: float) -> WaitStatus:
    return WaitStatus("GPU 0 at 61\xa0°C", waited_s, 60.0)


def test_a_wait_worth_a_word_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = WaitLine()
    assert all(line(held(waited_s)) for waited_s in (0.0, 0.9))
    assert capsys.readouterr().err == ""
    assert all(line(held(waited_s)) for waited_s in (1.0, 2.0))
    line.clear()
    assert capsys.readouterr().err == "Waiting, 60\xa0s at most: GPU 0 at 61\xa0°C.\n"


@pytest.fixture
def both_ends() -> tuple[int, int]:
    """A terminal: the side of the keyboard and the screen, and that of the program."""
    try:
        return os.openpty()
    except OSError as error:
        pytest.skip(f"there are no terminals here, as without /dev/pts ({error})")


def test_on_a_terminal_one_line_is_painted_over_and_enter_ends_the_wait(
    both_ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keyboard, terminal = both_ends
    with os.fdopen(keyboard, "wb", buffering=0) as keys, os.fdopen(terminal, encoding="utf-8") as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        use_terminal(monkeypatch, sys.stderr, 100)
        line = WaitLine()
        words = "Waiting: GPU 0 at 61\xa0°C ({} of 60\xa0s; Enter skips the wait)"
        assert line(held(1.0))
        assert line(held(1.2))
        written = capsys.readouterr().err
        assert screen(written)[-1].startswith(words.format(1))
        assert line(held(2.0))
        written += capsys.readouterr().err
        assert screen(written)[-1].startswith(words.format(2))
        keys.write(b"\n")
        assert line(held(2.0)), "no terminal of this process: what is typed is for others"
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
        assert not line(held(2.0))
        assert WaitLine()(held(0.0)), "the next wait is one again"
        line.clear()
    assert screen(written + capsys.readouterr().err) == [""]


def test_a_device_that_is_lost_and_answers_again_is_said_at_once_and_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = ProgressSink("[1/6] ")
    sink.handle(started(GPU_INVENTORY))
    events: list[RunEvent] = [
        DeviceLost(t_ns=ns(1), device="GPU-1", reason="NVIDIA H200 stopped answering (GPU is lost)."),
        *samples(2, 3),
        TelemetryGap(t_ns=ns(3), reason="The telemetry process ended."),
        ended(Outcome(name="completed")),
    ]
    for event in events:
        sink.handle(event)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "[1/6] GPU 1 is lost: NVIDIA H200 stopped answering (GPU is lost).",
        "[1/6] GPU 1 answers again.",
        "[1/6] The telemetry process ended.",
        "[1/6] 1,000\u00a0images/s, completed, GPU 1 was lost",
    ]


Sender = Callable[[int], Path]


@pytest.fixture
def sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sender:
    """Puts a `notify-send` on the PATH that writes its words down, a line each, and ends with this status."""

    def make(status: int) -> Path:
        sent, program = tmp_path / "sent", tmp_path / "notify-send"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {sent}\nexit {status}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        return sent

    return make


def test_an_experiment_notifies_on_request(
    sender: Sender, database_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = sender(0)
    words = ["experiment", "--preset", "quick", "--show", "--db", str(database_path)]
    assert main(words) == 1, "nothing is stored"
    assert not sent.exists()
    assert main([*words, "--notify"]) == 1
    name, end, title, text = sent.read_text().splitlines()
    assert (name, end, title) == ("--app-name=VariantScope", "--", "Experiment “Quick comparison” has ended")
    assert re.fullmatch(r"It ended early, after \d:\d\d\.", text)
    assert "Notified through notify-send." in capsys.readouterr().err


def test_wrong_use_ends_nothing_that_one_could_be_told_of(sender: Sender, database_path: Path) -> None:
    sent = sender(0)
    assert main(["experiment", "--preset", "quick", "--queue", "--notify", "--db", str(database_path)]) == 2
    assert not sent.exists()


@pytest.mark.parametrize(
    ("status", "text"), [(0, "Every planned run has a result"), (1, "Not every planned run has a result")]
)
def test_the_status_becomes_words(sender: Sender, status: int, text: str) -> None:
    sent = sender(0)
    assert run_with_notification("Experiment lstm has ended", lambda: status) == status
    title, words = sent.read_text().splitlines()[2:]
    assert title == "Experiment lstm has ended"
    assert re.fullmatch(rf"{text}, after \d:\d\d\.", words)


def test_without_a_desktop_the_terminal_rings(
    both_ends: tuple[int, int], sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender(1)
    ours, theirs = both_ends
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert notify("a title", "words") == "Rang the terminal's bell: notify-send reached no desktop."
        terminal.flush()
        assert os.read(ours, 10) == b"\a"
    os.close(ours)


def test_without_either_nobody_is_notified_which_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        words = "Nobody was notified: notify-send is not installed, and there is no terminal to ring."
        assert notify("a title", "words") == words
    assert (tmp_path / "log").read_text() == ""
