"""What a command opens."""

from pathlib import Path

import pytest

from app.cli.main import main


@pytest.mark.parametrize("words", [["list"], ["show", "1"], ["compare", "1", "2"], ["reference"]])
def test_a_database_that_is_not_there_is_not_made_by_reading(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mistyped = tmp_path / "profils.db"
    assert main([*words, "--db", str(mistyped)], {}) == 1
    assert f"There is no database {mistyped}" in capsys.readouterr().err
    assert not mistyped.exists()
