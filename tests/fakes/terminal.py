"""A terminal: the lines that it shows of what was written to it."""

import re
from typing import TextIO

import pytest

_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|(\r)|(\n)")


def use_terminal(monkeypatch: pytest.MonkeyPatch, stream: TextIO, columns: int) -> None:
    """Let a stream be taken for a terminal without colours of this width."""
    monkeypatch.setattr(stream, "isatty", lambda: True)
    for name, value in (("TERM", "xterm"), ("COLUMNS", str(columns)), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)


def screen(written: str) -> list[str]:
    """Return the lines that a terminal shows; raises `AssertionError` for a sequence that it does not know."""
    lines, row, column, at = [""], 0, 0, 0
    for found in [*_CONTROL.finditer(written), None]:
        text = written[at : found.start() if found else None]
        lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
        column += len(text)
        if found is None:
            break
        at = found.end()
        number, letter, carriage_return, newline = found.groups()
        if carriage_return:
            column = 0
        elif newline:
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif letter == "A":
            row = max(0, row - int(number or 1))
        elif letter == "K":
            lines[row] = "" if number == "2" else lines[row][:column]
        else:
            assert letter in "mhl", found.group()
    return [line.rstrip() for line in "\n".join(lines).rstrip().split("\n")]
