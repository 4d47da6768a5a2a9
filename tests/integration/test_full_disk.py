"""A disk with little room, foreseen: a warning before a run, a refusal where nothing can be stored."""

from pathlib import Path

import pytest

from app.cli.services import run_services
from tests.fakes.sessions import dummy, run_through, services, started_feed


def with_free(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free_bytes}))


def test_next_to_no_room_refuses_the_run_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 5_000_000)
    with started_feed() as feed:
        outcome, _, stored = run_through(dummy(feed.wait_inventory()), services(tmp_path, feed))
    assert outcome.name == "refused"
    assert outcome.reason == (
        f"The disk that holds {tmp_path / 'profiles.db'} has only 5 MB free; free some space, then run again."
    )
    assert stored.row.outcome == outcome, "said in the history too"


@pytest.mark.parametrize(("free_bytes", "warned"), [(150_000_000, True), (10**12, False)])
def test_the_command_line_warns_of_little_room(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free_bytes: int,
    warned: bool,
) -> None:
    with_free(monkeypatch, free_bytes)
    with run_services(tmp_path / "profiles.db"):
        err = capsys.readouterr().err
    assert ("Only 150 MB is free on the disk" in err) is warned
