"""A worker stands by where the user says so, and nowhere else."""

import pytest

from app.runs.standby_setting import VARIABLE, wanted


@pytest.mark.parametrize(
    ("chosen", "expected"), [("on", True), (" ON ", True), ("off", False), ("", False), ("1", False)]
)
def test_it_is_had_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, chosen: str, expected: bool) -> None:
    monkeypatch.setenv(VARIABLE, chosen)
    assert wanted() is expected


def test_it_is_off_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not wanted()
