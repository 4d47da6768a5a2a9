"""What `experiment` shows while it waits, and how a wait is ended."""

import os
import pty
import sys

import pytest

from app.cli.gate import GateLine
from app.runs.gate import Held


def held(waited_s: float) -> Held:
    return Held("GPU 0 at 61 °C", waited_s, 60.0)


def test_a_wait_worth_a_word_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = GateLine()
    assert all(line(held(waited_s)) for waited_s in (0.0, 0.9))
    assert capsys.readouterr().err == ""
    assert all(line(held(waited_s)) for waited_s in (1.0, 2.0))
    line.clear()
    assert capsys.readouterr().err == "Waiting, 60 s at most: GPU 0 at 61 °C.\n"


def test_on_a_terminal_one_line_is_painted_over_and_enter_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keyboard, terminal = pty.openpty()
    with os.fdopen(keyboard, "wb", buffering=0) as keys, os.fdopen(terminal, encoding="utf-8") as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        line = GateLine()
        assert line(held(1.0))
        assert line(held(1.2))
        assert line(held(2.0))
        keys.write(b"\n")
        assert line(held(2.0)), "no terminal of this process: what is typed is for others"
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
        assert not line(held(2.0))
        assert GateLine()(held(0.0)), "the next wait is one again"
        line.clear()
    words = "\r\x1b[KWaiting: GPU 0 at 61 °C ({} of 60 s; Enter goes on)"
    assert capsys.readouterr().err == words.format(1) + words.format(2) + "\r\x1b[K"
