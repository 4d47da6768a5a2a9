"""Numbers read alike in a terminal and in reports."""

import re
import sys
from pathlib import Path

import pytest

from app.cli.main import main
from tests.fakes.terminal import use_terminal
from tests.number_style import faults

STYLE = re.compile("<style>.*?</style>", re.DOTALL)
LSTM = ("--tag", "reference", "--workload", "lstm")
COMMANDS = (
    ("list",),
    ("show", "1"),
    ("show", "100"),
    ("compare", "--diff", "1", "2"),
    ("compare", "--tag", "reference", "--workload", "cnn10", "--margin", "2%"),
    ("reference",),
)


def test_numbers_read_alike_in_a_terminal_and_in_reports(
    reference_database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_terminal(monkeypatch, sys.stdout, 1_000)
    found = {}
    for words in COMMANDS:
        assert main([*words, "--db", str(reference_database)]) == 0
        found[words] = faults(capsys.readouterr().out.splitlines())
    for name, more in (("report.md", ("--why",)), ("report.html", ())):
        file = tmp_path / name
        assert main(["compare", *LSTM, *more, "--report", str(file), "--db", str(reference_database)]) == 0
        text = capsys.readouterr().out + STYLE.sub("", file.read_text(encoding="utf-8"))
        found[name,] = faults(text.splitlines())
    assert found == {words: [] for words in found}
