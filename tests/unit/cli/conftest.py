from pathlib import Path

import pytest

from app.cli.main import main
from tests.fakes.command_line import Run


@pytest.fixture
def run(database_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, and return what it prints on stdout, or on stderr alone where it fails."""

    def command(*words: str, status: int = 0, database: Path = database_path) -> str:
        assert main([*words, "--db", str(database)]) == status
        said = capsys.readouterr()
        if status not in (1, 2):
            return said.out
        assert said.out == ""
        return said.err

    return command
