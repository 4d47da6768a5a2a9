"""What a command opens."""

from pathlib import Path

import pytest

from app.cli.main import main


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["show", "1"],
        ["compare", "1", "2"],
        ["export", "1", "--format", "csv"],
        ["queue"],
        ["reference"],
        ["experiment", "--preset", "quick", "--show"],
    ],
)
def test_a_database_that_is_not_there_is_not_made_by_reading(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mistyped = tmp_path / "profils.db"
    assert main([*words, "--db", str(mistyped)], {}) == 1
    assert capsys.readouterr().err.startswith(f"There is no database {mistyped}: ")
    assert not mistyped.exists()
